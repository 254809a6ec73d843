import numpy as np
import pytest

from pacer_gym.tactics import CLOCKS, check_clock, least_slack_s
from pacer_gym.tactics.deadlines import token_slack_s
from tests.views import make_view


def test_slack_is_what_the_decode_that_is_furthest_behind_has_left():
    ahead = {"first_token_s": 1.0, "output_tokens": 8, "tpot_slo_s": 0.25}  # next token due at 3 s
    behind = {"first_token_s": 0.5, "output_tokens": 5, "tpot_slo_s": 0.35}  # at 2.25 s
    view = make_view(now_s=2.0, decodes=[ahead, behind])
    assert least_slack_s(view, view.decode_first_token_s) == 0.25
    assert least_slack_s(view, np.array([-0.5, 1.0])) == -0.5


def test_a_step_of_the_slack_leaves_the_mean_at_its_target():
    view = make_view(now_s=1.7, decodes=[{"first_token_s": 1.0, "output_tokens": 6, "tpot_slo_s": 0.2}])
    # Six tokens are out, so the next is the sixth after the first.
    end_s = view.now_s + least_slack_s(view, view.decode_first_token_s)
    assert (end_s - 1.0) / 6 == pytest.approx(0.2, rel=1e-12)


def test_nothing_that_decodes_allows_any_step():
    assert least_slack_s(make_view(prompts=3), np.empty(0)) == np.inf


@pytest.mark.parametrize("seed", range(20))
def test_the_least_slack_is_that_of_numpy_to_the_last_bit(seed):
    rng = np.random.default_rng(seed)
    start_s, tpot_slo_s = rng.uniform(0.0, 50.0, 9), rng.choice([0.05, 0.1, np.inf], 9)
    output_tokens = rng.integers(1, 400, 9)
    slack_s = float((start_s + output_tokens * tpot_slo_s).min()) - 60.0
    assert token_slack_s(60.0, start_s, output_tokens, tpot_slo_s) == slack_s
    start_s[seed % 9] = np.nan
    assert np.isnan(token_slack_s(60.0, start_s, output_tokens, tpot_slo_s))


def test_a_clock_that_there_is_not_is_refused():
    for clock in CLOCKS:
        check_clock(clock)
    with pytest.raises(ValueError, match="clock must be one of arrival, first_token, got 'wall'"):
        check_clock("wall")
