"""Pictures of a running environment: a frame shows the window it says, whatever was drawn before."""

import sys

import numpy as np
import pytest

from pacer_gym.envs.rendering import Sample, StripChart, _means_of_seconds, _round_up


def sample(now_s, **more):
    values = {"step_s": 0.05, "tpot_slo_s": 0.1, "prefill_tokens": 64, "decodes": 4, "waiting": 1}
    return Sample(now_s=now_s, attainment=0.5, **values | more)


def filled(times_s, **more):
    chart = StripChart(window_s=10.0)
    for now_s in times_s:
        chart.add(sample(now_s, **more))
    return chart


def test_a_frame_does_not_depend_on_the_frames_before():
    pytest.importorskip("matplotlib")
    chart = filled([1.0, 2.0], step_s=0.3, prefill_tokens=2000, decodes=200)
    chart.frame()
    chart.clear()
    for now_s in (3.0, 4.0, 5.5):
        chart.add(sample(now_s))
    np.testing.assert_array_equal(chart.frame(), filled([3.0, 4.0, 5.5]).frame())


def test_steps_that_have_left_the_window_are_not_drawn():
    pytest.importorskip("matplotlib")
    late = np.arange(95.0, 100.0, 0.5)
    np.testing.assert_array_equal(filled([1.0, 50.0, *late]).frame(), filled(late).frame())


@pytest.mark.parametrize("times_s", [[], [0.3]])
def test_an_episode_that_has_hardly_begun_has_a_frame(times_s):
    pytest.importorskip("matplotlib")
    frame = filled(times_s).frame()
    assert (frame.shape, frame.dtype) == ((480, 640, 3), np.uint8)


def test_a_target_that_is_always_met_is_not_drawn():
    pytest.importorskip("matplotlib")
    assert filled([1.0, 2.0], tpot_slo_s=float("inf")).frame().shape == (480, 640, 3)


def test_without_matplotlib_the_error_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(ImportError, match=r'pip install "pacer-gym\[plot\]"'):
        filled([1.0]).frame()


def test_means_of_seconds_by_hand():
    middle_s, mean = _means_of_seconds(np.array([0.1, 0.9, 2.2, 2.4]), np.array([2.0, 4.0, 5.0, 7.0]))
    assert middle_s.tolist() == [0.5, 2.4]
    assert mean.tolist() == [3.0, 6.0]


@pytest.mark.parametrize(
    ("value", "top"), [(0.0, 8.0), (7.0, 8.0), (7.9, 16.0), (16.0, 32.0), (200.0, 256.0)]
)
def test_axes_change_in_octaves(value, top):
    assert _round_up(value, 8) == top
