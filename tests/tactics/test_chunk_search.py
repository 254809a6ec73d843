import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numba import njit

from pacer_gym.errors import DecisionError
from pacer_gym.latency.features import write_features
from pacer_gym.tactics.chunk_search import NOTHING_FITS, ChunkSearch, largest_chunk
from pacer_gym.tactics.prompt_sums import (
    END_TOKENS,
    StepPlan,
    predict_step_s,
    prompts_finished,
    write_prompt_sums,
)
from tests.views import make_spec, make_view

NO_ORDER = np.empty(0, np.int64)
NO_BUCKETS = np.empty(0, np.int64)
# Prompts by tokens left and tokens computed: fresh, half done, and of absurd sizes.
PROMPTS = st.tuples(
    st.one_of(st.integers(1, 6), st.integers(1, 150), st.just(10**12)),
    st.one_of(st.just(0), st.integers(0, 500), st.just(10**12)),
)
# Tenths and halves make ties, the former only up to rounding; the rest are what a fit may come to.
TENTHS = st.integers(-30, 30).map(lambda k: k * 0.1)
HALVES = st.integers(-6, 6).map(lambda k: k / 2.0)
COSTS = st.one_of(TENTHS, HALVES, st.floats(-10.0, 10.0, allow_subnormal=False))


@njit
def scan(plan, most_tokens, ratio, limit_s):
    """Try every budget, largest first."""
    for tokens in range(most_tokens, -1, -1):
        if ratio * predict_step_s(plan, tokens) <= limit_s:
            return tokens
    return NOTHING_FITS


@njit
def least_s(plan, most_tokens):
    """Shortest step that any budget makes."""
    step_s = np.inf
    for tokens in range(most_tokens + 1):
        step_s = min(step_s, predict_step_s(plan, tokens))
    return step_s


def plain_step_s(view, tokens, order, spec, coefficients):
    """Share the budget out prompt by prompt, and weigh what `write_features` says of the step."""
    pairs = context_tokens = chunks = prefill_tokens = 0
    for k in range(view.prompt_ids.size) if order is None else order:
        computed = int(view.prompt_computed_tokens[k])
        chunk = min(int(view.prompt_tokens[k]) - computed, tokens - prefill_tokens)
        if chunk > 0:
            prefill_tokens += chunk
            pairs += chunk * computed + chunk * (chunk + 1) // 2
            context_tokens += computed
            chunks += 1
    decodes, features = view.decode_ids.size, np.empty(7)
    write_features(
        features,
        decodes,
        int(view.decode_context_tokens.sum()) + decodes,
        prefill_tokens,
        pairs,
        context_tokens,
        chunks,
        spec.model.attention_flop_per_pair,
        spec.model.kv_bytes_per_token,
        spec.batch_buckets,
    )
    step_s = 0.0
    for coefficient, feature in zip(coefficients.tolist(), features.tolist(), strict=True):
        step_s += coefficient * feature
    return step_s


@st.composite
def plans(draw, costs):
    """A plan and the largest budget it was made for."""
    rows = draw(st.lists(PROMPTS, max_size=6))
    left, computed = np.array(rows, np.int64).reshape(-1, 2).T
    order = np.array(draw(st.permutations(range(len(rows)))), np.int64)
    order_len = draw(st.integers(-1, len(rows)))
    most_tokens = draw(st.one_of(st.just(0), st.integers(0, 300)))
    sums = np.full((4, 1 + min(len(rows), most_tokens)), -1, np.int64)
    num_prompts = write_prompt_sums(sums, order, order_len, left + computed, computed, most_tokens)
    decodes = draw(st.integers(0, 12))
    coefficients = np.array(draw(st.lists(costs, min_size=7, max_size=7)))
    # Attention and cache reads are many small things, so that no term drowns the others.
    coefficients[2:5] *= draw(st.sampled_from([1.0, 1e-1, 1e-3, 1e-16]))
    if draw(st.booleans()):
        coefficients[5] = coefficients[1]  # padding that costs as much as tokens: flat, up to rounding
    buckets = draw(st.one_of(st.just([]), st.lists(st.integers(1, 200), max_size=7, unique=True).map(sorted)))
    plan = StepPlan(
        sums, num_prompts, decodes, 100 * decodes, coefficients, 3, 2, np.array(buckets, np.int64)
    )
    return plan, most_tokens


@st.composite
def searches(draw, costs):
    """A plan, its largest budget, a ratio, and a limit that is often met exactly, or nearly."""
    plan, most_tokens = draw(plans(costs))
    ratio = draw(st.sampled_from([1.0, 0.0, 0.5, 1.1, 1.7]))
    limit_s = ratio * predict_step_s(plan, draw(st.integers(0, most_tokens)))
    limit_s += draw(st.sampled_from([0.0, 0.0, -0.05, 0.05]))
    if draw(st.booleans()):
        limit_s = float(np.nextafter(limit_s, -np.inf))
    return plan, most_tokens, ratio, limit_s


@settings(max_examples=300)
@given(searches(COSTS))
def test_it_finds_what_trying_every_budget_finds_whatever_the_coefficients(search):
    assert largest_chunk(*search) == scan(*search)


@settings(max_examples=200)
@given(searches(COSTS.map(abs)))
def test_it_finds_what_trying_every_budget_finds_when_nothing_has_a_negative_cost(search):
    assert largest_chunk(*search) == scan(*search)


def test_it_finds_what_trying_every_budget_finds_in_bulk():
    rng = np.random.default_rng(0)
    for _ in range(1500):
        n, most_tokens, decodes = rng.integers([0, 1, 0], [9, 600, 30])
        computed = rng.integers(0, 200, n) * rng.integers(0, 2, n)
        prompt_tokens = computed + rng.integers(1, 200, n)
        buckets = np.unique(rng.integers(1, 400, rng.integers(0, 20)))
        coefficients = rng.choice([rng.normal(size=7), 0.1 * rng.integers(-3, 4, 7)])
        coefficients[2] *= 10.0 ** rng.integers(-18, 0)
        coefficients[5] = rng.choice([coefficients[5], coefficients[1], coefficients[1] * (1.0 + 1e-15)])
        sums = np.empty((4, n + 1), np.int64)
        num_prompts = write_prompt_sums(sums, rng.permutation(n), n, prompt_tokens, computed, most_tokens)
        plan = StepPlan(sums, num_prompts, int(decodes), 50 * int(decodes), coefficients, 2, 1, buckets)
        tie_s = predict_step_s(plan, rng.integers(most_tokens + 1))
        for limit_s in (
            tie_s,
            np.nextafter(tie_s, -np.inf),
            tie_s + rng.normal(),
            least_s(plan, most_tokens),
        ):
            search = plan, most_tokens, 1.0, limit_s
            assert largest_chunk(*search) == scan(*search)


@settings(max_examples=100)
@given(st.data())
def test_a_prediction_is_coefficients_times_features_to_the_last_bit(data):
    rows = data.draw(st.lists(st.tuples(st.integers(1, 60), st.integers(0, 90)), max_size=6))
    view = make_view(
        decodes=[{"context_tokens": c} for c in data.draw(st.lists(st.integers(1, 999), max_size=5))],
        prompts=[{"tokens": left + computed, "computed_tokens": computed} for left, computed in rows],
    )
    spec = make_spec(batch_buckets=data.draw(st.sampled_from([NO_BUCKETS, np.array([2, 30, 31, 128])])))
    coefficients = np.array(data.draw(st.lists(COSTS, min_size=7, max_size=7)))
    chosen = st.permutations(range(len(rows))).map(lambda order: order[: 1 + len(order) // 2])
    order = data.draw(st.one_of(st.none(), chosen))
    search = ChunkSearch(spec, coefficients)
    for tokens in (0, 1, data.draw(st.integers(0, 400)), 400):
        expected_s = plain_step_s(view, tokens, order, spec, coefficients)
        assert search.predict_s(view, tokens, order=order) == expected_s


@settings(max_examples=100)
@given(plans(COSTS), st.integers(0, 400))
def test_prompts_finished_counts_those_that_a_budget_covers(pair, tokens):
    plan, most_tokens = pair
    tokens = min(tokens, most_tokens)
    ends = plan.sums[END_TOKENS, 1 : plan.num_prompts + 1]
    assert prompts_finished(plan, tokens) == np.count_nonzero(ends <= tokens)


@settings(max_examples=100)
@given(searches(COSTS.map(abs)), st.floats(1.0, 4.0))
def test_a_wider_bound_or_a_tighter_limit_never_allows_more(search, factor):
    plan, most_tokens, ratio, limit_s = search
    budget = largest_chunk(plan, most_tokens, ratio, limit_s)
    assert largest_chunk(plan, most_tokens, ratio * factor, limit_s) <= budget
    assert largest_chunk(plan, most_tokens, ratio, limit_s - factor) <= budget


def test_a_budget_worked_out_by_hand():
    view = make_view(decodes=4, prompts=[{"tokens": 40, "computed_tokens": 10}, {"tokens": 500}])
    search = ChunkSearch(make_spec())
    # 10 ms, 0.1 ms for each token and 1 ms for each request: 14.4 ms without prompts.
    assert search.predict_s(view, 0) == pytest.approx(0.0144, rel=1e-12)
    # A chunk of the first prompt costs 1 ms and 0.1 ms a token: 20 tokens make 17.4 ms.
    assert search.largest(view, 0.01745) == 20
    # All 30 make 18.4 ms; one token of the second makes 19.5 ms.
    assert search.largest(view, 0.019) == 30
    assert search.largest(view, 0.01955) == 31
    # The second prompt alone: 16.4 ms with 10 tokens.
    assert search.largest(view, 0.01645, order=[1]) == 10
    # A bound of twice the prediction leaves half of the limit.
    assert search.largest(view, 2 * 0.01745, ratio=2.0) == 20


def test_a_limit_that_is_met_exactly_is_met():
    view, search = make_view(decodes=4, prompts=3), ChunkSearch(make_spec())
    for tokens in (0, 1, 99, 100, 101, 250):
        limit_s = 1.3 * search.predict_s(view, tokens)
        assert search.largest(view, limit_s, ratio=1.3) == tokens
        assert search.largest(view, np.nextafter(limit_s, 0.0), ratio=1.3) == tokens - 1


def test_where_padding_costs_more_than_tokens_a_full_bucket_fits_though_smaller_steps_do_not():
    coefficients = np.array([0.0, 1.0, 0.0, 0.0, 0.0, 3.0, 0.0])
    search = ChunkSearch(make_spec(batch_buckets=np.array([8, 64])), coefficients)
    view = make_view(decodes=2, prompts=1)
    # Full buckets take 8 s and 64 s.  Neither 2 tokens (20 s) nor 9 (174 s) fit 8 s and 64 s.
    assert search.largest(view, 7.9) == NOTHING_FITS
    assert search.largest(view, 8.0) == 6
    assert search.largest(view, 63.9) == 6
    assert search.largest(view, 64.0) == 62
    assert search.largest(view, 66.0) == 64  # beyond the last bucket nothing is padded
    assert search.largest(view, 102.0) == 510  # 2 decodes and all 100 tokens of the prompt
    assert search.largest(view, 101.9) == 99


def test_once_all_prompts_fit_the_answer_is_the_largest_budget_considered():
    view, search = make_view(decodes=12, prompts=3), ChunkSearch(make_spec())
    assert search.largest(view, np.inf) == 500  # the engine's 512 less the decodes
    assert search.largest(view, np.inf, most_tokens=10_000) == 500
    assert search.largest(view, np.inf, most_tokens=320) == 320
    assert search.largest(view, np.inf, most_tokens=40) == 40
    assert search.largest(make_view(decodes=12), 1.0) == 500


def test_nothing_fits_where_the_decodes_alone_are_too_slow_or_the_bound_is_infinite():
    search = ChunkSearch(make_spec())
    view = make_view(decodes=4, prompts=2)
    assert search.largest(view, 0.0143) == NOTHING_FITS
    assert search.largest(view, 0.0145) == 0
    assert search.largest(view, np.inf, ratio=np.inf) == NOTHING_FITS
    assert search.largest(make_view(), 0.0, ratio=np.inf) == NOTHING_FITS


def test_with_nothing_running_the_budget_is_bounded_all_the_same():
    search = ChunkSearch(make_spec())
    assert search.largest(make_view(prompts=2), 0.01305) == 20  # 10 ms, 1 ms, and 0.1 ms a token
    assert search.largest(make_view(), 0.01) == 512
    assert search.largest(make_view(), 0.009) == NOTHING_FITS


def test_prompts_that_the_budget_cannot_reach_are_not_visited():
    sums = np.empty((4, 4), np.int64)
    prompt_tokens = np.array([30, 30, 40, -999])  # the last would spoil any sum
    assert write_prompt_sums(sums, NO_ORDER, -1, prompt_tokens, np.zeros(4, np.int64), 100) == 3
    assert sums[END_TOKENS].tolist() == [0, 30, 60, 100]
    with pytest.raises(ValueError, match="too few columns"):
        write_prompt_sums(sums[:, :3], NO_ORDER, -1, prompt_tokens, np.zeros(4, np.int64), 100)


def test_a_prompt_with_nothing_left_is_no_prompt():
    sums = np.empty((4, 3), np.int64)
    computed = np.array([0, 9, 5])
    assert write_prompt_sums(sums, NO_ORDER, -1, np.array([4, 9, 11]), computed, 100) == 2
    assert sums[END_TOKENS].tolist() == [0, 4, 10]


def test_more_decodes_than_the_batch_holds_leave_no_room():
    view, search = make_view(decodes=600, prompts=2), ChunkSearch(make_spec())
    assert search.largest(view, np.inf) == 0


def test_what_cannot_be_searched_is_refused_by_name():
    view, search = make_view(decodes=1, prompts=2), ChunkSearch(make_spec())
    with pytest.raises(ValueError, match="limit_s must not be nan"):
        search.largest(view, np.nan)
    for ratio in (-1.0, np.nan):
        with pytest.raises(ValueError, match="ratio at least 0"):
            search.largest(view, 1.0, ratio=ratio)
    with pytest.raises(DecisionError, match="indices of the view's 2 prompts"):
        search.largest(view, 1.0, order=[0, 2])
    with pytest.raises(DecisionError, match="got -1"):
        search.predict_s(view, -1)
    with pytest.raises(ValueError, match=r"'by-hand' has no coefficients"):
        ChunkSearch(make_spec(coefficients=None))
    for bad in (np.ones(6), np.full(7, np.nan)):
        with pytest.raises(ValueError, match="seven finite numbers"):
            ChunkSearch(make_spec(), bad)
