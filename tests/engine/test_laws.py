"""What holds for every run, whatever arrives and whatever a policy decides."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pacer_gym.engine.simulator import Simulator
from pacer_gym.engine.view import EngineView, StepDecision
from tests.engine.cases import MOST_STEPS, cases, run_to_end, starved_case, steps_of, tables_of

every_case = settings(max_examples=60)


def kv_tokens(view: EngineView) -> dict[int, int]:
    """Tokens in the KV cache of every request that is neither done nor to come."""
    ids = np.concatenate([view.decode_ids, view.prompt_ids]).tolist()
    tokens = np.concatenate([view.decode_context_tokens, view.prompt_computed_tokens]).tolist()
    return dict(zip(ids, tokens, strict=True))


def output_tokens(view: EngineView) -> dict[int, int]:
    ids = np.concatenate([view.decode_ids, view.prompt_ids]).tolist()
    tokens = np.concatenate([view.decode_output_tokens, view.prompt_output_tokens]).tolist()
    return dict(zip(ids, tokens, strict=True))


def plain_verdicts(requests: dict[str, np.ndarray]) -> np.ndarray:
    """Verdict of every request of a finished run, from its timestamps alone."""
    ttft_s = requests["first_token_s"] - requests["arrival_s"]
    gaps = np.maximum(requests["output_tokens"] - 1, 1)  # one token takes no time after the first
    tpot_s = (requests["finish_s"] - requests["first_token_s"]) / gaps
    met = (ttft_s <= requests["ttft_slo_s"]) & (tpot_s <= requests["tpot_slo_s"])  # nan compares False
    return np.where(met, 1, -1)


@given(cases)
@every_case
def test_every_token_is_computed_kept_or_lost(case):
    workload = case.workload
    finished_tokens = workload.prompt_tokens + workload.output_tokens - 1  # the last one is never an input
    for before, _, outcome, after in steps_of(case):
        held, holds = kv_tokens(before), kv_tokens(after)
        left = sum(finished_tokens[request] for request in held.keys() - holds.keys())
        lost = sum(held[request] for request in held.keys() & holds.keys() if holds[request] < held[request])
        gained = outcome.decodes + outcome.prefill_tokens
        assert sum(holds.values()) == sum(held.values()) + gained - left - lost


@given(cases)
@every_case
def test_chunks_add_up_to_prompts_and_what_is_computed_again(case):
    engine = case.simulator()
    prefill = decodes = again = 0
    for before, _, outcome, after in steps_of(case, engine):
        prefill += outcome.prefill_tokens
        decodes += outcome.decodes
        held, holds = kv_tokens(before), kv_tokens(after)
        again += sum(held[request] for request in held.keys() & holds.keys() if holds[request] == 0)
    requests = engine.requests()
    served = ~requests["rejected"]
    prompts, outputs = requests["prompt_tokens"][served], requests["output_tokens"][served]
    # Every output token but the last becomes an input: of a decode, or of a prompt computed again.
    assert prefill + decodes == (prompts + outputs - 1).sum() + again
    if not requests["preemptions"].any():
        assert (prefill, decodes) == (prompts.sum(), (outputs - 1).sum())
    assert engine.itl_counts.sum() == (outputs - 1).sum()


@given(cases)
@every_case
def test_blocks_are_free_or_held(case):
    limits = case.profile.limits
    engine = case.simulator()
    for step in steps_of(case, engine):
        held = sum(-(-tokens // limits.block_tokens) for tokens in kv_tokens(step.after).values())
        assert step.after.free_blocks >= 0
        assert step.after.free_blocks + held == limits.num_blocks
    assert engine.view().free_blocks == limits.num_blocks


@given(cases)
@every_case
def test_every_request_is_in_one_stage(case):
    engine = case.simulator()
    assert_one_stage_each(engine)
    for _ in steps_of(case, engine):
        assert_one_stage_each(engine)
    requests = engine.requests()
    assert np.array_equal(requests["rejected"], np.isnan(requests["finish_s"]))


def assert_one_stage_each(engine: Simulator) -> None:
    view, requests, row = engine.view(), engine.requests(), tables_of(engine).lanes[0]
    arrived = set(np.flatnonzero(requests["arrival_s"] <= view.now_s).tolist())
    done = set(np.flatnonzero(~np.isnan(requests["finish_s"])).tolist())
    rejected = set(np.flatnonzero(requests["rejected"]).tolist())
    stages = [set(view.decode_ids.tolist()), set(view.prompt_ids.tolist()), done, rejected]
    assert sum(map(len, stages)) == len(set.union(*stages))
    assert set.union(*stages) == arrived
    assert view.decode_ids.size + view.prompt_ids.size == sum(map(len, stages[:2]))
    assert (row["finished"], row["rejected"]) == (len(done), len(rejected))
    assert row["preemptions"] == requests["preemptions"].sum()
    assert (row["met"], row["missed"]) == (
        (requests["verdict"] == 1).sum(),
        (requests["verdict"] == -1).sum(),
    )


@given(cases)
@every_case
def test_no_step_breaks_a_limit_or_the_decision(case):
    limits = case.profile.limits
    for before, decision, outcome, after in steps_of(case):
        assert 0 < outcome.decodes + outcome.prefill_tokens <= limits.max_batched_tokens
        assert (after.decode_ids.size + (after.prompt_computed_tokens > 0).sum()) <= limits.max_running
        assert outcome.prefill_tokens <= decision.prefill_tokens or outcome.forced
        if outcome.forced:
            assert outcome.decodes == 0
            assert outcome.prefill_tokens <= max(decision.prefill_tokens, limits.block_tokens)
        elif decision.order is not None:
            left_out = np.delete(before.prompt_ids, decision.order).tolist()
            held, holds = kv_tokens(before), kv_tokens(after)
            assert all(holds[request] <= held[request] for request in left_out)
        assert outcome.features[[1, 6]].tolist() == [
            outcome.decodes + outcome.prefill_tokens,
            outcome.decodes + outcome.chunks,
        ]


@given(cases)
@every_case
def test_the_clock_moves_on_and_jumps_only_over_idle_time(case):
    arrival_s = case.workload.arrival_s
    for before, _, outcome, after in steps_of(case):
        assert outcome.start_s == before.now_s
        assert outcome.step_s > 0.0
        end_s = outcome.start_s + outcome.step_s
        if after.now_s != end_s:
            assert after.now_s in arrival_s
            assert after.now_s > end_s
            arrived = np.concatenate([after.decode_arrival_s, after.prompt_arrival_s])
            assert (arrived > end_s).all()


@given(cases)
@every_case
def test_every_decode_gets_its_token_unless_it_is_preempted(case):
    for before, _, outcome, after in steps_of(case):
        had, has = output_tokens(before), output_tokens(after)
        decoding = set(before.decode_ids.tolist())
        preempted = decoding & set(after.prompt_ids.tolist())
        assert outcome.decodes == len(decoding) - len(preempted)
        assert len(preempted) <= outcome.preempted
        for request in decoding & has.keys():
            assert has[request] - had[request] == (request not in preempted)


@given(cases)
@every_case
def test_prefill_never_idles_while_a_prompt_may_be_served(case):
    for before, decision, outcome, _ in steps_of(case):
        if decision.order is not None or outcome.preempted:
            continue
        remaining = before.prompt_tokens - before.prompt_computed_tokens
        prefilling = remaining[before.prompt_computed_tokens > 0].sum()
        room = case.profile.limits.max_batched_tokens - outcome.decodes
        assert outcome.prefill_tokens >= min(decision.prefill_tokens, room, prefilling)


@given(cases)
@every_case
def test_nothing_is_seen_before_it_arrives(case):
    engine = case.simulator()
    for step in steps_of(case, engine):
        for view in (step.before, step.after):
            assert (view.decode_arrival_s <= view.now_s).all()
            assert (view.prompt_arrival_s <= view.now_s).all()
    requests = engine.requests()
    served = ~requests["rejected"]
    assert (requests["first_token_s"] > requests["arrival_s"])[served].all()
    assert (requests["finish_s"] >= requests["first_token_s"])[served].all()


@given(cases)
@every_case
def test_all_that_is_admitted_finishes_however_often_it_is_preempted(case):
    requests = run_to_end(case).requests()
    fits = requests["prompt_tokens"] + requests["output_tokens"] <= min(
        case.profile.limits.max_model_tokens, case.profile.limits.cache_tokens
    )
    assert np.array_equal(fits, ~requests["rejected"])
    assert np.array_equal(fits, np.isfinite(requests["finish_s"]))


@given(cases, st.booleans())
@every_case
def test_a_policy_that_gives_nothing_cannot_stop_the_engine(case, names_nobody):
    engine = case.simulator()
    nothing = StepDecision(0, np.empty(0, np.int64) if names_nobody else None)
    for _ in range(MOST_STEPS):
        if not engine.has_work:
            break
        outcome = engine.step(nothing)
        assert outcome.forced == (outcome.decodes == 0)
    requests = engine.requests()
    assert np.isfinite(requests["finish_s"][~requests["rejected"]]).all()


@given(cases)
@every_case
def test_verdicts_are_what_the_timestamps_say(case):
    engine = case.simulator()
    settled = engine.requests()["verdict"]
    assert settled.tolist() == [-1 if rejected else 0 for rejected in engine.requests()["rejected"]]
    for step in steps_of(case, engine):
        requests = engine.requests()
        verdict = requests["verdict"]
        assert (verdict == settled)[settled != 0].all(), "a verdict changed"
        settled = verdict
        waits_s = step.after.now_s - requests["arrival_s"]
        too_late = np.isnan(requests["first_token_s"]) & (waits_s > requests["ttft_slo_s"])
        assert (verdict[too_late] == -1).all()
        assert (verdict[np.isfinite(requests["finish_s"])] != 0).all()
    assert np.array_equal(settled, plain_verdicts(engine.requests()))


def test_a_drained_engine_refuses_another_step():
    engine = run_to_end(starved_case(0))
    with pytest.raises(RuntimeError, match="has_work is False"):
        engine.step(StepDecision(1))
