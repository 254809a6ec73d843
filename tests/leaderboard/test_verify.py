"""`verify` believes nothing that it can compute, and refuses what does not follow."""

import hashlib
import io
import json
import random
import re
import shutil
from pathlib import Path

import numpy as np
import pytest

from pacer_gym.errors import PacerError
from pacer_gym.leaderboard.fresh import draw_seeds, judge_fresh
from pacer_gym.leaderboard.rerun import Ran
from pacer_gym.leaderboard.submission import SubmissionError, load_submission
from pacer_gym.leaderboard.suite import OFFICIAL
from pacer_gym.leaderboard.verdict import Verdict
from pacer_gym.leaderboard.verify import prepare_verification, verify
from pacer_gym.workloads.seeds import COMPARE_SEEDS, DEV_SEEDS, OFFICIAL_SEEDS
from tests.leaderboard.small_board import ROOT, make_entry, score_entries, small_setting

SCENARIOS = ("poisson-standard", "drift-step")
LEARNED = """
from pathlib import Path
import numpy as np
from pacer_gym.engine.view import StepDecision


class Mine:
    def __init__(self):
        with np.load(Path(__file__).with_name("net.npz")) as arrays:
            self.budget_tokens = int(arrays["budget"][0])

    def reset(self, spec, rng):
        self.rng = rng

    def decide(self, view):
        return StepDecision(self.budget_tokens + int(self.rng.integers(64)))

    def observe(self, outcome):
        pass
"""


@pytest.fixture(scope="module")
def board(tmp_path_factory) -> Path:
    """A board with two honest entries, scored once."""
    board = tmp_path_factory.mktemp("board")
    net = io.BytesIO()
    np.savez(net, budget=np.array([96]))
    make_entry(board, LEARNED, name="learned", weights={"net.npz": net.getvalue()})
    make_entry(board, ROOT / "policies" / "deadline_order.py", name="edf", class_name="DeadlineOrder")
    score_entries(board, *SCENARIOS)
    return board


def entry(board: Path, name: str = "edf"):
    return load_submission(board / "submissions" / name)


@pytest.fixture
def spoiled(board, tmp_path):
    """A copy of the honest entry whose files a test may spoil."""
    shutil.copytree(board / "submissions" / "learned", tmp_path / "submissions" / "learned")
    return entry(tmp_path, "learned")


def contradictions(submission) -> tuple[str, ...]:
    return prepare_verification(submission, setting=small_setting(*SCENARIOS), seed=1).contradictions


def edit(submission, change) -> None:
    path = submission.folder / "results.json"
    results = json.loads(path.read_text())
    change(results)
    path.write_text(json.dumps(results, indent=2, sort_keys=True) + "\n")


@pytest.mark.parametrize("name", ["edf", "learned"])
def test_an_honest_entry_is_verified(board, name):
    verdict = verify(entry(board, name), setting=small_setting(*SCENARIOS), seed=3, cells=8, n_jobs=1)
    assert verdict.is_verified, verdict.reasons
    assert verdict.equal == verdict.cells == 8
    assert set(verdict.fresh) == set(SCENARIOS)
    results = (entry(board, name).folder / "results.json").read_bytes()
    assert verdict.results_sha256 == hashlib.sha256(results).hexdigest()


def test_one_seed_gives_one_verification_and_none_gives_another_each_time(board):
    def chosen(seed):
        ready = prepare_verification(entry(board), setting=small_setting(*SCENARIOS), seed=seed)
        return [str(claim) for claim in ready.claims], [run.seed for run in ready.fresh]

    assert chosen(5) == chosen(5) != chosen(6)
    assert chosen(None)[1] != chosen(None)[1]


def test_every_scenario_is_among_the_runs_however_few(board):
    ready = prepare_verification(entry(board), setting=small_setting(*SCENARIOS), seed=1, cells=1)
    assert {claim.scenario for claim in ready.claims} == set(SCENARIOS)


def test_new_seeds_are_new_and_long_runs_get_few():
    drawn = draw_seeds(OFFICIAL, 4, random.Random(0))
    known = {*DEV_SEEDS, *OFFICIAL_SEEDS, *COMPARE_SEEDS}
    assert list(drawn) == list(OFFICIAL.scenarios)
    assert not known & {seed for seeds in drawn.values() for seed in seeds}
    assert len(drawn["bursty"]) == 4
    assert 1 <= len(drawn["azure-code"]) <= 4


CAPACITY = ("scenarios", "poisson-standard")
DRIFT = ("scenarios", "drift-step")


def put(*path_and_value):
    *path, key, value = path_and_value

    def change(results):
        for step in path:
            results = results[step]
        results[key] = value(results[key]) if callable(value) else value

    return change


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (put(*CAPACITY, "capacity_rps", lambda x: x * 1.05), "capacity_rps does not follow"),
        (put(*CAPACITY, "interval_rps", lambda x: [x[0] * 1.01, x[1]]), "interval_rps does not follow"),
        (put(*CAPACITY, "bracket_rps", lambda x: x[::-1]), "backlog is not|does not follow"),
        (put(*CAPACITY, "non_monotone", lambda x: not x), "non_monotone does not follow"),
        (put(*CAPACITY, "beyond_range", lambda x: not x), "beyond_range does not follow"),
        (put(*CAPACITY, "backlog_slope_rps", -1.0), "backlog_slope_rps does not follow"),
        (put(*CAPACITY, "reference", "itl_p99_s", 1e-3), r"reference\.itl_p99_s does not follow"),
        (put(*CAPACITY, "reference", "rate_rps", 0.1), "reference is at another rate"),
        (put(*CAPACITY, "curve", "seeds", lambda x: [7, *x[1:]]), "seeds are not those"),
        (put(*CAPACITY, "settings", {"budget_tokens": 1}), "budget_tokens was scored with another value"),
        (put(*DRIFT, "itl_p99_s", 1e-3), "itl_p99_s does not follow"),
        (put(*DRIFT, "timeline", "attainment", lambda x: [0.123] * len(x)), "timeline does not follow"),
        (put(*DRIFT, "rate_rps", 0.1), "the rate or the seeds"),
        (put(*DRIFT, "by_seed", "itl_p99_s", lambda x: x[:-1]), "not of one length"),
        (put("scenarios", lambda x: {"drift-step": x["drift-step"]}), "poisson-standard is missing"),
        (put("suite_sha256", "0" * 64), "another suite"),
        (put("policy", "source_sha256", "0" * 64), "not the file that was scored"),
        (put("policy", "weights_sha256", None), "weights are not those"),
        (put("policy", "name", "other"), "those of 'other'"),
        (put("policy", "class", "Other"), "class Other"),
        (put("policy", "tuned", {"what": ["budget_tokens"], "seeds": "development"}), "does not say so"),
    ],
)
def test_what_was_written_by_hand_does_not_follow_from_the_runs(spoiled, change, told):
    assert contradictions(spoiled) == ()
    edit(spoiled, change)
    found = contradictions(spoiled)
    assert any(re.search(told, reason) for reason in found), found


def test_a_rate_that_was_left_out_is_missed(spoiled):
    def drop(results):
        entry = results["scenarios"]["poisson-standard"]
        high_rps = entry["bracket_rps"][1]
        for curve in (entry["curve"], entry["coarse_curve"]):
            place = curve["rates_rps"].index(high_rps)
            del curve["rates_rps"][place], curve["attainment"][place]

    edit(spoiled, drop)
    assert any(
        "which is not there" in reason or "does not follow" in reason for reason in contradictions(spoiled)
    )


def test_runs_that_were_written_by_hand_do_not_come_out_again(spoiled):
    def raise_by_a_hair(results):
        entry = results["scenarios"]["drift-step"]
        entry["attainment"] = [min(1.0, share + 1e-9) - 2e-9 for share in entry["attainment"]]

    edit(spoiled, raise_by_a_hair)
    verdict = verify(spoiled, setting=small_setting(*SCENARIOS), seed=3, cells=2, n_jobs=1)
    assert not verdict.is_verified
    assert verdict.equal == verdict.cells - 1
    assert verdict.reasons[0].startswith("drift-step at")


@pytest.mark.parametrize("file", ["policy.py", "net.npz"])
def test_another_policy_than_was_scored_is_refused(spoiled, file):
    path = spoiled.folder / file
    if file == "policy.py":
        path.write_text(path.read_text() + "\n# faster\n")
    else:
        np.savez(path, budget=np.array([97]))
    assert "score it again" in " ".join(contradictions(spoiled))


def test_results_that_are_none_are_the_users_to_mend(spoiled):
    (spoiled.folder / "results.json").write_text("{}")
    with pytest.raises(PacerError, match=r"results\.json"):
        prepare_verification(spoiled)
    (spoiled.folder / "results.json").unlink()
    with pytest.raises(SubmissionError, match="pacer-gym score --submission learned"):
        prepare_verification(spoiled)


def test_nothing_is_run_where_the_results_contradict_themselves(spoiled):
    edit(spoiled, put("policy", "source_sha256", "0" * 64))
    verdict = verify(spoiled, setting=small_setting(*SCENARIOS), seed=1)
    assert (verdict.cells, verdict.fresh, verdict.is_verified) == (0, {}, False)
    assert "REFUSED" in verdict.report()


def test_a_verdict_reads_back_as_it_was_written(board, tmp_path):
    verdict = verify(entry(board), setting=small_setting("drift-step"), seed=3, cells=1, n_jobs=1)
    assert not verdict.is_verified  # of a setting with one scenario, there is one too many
    assert Verdict.from_json(verdict.write(tmp_path).read_text()) == verdict
    told = json.loads(verdict.to_json())
    assert set(told) == {
        "schema_version",
        "verdict",
        "date",
        "package_version",
        "suite_sha256",
        "results_sha256",
        "exact",
        "fresh",
        "reasons",
        "isolation",
    }
    told["verdict"] = "verified"
    with pytest.raises(PacerError, match="agrees with itself"):
        Verdict.from_json(json.dumps(told))


def test_an_honest_entry_is_seldom_refused_by_chance_however_seeds_are_distributed():
    rng = np.random.default_rng(0)
    refused = 0
    for _ in range(2000):
        # Most seeds go well, and now and then one collapses, as near a capacity.
        shares = np.where(rng.random(24) < 0.8, 0.98, 0.5) + rng.normal(0.0, 0.005, 24)
        claimed = {"kind": "drift", "rate_rps": 1.0, "attainment": np.clip(shares[:20], 0, 1).tolist()}
        ran = [Ran(metrics={"attainment": share}) for share in np.clip(shares[20:], 0, 1).tolist()]
        refused += not judge_fresh(claimed, range(4), ran, 10).inside
    assert refused <= 10


def test_an_entry_that_falls_apart_on_new_seeds_is_refused():
    claimed = {"kind": "drift", "rate_rps": 1.0, "attainment": np.linspace(0.85, 0.95, 20).tolist()}
    judged = judge_fresh(
        claimed, range(4), [Ran(metrics={"attainment": x}) for x in (0.6, 0.7, 0.75, 0.8)], 10
    )
    assert not judged.inside
    assert judge_fresh(claimed, range(4), [Ran(failed="it raised")] * 4, 10).found == 0.0
