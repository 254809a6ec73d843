"""Results read back to the byte, and refuse what they cannot be."""

import json
from pathlib import Path

import pytest

from pacer_gym.leaderboard.entries import Ran, check_derived
from pacer_gym.leaderboard.results import (
    Measured,
    Results,
    ResultsError,
    measured_beside,
    read_results,
    write_text,
)
from pacer_gym.leaderboard.tasks import scenario_job
from tests.leaderboard.tiny import short

METRICS = {
    "requests": 9, "met": 8, "attainment": 8 / 9, "backlog_slope_rps": 0.1, "ttft_p50_s": 0.3,
    "ttft_p90_s": 0.7, "tpot_p50_s": 0.05, "tpot_p90_s": 0.1, "itl_p99_s": float("inf"),
    "in_drift_requests": 0, "in_drift_met": 0,
    "in_drift_attainment": float("nan"), "timeline_requests": [9], "timeline_met": [8],
}  # fmt: skip


def answered(name: str, attainment=lambda rate_rps: float(rate_rps < 5.0)):
    """Entry of a scenario whose cells are made up."""
    job = scenario_job(name, "cpu", short(name), {"budget_tokens": 64})
    wish = next(job.task)
    while True:
        ran = [
            Ran(
                rate_rps=wish.rate_rps, seed=seed, metrics=METRICS | {"attainment": attainment(wish.rate_rps)}
            )
            for seed in wish.seeds
        ]
        try:
            wish = job.task.send(ran)
        except StopIteration as end:
            return end.value


def make_results(**changes) -> Results:
    told = {
        "suite": "v1", "suite_sha256": "ab", "track": "cpu", "setting": "tiny", "package_version": "0.1.0",
        "policy": {
            "name": "mine", "class": "Mine", "settings": {}, "tuned": None, "source_sha256": "cd",
            "weights_sha256": None,
        },
        "scenarios": {name: answered(name) for name in ("poisson-standard", "drift-step")},
    }  # fmt: skip
    return Results(**(told | changes))


def test_results_read_back_to_the_byte(tmp_path):
    results = make_results()
    write_text(tmp_path / "results.json", results.to_json())
    again = read_results(tmp_path / "results.json")
    assert again == results
    assert again.to_json() == results.to_json() == (tmp_path / "results.json").read_text()
    assert results.to_json().endswith("}\n")
    assert results.scenarios["drift-step"]["itl_p99_s"] is None  # which was infinite
    assert results.scenarios["drift-step"]["in_drift"] == [None, None, None]


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda d: d.update(extra=1), "unknown keys: extra"),
        (lambda d: d.pop("track"), "missing keys: track"),
        (lambda d: d.update(schema_version=2), "schema_version is 2"),
        (lambda d: d["policy"].update(author="me"), "policy: unknown keys: author"),
        (lambda d: d["scenarios"].update(mine=d["scenarios"]["drift-step"]), "no scenario 'mine'"),
        (lambda d: d["scenarios"]["drift-step"].update(kind="capacity"), "unknown keys"),
        (lambda d: d["scenarios"]["poisson-standard"].update(capacity_rps="5"), "capacity_rps cannot be '5'"),
        (lambda d: d["scenarios"]["drift-step"].update(attainment=[1.5, 1, 1]), "attainment cannot be"),
        (lambda d: d["scenarios"]["drift-step"].update(seeds=[1]), "of one length"),
        (lambda d: d["scenarios"]["poisson-standard"]["curve"].update(seeds=[1]), "a row for each rate"),
        (lambda d: d.update(scenarios={}), "at least one"),
    ],
)
def test_results_refuse_what_they_cannot_be(tmp_path, change, told):
    data = json.loads(make_results().to_json())
    change(data)
    path = tmp_path / "results.json"
    path.write_text(json.dumps(data))
    with pytest.raises(ResultsError, match=told) as caught:
        read_results(path)
    assert str(caught.value).startswith(str(path))


@pytest.mark.parametrize("text", ["", "[1]", '{"suite": NaN}', "{"])
def test_what_is_no_results_at_all_is_said_so(tmp_path, text):
    (tmp_path / "results.json").write_text(text)
    with pytest.raises(ResultsError, match=r"results\.json"):
        read_results(tmp_path / "results.json")
    with pytest.raises(ResultsError, match="No such file"):
        read_results(tmp_path / "none.json")


def test_every_number_follows_from_those_of_single_cells():
    for name, entry in make_results().scenarios.items():
        assert check_derived(entry, short(name)) == []
        entry["itl_p99_s" if name == "drift-step" else "backlog_slope_rps"] = 0.01
        assert len(check_derived(entry, short(name))) == 1


def test_measurements_lie_beside_and_read_back():
    measured = Measured(
        decision_us={"median": 5.5, "p99": float("nan")},
        wall_s=3.0,
        provenance={"cores": 2},
        date="2026-11-30",
    )
    assert Measured.from_json(measured.to_json()) == measured
    assert measured.decision_us["p99"] is None
    assert measured_beside(Path("a/results.json")) == Path("a/measured.json")
