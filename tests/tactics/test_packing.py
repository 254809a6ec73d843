"""A packed step: the order of Moore and Hodgson, and the largest chunk that its rules allow."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pacer_gym.latency.limits import EngineLimits
from pacer_gym.tactics.chunk_search import ChunkSearch
from pacer_gym.tactics.ordering import remaining_tokens
from pacer_gym.tactics.packing import Packer
from tests.tactics.plain_packer import PlainPacker
from tests.views import COEFFICIENTS, make_spec, make_view

NO_BUCKETS = np.empty(0, np.int64)


TPOTS_S = st.sampled_from([0.02, 0.06, 0.1, 0.4, math.inf])
DECODES = st.fixed_dictionaries(
    {
        "context_tokens": st.integers(1, 4000),
        "output_tokens": st.integers(1, 60),
        "first_token_s": st.floats(5.0, 10.0),
        "tpot_slo_s": TPOTS_S,
    }
)
PROMPTS = st.one_of(
    st.builds(
        lambda arrival_s, left, computed, ttft_slo_s: {
            "arrival_s": arrival_s,
            "tokens": left + computed,
            "computed_tokens": computed,
            "ttft_slo_s": ttft_slo_s,
        },
        st.floats(4.0, 10.0),
        st.one_of(st.integers(1, 12), st.integers(1, 300), st.just(10**12)),
        st.one_of(st.just(0), st.integers(0, 2000)),
        st.sampled_from([0.5, 2.0, 6.0, math.inf]),
    ),
    st.builds(  # one that was preempted
        lambda output_tokens, tokens, first_token_s, tpot_slo_s: {
            "tokens": tokens + output_tokens,
            "output_tokens": output_tokens,
            "first_token_s": first_token_s,
            "tpot_slo_s": tpot_slo_s,
        },
        st.integers(1, 60),
        st.integers(1, 200),
        st.floats(5.0, 10.0),
        TPOTS_S,
    ),
)
# A step costs about what its target is worth, so that chunks of every size come up.
COSTS = st.tuples(
    st.floats(0.0, 0.05),
    st.floats(0.0, 1e-3),
    st.floats(0.0, 1e-9),
    st.floats(0.0, 1e-8),
    st.floats(0.0, 1e-8),
    st.sampled_from([0.0, 0.0, 1e-4, 2e-3]),
    st.floats(0.0, 2e-3),
).map(np.array)
RATIOS = st.one_of(st.floats(0.3, 4.0), st.sampled_from([0.0, 1.0, 30.0, math.inf]))
VIEWS = st.tuples(st.lists(DECODES, max_size=7), st.lists(PROMPTS, min_size=1, max_size=7))


@st.composite
def runs(draw):
    """An engine, a share to bank, and what is packed one after the other."""
    limits = EngineLimits(
        max_batched_tokens=draw(st.sampled_from([4, 40, 120])), max_running=4, num_blocks=1024
    )
    buckets = draw(st.sampled_from([NO_BUCKETS, np.array([8, 32, 64, 128])]))
    spec = make_spec(limits=limits, batch_buckets=buckets)
    steps = [
        (make_view(10.0, *draw(VIEWS), limits=limits), draw(COSTS), draw(RATIOS), draw(st.floats(0.5, 2.0)))
        for _ in range(draw(st.integers(1, 3)))
    ]
    return spec, draw(st.sampled_from([0.0, 0.5, 1.0])), steps


def equals_twin(packer, twin, step):
    decision = packer.pack(*step)
    expected_tokens, expected_order = twin.pack(*step)
    twin.packed(decision.prefill_tokens)
    assert decision.order.tolist() == expected_order
    assert expected_tokens in (decision.prefill_tokens, None)
    return decision


@settings(max_examples=100)
@given(runs())
def test_it_equals_its_plain_twin_step_after_step(run):
    spec, bank_slack, steps = run
    packer, twin = Packer(spec, bank_slack=bank_slack), PlainPacker(spec, bank_slack)
    for step in steps:
        equals_twin(packer, twin, step)


def test_it_equals_its_plain_twin_where_targets_leave_room_for_a_part_of_the_prompts():
    rng = np.random.default_rng(0)
    limits = EngineLimits(max_batched_tokens=160, max_running=64, num_blocks=1024)
    spec, inside = make_spec(limits=limits), 0
    for _ in range(150):
        bank_slack = float(rng.choice([0.0, 0.5, 1.0]))
        packer, twin = Packer(spec, bank_slack=bank_slack), PlainPacker(spec, bank_slack)
        for _ in range(3):
            decodes = [
                {
                    "context_tokens": int(rng.integers(1, 400)),
                    "output_tokens": int(rng.integers(1, 60)),
                    "first_token_s": rng.uniform(5.0, 10.0),
                    "tpot_slo_s": float(rng.choice([0.06, 0.1, 0.2])),
                }
                for _ in range(rng.choice([0, 1, 4, 12]))
            ]
            prompts = [
                {
                    "tokens": int(rng.integers(50, 150)),
                    "computed_tokens": int(rng.integers(0, 50)),
                    "arrival_s": rng.uniform(8.0, 10.0),
                }
                for _ in range(rng.integers(1, 9))
            ]
            view = make_view(10.0, decodes, prompts, limits=limits)
            costs = np.array([2e-2, 5e-4, 2e-10, 1e-7, 1e-7, 0.0, 2e-4]) * rng.uniform(0.3, 1.5, 7)
            step = view, costs, rng.uniform(0.9, 3.0), 1.0
            decision = equals_twin(packer, twin, step)
            inside += 0 < decision.prefill_tokens < min(remaining_tokens(view).sum(), 160 - len(decodes))
    assert inside > 150


@settings(max_examples=100)
@given(runs())
def test_a_chunk_keeps_to_the_room_and_the_order_drops_nobody(run):
    spec, bank_slack, steps = run
    packer = Packer(spec, bank_slack=bank_slack)
    for view, *rest in steps:
        decision = packer.pack(view, *rest)
        room = max(0, spec.limits.max_batched_tokens - view.decode_ids.size)
        assert 0 <= decision.prefill_tokens <= min(room, remaining_tokens(view).sum())
        assert sorted(decision.order) == list(range(view.prompt_ids.size))


def pack(view, ratio=1.0, typical_ratio=1.0, bank_slack=0.0, coefficients=COEFFICIENTS):
    """Tokens of the next step: 10 ms, 0.1 ms a token and 1 ms a sequence, unless told otherwise."""
    return Packer(make_spec(), bank_slack=bank_slack).pack(view, coefficients, ratio, typical_ratio)


def tokens(*args, **kwargs):
    return pack(*args, **kwargs).prefill_tokens


@pytest.mark.parametrize(
    ("ratio", "expected"),
    [
        (1.0, 508),  # all that the batch of 512 has room for would take 65.8 ms
        (1.5, 508),
        (1.6, 471),  # of 62.5 ms the step takes 10, five sequences 5 and four decode tokens 0.4
        (2.0, 346),
        (4.0, 96),
        (6.9, 0),  # 14.4 ms for the decodes alone
    ],
)
def test_the_chunk_is_what_the_bounded_step_has_room_for(ratio, expected):
    assert tokens(make_view(decodes=4, prompts=[{"tokens": 5000}]), ratio) == expected


def test_the_tightest_target_of_those_that_run_counts():
    decodes = [{"tpot_slo_s": 0.2}, {"tpot_slo_s": 0.025}, {"tpot_slo_s": math.inf}]
    # 25 ms: 10 for the step, 4 for the sequences, 0.3 for the decode tokens.
    assert tokens(make_view(decodes=decodes, prompts=[{"tokens": 5000}])) == 107
    assert tokens(make_view(decodes=decodes[2:], prompts=[{"tokens": 5000}]), ratio=50.0) == 511


@pytest.mark.parametrize("ratio", [math.inf, 0.0, 100.0])
def test_a_bound_that_promises_nothing_gives_way_to_the_usual_ratio(ratio):
    view = make_view(decodes=4, prompts=[{"tokens": 5000}])
    for typical_ratio in (1.0, 2.0, 4.0):
        assert tokens(view, ratio, typical_ratio) == tokens(view, typical_ratio)


def test_prompts_wait_while_fewer_decodes_would_be_on_time():
    # 40 decodes take 54 ms, and one 11.1 ms.
    slow = make_view(decodes=[{"tpot_slo_s": 0.05}] * 40, prompts=2)
    assert tokens(slow) == tokens(slow, math.inf) == 0


@pytest.mark.parametrize("ratio", [20.0, math.inf])
@pytest.mark.parametrize("decodes", [1, 4])
def test_prompts_do_not_wait_where_not_even_a_lone_decode_would_be_on_time(ratio, decodes):
    # At the usual ratio a step without prompts takes 0.22 s and more, against a target of 0.1 s.
    view = make_view(decodes=decodes, prompts=[{"tokens": 5000}])
    assert tokens(view, ratio, typical_ratio=20.0) > 0


def test_with_nothing_decoding_the_first_prompt_is_served_whole_and_others_within_the_usual_target():
    prompts = [{"tokens": 300, "ttft_slo_s": 60.0}, {"tokens": 400, "ttft_slo_s": 70.0}]
    view = make_view(1.1, prompts=prompts)
    # Of 0.1 s at a ratio of 2 it is 50 ms: 10 for the step, 2 for two sequences, 0.1 a token.
    assert tokens(view, 2.0) == 380
    assert tokens(view, 5.0) == 300
    assert tokens(view, math.inf, typical_ratio=5.0) == 300
    assert tokens(make_view(1.1, prompts=[{"tokens": 10_000}]), math.inf, typical_ratio=50.0) == 512
    halfway = {"tokens": 10_000, "computed_tokens": 9_950}
    assert tokens(make_view(1.1, prompts=[halfway, {"tokens": 300}]), 50.0, 50.0) == 50


def test_a_wider_bound_gives_up_the_prompt_that_would_sink_the_others():
    # In chunks of a block, 16 tokens, a step takes 12.6 ms: 0.7875 ms a token.  The last two have 0.3 s left.
    prompts = [{"tokens": 200}, {"tokens": 60, "arrival_s": 0.3}, {"tokens": 60, "arrival_s": 0.3}]
    view = make_view(2.0 - 0.2, prompts=prompts)
    assert pack(view, 1.0).order.tolist() == [0, 1, 2]
    assert pack(view, 2.5).order.tolist() == [1, 2, 0]
    assert pack(view, math.inf, typical_ratio=2.5).order.tolist() == [1, 2, 0]


def test_prompts_are_reckoned_to_be_served_at_the_pace_of_the_last_chunk():
    # With 0.2 s left: in chunks of 16, 200 tokens take 0.16 s; in chunks of 1 block beside 30 decodes 0.57 s.
    packer, idle = Packer(make_spec()), make_view(1.8, prompts=[{"tokens": 400}, {"tokens": 40}])
    small = [packer.pack(idle, COEFFICIENTS, 1.0, 1.0).order.tolist() for _ in range(2)]
    # 400 tokens in chunks of 16 are late, and in the chunk of 440 that was packed they are not.
    assert small == [[1, 0], [0, 1]]


def test_banked_time_is_what_decodes_are_ahead_of_their_mean():
    # First token at 1 s, five out: the fifth was due at 1.4 s, so at 1.35 s the decode is 50 ms ahead.
    view = make_view(1.35, decodes=1, prompts=[{"tokens": 5000}])
    # At a ratio of 3.9 a step of 0.1, 0.125 and 0.15 s is one of 25.6, 32.1 and 38.5 ms.
    assert [tokens(view, 3.9, bank_slack=share) for share in (0.0, 0.5, 1.0)] == [135, 199, 263]
    behind = make_view(1.6, decodes=1, prompts=[{"tokens": 5000}])
    assert tokens(behind, 3.9, bank_slack=1.0) == 135


@settings(max_examples=100)
@given(
    st.lists(DECODES.filter(lambda decode: decode["tpot_slo_s"] < math.inf), min_size=1, max_size=7),
    COSTS,
    st.floats(0.5, 3.0),
)
def test_a_step_that_takes_its_bound_makes_nobody_late_who_was_on_time_however_much_is_banked(
    decodes, costs, ratio
):
    spec, view = make_spec(), make_view(10.0, decodes, [{"tokens": 5000}])
    search = ChunkSearch(spec, costs)
    if ratio * search.predict_s(view, 0) > 0.02:
        return  # the tightest target that may be drawn: no chunk need fit
    chunks = []
    for share in (0.0, 0.5, 1.0):
        decision = Packer(spec, bank_slack=share).pack(view, costs, ratio, 1.0)
        chunks.append(decision.prefill_tokens)
        end_s = view.now_s + ratio * search.predict_s(view, chunks[-1], order=decision.order)
        due_s = view.decode_first_token_s + view.decode_output_tokens * view.decode_tpot_slo_s
        late_s = np.maximum(0.0, view.now_s + view.decode_tpot_slo_s - due_s)
        assert (end_s <= due_s + late_s + 1e-9).all()
    assert chunks == sorted(chunks)


@pytest.mark.parametrize("bank_slack", [-0.1, 1.5, math.nan])
def test_a_share_that_is_none_is_refused(bank_slack):
    with pytest.raises(ValueError, match=f"share from 0 to 1, got {bank_slack}"):
        Packer(make_spec(), bank_slack=bank_slack)
