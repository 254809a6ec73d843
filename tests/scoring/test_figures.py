"""The picture of a run shows what the record holds."""

import numpy as np
import pytest

pytest.importorskip("matplotlib")

from pacer_gym.scoring.figures import check_figure_path, draw_run, save_figure
from pacer_gym.scoring.rollout import run
from tests.scoring.records import make_record


@pytest.fixture(scope="module")
def record():
    return run("fixed_budget", "drift-step", rate_rps=2.0, horizon_s=90.0, steps=True)


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
    calm = run("fixed_budget", "poisson-standard", rate_rps=2.0, horizon_s=30.0, steps=True)
    assert not draw_run(calm).axes[0].patches


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
