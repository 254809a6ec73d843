"""Make the table of chat lengths that ships with the package.

    python scripts/make_chat_lengths.py AzureLLMInferenceTrace_conv.csv

The same trace gives the same bytes.  The table holds order statistics alone, so no
rounding of the machine can move it.
"""

import argparse
import hashlib
import json
import sys
from pathlib import Path

from pacer_gym.workloads.lengths import CHAT_TABLE, LengthTable
from pacer_gym.workloads.traces import TRACES
from pacer_gym.workloads.workload import Workload

SHIPPED = Path(__file__).parents[1] / "pacer_gym" / "workloads" / "data" / CHAT_TABLE


def render(trace_path: Path) -> str:
    """Read the trace and return the table's JSON, one row of quantiles a line."""
    source = TRACES["azure-conv"]
    digest = hashlib.sha256(trace_path.read_bytes()).hexdigest()
    if digest != source.sha256:
        raise SystemExit(f"{trace_path} is not the published trace: sha256 {digest}, not {source.sha256}")
    trace = Workload.from_csv(trace_path)
    table = LengthTable.from_requests(trace.prompt_tokens, trace.output_tokens)
    head = {
        "attribution": "Azure Public Dataset, Microsoft; Patel et al., Splitwise, ISCA 2024",
        "changes": "joint quantiles of ContextTokens and GeneratedTokens; single requests and times left out",
        "command": f"python scripts/make_chat_lengths.py {source.file_name}",
        "licence": "CC-BY 4.0",
        "requests": len(trace),
        "source": source.url,
        "source_sha256": source.sha256,
    }
    rows = ",\n  ".join(json.dumps(row) for row in table.output_tokens.tolist())
    return (
        json.dumps(head, indent=1)[:-2]
        + f',\n "prompt_tokens": {json.dumps(table.prompt_tokens.tolist())}'
        + f',\n "output_tokens": [\n  {rows}\n ]\n}}\n'
    )


def main(argv: list[str] | None = None) -> int:
    """Write the table."""
    parser = argparse.ArgumentParser(
        description="Make the table of chat lengths that ships with the package."
    )
    parser.add_argument("trace", type=Path, help="AzureLLMInferenceTrace_conv.csv")
    parser.add_argument(
        "--out", type=Path, default=SHIPPED, help="where to write (default: the package's table)"
    )
    args = parser.parse_args(argv)
    args.out.write_text(render(args.trace), encoding="utf-8", newline="\n")
    print(f"wrote {args.out}, {args.out.stat().st_size:,} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
