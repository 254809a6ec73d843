"""Lengths follow the trace they were taken from, jointly, and the shipped table can be made again."""

import importlib.util
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from pacer_gym.errors import WorkloadError
from pacer_gym.workloads.columns import MAX_TOKENS
from pacer_gym.workloads.lengths import LengthTable, chat_lengths, divide_tokens, lognormal_lengths
from pacer_gym.workloads.traces import load_trace

SCRIPT = Path(__file__).parents[2] / "scripts" / "make_chat_lengths.py"
seeds = st.integers(0, 2**32)


def lognormal(count, rng):
    return lognormal_lengths(count, rng, prompt_mean_tokens=900.0, output_mean_tokens=90.0)


@pytest.fixture(scope="module")
def script():
    spec = importlib.util.spec_from_file_location("make_chat_lengths", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("law", [chat_lengths, lognormal])
@settings(max_examples=50)
@given(seed=seeds, count=st.integers(1, 300), more=st.integers(0, 300))
def test_a_longer_draw_begins_with_the_shorter(law, seed, count, more):
    short = law(count, np.random.default_rng(seed))
    long = law(count + more, np.random.default_rng(seed))
    for few, many in zip(short, long, strict=True):
        assert few.dtype == np.int64
        assert few.shape == (count,)
        assert np.all(few >= 1)
        assert np.array_equal(many[:count], few)


def test_chat_lengths_have_the_published_statistics():
    prompt, output = chat_lengths(400_000, np.random.default_rng(0))
    assert [prompt.mean(), np.median(prompt), np.quantile(prompt, 0.99)] == pytest.approx(
        [1155, 1020, 4142], rel=0.01
    )
    assert [output.mean(), np.median(output)] == pytest.approx([211, 129], rel=0.01)


@pytest.mark.usefixtures("data_folder")
def test_chat_lengths_keep_the_traces_joint_law():
    trace = load_trace("azure-conv")
    prompt, output = chat_lengths(400_000, np.random.default_rng(1))
    for drawn, seen in ((prompt, trace.prompt_tokens), (output, trace.output_tokens)):
        assert drawn.mean() == pytest.approx(seen.mean(), rel=0.01)
        assert drawn.std() == pytest.approx(seen.std(), rel=0.03)  # the longest prompts are few
        levels = [0.1, 0.25, 0.5, 0.75, 0.9, 0.99]
        assert np.quantile(drawn, levels) == pytest.approx(np.quantile(seen, levels), rel=0.02)
        assert seen.min() <= drawn.min()
        assert drawn.max() <= seen.max()
    assert stats.spearmanr(prompt, output)[0] == pytest.approx(
        stats.spearmanr(trace.prompt_tokens, trace.output_tokens)[0], abs=0.01
    )
    edges = np.quantile(trace.prompt_tokens, np.linspace(0, 1, 11))
    for low, high in pairwise(edges):
        of_drawn = output[(prompt >= low) & (prompt < high)]
        of_seen = trace.output_tokens[(trace.prompt_tokens >= low) & (trace.prompt_tokens < high)]
        assert np.median(of_drawn) == pytest.approx(np.median(of_seen), rel=0.05)
        assert of_drawn.mean() == pytest.approx(of_seen.mean(), rel=0.05)


def test_the_shipped_table_is_what_the_script_makes(script, data_folder, tmp_path):
    paths = [data_folder / "azure-llm-2023", data_folder]
    trace = next(path for folder in paths if (path := folder / "AzureLLMInferenceTrace_conv.csv").is_file())
    assert script.main([str(trace), "--out", str(tmp_path / "table.json")]) == 0
    assert (tmp_path / "table.json").read_bytes() == script.SHIPPED.read_bytes()
    assert script.SHIPPED.stat().st_size < 100 * 1024


def test_the_script_refuses_another_trace(script, tmp_path):
    (tmp_path / "other.csv").write_text("arrival_s,prompt_tokens,output_tokens\n0,1,1\n")
    with pytest.raises(SystemExit, match="is not the published trace"):
        script.main([str(tmp_path / "other.csv"), "--out", str(tmp_path / "table.json")])
    assert not (tmp_path / "table.json").exists()


def test_a_table_of_few_requests_holds_them_all():
    prompt, output = np.array([30, 10, 20, 40]), np.array([3, 1, 2, 9])
    table = LengthTable.from_requests(prompt, output, prompt_steps=3, bins=2, output_steps=1)
    assert table.prompt_tokens.tolist() == [10, 20, 30, 40]
    assert table.output_tokens.tolist() == [[1, 2], [3, 9]]


def test_a_draw_interpolates_between_quantiles_by_hand():
    table = LengthTable(prompt_tokens=np.array([1, 11, 31]), output_tokens=np.array([[100, 200], [5, 5]]))
    prompt_rank, output_rank = np.random.default_rng(8).random((1000, 2)).T
    prompt, output = table.draw(1000, np.random.default_rng(8))
    below = prompt_rank < 0.5
    expected = np.where(below, 1 + 20 * prompt_rank, 11 + 40 * (prompt_rank - 0.5))
    assert np.array_equal(prompt, np.floor(expected + 0.5))
    assert np.array_equal(output, np.where(below, np.floor(100 + 100 * output_rank + 0.5), 5))


@settings(max_examples=50)
@given(st.lists(st.tuples(st.integers(1, 50), st.integers(1, 50)), min_size=4, max_size=60), seeds)
def test_draws_stay_inside_what_was_seen(pairs, seed):
    prompt, output = np.array(pairs).T
    table = LengthTable.from_requests(prompt, output, prompt_steps=7, bins=3, output_steps=5)
    drawn = table.draw(50, np.random.default_rng(seed))
    for values, seen in zip(drawn, (prompt, output), strict=True):
        assert np.all((values >= seen.min()) & (values <= seen.max()))


@pytest.mark.parametrize(
    ("prompt", "output", "rule"),
    [
        ([1], [[1, 2]], "prompt_tokens must have 1 dimension"),
        ([1, 2], [1, 2], "output_tokens must have 2 dimension"),
        ([2, 1], [[1, 2]], "prompt_tokens must hold quantiles"),
        ([1, 2], [[1, 2], [0, 5]], "output_tokens must hold quantiles"),
    ],
)
def test_a_table_that_is_none_is_refused(prompt, output, rule):
    with pytest.raises(WorkloadError, match=rule):
        LengthTable(prompt_tokens=np.array(prompt), output_tokens=np.array(output))


def test_a_table_needs_as_many_requests_as_bins():
    with pytest.raises(WorkloadError, match="at least 64: got 2 and 2"):
        LengthTable.from_requests(np.array([1, 2]), np.array([1, 2]))


def test_lognormal_lengths_have_their_means_variations_and_correlation():
    prompt, output = lognormal_lengths(
        200_000,
        np.random.default_rng(0),
        prompt_mean_tokens=2000.0,
        output_mean_tokens=300.0,
        prompt_cv=1.5,
        output_cv=0.5,
        correlation=-0.6,
    )
    assert prompt.mean() == pytest.approx(2000.0, rel=0.02)
    assert output.mean() == pytest.approx(300.0, rel=0.01)
    assert prompt.std() / prompt.mean() == pytest.approx(1.5, rel=0.05)
    assert output.std() / output.mean() == pytest.approx(0.5, rel=0.02)
    assert np.median(prompt) == pytest.approx(2000.0 / np.sqrt(1 + 1.5**2), rel=0.02)
    assert np.corrcoef(np.log(prompt), np.log(output))[0, 1] == pytest.approx(-0.6, abs=0.01)


def test_lognormal_lengths_stay_within_what_a_workload_takes():
    prompt, output = lognormal_lengths(
        10_000,
        np.random.default_rng(0),
        prompt_mean_tokens=MAX_TOKENS,
        output_mean_tokens=1.0,
        prompt_cv=50.0,
        output_cv=50.0,
    )
    assert prompt.max() == MAX_TOKENS
    assert output.min() == 1


@pytest.mark.parametrize(
    ("wrong", "rule"),
    [
        ({"prompt_mean_tokens": 0.5}, "prompt_mean_tokens must be from 1"),
        ({"output_mean_tokens": float("nan")}, "output_mean_tokens must be from 1"),
        ({"prompt_cv": 0.0}, "prompt_cv must be above 0"),
        ({"output_cv": float("inf")}, "output_cv must be above 0"),
        ({"correlation": 1.1}, r"correlation must be in \[-1, 1\]"),
    ],
)
def test_impossible_lognormals_are_refused(wrong, rule):
    with pytest.raises(ValueError, match=rule):
        lognormal_lengths(
            5, np.random.default_rng(0), **{"prompt_mean_tokens": 9.0, "output_mean_tokens": 9.0, **wrong}
        )


@given(st.integers(1, 10**7), st.integers(1, 1000))
def test_divided_lengths_are_rounded_up_so_nothing_vanishes(tokens, divisor):
    (divided,) = divide_tokens(np.array([tokens]), divisor)
    assert divided >= 1
    assert (divided - 1) * divisor < tokens <= divided * divisor


def test_a_divisor_below_one_is_refused():
    with pytest.raises(ValueError, match="divisor must be at least 1, got 0"):
        divide_tokens(np.array([1]), 0)
