"""JSON of strangers is numbers, texts and tables, or one kind of error."""

import pytest

from pacer_gym.errors import PacerError
from pacer_gym.leaderboard.plain_json import read_plain
from pacer_gym.leaderboard.results import Measured, Results, ResultsError
from pacer_gym.leaderboard.verdict import Verdict

NOT_PLAIN = {
    "nested": "[" * 100_000 + "]" * 100_000,
    "nested tables": '{"a":' * 100_000 + "1" + "}" * 100_000,
    "a number of too many digits": "9" * 100_000,
    "infinite": "[Infinity]",
    "not a number": '{"a": NaN}',
    "a key twice": '{"a": 1, "a": 1}',
    "half": '{"a": [1, 2',
    "empty": "",
    "two": "1 2",
    "bytes": b"\xff\xfe\x00",
}


@pytest.mark.parametrize("text", NOT_PLAIN.values(), ids=NOT_PLAIN)
def test_what_is_not_plain_is_a_value_error(text):
    with pytest.raises(ValueError, match=r"\w"):
        read_plain(text)


@pytest.mark.parametrize("text", [text for text in NOT_PLAIN.values() if isinstance(text, str)])
@pytest.mark.parametrize(
    ("read", "error"),
    [(Results.from_json, ResultsError), (Measured.from_json, ResultsError), (Verdict.from_json, PacerError)],
)
def test_every_file_of_an_entry_is_read_so(read, error, text):
    with pytest.raises(error) as refused:
        read(text)
    assert len(str(refused.value)) <= 400


def test_a_text_of_a_million_letters_is_no_line_of_a_verdict():
    with pytest.raises(PacerError) as refused:
        Verdict.from_json('{"' + "x" * 1_000_000 + '": "' + "y" * 1_000_000 + '"}')
    assert len(str(refused.value)) <= 400
