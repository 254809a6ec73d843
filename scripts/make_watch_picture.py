"""Draw what `pacer-gym watch pacer --scenario drift-step` shows while the machine is slowed.

python scripts/make_watch_picture.py [--out docs/images/watch.svg]
"""

import argparse
import io
import sys
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from rich.console import Console

from pacer_gym.cli.watch_panel import panel
from pacer_gym.scoring.rollout import prepare
from pacer_gym.scoring.watching import RunSoFar, Watched
from pacer_gym.workloads.scenarios import TYPICAL_RPS

OUT = Path(__file__).parents[1] / "docs" / "images" / "watch.svg"
SCENARIO, UNTIL_S, COLUMNS, SPEED = "drift-step", 225.0, 100, 10.0


class Enough(Exception):
    """The run has come as far as it is to be drawn."""


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, default=OUT)
    args = parser.parse_args(argv)
    console = Console(
        record=True, width=COLUMNS, file=io.StringIO(), force_terminal=True, color_system="truecolor"
    )
    console.print(panel(run_until(UNTIL_S), width=COLUMNS, speed=SPEED))
    title = f"pacer-gym watch pacer --scenario {SCENARIO}"
    args.out.write_text(console.export_svg(title=title, unique_id="watch"), encoding="utf-8")
    print(f"{args.out}: {args.out.stat().st_size / 1e3:.0f} kB")
    return 0


def run_until(time_s: float) -> RunSoFar:
    """What is known of Pacer's run by then."""

    def look() -> None:
        if so_far.now_s >= time_s:
            raise Enough

    ready = prepare("pacer", SCENARIO, rate_rps=TYPICAL_RPS["cpu"][SCENARIO])
    so_far = RunSoFar(ready)
    with suppress(Enough):
        replace(ready, policy=Watched(ready.policy, so_far, look)).run()
    return so_far


if __name__ == "__main__":
    sys.exit(main())
