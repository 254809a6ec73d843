"""An entry's folder holds files of its own: nothing that leads elsewhere, and nothing that was not scored."""

import json

import pytest

from pacer_gym.cli import main
from pacer_gym.leaderboard.board import render_board
from pacer_gym.leaderboard.board_reading import BoardError, read_board
from pacer_gym.leaderboard.submission import SubmissionError, load_submission, read_submission
from tests.leaderboard.made_results import made_submission
from tests.leaderboard.small_board import make_entry

POLICY = "class Mine:\n    pass\n"
WRITTEN = ("results.json", "measured.json", "verified.json")


@pytest.fixture
def precious(tmp_path):
    folder = tmp_path / "precious"
    folder.mkdir()
    (folder / "cat.jpg").write_bytes(b"cat")
    return folder


@pytest.mark.parametrize("name", [*WRITTEN, "submission.toml", "other.json"])
@pytest.mark.parametrize("what", ["folder", "file", "nothing"])
def test_a_link_in_an_entry_is_refused_by_every_command_and_followed_by_none(
    tmp_path, precious, name, what, capsys
):
    folder = made_submission(tmp_path / "board", "mine")
    (folder / name).unlink(missing_ok=True)
    targets = {"folder": precious, "file": precious / "cat.jpg", "nothing": tmp_path / "none"}
    (folder / name).symlink_to(targets[what])
    for words in (["verify", "mine"], ["score", "--submission", "mine", "--quick"], ["board"]):
        assert main([*words, "--folder", str(tmp_path / "board")]) == 2
        told = capsys.readouterr().err
        assert "link" in told
        assert told.count("\n") == 1
    assert (precious / "cat.jpg").read_bytes() == b"cat"
    assert not (tmp_path / "none").exists()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["board", "precious"]


@pytest.mark.parametrize("name", WRITTEN)
def test_a_folder_where_a_file_goes_is_refused_and_kept(tmp_path, name, capsys):
    folder = made_submission(tmp_path, "mine")
    (folder / name).unlink()
    (folder / name).mkdir()
    (folder / name / "cat.jpg").write_bytes(b"cat")
    for words in (["verify", "mine"], ["score", "--submission", "mine", "--quick"], ["board"]):
        assert main([*words, "--folder", str(tmp_path)]) == 2
    assert "a folder" in capsys.readouterr().err
    assert (folder / name / "cat.jpg").read_bytes() == b"cat"


def test_measurements_never_take_the_place_of_a_folder(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "measured.json").mkdir()
    (tmp_path / "measured.json" / "cat.jpg").write_bytes(b"cat")
    assert main(["score", "fixed_budget", "--quick", "--out", "results.json", "--force"]) == 2
    assert "measured.json is a folder" in capsys.readouterr().err
    assert (tmp_path / "measured.json" / "cat.jpg").exists()


def test_an_entry_that_is_a_link_itself_is_refused(tmp_path):
    entry = make_entry(tmp_path / "elsewhere", POLICY)
    (tmp_path / "board" / "submissions").mkdir(parents=True)
    place = tmp_path / "board" / "submissions" / "mine"
    place.symlink_to(entry.folder)
    with pytest.raises(SubmissionError, match="is a link"):
        load_submission(place)
    with pytest.raises(SubmissionError, match="is a link"):
        read_board(tmp_path / "board")


@pytest.mark.parametrize("name", ["README.md", "index.html"])
def test_a_link_in_the_place_of_a_file_of_the_board_is_refused(tmp_path, precious, name):
    (tmp_path / name).symlink_to(precious / "cat.jpg")
    with pytest.raises(BoardError, match="is a link"):
        render_board(tmp_path)


@pytest.mark.parametrize("name", ["side.json", "helper.py", ".hidden", "net.npz"])
def test_a_file_that_was_not_declared_is_no_part_of_an_entry(tmp_path, name):
    entry = make_entry(tmp_path, POLICY)
    (entry.folder / name).write_text("16")
    with pytest.raises(SubmissionError, match="does not declare: remove it"):
        load_submission(entry.folder)


def test_all_that_commands_write_belongs_to_an_entry(tmp_path):
    folder = made_submission(tmp_path, "mine")
    assert {path.name for path in folder.iterdir()} >= set(WRITTEN)
    assert load_submission(folder).name == "mine"


@pytest.mark.parametrize(
    "name", ["a\n| 1 | [FAKE](x) | 100.0 |", "x) **INJECT** <img src=x> [y", "Mine", "a b", "a|b", "a\x1b[2J"]
)
def test_a_folder_whose_name_is_none_never_reaches_the_board(tmp_path, name, capsys):
    folder = made_submission(tmp_path, "mine")
    text = (folder / "submission.toml").read_text().replace('name = "mine"', f"name = {json.dumps(name)}")
    (folder / "submission.toml").write_text(text)
    folder.rename(folder.parent / name)
    assert main(["board", "--folder", str(tmp_path)]) == 2
    error = capsys.readouterr().err
    assert "small letters" in error
    assert error.count("\n") == 1
    assert "\x1b" not in error
    assert not (tmp_path / "README.md").exists()


def test_a_submission_is_named_and_not_reached_by_a_path(tmp_path, capsys):
    made_submission(tmp_path, "mine")
    words = ["score", "--quick", "--folder", str(tmp_path), "--submission"]
    assert main([*words, "../submissions/mine"]) == 2
    assert "small letters" in capsys.readouterr().err


@pytest.mark.parametrize(
    "change",
    [
        {"authors": ["A\x00B"]},
        {"authors": ["\u202egnp.exe"]},
        {"authors": ["x" * 5_000_000]},
        {"authors": ["x"] * 1000},
        {"description": "a\x1b[2Jb"},
        {"description": "two\nlines"},
        {"disqualified": "x" * 5000},
        {"source": "\ud800"},
    ],
)
def test_texts_are_printable_and_of_a_length(tmp_path, change):
    told = {
        "name": "mine", "authors": ["A"], "suite": "v1", "track": "cpu", "family": "heuristic",
        "description": "A line.", "policy": {"file": "policy.py", "class": "Mine"},
        "tuning": {"what": [], "seeds": "none"},
    }  # fmt: skip
    folder = make_entry(tmp_path, POLICY).folder
    assert read_submission(told, folder).authors == ("A",)
    assert read_submission(told | {"authors": ["Ngô Bảo Châu", "数学", "\u0915\u094d\u200d\u0937"]}, folder)
    with pytest.raises(SubmissionError, match="printable characters") as error:
        read_submission(told | change, folder)
    assert len(str(error.value)) < 1000
    assert str(error.value).isprintable()


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("a = " + "[" * 100_000, "is no TOML"),
        ("a = 1" + "0" * 5000, "is no TOML"),
        ("#" * 2**21, "bytes; at most"),
    ],
)
def test_a_file_that_is_no_submission_is_one_line(tmp_path, text, told):
    folder = make_entry(tmp_path, POLICY).folder
    (folder / "submission.toml").write_text(text)
    with pytest.raises(SubmissionError, match=told) as error:
        load_submission(folder)
    assert "submission.toml" in str(error.value)


@pytest.mark.parametrize("value", ["1979-05-27", "inf", "nan", "{ b = 07:32:00 }"])
def test_settings_that_json_has_no_place_for_name_the_file(tmp_path, value):
    with pytest.raises(SubmissionError, match=r"submission\.toml: settings .* must be plain values"):
        make_entry(tmp_path, POLICY, settings=f"{{ a = {value} }}")
