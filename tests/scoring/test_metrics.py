"""Metrics against numbers worked out by hand, and laws that hold for any run."""

import math
import re
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pacer_gym.engine import ITL_EDGES_S
from pacer_gym.scoring import metrics
from pacer_gym.workloads.slo import SLO
from tests.scoring.records import NEVER, make_record

# arrival, prompt, output, first token, finish; targets are 1 s and 100 ms.
MET = (0.0, 10, 5, 0.5, 0.75)  # TTFT 0.5, TPOT 0.0625
LATE = (10.0, 20, 3, 12.0, 12.125)  # TTFT 2, TPOT 0.0625
SLOW = (20.0, 30, 2, 20.25, 20.75)  # TTFT 0.25, TPOT 0.5
ONE_TOKEN = (30.0, 40, 1, 30.5, 30.5)  # TTFT 0.5, TPOT undefined
STUCK = (40.0, 50, 9, 40.5, NEVER)  # TTFT 0.5, never finished
STARVED = (50.0, 60, 9, NEVER, NEVER)
ALL = [MET, LATE, SLOW, ONE_TOKEN, STUCK, STARVED]


@st.composite
def request_rows(draw):
    arrival_s = draw(st.floats(0.0, 99.0))
    wait_s = draw(st.floats(0.0, 3.0) | st.none())
    output_tokens = draw(st.integers(1, 20))
    serve_s = draw(st.floats(0.0, 3.0) | st.none())
    first_s = NEVER if wait_s is None else arrival_s + wait_s
    finish_s = NEVER if serve_s is None else first_s + (serve_s if output_tokens > 1 else 0.0)
    return arrival_s, draw(st.integers(1, 5000)), output_tokens, first_s, finish_s


def test_ttft_and_tpot_of_each_kind_of_request():
    record = make_record(ALL)
    np.testing.assert_array_equal(metrics.ttft_s(record), [0.5, 2.0, 0.25, 0.5, 0.5, np.inf])
    np.testing.assert_array_equal(metrics.tpot_s(record), [0.0625, 0.0625, 0.5, np.nan, np.inf, np.inf])


def test_attainment_by_hand():
    record = make_record(ALL)
    assert metrics.ttft_met(record).tolist() == [True, False, True, True, True, False]
    assert metrics.tpot_met(record).tolist() == [True, True, False, True, False, False]
    assert metrics.attainment(record) == 2 / 6
    assert metrics.ttft_attainment(record) == 4 / 6
    assert metrics.tpot_attainment(record) == 3 / 6


def test_both_targets_are_inclusive():
    exact = (0.0, 10, 3, 1.0, 1.25)
    assert metrics.attainment(make_record([exact], slo=SLO(ttft_s=1.0, tpot_s=0.125))) == 1.0
    assert (
        metrics.attainment(make_record([exact], slo=SLO(ttft_s=math.nextafter(1.0, 0.0), tpot_s=0.125)))
        == 0.0
    )
    assert (
        metrics.attainment(make_record([exact], slo=SLO(ttft_s=1.0, tpot_s=math.nextafter(0.125, 0.0))))
        == 0.0
    )


def test_each_request_is_held_to_its_own_targets():
    record = make_record([LATE, LATE])
    columns = dict(record.request_columns) | {"ttft_slo_s": np.array([1.0, 2.0])}
    assert metrics.attainment(replace(record, request_columns=columns)) == 0.5


def test_a_target_that_is_always_met_is_missed_by_what_never_finished():
    record = make_record(ALL, slo=SLO(ttft_s=math.inf, tpot_s=math.inf))
    assert metrics.attainment(record) == 4 / 6


def test_a_one_token_request_that_never_finished_is_a_miss_of_both():
    record = make_record([(0.0, 10, 1, NEVER, NEVER)])
    assert metrics.ttft_attainment(record) == metrics.tpot_attainment(record) == 0.0


def test_the_window_holds_its_start_and_not_its_end():
    record = make_record(ALL)
    assert metrics.attainment(record, between=(0.0, 10.0)) == 1.0
    assert metrics.attainment(record, between=(0.0, 10.5)) == 0.5
    assert metrics.attainment(record, between=(30.0, 40.0)) == 1.0
    assert metrics.attainment(make_record(ALL, window_s=(20.0, 40.0))) == 0.5


@pytest.mark.parametrize("between", [(5.0, 5.0), (9.0, 3.0), (float("nan"), 3.0)])
def test_a_window_that_is_none_is_refused(between):
    with pytest.raises(ValueError, match="start < end"):
        metrics.attainment(make_record(ALL), between=between)


def test_a_window_without_arrivals_is_refused_and_told_where_they_are():
    with pytest.raises(
        ValueError, match=r"no request arrived between 60.0 s and 70.0 s; the run's 6 .* 0.0 s and 50.0 s"
    ):
        metrics.attainment(make_record(ALL), between=(60.0, 70.0))


def test_the_summary_by_hand():
    record = make_record(ALL, window_s=(0.0, 50.0), gaps_s=(0.0625,) * 4 + (0.5,))
    columns = dict(record.request_columns) | {
        "preemptions": np.array([0, 2, 0, 0, 1, 7]),
        "rejected": np.array([False, False, False, False, False, True]),
    }
    values = metrics.summary(replace(record, request_columns=columns))
    by_length = values.pop("ttft_by_prompt_length")
    itl = {percent: values.pop(f"itl_p{percent}_s") for percent in (50, 90, 99)}
    assert values == {
        "requests": 5,
        "offered_rps": 5 / 50,
        "attainment": 2 / 5,
        "ttft_attainment": 4 / 5,
        "tpot_attainment": 3 / 5,
        "goodput_rps": 2 / 50,
        "throughput_rps": 4 / 50,
        "one_token_share": 1 / 5,
        "rejected": 0,
        "unfinished": 1,
        "preemptions": 3,
        "steps": 10,
        "mean_step_s": 0.05,
        "ttft_p50_s": 0.5,
        "ttft_p90_s": 2.0,
        "ttft_p99_s": 2.0,
        "tpot_p50_s": 0.0625,
        "tpot_p90_s": np.inf,
        "tpot_p99_s": np.inf,
    }
    assert 0.0625 <= itl[50] <= 0.0625 * 1.01
    assert 0.5 <= itl[90] == itl[99] <= 0.5 * 1.01
    # Prompts of 10, 20, 30, 40, 50 tokens: quartiles end at the 2nd, 3rd and 4th of five.
    assert [(row["min_tokens"], row["max_tokens"], row["requests"]) for row in by_length] == [
        (10, 20, 2),
        (30, 30, 1),
        (40, 40, 1),
        (50, 50, 1),
    ]
    assert [row["ttft_p90_s"] for row in by_length] == [2.0, 0.25, 0.5, 0.5]


def test_a_rejected_request_is_no_unfinished_one():
    record = make_record([MET, STARVED])
    columns = dict(record.request_columns) | {"rejected": np.array([False, True])}
    values = metrics.summary(replace(record, request_columns=columns))
    assert (values["rejected"], values["unfinished"], values["attainment"]) == (1, 0, 0.5)


def test_throughput_counts_by_finish_and_goodput_by_arrival():
    early = (0.0, 10, 2, 0.5, 12.0)
    late = (15.0, 10, 2, 15.5, 25.0)
    record = make_record([early, late], window_s=(10.0, 20.0), slo=SLO(ttft_s=1.0, tpot_s=20.0))
    assert metrics.throughput_rps(record) == 0.1  # `early` finished inside
    assert metrics.goodput_rps(record) == 0.1  # `late` arrived inside and met its targets after it


def test_percentiles_without_values_are_undefined_and_without_steps_too():
    values = metrics.summary(make_record([ONE_TOKEN], num_steps=0, step_s_sum=0.0))
    assert math.isnan(values["tpot_p50_s"])
    assert math.isnan(values["itl_p99_s"])
    assert math.isnan(values["mean_step_s"])


def test_requests_without_a_first_token_stay_in_the_percentiles():
    rows = [(float(k), 10, 2, k + 0.5, k + 0.5625) for k in range(89)]
    rows += [(float(k), 10, 2, NEVER, NEVER) for k in range(89, 100)]
    values = metrics.summary(make_record(rows))
    assert (values["ttft_p50_s"], values["ttft_p90_s"]) == (0.5, math.inf)


@given(st.lists(st.floats(0.0, 1e6), min_size=1, max_size=60), st.sampled_from([1, 10, 50, 55, 90, 99, 100]))
def test_a_percentile_is_the_least_value_that_enough_others_do_not_exceed(values, percent):
    values = np.array(values)
    found = metrics.percentile(values, percent)
    assert found in values
    assert 100 * np.count_nonzero(values <= found) >= percent * len(values)
    assert 100 * np.count_nonzero(values < found) < percent * len(values)


@given(st.lists(st.floats(2e-4, 50.0), min_size=1, max_size=60), st.sampled_from([1, 50, 90, 99, 100]))
def test_an_itl_percentile_is_at_most_one_bin_above_the_exact_one(gaps_s, percent):
    exact_s = metrics.percentile(np.array(gaps_s), percent)
    found_s = metrics.itl_percentile_s(make_record([MET], gaps_s=tuple(gaps_s)), percent)
    assert exact_s <= found_s <= exact_s * 1.0101
    assert found_s in ITL_EDGES_S


@given(st.lists(request_rows(), min_size=1, max_size=30))
@settings(max_examples=60)
def test_attainment_is_the_mean_of_what_was_met(rows):
    record = make_record(rows)
    met = [
        f - a <= 1.0 and not math.isnan(e) and (n == 1 or (e - f) / (n - 1) <= 0.1) for a, _, n, f, e in rows
    ]
    assert metrics.attainment(record) == pytest.approx(np.mean(met), abs=1e-12)
    assert metrics.goodput_rps(record) == pytest.approx(np.sum(met) / 100.0)
    assert metrics.attainment(record) <= min(metrics.ttft_attainment(record), metrics.tpot_attainment(record))


@given(st.lists(request_rows(), min_size=1, max_size=30), st.randoms(use_true_random=False))
@settings(max_examples=60)
def test_no_metric_depends_on_the_order_of_the_requests(rows, random):
    shuffled = list(rows)
    random.shuffle(shuffled)
    # As text, so that an undefined value equals itself.
    assert str(metrics.summary(make_record(rows))) == str(metrics.summary(make_record(shuffled)))


@given(st.lists(request_rows(), min_size=1, max_size=30), st.floats(1.0, 99.0))
@settings(max_examples=60)
def test_two_halves_of_the_window_average_to_the_whole(rows, cut_s):
    record = make_record(rows)
    early = [row for row in rows if row[0] < cut_s]
    parts = [
        (count, metrics.attainment(record, between=window))
        for count, window in ((len(early), (0.0, cut_s)), (len(rows) - len(early), (cut_s, 100.0)))
        if count
    ]
    assert metrics.attainment(record) == pytest.approx(sum(n * share for n, share in parts) / len(rows))


@given(st.lists(request_rows(), min_size=1, max_size=40))
@settings(max_examples=60)
def test_prompt_length_quartiles_share_out_all_requests_without_overlap(rows):
    quartiles = metrics.ttft_by_prompt_length(make_record(rows))
    assert sum(row["requests"] for row in quartiles) == len(rows)
    for shorter, longer in pairwise(quartiles):
        assert shorter["max_tokens"] < longer["min_tokens"]


def test_the_page_on_metrics_names_what_the_summary_holds():
    page = (Path(__file__).parents[2] / "docs" / "metrics.md").read_text(encoding="utf-8")
    table = page.split("## The names")[1].split("\n\n")[1]
    named = [name for line in table.splitlines()[2:] for name in re.findall(r"`(\w+)`", line.split("|")[1])]
    assert sorted(named) == sorted(metrics.summary(make_record([MET])))
