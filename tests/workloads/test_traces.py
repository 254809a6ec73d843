"""Traces are found where the message says, only the published ones, and replayed as recorded."""

import hashlib
import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pacer_gym.errors import TraceNotFound, WorkloadError
from pacer_gym.workloads.traces import TraceSource, load_trace, locate_trace, trace_window
from pacer_gym.workloads.workload import Workload

CONTENT = b"TIMESTAMP,ContextTokens,GeneratedTokens\r\n2023-11-16 18:17:03.5,10,2\r\n2023-11-16 18:17:04,20,3"
NOWHERE = "http://127.0.0.1:9/trace.csv"  # the discard port: nobody answers


def source(url=NOWHERE, content=CONTENT):
    return TraceSource(file_name="trace.csv", url=url, sha256=hashlib.sha256(content).hexdigest())


@pytest.fixture(autouse=True)
def own_cache(request, tmp_path, monkeypatch):
    """Keep the user's cache and settings out of it, but for tests on the real traces."""
    if "data_folder" not in request.fixturenames:
        monkeypatch.delenv("PACER_GYM_DATA", raising=False)
    monkeypatch.delenv("PACER_GYM_OFFLINE", raising=False)
    for variable in ("XDG_CACHE_HOME", "HOME", "LOCALAPPDATA"):
        monkeypatch.setenv(variable, str(tmp_path / "user"))


@pytest.fixture
def served(tmp_path):
    """A folder, and the address of a web server that serves it and counts what it sends."""
    folder = tmp_path / "served"
    folder.mkdir()
    requests = []

    class Handler(SimpleHTTPRequestHandler):
        def log_message(self, *args):
            requests.append(args)

    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Handler, directory=str(folder)))
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    yield folder, f"http://127.0.0.1:{server.server_port}/trace.csv", requests
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.fixture(scope="module")
def synthetic():
    rng = np.random.default_rng(0)
    arrival_s = np.cumsum(rng.exponential(1.0, 500) ** 3)
    return Workload(arrival_s, rng.permutation(500) + 1, rng.permutation(500) + 1)


@pytest.mark.parametrize("folder", [".", "azure-llm-2023"])
def test_a_trace_is_read_where_the_variable_points_or_one_folder_below(folder, tmp_path, monkeypatch):
    (tmp_path / folder).mkdir(exist_ok=True)
    (tmp_path / folder / "trace.csv").write_bytes(CONTENT)
    monkeypatch.setenv("PACER_GYM_DATA", str(tmp_path))
    path = locate_trace(source())
    assert path.samefile(tmp_path / folder / "trace.csv")
    assert Workload.from_csv(path).arrival_s.tolist() == [0.0, 0.5]


def test_another_file_of_that_name_is_refused_and_not_replaced(tmp_path, monkeypatch):
    (tmp_path / "trace.csv").write_bytes(CONTENT.replace(b"\r\n", b"\n"))
    monkeypatch.setenv("PACER_GYM_DATA", str(tmp_path))
    with pytest.raises(WorkloadError, match=r"not the published trace: its sha256 is .* line ends converted"):
        locate_trace(source())


def test_a_trace_is_downloaded_once_and_then_found_in_the_cache(served, monkeypatch):
    folder, url, requests = served
    (folder / "trace.csv").write_bytes(CONTENT)
    path = locate_trace(source(url))
    assert path.read_bytes() == CONTENT
    monkeypatch.setenv("PACER_GYM_OFFLINE", "1")
    assert locate_trace(source(url)) == path
    assert len(requests) == 1


def test_a_damaged_cache_is_downloaded_again(served):
    folder, url, requests = served
    (folder / "trace.csv").write_bytes(CONTENT)
    path = locate_trace(source(url))
    path.write_bytes(CONTENT[:20])
    assert locate_trace(source(url)).read_bytes() == CONTENT
    assert len(requests) == 2


@pytest.mark.parametrize("published", [b"something else", None])
def test_a_download_that_fails_or_differs_leaves_nothing_behind(published, served, tmp_path):
    folder, url, _ = served
    if published is not None:
        (folder / "trace.csv").write_bytes(published)
    with pytest.raises(TraceNotFound, match=r"the download from http.* failed"):
        locate_trace(source(url))
    assert not list((tmp_path / "user").rglob("*.csv"))


def test_a_missing_trace_names_all_three_places(tmp_path, monkeypatch):
    monkeypatch.setenv("PACER_GYM_DATA", str(tmp_path / "nowhere"))
    with pytest.raises(TraceNotFound) as failure:
        locate_trace(source())
    message = str(failure.value)
    assert f"PACER_GYM_DATA ({tmp_path / 'nowhere'}) does not hold it" in message
    assert "the cache " in message
    assert "pacer-gym" in message
    assert f"the download from {NOWHERE} failed" in message


@pytest.mark.parametrize("value", ["1", "true"])
def test_the_download_can_be_forbidden(value, served, monkeypatch):
    _, url, requests = served
    monkeypatch.setenv("PACER_GYM_OFFLINE", value)
    with pytest.raises(TraceNotFound, match=f"PACER_GYM_OFFLINE forbids the download from {url}"):
        locate_trace(source(url))
    assert not requests


def test_an_unknown_trace_lists_those_there_are():
    with pytest.raises(WorkloadError, match="no trace 'azure'; there are azure-conv, azure-code"):
        load_trace("azure")


@pytest.mark.parametrize(
    ("name", "count", "rate_rps", "gap_cv", "prompt_mean", "output_mean"),
    [("azure-code", 8819, 2.57, 13.2, 2048, 28), ("azure-conv", 19366, 5.53, 1.09, 1155, 211)],
)
def test_the_real_traces_are_the_published_ones(
    name, count, rate_rps, gap_cv, prompt_mean, output_mean, data_folder
):
    trace = load_trace(name)
    gap_s = np.diff(trace.arrival_s)
    assert (len(trace), trace.name, trace.arrival_s[0]) == (count, name, 0.0)
    assert trace.rate_rps == pytest.approx(rate_rps, abs=0.005)
    assert gap_s.std() / gap_s.mean() == pytest.approx(gap_cv, rel=0.01)
    assert trace.prompt_tokens.mean() == pytest.approx(prompt_mean, abs=0.5)
    assert trace.output_tokens.mean() == pytest.approx(output_mean, abs=0.5)


def assert_contiguous(window, trace, start):
    """Requests follow each other as in the trace, and gaps are its own times one number."""
    index = start + np.arange(len(window))
    assert np.array_equal(window.prompt_tokens, trace.prompt_tokens[index])
    assert np.array_equal(window.output_tokens, trace.output_tokens[index])
    recorded_s = trace.arrival_s[index] - trace.arrival_s[start]
    scale = window.arrival_s[-1] / recorded_s[-1]
    assert window.arrival_s == pytest.approx(recorded_s * scale, rel=1e-9, abs=1e-9)


@pytest.mark.parametrize("name", ["azure-conv", "azure-code"])
@pytest.mark.parametrize("rate_rps", [0.4, 2.5])
def test_a_window_of_a_real_trace_is_contiguous_and_offers_its_rate(name, rate_rps, data_folder):
    trace = load_trace(name)
    pairs = trace.prompt_tokens * 100_000 + trace.output_tokens
    for seed in range(20):
        window = trace_window(trace, rate_rps, 600.0, np.random.default_rng(seed))
        assert len(window) / 600.0 == pytest.approx(rate_rps, rel=0.01)
        assert window.arrival_s[0] == 0.0
        assert window.arrival_s[-1] < 600.0
        start = int(np.random.default_rng(seed).random() * len(trace))
        if start + len(window) <= len(trace):
            assert_contiguous(window, trace, start)
        else:
            seam = len(trace) - start
            drawn = window.prompt_tokens * 100_000 + window.output_tokens
            assert np.array_equal(drawn, np.concatenate([pairs[start:], pairs])[: len(window)])
            assert_contiguous(window.head(seam), trace, start)


@settings(max_examples=50)
@given(seed=st.integers(0, 2**32), rate=st.floats(0.05, 3.0), horizon=st.floats(5.0, 400.0))
def test_every_seed_offers_the_rate_it_was_asked_for(synthetic, seed, rate, horizon):
    window = trace_window(synthetic, rate, horizon, np.random.default_rng(seed))
    count = int(np.ceil(rate * horizon))
    assert 1 <= len(window) <= count
    assert np.all((window.arrival_s >= 0) & (window.arrival_s < horizon))
    # Only requests that rounding the count up brought beyond the horizon are left out.
    whole = trace_window(synthetic, rate, count / rate * (1 - 1e-12), np.random.default_rng(seed))
    assert len(whole) == count
    assert np.all(whole.arrival_s[len(window) :] >= horizon * (1 - 1e-9))


@settings(max_examples=50)
@given(seed=st.integers(0, 2**32), rate=st.floats(0.05, 3.0), faster=st.floats(1.0, 4.0))
def test_a_higher_rate_brings_the_same_requests_no_later(synthetic, seed, rate, faster):
    slow = trace_window(synthetic, rate, 200.0, np.random.default_rng(seed))
    fast = trace_window(synthetic, rate * faster, 200.0, np.random.default_rng(seed))
    assert np.array_equal(fast.prompt_tokens[: len(slow)], slow.prompt_tokens)
    assert np.all(fast.arrival_s[: len(slow)] <= slow.arrival_s * (1 + 1e-9))


def test_a_window_longer_than_the_trace_wraps_around_after_one_mean_gap():
    trace = Workload([0.0, 1.0, 4.0], [1, 2, 3], [4, 5, 6])  # mean gap 2, so a period of 6
    window = trace_window(trace, 0.5, 24.0, np.random.default_rng(0))
    start = window.prompt_tokens[0] - 1
    assert len(window) == 12
    assert window.prompt_tokens.tolist() == [(start + k) % 3 + 1 for k in range(12)]
    cycle_s = np.roll([1.0, 3.0, 2.0], -start)
    assert np.diff(window.arrival_s) == pytest.approx(np.tile(cycle_s, 4)[:11])


def test_every_request_is_as_likely_to_begin_a_window(synthetic):
    starts = [
        trace_window(synthetic, 1.0, 5.0, np.random.default_rng(seed)).prompt_tokens[0]
        for seed in range(1000)
    ]
    quarters = np.histogram(np.argsort(synthetic.prompt_tokens)[np.array(starts) - 1], bins=4)[0]
    assert quarters == pytest.approx(np.full(4, 250), abs=4 * np.sqrt(250))


def test_a_window_keeps_the_targets_of_its_requests():
    trace = Workload([0.0, 1.0, 4.0], [1, 2, 3], [4, 5, 6], [1.0, 2.0, 3.0], [0.1, 0.2, 0.3])
    window = trace_window(trace, 0.5, 6.0, np.random.default_rng(0))
    assert np.array_equal(window.ttft_slo_s, window.prompt_tokens)
    assert window.tpot_slo_s == pytest.approx(window.prompt_tokens / 10)


def test_a_trace_at_one_instant_has_no_rate_to_rescale():
    with pytest.raises(WorkloadError, match=r"all its requests arrive at 2\.0 s"):
        trace_window(Workload([2.0, 2.0], [1, 1], [1, 1]), 1.0, 60.0, np.random.default_rng(0))


@pytest.mark.parametrize("bad", [0.0, float("nan"), float("inf")])
def test_windows_without_a_finite_rate_and_horizon_are_refused(bad, synthetic):
    with pytest.raises(ValueError, match="rate_rps must be a finite, positive number"):
        trace_window(synthetic, bad, 60.0, np.random.default_rng(0))
    with pytest.raises(ValueError, match="horizon_s must be a finite, positive number"):
        trace_window(synthetic, 1.0, bad, np.random.default_rng(0))
