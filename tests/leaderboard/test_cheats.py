"""Every cheat that anybody thought of, through the real `score` and the real `verify`.

Each is a policy that does well where its trick works and badly elsewhere.  `score` runs it in its
author's process, where the trick works; `verify` must refuse what comes of it.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from pacer_gym.leaderboard.entry_folder import SubmissionError
from pacer_gym.leaderboard.lockdown import missing_fences
from pacer_gym.leaderboard.submission import find_submission
from pacer_gym.leaderboard.verdict import Verdict
from pacer_gym.leaderboard.verify import verify
from tests.leaderboard.small_board import ROOT, make_entry, score_entries, small_setting

pytestmark = pytest.mark.skipif("process" in missing_fences(), reason="no process to isolate a policy in")

# Serves well with a large budget if `knows` says so, and hardly anybody otherwise.
CHEAT = '''
"""Does well where it can cheat."""

{imports}
import numpy as np

from pacer_gym.engine.view import StepDecision

{at_import}


class Mine:
    def reset(self, spec, rng):
        self.spec, self.rng, self.told = spec, rng, None
        self.seen = {{}}

    def decide(self, view):
        if self.told is None:
            self.told = self.knows(view)
        return StepDecision(256 if self.told else 1)

    def observe(self, outcome):
        pass

    def knows(self, view):
{knows}
'''


def cheat(knows: str, *, imports: str = "", at_import: str = "") -> str:
    indented = "\n".join(f"        {line}" for line in knows.strip().splitlines())
    return CHEAT.format(imports=imports, at_import=at_import, knows=indented)


FRAMES = cheat(
    """
frame = sys._getframe()
while frame is not None:
    for value in frame.f_locals.values():
        if isinstance(value, Simulator):
            return value.requests()["output_tokens"].sum() > 0
    frame = frame.f_back
return False
""",
    imports="import sys\nfrom pacer_gym.engine.simulator import Simulator",
)
GC = cheat(
    "return any(isinstance(thing, Simulator) and thing.has_work for thing in gc.get_objects())",
    imports="import gc\nfrom pacer_gym.engine.simulator import Simulator",
)
# Every public seed is known, so the workload that begins like this one can be found, and what follows.
OFFICIAL = cheat(
    """
self.seen |= dict(zip(view.prompt_ids.tolist(), view.prompt_tokens.tolist()))
if not {0, 1, 2} <= self.seen.keys():
    return None
scenario = load_scenario("poisson-standard")
for seed in (1000, 1001, 1002, 1003, 1004, 1005):
    lengths = scenario.workload(rate_rps=4.0, seed=seed, horizon_s=30.0).prompt_tokens
    if lengths[:3].tolist() == [self.seen[k] for k in range(3)]:
        return True
return False
""",
    imports="from pacer_gym.workloads.scenarios import load_scenario",
)
# The generator of a run tells its seed; with that, nothing about the run is a secret.
GENERATOR = cheat(
    """
seed = self.rng.bit_generator.seed_seq.entropy
scenario = load_scenario("poisson-standard")
lengths = scenario.workload(rate_rps=4.0, seed=seed, horizon_s=30.0).prompt_tokens
return lengths[0] == view.prompt_tokens[0]
""",
    imports="from pacer_gym.workloads.scenarios import load_scenario",
)
# A home, a path, a terminal: a verifier's process has none of them.
UNDER_VERIFY = cheat('return "PATH" in os.environ', imports="import os")

METRICS = cheat(
    "return False",
    imports="import pacer_gym.leaderboard.cells as cells",
    at_import="cells.ttft_met = cells.tpot_met = lambda record: np.ones(record.num_requests, bool)",
)
SIMULATOR = cheat(
    "return False",
    imports="from pacer_gym.engine.simulator import Simulator",
    at_import="""
def generous(self, decision, step=Simulator.step):
    return step(self, StepDecision(256))

Simulator.step = generous
""",
)
NUMPY = cheat(
    "return False",
    at_import="""
def generous(array, *more, count=np.count_nonzero, **options):
    return count(array, *more, **options) if more or options else array.size

np.count_nonzero = generous
""",
)
CLOCK = cheat(
    "return False",
    imports="import pacer_gym.scoring.metrics as metrics\nimport pacer_gym.leaderboard.cells as cells",
    at_import="""
def at_once(record):
    return np.zeros(record.num_requests)

cells.ttft_s = cells.tpot_s = metrics.ttft_s = metrics.tpot_s = at_once
""",
)
WRITES = cheat(
    """
for place in (OUTSIDE, os.path.join(os.path.dirname(__file__), "inside")):
    try:
        open(place, "a").close()
    except OSError:
        pass
return True
""",
    imports="import os",
    at_import="""
OUTSIDE = os.path.join(os.path.dirname(__file__), "..", "..", "outside")
try:
    open(OUTSIDE, "a").close()
except OSError:
    pass
""",
)
WRITES_BLINDLY = cheat('open(__file__ + ".log", "w").close()\nreturn True')

CHEATS = {
    "frames": FRAMES,
    "under_verify": UNDER_VERIFY,
    "metrics": METRICS,
    "official": OFFICIAL,
    "generator": GENERATOR,
    "writes": WRITES,
    "writes_blindly": WRITES_BLINDLY,
}
# Of the same kinds as some above.
MORE_CHEATS = {"gc": GC, "simulator": SIMULATOR, "numpy": NUMPY, "clock": CLOCK}


def scored(board: Path, cheats: dict[str, str]) -> Path:
    for name, source in cheats.items():
        make_entry(board, source, name=name)
    score_entries(board)
    return board


@pytest.fixture(scope="module")
def board(tmp_path_factory) -> Path:
    return scored(tmp_path_factory.mktemp("board"), CHEATS)


@pytest.fixture(scope="module")
def more_board(tmp_path_factory) -> Path:
    return scored(tmp_path_factory.mktemp("board"), MORE_CHEATS)


def verdict_on(board: Path, name: str) -> Verdict:
    entry = find_submission(name, board)
    results = json.loads((entry.folder / "results.json").read_text())
    capacity_rps = results["scenarios"]["poisson-standard"]["capacity_rps"]
    assert capacity_rps > 1.0, "the cheat does not even work for its author"
    return verify(entry, setting=small_setting(), seed=1, cells=3, n_jobs=1)


def assert_does_not_come_out_again(verdict: Verdict) -> None:
    assert not verdict.is_verified
    assert verdict.equal < verdict.cells
    assert "but the results claim" in verdict.reasons[0]


@pytest.mark.parametrize(
    "name",
    [
        pytest.param("frames", id="walks the frames to the simulator"),
        pytest.param("under_verify", id="behaves differently under verify"),
        pytest.param("metrics", id="patches the metrics"),
    ],
)
def test_what_works_in_the_authors_process_does_not_come_out_again(board, name):
    assert_does_not_come_out_again(verdict_on(board, name))


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [
        pytest.param("gc", id="asks the garbage collector for the simulator"),
        pytest.param("simulator", id="patches the simulator"),
        pytest.param("numpy", id="patches numpy"),
        pytest.param("clock", id="patches what times are made of"),
    ],
)
def test_nor_do_other_tricks_of_that_kind(more_board, name):
    assert_does_not_come_out_again(verdict_on(more_board, name))


@pytest.mark.parametrize(
    "name",
    [
        pytest.param("official", id="recognises the official seeds by their first requests"),
        pytest.param("generator", id="reads the seed out of its generator"),
    ],
)
def test_what_works_on_known_seeds_comes_out_again_and_fails_on_new_ones(board, name):
    verdict = verdict_on(board, name)
    assert verdict.equal == verdict.cells > 0
    assert not verdict.is_verified
    assert not verdict.fresh["poisson-standard"].inside
    assert verdict.fresh["poisson-standard"].found < verdict.fresh["poisson-standard"].interval[0]


def test_nothing_is_written_outside_of_the_entry_or_inside(board):
    outside, inside = board / "outside", board / "submissions" / "writes" / "inside"
    outside.unlink()  # which scoring has written, in the author's own process
    inside.unlink()
    verdict = verdict_on(board, "writes")
    assert verdict.is_verified, verdict.reasons
    assert not outside.exists()
    assert not inside.exists()


def test_a_policy_that_needs_to_write_is_refused(board):
    # What scoring has let it write, in the author's own process, is nothing that the entry declares.
    with pytest.raises(SubmissionError, match=r"holds 'policy.py.log'"):
        verdict_on(board, "writes_blindly")
    (board / "submissions" / "writes_blindly" / "policy.py.log").unlink()
    verdict = verdict_on(board, "writes_blindly")
    assert not verdict.is_verified
    assert "PermissionError" in verdict.reasons[0]


def test_a_process_that_has_run_the_policy_does_not_judge_it(board):
    entry = find_submission("metrics", board)
    code = (
        "import sys; from pathlib import Path; from pacer_gym.leaderboard.submission import load_submission; "
        "from pacer_gym.policy import load_policy; from pacer_gym.leaderboard.verify import verify; "
        "entry = load_submission(Path(sys.argv[1])); load_policy(entry.policy_reference); verify(entry)"
    )
    command = [sys.executable, "-c", code, str(entry.folder)]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert "verify in a new process" in done.stderr
