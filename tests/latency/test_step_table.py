"""Steps files are read exactly, and bad ones are refused by file, line, column and rule."""

import numpy as np
import pytest

from pacer_gym.errors import ProfileError
from pacer_gym.latency.step_table import StepTable, read_steps_csv

HEADER = "step_s,decodes,decode_kv_tokens,chunks,cotenant\n"


def read(tmp_path, text):
    path = tmp_path / "steps.csv"
    path.write_text(text, encoding="utf-8", newline="")
    return read_steps_csv(path)


def test_rows_become_arrays_in_file_order(tmp_path):
    table = read(tmp_path, HEADER + "0.1,2,30,,0\n0.2,0,0,0:8;100:20,1\n0.3,1,5,7:1,0\n")
    assert table.step_s.tolist() == [0.1, 0.2, 0.3]
    assert table.decodes.tolist() == [2, 0, 1]
    assert table.decode_kv_tokens.tolist() == [30, 0, 5]
    assert table.prefill_tokens.tolist() == [0, 28, 1]
    assert table.attention_pairs.tolist() == [0, 36 + 2000 + 210, 8]
    assert table.context_tokens.tolist() == [0, 100, 7]
    assert table.chunks.tolist() == [0, 2, 1]
    assert table.cotenant.tolist() == [False, True, False]
    assert table.gemm_tokens.tolist() == [2, 28, 2]


def test_byte_order_marks_windows_lines_quotes_and_further_columns_are_no_problem(tmp_path):
    text = '\ufeffnote,cotenant,chunks,decode_kv_tokens,decodes,step_s\r\nx,0,"0:8;3:4",9,3,0.5\r\n\r\n'
    table = read(tmp_path, text)
    assert len(table) == 1
    assert table.prefill_tokens.tolist() == [12]


def test_selected_steps_are_copies_that_nobody_can_change(tmp_path):
    table = read(tmp_path, HEADER + "0.1,2,30,,0\n0.2,0,0,0:8,1\n")
    for part in (table, table.select(~table.cotenant), table.select(slice(1))):
        with pytest.raises(ValueError, match="read-only"):
            part.step_s[0] = 1.0
    assert table.select(np.array([1])).step_s.tolist() == [0.2]


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ("fast,1,9,,0", "line 3: step_s must be a number, got 'fast'"),
        ("-0.1,1,9,,0", "line 3: step_s must be a positive number of seconds, got -0.1"),
        ("0,1,9,,0", "line 3: step_s must be a positive"),
        ("nan,1,9,,0", "line 3: step_s must be a positive"),
        ("inf,1,9,,0", "line 3: step_s must be a positive"),
        ("0.1,1.5,9,,0", "line 3: decodes must hold whole numbers, got '1.5'"),
        ("0.1,-1,9,,0", "line 3: decodes must lie in 0"),
        ("0.1,1,1000000000000,,0", "line 3: decode_kv_tokens must lie in 0"),
        ("0.1,5,4,,0", "line 3: decode_kv_tokens is the sum of context"),
        ("0.1,0,4,0:1,0", "line 3: decode_kv_tokens is the sum of context"),
        ("0.1,1,9,8,0", "line 3: chunks must look like"),
        ("0.1,1,9,8:x,0", "line 3: chunks must hold whole numbers, got 'x'"),
        ("0.1,1,9,8:0,0", "line 3: chunks must not hold an empty chunk, got '8:0'"),
        ("0.1,0,0,,0", "line 3: a step must process at least one token"),
        ("0.1,1,9,,yes", "line 3: cotenant must be 0 or 1, got 'yes'"),
        ("0.1,1,9", "line 3: cotenant must be 0 or 1, got ''"),
    ],
)
def test_a_bad_row_is_refused_by_line_column_and_rule(tmp_path, row, message):
    with pytest.raises(ProfileError, match=rf"steps\.csv, {message}"):
        read(tmp_path, HEADER + "0.1,1,9,,0\n" + row + "\n")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "no column step_s, decodes"),
        ("step_s,decodes,chunks,cotenant\n0.1,1,,0\n", "no column decode_kv_tokens; a steps file has"),
        (HEADER, "holds no steps"),
    ],
)
def test_a_file_without_steps_is_refused(tmp_path, text, message):
    with pytest.raises(ProfileError, match=message):
        read(tmp_path, text)


def test_a_missing_file_a_folder_and_binary_data_are_refused(tmp_path):
    with pytest.raises(ProfileError, match="no steps file at"):
        read_steps_csv(tmp_path / "none.csv")
    with pytest.raises(ProfileError, match="is a folder"):
        read_steps_csv(tmp_path)
    path = tmp_path / "steps.csv"
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ProfileError, match="is not a CSV file"):
        read_steps_csv(path)


def test_columns_of_different_length_are_refused():
    columns = {name: np.zeros(2) for name in StepTable.__slots__}
    with pytest.raises(ValueError, match=r"chunks has shape \(3,\)"):
        StepTable(**{**columns, "chunks": np.zeros(3)})
