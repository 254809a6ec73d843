"""A small setting, and entries on it, so that a test scores and verifies in a moment what takes minutes."""

import os
import shutil
import subprocess
import sys
import traceback
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import NoReturn

from pacer_gym.leaderboard import score as score_room
from pacer_gym.leaderboard.score import score
from pacer_gym.leaderboard.submission import Submission, load_submission
from pacer_gym.leaderboard.suite import QUICK, Setting

ROOT = Path(__file__).parents[2]
SCENARIO = "poisson-standard"
SEEDS = (1000, 1001, 1002, 1003, 1004, 1005)


def small_setting(*scenarios: str) -> Setting:
    """The quick setting with shorter runs, coarser rates and other seeds."""
    changes = {
        "seeds": SEEDS,
        "first_seeds": len(SEEDS),
        "horizon_s": 30.0,
        "warmup_s": 0.0,
        "drain_s": 10.0,
        "tolerance": 0.3,
    }
    names = scenarios or (SCENARIO,)
    return Setting(name="quick", scenarios={n: replace(QUICK.scenarios[n], **changes) for n in names})


def make_entry(
    board: Path,
    source: str | Path,
    *,
    name: str = "mine",
    class_name: str = "Mine",
    settings: str = "{}",
    weights: Mapping[str, bytes] | None = None,
    tuned: str = "[]",
) -> Submission:
    """Write an entry with this policy, as its author would by hand."""
    folder = board / "submissions" / name
    folder.mkdir(parents=True)
    if isinstance(source, Path):
        shutil.copy(source, folder / "policy.py")
    else:
        (folder / "policy.py").write_text(source, encoding="utf-8")
    for file, content in (weights or {}).items():
        (folder / file).write_bytes(content)
    (folder / "submission.toml").write_text(
        f"""
name = "{name}"
authors = ["A. Author"]
suite = "v1"
track = "cpu"
family = "heuristic"
description = "Made for a test."

[policy]
file = "policy.py"
class = "{class_name}"
settings = {settings}
weights = {sorted(weights or {})}

[tuning]
what = {tuned}
seeds = "none"
""",
        encoding="utf-8",
    )
    return load_submission(folder)


def score_entries(board: Path, *scenarios: str) -> None:
    """Score every entry of a board as its author does: in a process of its own, which it may spoil."""
    code = "import sys; from tests.leaderboard.small_board import main; main(*sys.argv[1:])"
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", code, str(board), *scenarios]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]


def main(board: str, *scenarios: str) -> None:
    """Score the entries, each in a fork of this process, two at a time."""
    # The cost of decisions is of no interest here, so little of it is measured.
    score_room.QUICK = small_setting()
    waiting, running = sorted(Path(board, "submissions").iterdir()), 0
    while waiting or running:
        if waiting and running < 2:
            running += 1
            if os.fork() == 0:
                _score_one(waiting[-1], Path(board, "cells"), small_setting(*scenarios))
            waiting.pop()
            continue
        _, status = os.wait()
        running -= 1
        assert status == 0, "an entry could not be scored"


def _score_one(folder: Path, store: Path, setting: Setting) -> NoReturn:
    status = 1
    try:
        found = score(load_submission(folder), setting=setting, store=store / folder.name, n_jobs=1)
        (folder / "results.json").write_text(found.to_json(), encoding="utf-8")
        status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(status)
