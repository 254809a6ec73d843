"""Copy the result tables into the README, between the markers that name them.

python scripts/include_results.py [--check]

A block begins with `<!-- begin docs/results/NAME.md -->`, or `NAME.md#SECTION`, and ends with
the same after `end`; what stands between is replaced by the first table of the file or section.
"""

import argparse
import re
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
BLOCK = re.compile(
    r"(<!-- begin (?P<path>docs/results/[\w.-]+\.md)(?P<section>#[\w-]+)? -->\n)"
    r".*?(<!-- end (?P=path)(?P=section)? -->)",
    re.DOTALL,
)
TABLE = re.compile(r"(?:^\|.*\n)+", re.MULTILINE)


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
    """`text` with every block holding its table as it is now."""
    return BLOCK.sub(lambda m: m[1] + first_table(ROOT / m["path"], m["section"]) + m[4], text)


def first_table(path: Path, section: str | None) -> str:
    """The first table of a results page, or of one of its sections."""
    page = path.read_text(encoding="utf-8")
    if section:
        _, found, page = page.partition(f"\n## {section[1:]}\n")
        if not found:
            raise SystemExit(f"{path.name} has no section {section[1:]!r}")
    table = TABLE.search(page)
    if table is None:
        raise SystemExit(f"{path.name} has no table")
    return "\n" + table[0] + "\n"


if __name__ == "__main__":
    sys.exit(main())
