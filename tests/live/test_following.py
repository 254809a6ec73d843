"""How one state of a queue became another; nothing here needs vLLM."""

from hypothesis import given
from hypothesis import strategies as st

from pacer_gym.live.following import carried_over


@given(st.data())
def test_what_is_carried_over_begins_the_later_queue(data):
    earlier = list(range(data.draw(st.integers(0, 120))))
    gone = set(data.draw(st.lists(st.sampled_from(earlier or [0]), max_size=6)))
    front, back = data.draw(st.sampled_from([0, 0, 1])), data.draw(st.integers(0, 5))
    later = [-1] * front + [k for k in earlier if k not in gone] + [1000 + k for k in range(back)]
    carried = carried_over(earlier, later)
    if carried is None:
        assert len(earlier) <= 32 or len(gone) > 4 or front
        return
    for place in carried.left:
        del earlier[place]
    assert earlier == later[: carried.kept]
