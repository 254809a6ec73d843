"""Parts of a score: each scenario in one of them, and together what one score is."""

import pytest

from pacer_gym.errors import PacerError
from pacer_gym.leaderboard.results import Measured, ResultsError
from pacer_gym.leaderboard.shards import merge_measured, merge_results, read_shard, shard_scenarios
from tests.leaderboard.test_results import answered, make_results

NAMES = ["a", "b", "c", "d", "e"]


@pytest.mark.parametrize("count", range(1, 6))
def test_every_scenario_is_in_one_part(count):
    parts = [shard_scenarios(NAMES, index, count) for index in range(1, count + 1)]
    assert sorted(name for part in parts for name in part) == NAMES
    assert all(parts)


@pytest.mark.parametrize("shard", [(0, 2), (3, 2), (1, 6), (1, 0)])
def test_a_part_that_there_is_not_is_refused(shard):
    with pytest.raises(PacerError, match="I from 1 to N and N at most 5"):
        shard_scenarios(NAMES, *shard)


@pytest.mark.parametrize("text", ["", "1", "1/", "a/b", "1/2/3", "-1/2"])
def test_a_shard_that_is_none_is_refused(text):
    with pytest.raises(PacerError, match="as in 2/4"):
        read_shard(text)


def test_parts_in_any_order_make_the_whole():
    whole = make_results()
    parts = [make_results(scenarios={name: entry}) for name, entry in whole.scenarios.items()]
    assert merge_results(parts[::-1], whole=False).to_json() == whole.to_json()
    with pytest.raises(ResultsError, match="no part holds poisson-tight, poisson-relaxed"):
        merge_results(parts)


def test_parts_of_different_scores_are_refused():
    with pytest.raises(ResultsError, match="their track is 'cpu' and 'a100'"):
        merge_results([make_results(), make_results(track="a100")])
    other = {"drift-step": answered("drift-step", attainment=lambda rate_rps: 0.5)}
    with pytest.raises(ResultsError, match="disagree on drift-step"):
        merge_results([make_results(), make_results(scenarios=other)])
    with pytest.raises(ResultsError, match="nothing to merge"):
        merge_results([])


def test_measurements_of_parts_add_up():
    parts = [
        Measured(decision_us={"median": m, "p99": None}, wall_s=w, provenance={}, date=d)
        for m, w, d in ((5.0, 1.0, "2026-11-30"), (7.0, 2.0, "2026-12-01"))
    ]
    merged = merge_measured(parts)
    assert (merged.decision_us, merged.wall_s) == ({"median": 7.0, "p99": None}, 3.0)
    assert merged.date == "2026-12-01"
