"""Copy the result tables into the README, between the markers that name them.

python scripts/include_results.py [--check]

A block begins with `<!-- begin docs/results/NAME.md -->` and ends with
`<!-- end docs/results/NAME.md -->`; what stands between is replaced.
"""

import argparse
import re
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
BLOCK = re.compile(
    r"(<!-- begin (?P<path>docs/results/[\w.-]+\.md) -->\n).*?(<!-- end (?P=path) -->)", re.DOTALL
)


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--check", action="store_true", help="change nothing; exit 1 if the README is stale")
    args = parser.parse_args(argv)
    readme = ROOT / "README.md"
    before = readme.read_text(encoding="utf-8")
    after = with_results(before)
    if args.check:
        if before != after:
            print("README.md is stale: run python scripts/include_results.py", file=sys.stderr)
        return int(before != after)
    readme.write_text(after, encoding="utf-8")
    return 0


def with_results(text: str) -> str:
    """`text` with every block holding its file as it is now."""
    return BLOCK.sub(lambda m: m[1] + table_of(ROOT / m["path"]) + m[3], text)


def table_of(path: Path) -> str:
    """The file without its title, which the README gives its own."""
    lines = path.read_text(encoding="utf-8").splitlines()
    body = lines[1:] if lines and lines[0].startswith("# ") else lines
    return "\n".join(body).strip() + "\n"


if __name__ == "__main__":
    sys.exit(main())
