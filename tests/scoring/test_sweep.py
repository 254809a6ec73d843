"""A sweep: one result a cell, in order, the same on one core and on two."""

import numpy as np
import pytest

from pacer_gym.engine import StepDecision
from pacer_gym.errors import PacerError, PolicyError
from pacer_gym.policy import load_policy
from pacer_gym.scoring import run, summary
from pacer_gym.scoring.backlog import backlog, backlog_slope_rps
from pacer_gym.scoring.sweep import Cell, CellError, run_cells
from pacer_gym.workloads.scenarios import load_scenario
from tests.scoring.records import NEVER, make_record

FILE_POLICY = """
import numpy as np
from pacer_gym.engine.view import StepDecision

class Fixed:
    def __init__(self, *, budget_tokens):
        self._kept_elsewhere = budget_tokens

    def reset(self, spec, rng): ...
    def decide(self, view): return StepDecision(self._kept_elsewhere)
    def observe(self, outcome): ...
"""


class Forgetless:
    """Serves ever less, run after run: two runs of one object differ."""

    def __init__(self):
        self.steps = 0

    def reset(self, spec, rng):
        pass

    def decide(self, view):
        self.steps += 1
        return StepDecision(max(1, 200 - self.steps))

    def observe(self, outcome):
        pass


class Failing(Forgetless):
    """Raises what no other process knows how to rebuild, once there is enough to do."""

    def decide(self, view):
        class Private(Exception):
            def __init__(self, what, why):
                super().__init__(f"{what} of {why}")

        if view.prompt_ids.size > 5:
            raise Private("a bug", "the policy's")
        return StepDecision(16)


def some_cells(policy: object = "fixed_budget", **changes: object) -> list[Cell]:
    told = {"scenario": "poisson-standard", "horizon_s": 30.0, "warmup_s": 5.0} | changes
    return [Cell(policy=policy, rate_rps=rate, seed=seed, **told) for rate in (1.0, 3.0) for seed in (4, 2)]


def test_results_come_in_the_order_of_the_cells_and_are_those_of_single_runs():
    cells, calls = some_cells(settings={"budget_tokens": 64}), []
    results = run_cells(cells, n_jobs=2, progress=lambda done, total: calls.append((done, total)))
    assert calls == [(1, 4), (2, 4), (3, 4), (4, 4)]
    assert [result.cell for result in results] == cells
    for cell, result in zip(cells, results, strict=True):
        record = run(
            load_policy("fixed_budget", budget_tokens=64),
            cell.scenario,
            rate_rps=cell.rate_rps,
            seed=cell.seed,
            horizon_s=30.0,
            warmup_s=5.0,
        )
        assert result.metrics == summary(record) | {"backlog_slope_rps": backlog_slope_rps(record)}
        assert result.attainment == result.metrics["attainment"]


@pytest.mark.parametrize("policy", ["random_budget", Forgetless(), load_policy("pacer", alpha=0.2)])
def test_one_process_and_two_find_the_same_whatever_the_policy_is_given_as(policy):
    cells = some_cells(policy)
    assert run_cells(cells, n_jobs=1) == run_cells(cells, n_jobs=2)


def test_every_cell_meets_a_policy_that_no_other_cell_has_used():
    policy = Forgetless()
    twice = some_cells(policy)[:1] * 2
    first, second = run_cells(twice, n_jobs=1)
    assert first == second
    assert policy.steps == 0


def test_a_policy_file_is_found_by_processes_that_started_elsewhere(tmp_path, monkeypatch):
    run_cells(some_cells()[:2], n_jobs=2)  # processes of this folder now wait for work
    (tmp_path / "mine.py").write_text(FILE_POLICY, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    named = some_cells("mine.py", settings={"budget_tokens": 32})
    built = some_cells(load_policy("mine.py", budget_tokens=32))
    assert str(named[0]) == "mine.py(budget_tokens=32) on poisson-standard at 1 requests/s, seed 4"
    metrics = [[result.metrics for result in run_cells(cells, n_jobs=2)] for cells in (named, built)]
    assert metrics[0] == metrics[1]


@pytest.mark.parametrize("n_jobs", [1, 2])
def test_a_policy_that_raises_stops_the_sweep_and_the_cell_is_named(n_jobs):
    cells = some_cells(Failing(), scenario=load_scenario("bursty"))[2:]
    told = r"Failing on bursty at 3 requests/s, seed [42]: Private: a bug of the policy's"
    with pytest.raises(CellError, match=told) as caught:
        run_cells(cells, n_jobs=n_jobs)
    assert isinstance(caught.value, PacerError)
    assert caught.value.__cause__ is not None


def test_a_policy_that_cannot_be_built_is_refused_before_anything_runs():
    with pytest.raises(PolicyError, match="no setting 'budget'"):
        run_cells(some_cells(settings={"budget": 3}), n_jobs=2)


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"policy": Forgetless(), "settings": {"steps": 1}}, "go with a policy's reference"),
        ({"warmup_s": 30.0}, "below the horizon"),
        ({"warmup_s": -1.0}, "at least 0"),
    ],
)
def test_a_cell_refuses_what_does_not_fit_together(changes, told):
    with pytest.raises(ValueError, match=told):
        some_cells(**changes)


def test_a_run_without_requests_to_judge_has_no_attainment():
    scenario = load_scenario("poisson-standard")
    last_s = {s: scenario.workload(rate_rps=0.2, seed=s, horizon_s=30.0).arrival_s[-1] for s in range(5)}
    seed = min(last_s, key=last_s.__getitem__)
    cell = Cell(
        policy="srpf", scenario=scenario, rate_rps=0.2, seed=seed, horizon_s=30.0, warmup_s=last_s[seed] + 0.1
    )
    (result,) = run_cells([cell], n_jobs=1)
    assert result.metrics["requests"] == 0
    assert np.isnan(result.attainment)


def test_a_sweep_of_nothing_is_nothing():
    assert run_cells([], n_jobs=1) == []


def test_the_backlog_counts_whoever_has_arrived_and_is_not_done():
    record = make_record(
        [(0.0, 10, 2, 0.5, 1.0), (1.0, 10, 2, 2.0, 4.0), (3.0, 10, 2, NEVER, NEVER)], window_s=(0.0, 10.0)
    )
    assert backlog(record, np.array([-1.0, 0.0, 0.9, 1.0, 3.5, 4.0, 99.0])).tolist() == [0, 1, 1, 1, 2, 1, 1]


def test_the_slope_of_the_backlog_is_the_rate_at_which_requests_are_left_behind():
    # Five arrive in every second and four of them are served at once.
    rows = [
        (k / 5, 10, 1, NEVER if k % 5 == 4 else k / 5, NEVER if k % 5 == 4 else k / 5) for k in range(500)
    ]
    assert backlog_slope_rps(make_record(rows, window_s=(0.0, 100.0))) == pytest.approx(1.0, rel=1e-3)
    served = [(row[0], 10, 1, row[0], row[0]) for row in rows]
    assert backlog_slope_rps(make_record(served, window_s=(0.0, 100.0))) == 0.0
