"""The picture of a run shows what the record holds."""

import numpy as np
import pytest

pytest.importorskip("matplotlib")

from pacer_gym.scoring.figures import check_figure_path, draw_run, save_figure
from pacer_gym.scoring.rollout import run
from pacer_gym.workloads.slo import SLO
from pacer_gym.workloads.workload import Workload
from tests.scoring.records import make_record


@pytest.fixture(scope="module")
def record():
    return run("fixed_budget", "drift-step", rate_rps=5.5, horizon_s=90.0, steps=True)


def test_the_picture_has_four_labelled_panels_over_one_time_axis(record):
    axes = draw_run(record).axes
    assert [panel.get_ylabel().replace("\n", " ") for panel in axes] == [
        "step time (ms)",
        "requests in the engine",
        "prefill tokens per step",
        "attainment (%), 3 s of arrivals",
    ]
    assert axes[-1].get_xlabel() == "simulated time (s)"
    assert {panel.get_xlim() for panel in axes} == {(0.0, record.end_s)}


def test_every_step_is_drawn_beside_the_target(record):
    steps, _, target = draw_run(record).axes[0].lines[:3]
    np.testing.assert_array_equal(steps.get_ydata(), 1e3 * record.steps["latency_s"])
    assert set(target.get_ydata()) == {100.0}


def test_the_spell_of_drift_is_shaded(record):
    (shade,) = draw_run(record).axes[0].patches
    assert (shade.get_x(), shade.get_x() + shade.get_width()) == pytest.approx((30.0, 60.0))
    calm = run("fixed_budget", "poisson-standard", rate_rps=5.0, horizon_s=30.0, steps=True)
    assert not draw_run(calm).axes[0].patches


def test_a_run_of_a_few_requests_gets_whole_lines_and_a_label_to_read():
    workload = Workload(
        arrival_s=np.array([0.0, 0.5, 2.0]),
        prompt_tokens=np.array([100, 30, 60]),
        output_tokens=np.array([20, 10, 8]),
    )
    short = run("fixed_budget", workload=workload, profile="cpu-smollm2-135m", slo=SLO(2.0, 0.1), steps=True)
    panels = draw_run(short).axes
    assert panels[3].get_ylabel() == "attainment (%),\n1.5 s of arrivals"
    for panel in panels:
        for line in panel.lines:
            assert np.isfinite(line.get_ydata()).all()
            assert len(line.get_xdata()) > 1 or line.get_marker() == "o"
    tenth = run("fixed_budget", "poisson-standard", rate_rps=100.0, horizon_s=2.0, steps=True)
    assert draw_run(tenth).axes[3].get_ylabel() == "attainment (%),\n0.067 s of arrivals"


def test_the_percentile_of_steps_ends_with_the_arrivals_and_the_queue_does_not(record):
    assert record.end_s > record.horizon_s
    steps_panel, queue_panel = draw_run(record).axes[:2]
    assert steps_panel.lines[1].get_xdata()[-1] < record.horizon_s
    assert queue_panel.lines[0].get_xdata()[-1] > record.horizon_s - record.end_s / 120


def test_drawing_twice_gives_the_same_file(record, tmp_path):
    for name in ("a.png", "b.png"):
        save_figure(draw_run(record), tmp_path / name)
    assert (tmp_path / "a.png").read_bytes() == (tmp_path / "b.png").read_bytes()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.png", "b.png"]


def test_a_run_without_steps_cannot_be_drawn():
    with pytest.raises(ValueError, match="steps=True"):
        draw_run(make_record([(0.0, 10, 5, 0.5, 0.75)]))


def test_a_bad_path_is_refused_before_the_run(tmp_path):
    with pytest.raises(ValueError, match=r"must end in one of .*png.*, got .*\.xyz"):
        check_figure_path(tmp_path / "run.xyz")
    (tmp_path / "run.png").write_bytes(b"precious")
    with pytest.raises(FileExistsError, match="--force"):
        check_figure_path(tmp_path / "run.png")
    check_figure_path(tmp_path / "run.png", force=True)
    (tmp_path / "folder.png").mkdir()
    with pytest.raises(FileExistsError, match="is a folder"):
        check_figure_path(tmp_path / "folder.png", force=True)
