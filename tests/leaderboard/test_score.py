"""Scores: the same for any way of getting them, and never lost."""

import math
import random
import subprocess
import sys
import time
from dataclasses import replace

import numpy as np
import pytest

from pacer_gym.errors import PacerError, PolicyError
from pacer_gym.leaderboard.batch import Limits
from pacer_gym.leaderboard.entries import check_derived
from pacer_gym.leaderboard.official_search import anchored_ladder, drive, search_capacity
from pacer_gym.leaderboard.score import plan_score, score
from pacer_gym.leaderboard.shards import merge_results
from pacer_gym.leaderboard.suite import OFFICIAL, QUICK
from tests.leaderboard.tiny import source_of, tiny_setting


@pytest.fixture(scope="module")
def scored(tmp_path_factory):
    store, seen = tmp_path_factory.mktemp("cells"), []
    plan = plan_score("fixed_budget", settings={"budget_tokens": 64}, setting=tiny_setting(), n_jobs=2)
    return plan.run(store=store, progress=lambda *told: seen.append(told)), store, seen


def cells(store):
    return sorted(store.glob("*/*.json"))


def test_a_score_holds_every_scenario_and_all_follows_from_its_cells(scored):
    found, _, _ = scored
    results = found.results
    assert set(results.scenarios) == {"poisson-standard", "drift-step"}
    assert results.policy["name"], results.policy["settings"] == ("fixed_budget", {"budget_tokens": 64})
    for name, entry in results.scenarios.items():
        how = tiny_setting().scenarios[name]
        assert check_derived(entry, how) == []
        assert entry["failures"] == []
    entry = results.scenarios["poisson-standard"]
    low_rps, high_rps = entry["bracket_rps"]
    assert low_rps <= entry["capacity_rps"] <= high_rps
    assert entry["reference"]["rate_rps"] in entry["coarse_curve"]["rates_rps"]
    assert found.measured.decision_us["median"] > 0.0


def test_progress_ends_with_everything_done_and_nothing_left(scored):
    shares, left_s, told = zip(*scored[2], strict=True)
    assert 0.0 < shares[0] < 1.0
    assert left_s[0] > left_s[-1] >= 0.0
    assert told[-1].endswith(f"{len(shares)} runs")


def test_what_is_in_the_store_is_not_run_again_and_what_is_damaged_is(scored):
    found, store, _ = scored
    before = {path: path.stat().st_mtime_ns for path in cells(store)}
    damaged = cells(store)[3]
    damaged.write_bytes(damaged.read_bytes()[:-5])
    again = score(
        "fixed_budget", settings={"budget_tokens": 64}, setting=tiny_setting(), store=store, n_jobs=1
    )
    assert again == found.results
    after = {path: path.stat().st_mtime_ns for path in cells(store)}
    assert [path for path in after if after[path] != before.get(path)] == [damaged]


def test_other_settings_are_other_cells(scored):
    _, store, _ = scored
    before = len(cells(store))
    score("fixed_budget", setting=tiny_setting("drift-step"), store=store, n_jobs=2)
    assert len(cells(store)) == before + 3


def test_shards_make_the_whole_to_the_byte(scored, tmp_path):
    parts = [
        score(
            "fixed_budget",
            settings={"budget_tokens": 64},
            setting=tiny_setting(),
            store=tmp_path,
            shard=(k, 2),
        )
        for k in (1, 2)
    ]
    assert [len(part.scenarios) for part in parts] == [1, 1]
    assert merge_results(parts, whole=False).to_json() == scored[0].results.to_json()


def test_two_sweeps_at_once_share_and_agree(scored, tmp_path):
    others = [start_sweep(tmp_path / "cells", tmp_path / f"{k}.json") for k in range(2)]
    assert [other.wait() for other in others] == [0, 0]
    for k in range(2):
        assert (tmp_path / f"{k}.json").read_text() == scored[0].results.to_json()
    assert len(cells(tmp_path / "cells")) <= len(cells(scored[1]))


def test_settings_by_scenario_come_before_those_for_all(scored, tmp_path):
    found = score(
        "fixed_budget",
        settings={"budget_tokens": 128},
        settings_by_scenario={"drift-step": {"budget_tokens": 64}},
        setting=tiny_setting(),
        scenarios=["drift-step"],
        store=tmp_path,
    )
    assert found.scenarios["drift-step"] == scored[0].results.scenarios["drift-step"]
    assert found.policy["settings"] == {"budget_tokens": 128}


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("if self.steps > 5: raise ValueError('mine')", "ValueError: mine"),
        ("if self.steps > 5: os._exit(3)", "the process ended itself with status 3"),
    ],
)
def test_a_policy_that_fails_scores_zero_and_says_why(tmp_path, line, told):
    (tmp_path / "bad.py").write_text(source_of([line]), encoding="utf-8")
    found = score(
        tmp_path / "bad.py", setting=tiny_setting(), store=tmp_path / "cells", limits=Limits(cpu_s=5.0)
    )
    capacity, drift = found.scenarios["poisson-standard"], found.scenarios["drift-step"]
    assert (capacity["capacity_rps"], capacity["zero"]) == (0.0, True)
    assert drift["attainment"] == [0.0, 0.0, 0.0]
    assert found.failures == len(capacity["failures"]) + 3
    assert all(told in failure["why"] for failure in capacity["failures"])
    assert cells(tmp_path / "cells") == []


def test_a_policy_that_fails_on_some_seeds_keeps_what_it_earned_on_others(tmp_path):
    (tmp_path / "bad.py").write_text(
        source_of(["if len(view.prompt_ids) > 8: raise ValueError('too many')"]), encoding="utf-8"
    )
    found = score(tmp_path / "bad.py", setting=tiny_setting("poisson-standard"), store=tmp_path / "cells")
    entry = found.scenarios["poisson-standard"]
    assert entry["capacity_rps"] > 0.0
    assert {failure["why"] for failure in entry["failures"]} == {"ValueError: too many"}
    for failure in entry["failures"]:
        for curve in (entry["curve"], entry["coarse_curve"]):
            if failure["rate_rps"] in curve["rates_rps"] and failure["seed"] in curve["seeds"]:
                row = curve["attainment"][curve["rates_rps"].index(failure["rate_rps"])]
                assert row[curve["seeds"].index(failure["seed"])] == 0.0


@pytest.mark.slow
def test_a_setting_is_tuned_for_each_scenario_on_other_seeds(tmp_path):
    found = score("fixed_budget", tune="budget_tokens", setting=tiny_setting("drift-step"), store=tmp_path)
    assert found.policy["tuned"] == {"what": ["budget_tokens"], "seeds": "development"}
    assert found.scenarios["drift-step"]["settings"]["budget_tokens"] >= 32


@pytest.mark.parametrize(
    ("changes", "error", "told"),
    [
        ({"policy": "fixed_bugdet"}, PolicyError, "did you mean"),
        ({"policy": "oracle"}, PolicyError, "not ranked"),
        ({"settings": {"budget": 3}}, PolicyError, "no setting 'budget'"),
        ({"settings_by_scenario": {"drift-step": {"budget": 3}}}, PolicyError, "no setting 'budget'"),
        ({"settings_by_scenario": {"bursty": {}}}, PacerError, "no scenario of the setting"),
        ({"scenarios": ["burst"]}, PacerError, "no scenario 'burst'"),
        ({"track": "a99"}, PacerError, "no track 'a99'"),
        ({"tune": "alpha"}, PacerError, "what can be tuned is budget_tokens"),
        ({"shard": (3, 2)}, PacerError, "a shard is I/N"),
        ({"backend": "slurm"}, PacerError, "no backend 'slurm'"),
    ],
)
def test_what_does_not_fit_is_refused_before_anything_runs(changes, error, told):
    with pytest.raises(error, match=told):
        plan_score(**({"policy": "fixed_budget", "setting": tiny_setting()} | changes))


SWEEP = """
import sys
from pathlib import Path
from pacer_gym.leaderboard.score import score
from tests.leaderboard.tiny import tiny_setting
settings = {"budget_tokens": 64}
found = score("fixed_budget", settings=settings, setting=tiny_setting(), store=sys.argv[1], n_jobs=1)
Path(sys.argv[2]).write_text(found.to_json())
"""


def start_sweep(store, out):
    return subprocess.Popen([sys.executable, "-c", SWEEP, str(store), str(out)])


@pytest.mark.slow
def test_a_score_that_was_killed_ten_times_is_the_one_that_was_not(scored, tmp_path):
    rng, kept = random.Random(0), [0]
    store, out = tmp_path / "cells", tmp_path / "results.json"
    for _ in range(10):
        sweep = start_sweep(store, out)
        # A little further each time: whatever it has begun, something new is under way when it is killed.
        until = kept[-1] + 1 + rng.randrange(3)
        while sweep.poll() is None and len(cells(store)) < until:
            time.sleep(rng.random() / 50)
        sweep.kill()
        sweep.wait()
        kept.append(len(cells(store)))
    assert kept == sorted(kept)
    assert start_sweep(store, out).wait() == 0
    assert out.read_text() == scored[0].results.to_json()


def steep(crossing_rps: float):
    """Attainment that falls through 90 % at a rate which differs a little from seed to seed."""

    def attainment(rate_rps: float, seed: int) -> float:
        middle_rps = crossing_rps * (1.0 + 0.05 * math.sin(12.9898 * seed))
        return 1.0 / (1.0 + (rate_rps / middle_rps) ** 40 / 9.0)

    return attainment


@pytest.mark.parametrize("share", [0.11, 0.5, 0.97, 1.0, 1.6, 5.0])
def test_the_search_finds_a_crossing_wherever_it_is_and_both_ends_of_its_interval(share):
    how = OFFICIAL.scenarios["poisson-standard"]
    crossing_rps = share * how.start_rps
    found, asked = drive(search_capacity(how), steep(crossing_rps))
    assert found.curve.crossing_rps(0.9) == pytest.approx(crossing_rps, rel=0.02)
    low_rps, high_rps = found.curve.crossing_interval_rps(0.9)
    assert found.curve.rates_rps[0] < low_rps < high_rps < found.curve.rates_rps[-1]
    assert found.curve.seeds == how.seeds
    assert found.coarse_curve.seeds == how.seeds[: how.first_seeds]
    assert set(found.curve.rates_rps) <= set(found.coarse_curve.rates_rps)
    assert sum(len(ask.seeds) for ask in asked) == len(
        {(ask.rate_rps, s) for ask in asked for s in ask.seeds}
    )
    assert asked[0].rate_rps == how.start_rps


@pytest.mark.parametrize("answer", [0.0, 1.0, math.nan])
def test_what_no_rate_crosses_is_an_answer(answer):
    how = QUICK.scenarios["bursty"]
    found, asked = drive(search_capacity(how), lambda rate_rps, seed: answer)
    ladder, _ = anchored_ladder(how)
    expected = 0.0 if answer == 0.0 else ladder[-1]
    assert found.curve.crossing_rps(0.9) == expected
    if answer == 0.0:  # two runs at the start and two at the lowest rate tell
        assert sum(len(ask.seeds) for ask in asked) == 4


def test_rates_of_all_policies_are_rungs_of_one_ladder():
    how = replace(OFFICIAL.scenarios["bursty"], start_rps=3.3, range_rps=(0.3, 30.0))
    ladder, start = anchored_ladder(how)
    assert ladder[start] == 3.3
    np.testing.assert_allclose(np.diff(np.log(ladder)), math.log(1.02), rtol=1e-3)
    assert 0.3 <= ladder[0] < 0.31
    assert 29.4 < ladder[-1] <= 30.0
