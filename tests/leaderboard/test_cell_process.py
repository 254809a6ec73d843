"""A policy that misbehaves costs its own cell one clear line, and nobody else's anything."""

import hashlib
import os
import sys
from dataclasses import replace

import pytest

from pacer_gym.leaderboard.batch import Batch, Limits, WorkerError
from pacer_gym.leaderboard.cell_process import CellProcess, wait_for
from pacer_gym.leaderboard.cells import run_cell
from pacer_gym.policy import load_policy
from tests.leaderboard.tiny import short, source_of

RATE_RPS, GOOD_SEED, BAD_SEED = 3.0, 1, 2
HOW = replace(short("poisson-standard"), horizon_s=40.0)
LIMITS = Limits(cpu_s=2.0, first_cpu_s=300.0, memory_bytes=1 << 30)  # the first step may compile the engine


@pytest.fixture(scope="module")
def process():
    """One worker for all tests: whatever was done to it, the next batch finds it well."""
    kept = CellProcess()
    yield kept
    kept.stop()


def finish(process):
    """Outcomes of the batch that is under way."""
    outcomes = []
    while process.is_busy:
        for _, finished in wait_for([process]):
            outcomes += finished
    return outcomes


def run_all(process, path, *, cells=((RATE_RPS, GOOD_SEED),) * 2, limits=LIMITS, **changes):
    """Outcomes by position, of a policy of which the second cell is as good as the first."""
    told = {
        "path": str(path), "class": "Bad", "source_sha256": hashlib.sha256(path.read_bytes()).hexdigest(),
        "weights": [], "files": None,
    }  # fmt: skip
    batch = Batch(
        policy=told | changes,
        settings={},
        scenario="poisson-standard",
        track="cpu",
        how=HOW,
        cells=cells,
        limits=limits,
    )
    process.start(batch)
    outcomes = finish(process)
    assert sorted(outcome.position for outcome in outcomes) == list(range(len(cells)))
    return sorted(outcomes, key=lambda outcome: outcome.position)


IS_OPEN = """
def is_open(fd):
    try:
        return os.write(fd, b"") == 0
    except OSError:
        return False
"""


LEAK_FILES = """
import resource
KEPT = []


def leak():
    try:
        while True:
            KEPT.append(open(os.devnull))
    except OSError:
        pass
"""


def policy_file(tmp_path, *decide, before=""):
    path = tmp_path / "bad.py"
    path.write_text(source_of(decide, before=before), encoding="utf-8")
    return path


def test_a_good_policy_gets_the_metrics_of_a_run_in_this_process(process, tmp_path):
    path = policy_file(tmp_path, "print('chatter', flush=True); os.read(0, 9)")
    outcomes = run_all(process, path, cells=((RATE_RPS, 1), (RATE_RPS, 2)))
    for seed, outcome in zip((1, 2), outcomes, strict=True):
        assert outcome.failed is None
        expected = run_cell(load_policy(path), "poisson-standard", RATE_RPS, seed, HOW)
        assert outcome.metrics == expected


# What goes wrong goes wrong past the 40th step: the cell was begun, and ran for a while.
@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("if self.steps > 40: raise ValueError('a bug\\nof mine')", "ValueError: a bug of mine"),
        ("if self.steps > 40: return None", "DecisionError: a decision must be"),
        ("if self.steps > 40: return StepDecision(-5)", "DecisionError: prefill_tokens must be between"),
        ("if self.steps > 40: sys.exit(0)", "SystemExit: 0"),
        ("if self.steps > 40: raise KeyboardInterrupt", "KeyboardInterrupt"),
        ("if self.steps > 40: os._exit(7)", "the process ended itself with status 7"),
        ("if self.steps > 40: os.kill(os.getpid(), signal.SIGSEGV)", "the process was ended by SIGSEGV"),
        ("if self.steps > 40: os.fork()", "PermissionError: a policy may start no process"),
        ("if self.steps > 40: np.ones(1 << 28)", "MemoryError"),
        ("if self.steps > 40: self.kept = [bytes(1 << 24) for _ in range(100)]", "MemoryError"),
    ],
)
def test_a_policy_that_goes_wrong_fails_with_one_clear_line(process, tmp_path, line, told):
    (outcome,) = run_all(process, policy_file(tmp_path, line), cells=((RATE_RPS, 1),))
    assert outcome.metrics is None
    assert told in outcome.failed
    assert "\n" not in outcome.failed


@pytest.mark.slow
@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("while self.steps > 300: pass", "256 steps took more than 2 s of processor time"),
        ("while self.steps > 300: time.sleep(1)", "nothing was heard of it for 20 s"),
    ],
)
def test_a_policy_that_never_comes_back_is_ended(process, tmp_path, line, told):
    limits = replace(LIMITS, wall_s=20.0)
    (outcome,) = run_all(process, policy_file(tmp_path, line), cells=((RATE_RPS, 1),), limits=limits)
    assert told in outcome.failed


def test_the_other_cells_of_a_batch_go_on(process, tmp_path):
    path = policy_file(tmp_path, "if len(view.prompt_ids) > 4: os._exit(1)")
    outcomes = run_all(process, path, cells=((0.5, 1), (30.0, 1), (0.5, 1)))
    assert [outcome.failed is None for outcome in outcomes] == [True, False, True]
    assert outcomes[0].metrics == outcomes[2].metrics


def test_what_a_policy_leaks_from_cell_to_cell_costs_none_of_them(process, tmp_path):
    path = policy_file(tmp_path, "if self.steps == 1: LEAK.append(bytes(1 << 28))", before="LEAK = []")
    outcomes = run_all(process, path, cells=((0.5, 1),) * 6)
    assert [outcome.failed for outcome in outcomes] == [None] * 6


@pytest.mark.skipif(os.name != "posix", reason="needs limits")
@pytest.mark.parametrize(
    "line",
    [
        "if self.steps == 41: resource.setrlimit(resource.RLIMIT_NOFILE, (0, 0))",
        "if self.steps == 41: resource.setrlimit(resource.RLIMIT_NOFILE, (20, 20)); leak()",
    ],
)
def test_a_policy_that_uses_up_files_costs_neither_the_next_cell_nor_the_next_batch(process, tmp_path, line):
    path = policy_file(tmp_path, line, before=LEAK_FILES)
    for _ in range(2):
        outcomes = run_all(process, path, cells=((0.5, 1), (0.5, 2)))
        assert [outcome.failed for outcome in outcomes] == [None, None]


@pytest.mark.skipif(sys.platform != "linux", reason="needs a C library of that name")
def test_a_copy_that_answers_once_more_costs_nobody_anything(process, tmp_path):
    line = "if self.steps == 41: ctypes.CDLL(None).fork()"
    path = policy_file(tmp_path, line, before="import ctypes")
    outcomes = run_all(process, path, cells=((0.5, 1), (0.5, 2)))
    assert [outcome.failed for outcome in outcomes] == [None, None]
    good = run_all(process, policy_file(tmp_path), cells=((0.5, 1), (0.5, 2)))
    assert [outcome.metrics for outcome in outcomes] == [outcome.metrics for outcome in good]


def test_a_policy_that_finds_the_pipe_only_spoils_its_own_cell(process, tmp_path):
    line = "if self.steps == 41: [os.write(fd, b'x\\n') for fd in range(3, 9) if is_open(fd)]"
    path = policy_file(tmp_path, line, before=IS_OPEN)
    (outcome,) = run_all(process, path, cells=((RATE_RPS, 1),))
    assert outcome.failed == "its process wrote what only the worker may"


def test_a_policy_that_is_edited_meanwhile_is_not_run(process, tmp_path):
    with pytest.raises(WorkerError, match=r"bad\.py was changed while it was being scored; score it again"):
        run_all(process, policy_file(tmp_path), cells=((RATE_RPS, 1),), source_sha256="0" * 64)
    process.stop()


class OfAnotherVersion(Batch):
    """What a release sends that is not the worker's."""

    def to_json(self):
        return super().to_json().replace('"version": "', '"version": "9.')


def test_another_version_elsewhere_is_no_fault_of_the_policy():
    stranger = CellProcess()
    try:
        stranger.start(
            OfAnotherVersion(
                policy={}, settings={}, scenario="tiers", track="cpu", how=HOW, cells=((1.0, 1),)
            )
        )
        with pytest.raises(WorkerError, match="install the same everywhere"):
            finish(stranger)
    finally:
        stranger.stop()


def test_limits_refuse_nonsense():
    with pytest.raises(ValueError, match="wall_s must be above 0"):
        Limits(wall_s=0.0)


@pytest.mark.parametrize(
    "said",
    ["1", "[1]", '{"begun": 999}', '{"done": 1}', '{"metrics": 3}', '{"unusable": "\\x1b[2J"}', "[" * 9999],
)
def test_what_the_worker_would_not_say_next_is_not_believed(process, tmp_path, said):
    write = f"os.write(fd, {said!r}.encode() + b'\\n')"
    line = f"if self.steps == 41: [{write} for fd in range(3, 20) if is_open(fd)]"
    (outcome,) = run_all(process, policy_file(tmp_path, line, before=IS_OPEN), cells=((RATE_RPS, 1),))
    assert outcome.failed == "its process wrote what only the worker may"
