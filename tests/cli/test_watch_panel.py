"""What `pacer-gym watch` draws, and how fast it goes."""

import io
from dataclasses import replace

import pytest
from rich.console import Console

from pacer_gym.cli.watch_panel import final_line, line, panel
from pacer_gym.cli.watch_view import LineView, Pace
from pacer_gym.scoring.rollout import prepare
from pacer_gym.scoring.watching import RunSoFar, Watched


def stopped_at(time_s, policy="pacer", scenario="drift-step", **more):
    """A run that has come so far."""

    class Enough(Exception):
        pass

    def look():
        if so_far.now_s >= time_s:
            raise Enough

    ready = prepare(policy, scenario, **{"rate_rps": 4.0, "horizon_s": 60.0} | more)
    so_far = RunSoFar(ready)
    with pytest.raises(Enough):
        replace(ready, policy=Watched(ready.policy, so_far, look)).run()
    return so_far


def drawn(so_far, width=80, **more):
    console = Console(width=width, file=io.StringIO(), force_terminal=False)
    console.print(panel(so_far, width=width, **{"speed": 10.0} | more))
    return console.file.getvalue()


@pytest.mark.parametrize("width", [60, 80, 120])
def test_the_panel_says_all_and_fits_a_terminal(width):
    text = drawn(stopped_at(30.0), width)
    for word in ("pacer on drift-step", "4 req/s", "0:30 of 1:00", "10× real time", "SLOWED 1.50×"):
        assert word in text
    for word in (
        "so far",
        "last 30 s",
        "step time",
        "of 100 ms",
        "prefill",
        "decodes",
        "prompts",
        "KV blocks",
    ):
        assert word in text
    for word in ("× fit", "% missed", "s ago"):
        assert word in text
    lines = text.splitlines()
    assert len(lines) < 24
    assert {len(one) for one in lines} == {width}


def test_the_panel_grows_with_the_terminal_up_to_a_width():
    so_far = stopped_at(30.0)
    assert "39 s ago" in drawn(so_far, 80)
    assert "79 s ago" in drawn(so_far, 120) == drawn(so_far, 120)
    console = Console(width=200, file=io.StringIO())
    console.print(panel(so_far, width=200, speed=10.0))
    assert max(map(len, console.file.getvalue().splitlines())) == 120


def test_a_policy_without_a_bound_and_a_steady_machine_show_neither():
    text = drawn(stopped_at(20.0, "fixed_budget", "poisson-standard"))
    assert "fit" not in text
    assert "% missed" not in text
    assert "slowed" not in text.lower()


def test_before_the_first_step_the_panel_says_what_it_waits_for():
    so_far = RunSoFar(prepare("pacer", "drift-step", rate_rps=4.0))
    assert "compiling the engine" in drawn(so_far)


def test_a_line_tells_the_same():
    told = line(stopped_at(30.0))
    assert told.startswith("   30.")
    for word in (
        "of 100 ms",
        "prefill",
        "decodes",
        "prompts",
        "KV",
        "attainment",
        "bound missed",
        "slowed x1.50",
    ):
        assert word in told


class Clock:
    """Wall-clock time that passes only while somebody sleeps."""

    def __init__(self):
        self.now_s = 100.0

    def monotonic(self):
        return self.now_s

    def sleep(self, seconds):
        self.now_s += seconds


@pytest.mark.parametrize(("factor", "wall_s"), [(10.0, 2.0), (0.5, 40.0), (float("inf"), 0.0)])
def test_a_run_takes_as_long_as_its_speed_says(factor, wall_s, monkeypatch):
    clock = Clock()
    monkeypatch.setattr("pacer_gym.cli.watch_view.time", clock)
    so_far = RunSoFar(prepare("fixed_budget", "poisson-standard", rate_rps=4.0, horizon_s=60.0))
    pace = Pace(so_far, LineView(so_far, float("inf")), factor=factor)
    for k in range(101):
        so_far.now_s = 0.2 * k
        pace.after_step()
    assert clock.now_s == pytest.approx(100.0 + wall_s)


def test_a_run_that_fell_behind_does_not_rush(monkeypatch):
    clock = Clock()
    monkeypatch.setattr("pacer_gym.cli.watch_view.time", clock)
    so_far = RunSoFar(prepare("fixed_budget", "poisson-standard", rate_rps=4.0, horizon_s=60.0))
    pace = Pace(so_far, LineView(so_far, float("inf")), factor=1.0)
    pace.after_step()
    clock.now_s += 30.0  # the engine is compiled
    so_far.now_s = 1.0
    pace.after_step()
    so_far.now_s = 2.0
    pace.after_step()
    assert clock.now_s == pytest.approx(131.0)


def test_a_run_that_is_stopped_at_once_has_no_attainment():
    so_far = RunSoFar(prepare("pacer", "drift-step", rate_rps=4.0))
    told = final_line(so_far, None)
    assert told == "pacer on drift-step at 4 req/s, seed 0, stopped at 0.0 s, before a request was judged"
