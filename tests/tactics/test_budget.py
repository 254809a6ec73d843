import numpy as np
import pytest

from pacer_gym.tactics import check_token_counts, prefill_room
from tests.views import make_view


@pytest.mark.parametrize(
    ("decodes", "budget_tokens", "room"),
    [(0, 128, 128), (28, 128, 100), (128, 128, 0), (200, 128, 0), (12, 4096, 500)],
)
def test_room_is_what_decodes_leave_of_the_budget_and_of_the_engine(decodes, budget_tokens, room):
    assert prefill_room(make_view(decodes=decodes), budget_tokens) == room


def test_counts_of_tokens_are_whole_and_positive():
    check_token_counts(budget_tokens=1, increase_tokens=np.int64(16))
    with pytest.raises(ValueError, match="increase_tokens must be at least 1, got -3"):
        check_token_counts(budget_tokens=1, increase_tokens=-3)
    for value in (12.0, "12", None, True):
        with pytest.raises(TypeError, match="budget_tokens must be a whole number of tokens, got"):
            check_token_counts(budget_tokens=value)
