"""Workloads refuse nonsense by request or by line, and survive a trip through a file."""

import pickle

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from pacer_gym.errors import WorkloadError
from pacer_gym.workloads.columns import AZURE_NAMES, MAX_TOKENS, REQUIRED
from pacer_gym.workloads.slo import SLO
from pacer_gym.workloads.workload import Workload

OURS = "arrival_s,prompt_tokens,output_tokens\n"
AZURE = "TIMESTAMP,ContextTokens,GeneratedTokens\n"
COLUMNS = ("arrival_s", "prompt_tokens", "output_tokens", "ttft_slo_s", "tpot_slo_s")


def write(tmp_path, content):
    path = tmp_path / "trace.csv"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def assert_same(first, second):
    for name in COLUMNS:
        assert np.array_equal(getattr(first, name), getattr(second, name)), name


@st.composite
def workloads(draw):
    count = draw(st.integers(1, 20))

    def column(values):
        return draw(st.lists(values, min_size=count, max_size=count))

    tokens = st.integers(1, MAX_TOKENS)
    targets = st.none() | st.just([])
    seconds = st.floats(1e-3, 1e6)
    return Workload(
        sorted(column(st.floats(0.0, 1e9))),
        column(tokens),
        column(tokens),
        None if draw(targets) is None else column(seconds),
        None if draw(targets) is None else column(seconds | st.just(float("inf"))),
    )


def test_arrays_are_copied_and_read_only():
    arrival_s = np.array([0.0, 1.0])
    workload = Workload(arrival_s, [5, 6], [7, 8], ttft_slo_s=[1.0, 2.0])
    arrival_s[0] = 0.5
    assert workload.arrival_s.tolist() == [0.0, 1.0]
    assert (workload.prompt_tokens.dtype, workload.output_tokens.dtype) == (np.int64, np.int64)
    for name in ("arrival_s", "prompt_tokens", "output_tokens", "ttft_slo_s"):
        with pytest.raises(ValueError, match="read-only"):
            getattr(workload, name)[0] = 9
    with pytest.raises(AttributeError):
        workload.name = "other"


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        (([], [], []), "needs at least one request"),
        (([0.0], [1, 2], [1]), "equally long: arrival_s has 1, prompt_tokens 2"),
        (([0.0, 1.0], [1, 2], [1, 2], [1.0]), "equally long: arrival_s has 2, ttft_slo_s 1"),
        (([0.0, np.nan], [1, 2], [1, 2]), "request 1, arrival_s: nan must be a finite number"),
        (([0.0, np.inf], [1, 2], [1, 2]), "request 1, arrival_s: inf must be a finite number"),
        (([-1.0, 0.0], [1, 2], [1, 2]), "request 0, arrival_s: -1.0 must not be negative"),
        (([2.0, 1.0], [1, 2], [1, 2]), "request 1, arrival_s: 1.0 must not be earlier"),
        (([1.7e9], [1], [1]), "at most 1e.09 s; count seconds from the first arrival, not from an epoch"),
        (([0.0], [0], [1]), "request 0, prompt_tokens: 0 must be at least 1"),
        (([0.0], [1], [-4]), "request 0, output_tokens: -4 must not be negative"),
        (([0.0], [10**12], [1]), "prompt_tokens: 1000000000000 must be at most 10,000,000"),
        (([0.0], [1], [1.5]), "output_tokens: 1.5 must be a whole number of tokens"),
        (([0.0], [1], [1], [0.0]), "ttft_slo_s: 0.0 must be a positive number of seconds"),
        (([0.0], [1], [1], None, [np.nan]), "tpot_slo_s: nan must be a positive number"),
        ((["a"], [1], [1]), "arrival_s must be a one-dimensional array of numbers"),
        (([[0.0]], [1], [1]), r"arrival_s must be a one-dimensional array of numbers, got shape \(1, 1\)"),
        (([0.0], [[1], [1, 2]], [1]), "prompt_tokens must be a one-dimensional array of numbers"),
        (([0.0], [True], [1]), "prompt_tokens must be .* of bool"),
        ((None, [1], [1]), "arrival_s must be a one-dimensional array"),
        (([0.0], 3, [1]), r"prompt_tokens must be .* got shape \(\)"),
    ],
)
def test_nonsense_is_refused_by_request_column_and_rule(columns, message):
    with pytest.raises(WorkloadError, match=message):
        Workload(*columns)


def test_equal_arrivals_and_the_largest_lengths_are_fine():
    assert len(Workload([0.0, 0.0, 1e9], [1, MAX_TOKENS, 1], [MAX_TOKENS, 1, 1])) == 3


def test_open_targets_are_filled_and_own_ones_kept():
    slo = SLO(ttft_s=2.0, tpot_s=0.1)
    plain = Workload([0.0, 1.0], [1, 1], [1, 1])
    assert plain.with_slo(slo).ttft_slo_s.tolist() == [2.0, 2.0]
    own = Workload([0.0, 1.0], [1, 1], [1, 1], [1.0, 3.0], [0.5, 0.6], name="own")
    assert_same(own.with_slo(slo), own)
    assert own.with_slo(slo).name == "own"


@given(workloads(), st.floats(1e-3, 1e3))
def test_scaling_gives_the_rate_and_keeps_the_shape(workload, rate_rps):
    if workload.arrival_s[-1] - workload.arrival_s[0] < 1e-6 or workload.arrival_s[-1] > 1e5:
        return
    scaled = workload.scaled_to(rate_rps)
    assert scaled.rate_rps == pytest.approx(rate_rps)
    factor = workload.rate_rps / rate_rps
    assert np.diff(scaled.arrival_s) == pytest.approx(np.diff(workload.arrival_s) * factor, abs=1e-6 * factor)
    assert np.array_equal(scaled.prompt_tokens, workload.prompt_tokens)


@pytest.mark.parametrize("rate_rps", [0.0, -1.0, float("nan"), float("inf")])
def test_scaling_to_no_rate_is_refused(rate_rps):
    with pytest.raises(ValueError, match="rate_rps must be a finite, positive number"):
        Workload([0.0, 1.0], [1, 1], [1, 1]).scaled_to(rate_rps)


def test_a_single_request_has_no_rate():
    with pytest.raises(WorkloadError, match=r"<Workload unnamed: 1 request in 3\.0 s.* has no rate"):
        _ = Workload([3.0], [1], [1]).rate_rps


@given(workloads(), st.integers(1, 30))
def test_a_head_is_the_first_requests(workload, n):
    head = workload.head(n)
    assert len(head) == min(n, len(workload))
    for name in COLUMNS:
        own = getattr(workload, name)
        assert np.array_equal(getattr(head, name), own if own is None else own[:n])


def test_an_empty_head_is_refused():
    with pytest.raises(ValueError, match="keeps at least 1 request, got n=0"):
        Workload([3.0], [1], [1]).head(0)


@given(workloads())
def test_workloads_travel_between_processes(workload):
    assert_same(pickle.loads(pickle.dumps(workload)), workload)


@settings(max_examples=100)
@given(workload=workloads())
def test_a_file_holds_the_same_numbers_to_the_last_bit(workload, tmp_path_factory):
    path = tmp_path_factory.getbasetemp() / "round.csv"
    workload.to_csv(path)
    again = Workload.from_csv(path)
    assert_same(again, workload)
    assert again.name == "round"


@pytest.mark.parametrize(
    "content",
    [
        OURS + "0,10,2\n0.5,20,3\n",
        "\ufeff" + OURS + "0,10,2\n0.5,20,3\n",
        (OURS + "0,10,2\n0.5,20,3\n").replace("\n", "\r\n"),
        (OURS + "0,10,2\n0.5,20,3\n").replace("\n", "\r"),
        OURS + "0,10,2\n0.5,20,3",
        OURS + "0,10,2\n0.5,20,3\n\n  \n",
        "\n\n" + OURS + "\n0,10,2\n\n0.5,20,3\n",
        '"arrival_s","prompt_tokens","output_tokens"\n"0","10","2"\n"0.5","20","3"\n',
        " arrival_s , prompt_tokens , output_tokens \n 0 , 10 , 2 \n 0.5 , 20 , 3 \n",
        'output_tokens,note,arrival_s,prompt_tokens\n2,a,0,10\n3,"b, c",5e-1,2e1\n',
        OURS + "+0.0,10.0,2.\n.5,020,3\n",
        AZURE + "2023-11-16 18:17:03.9799600,10,2\n2023-11-16 18:17:04.4799600,20,3\n",
        AZURE + "2023-11-16T18:17:03,10,2\n2023-11-16T18:17:03.5,20,3\n",
        AZURE + "2024-05-10 00:00:00+00:00,10,2\n2024-05-10 02:00:00.500000+02:00,20,3\n",
    ],
)
def test_every_honest_spelling_is_read_alike(content, tmp_path):
    workload = Workload.from_csv(write(tmp_path, content))
    assert workload.arrival_s.tolist() == [0.0, 0.5]
    assert workload.prompt_tokens.tolist() == [10, 20]
    assert workload.output_tokens.tolist() == [2, 3]
    assert (workload.ttft_slo_s, workload.tpot_slo_s, workload.name) == (None, None, "trace")


def test_targets_are_read_where_there_are_any(tmp_path):
    content = "arrival_s,prompt_tokens,output_tokens,tpot_slo_s\n0,1,1,0.1\n1,1,1,inf\n"
    workload = Workload.from_csv(write(tmp_path, content))
    assert workload.ttft_slo_s is None
    assert workload.tpot_slo_s.tolist() == [0.1, np.inf]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "is empty; it needs the header arrival_s,prompt_tokens,output_tokens"),
        ("\n \n", "is empty"),
        ("\ufeff", "is empty"),
        (OURS, "has a header and no requests"),
        (AZURE + "\n\n", "has a header and no requests"),
        (b"\x89PNG\r\n\x1a\n\x00\x00", "not a CSV table: it holds bytes that are not UTF-8 text"),
        (b"PK\x03\x04\x14\x00\x00", "not a CSV table: it holds bytes"),
        ((OURS + "0,1,1\n").encode("utf-16"), "not a CSV table: it holds bytes"),
        (bytes(range(1, 128)), "trace.csv"),
        ("a,b,c\n1,2,3\n", "lacks the columns arrival_s, prompt_tokens, output_tokens: .*'a,b,c'"),
        ("0.0,10,2\n0.5,20,3\n", "lacks the columns arrival_s, "),
        ("arrival_s;prompt_tokens;output_tokens\n0;1;1\n", "lacks the column"),
        (
            "arrival_s,prompt_tokens\n0,1\n",
            "lacks the column output_tokens: its header is 'arrival_s,prompt_",
        ),
        ("TIMESTAMP,ContextTokens\n0,1\n", "lacks the column GeneratedTokens"),
        (
            "arrival_s,prompt_tokens,output_tokens,prompt_tokens\n0,1,1,1\n",
            "has the column prompt_tokens 2 times",
        ),
        ("TIMESTAMP,TIMESTAMP,ContextTokens,GeneratedTokens\n", "has the column TIMESTAMP 2 times"),
        (
            "arrival_s,prompt_tokens,output_tokens,ttft_slo_ms\n0,1,1,9\n",
            "has a column 'ttft_slo_ms'; .*name it ttft_slo_s",
        ),
        (OURS + "0,1,1\n1,2\n", "line 3: has 2 fields, the header has 3"),
        (OURS + "0,1,1,1\n", "line 2: has 4 fields, the header has 3"),
        (OURS + '0,1,"1\n2,3,4\n', "not a CSV table: unexpected end of data"),
        (OURS + "0," + "1" * 200_000 + ",1\n", "line 2: not a CSV table: field larger than field limit"),
        (OURS + "0,1,1\n\nx,1,1\n", "line 4, column arrival_s: 'x' must be a finite number of seconds"),
        (OURS + "0,1,1\n,1,1\n", "line 3, column arrival_s: '' must be a finite number"),
        (OURS + "nan,1,1\n", "line 2, column arrival_s: 'nan' must be a finite number"),
        (OURS + "inf,1,1\n", "line 2, column arrival_s: 'inf' must be a finite number"),
        (OURS + "-0.5,1,1\n", "line 2, column arrival_s: '-0.5' must not be negative"),
        (
            OURS + "3,1,1\n2,1,1\n",
            "line 3, column arrival_s: '2' must not be earlier than the request before",
        ),
        (OURS + "1700000000,1,1\n", "not from an epoch"),
        (OURS + "0,1,1\n1,ten,1\n", "line 3, column prompt_tokens: 'ten' must be a whole number of tokens"),
        (OURS + "0,NaN,1\n", "line 2, column prompt_tokens: 'NaN' must be a whole number of tokens"),
        (OURS + "0,inf,1\n", "line 2, column prompt_tokens: 'inf' must be a whole number of tokens"),
        (OURS + "0,0,1\n", "line 2, column prompt_tokens: '0' must be at least 1"),
        (OURS + "0,1,-7\n", "line 2, column output_tokens: '-7' must not be negative"),
        (OURS + "0,1,1000000000000\n", "column output_tokens: '1000000000000' must be at most 10,000,000"),
        (OURS + "0,1," + "9" * 400 + "\n", "column output_tokens: '9+... must be a whole number of tokens"),
        (OURS + "0,12.5,1\n", "line 2, column prompt_tokens: '12.5' must be a whole number of tokens"),
        (OURS + "0,1_000,1\n", "line 2, column prompt_tokens: '1_000' must be a whole number of tokens"),
        (OURS + "0,\u0661\u0662,1\n", "line 2, column prompt_tokens: .* must be a whole number of tokens"),
        (OURS + "0,0x10,1\n", "'0x10' must be a whole number of tokens"),
        (OURS.strip() + ",ttft_slo_s\n0,1,1,\n", "line 2, column ttft_slo_s: '' must be a positive number"),
        (OURS.strip() + ",ttft_slo_s\n0,1,1,0\n", "line 2, column ttft_slo_s: '0' must be a positive number"),
        (AZURE + "now,1,1\n", "line 2, column TIMESTAMP: 'now' must be a timestamp like"),
        (
            AZURE + "2023-11-16 18:17:03,1,1\n12.5,1,1\n",
            "line 3, column TIMESTAMP: '12.5' must be a timestamp",
        ),
        (AZURE + "2023-13-16 18:17:03,1,1\n", "line 2, column TIMESTAMP: .* must be a timestamp"),
        (
            AZURE + "2023-11-16 18:17:03,1,1\n2023-11-16 18:17:02,1,1\n",
            "line 3, column TIMESTAMP: .* earlier",
        ),
        (AZURE + "1923-11-16 18:17:03,1,1\n2023-11-16 18:17:02,1,1\n", "at most 1e.09 s after the first"),
        (AZURE + "2023-11-16 18:17:03,1,0\n", "line 2, column GeneratedTokens: '0' must be at least 1"),
    ],
)
def test_a_bad_file_is_refused_by_file_line_column_and_rule(content, message, tmp_path):
    path = write(tmp_path, content)
    with pytest.raises(WorkloadError, match=message) as failure:
        Workload.from_csv(path)
    assert str(path) in str(failure.value)
    assert len(str(failure.value).splitlines()) == 1


def test_the_first_bad_line_is_the_one_named(tmp_path):
    content = OURS + "0,1,1\n1,1,1\n2,1,zero\n3,-1,1\nx,1,1\n"
    with pytest.raises(WorkloadError, match="line 4, column output_tokens: 'zero'"):
        Workload.from_csv(write(tmp_path, content))


def test_a_file_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(WorkloadError, match=r"cannot read workload '.*none\.csv': No such file"):
        Workload.from_csv(tmp_path / "none.csv")


def test_a_folder_is_refused(tmp_path):
    with pytest.raises(WorkloadError, match=r"cannot read workload .*: Is a directory"):
        Workload.from_csv(tmp_path)


@settings(max_examples=200)
@given(content=st.binary(max_size=200) | st.text(max_size=200).map(lambda text: (OURS + text).encode()))
@example(content=(OURS + "0,1,1\n").encode())
@example(content=(AZURE + '"2023-11-16 18:17:03",1,1').encode())
def test_any_bytes_make_a_workload_or_one_clear_error(content, tmp_path_factory):
    path = tmp_path_factory.getbasetemp() / "any.csv"
    path.write_bytes(content)
    try:
        workload = Workload.from_csv(path)
    except WorkloadError as error:
        message = str(error)
    else:
        message = f"any.csv holds {workload!r}"
    assert "any.csv" in message


NUMBERS = ["0", "1", "7", '"3"', "007", "1e3", "1e12", "1e999", "2.5", "-1", "nan", "inf", "-inf", "1_0", "x"]
TIMES = ["2023-11-16 18:17:03", "2023-11-16 18:17:04.1234567", "2023-02-30 00:00:00", "today"]
CELLS = st.sampled_from([*NUMBERS, *TIMES, "", " "])


@settings(max_examples=200)
@given(
    azure=st.booleans(),
    rows=st.lists(st.tuples(CELLS, CELLS, CELLS), min_size=1, max_size=6),
    end=st.sampled_from(["\n", "\r\n", "\r"]),
)
def test_a_table_of_odd_cells_is_read_as_a_plain_reading_of_the_rules_says(
    azure, rows, end, tmp_path_factory
):
    path = tmp_path_factory.getbasetemp() / "odd.csv"
    header = (AZURE if azure else OURS).strip()
    path.write_bytes(end.join([header, *(",".join(row) for row in rows)]).encode())
    offender = plain_first_offender(rows, azure)
    if offender is None:
        assert len(Workload.from_csv(path)) == len(rows)
    else:
        line, column = offender[0] + 2, (tuple(AZURE_NAMES) if azure else REQUIRED)[offender[1]]
        with pytest.raises(WorkloadError, match=f"odd.csv, line {line}, column {column}: "):
            Workload.from_csv(path)


def plain_first_offender(rows, azure):
    """Row and column of the first bad cell, one cell at a time."""
    before = None
    for row, cells in enumerate(rows):
        for column, cell in enumerate(cells):
            text = cell.strip('" ')
            if column == 0 and azure:
                value = {"2023-11-16 18:17:03": 3.0, "2023-11-16 18:17:04.1234567": 4.1}.get(
                    text, float("nan")
                )
            else:
                value = {"": float("nan"), "x": float("nan"), "1_0": float("nan")}.get(text)
                value = float("nan") if text.startswith(("2023", "today")) else value
                value = float(text) if value is None else value
            if column == 0:
                good = 0.0 <= value <= 1e9 and (before is None or value >= before)
                before = value
            else:
                good = 1 <= value <= MAX_TOKENS and value == int(value)
            if not good:
                return row, column
    return None
