"""A submission's folder is read strictly, and every slip is told with the way out."""

import pytest

from pacer_gym.leaderboard.submission import SubmissionError, find_submission, load_submission
from tests.leaderboard.small_board import make_entry

POLICY = "class Mine:\n    pass\n"


def changed(entry, old: str, new: str):
    path = entry.folder / "submission.toml"
    text = path.read_text(encoding="utf-8")
    assert old in text
    path.write_text(text.replace(old, new), encoding="utf-8")
    return entry.folder


def test_an_entry_reads_back_as_it_was_written(tmp_path):
    entry = make_entry(tmp_path, POLICY, settings="{ budget_tokens = 64 }")
    assert entry.name == "mine"
    assert entry.authors == ("A. Author",)
    assert entry.settings == {"budget_tokens": 64}
    assert entry.policy_reference == f"{tmp_path.resolve()}/submissions/mine/policy.py:Mine"
    assert entry.disqualified is None
    assert find_submission("mine", tmp_path) == entry


def test_settings_of_a_scenario_come_before_the_others(tmp_path):
    entry = make_entry(tmp_path, POLICY, settings="{ a = 1, b = 2 }")
    folder = changed(entry, "weights = []", "weights = []\nsettings_by_scenario = { bursty = { b = 3 } }")
    entry = load_submission(folder)
    assert entry.settings_on("bursty") == {"a": 1, "b": 3}
    assert entry.settings_on("tiers") == {"a": 1, "b": 2}


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ('family = "heuristic"', 'famly = "heuristic"', "unknown key 'famly' (did you mean 'family'?)"),
        ("what = []", "what = []\nseed = 3", "unknown key 'seed' (did you mean 'seeds'?)"),
        ('file = "policy.py"', 'file = "policy.py"\nclas = "Mine"', "unknown key 'clas'"),
        ('family = "heuristic"', "", "family is missing"),
        ('family = "heuristic"', 'family = "heuristics"', "got 'heuristics' (did you mean 'heuristic'?)"),
        ('track = "cpu"', 'track = "gpu"', "track must be one of cpu"),
        ('track = "cpu"', 'track = ["cpu", "h10"]', "got 'h10' (did you mean 'h100'?)"),
        ('track = "cpu"', 'track = ["cpu", "cpu"]', "each machine once"),
        ('track = "cpu"', "track = []", "or a list of such"),
        ('authors = ["A. Author"]', 'authors = "A. Author"', "authors must be a list of texts"),
        ('authors = ["A. Author"]', "authors = []", "names no authors"),
        ('name = "mine"', 'name = "yours"', "must agree"),
        ('file = "policy.py"', 'file = "../../policy.py"', "not a path or a link"),
        ('file = "policy.py"', 'file = "other.py"', "no such file"),
        ("weights = []", 'weights = ["net.pt"]', "no such file"),
        ("weights = []", "settings_by_scenario = { burst = {} }", "no 'burst' (did you mean 'bursty'?)"),
        ('class = "Mine"', 'class = "Mine()"', "must be the name of a class"),
        ("[tuning]", "[tuning", "is no TOML"),
        ("what = []", "what = []\n[extra]\na = 1", "unknown key 'extra'"),
    ],
)
def test_what_is_wrong_is_told_in_one_line(tmp_path, old, new, told):
    folder = changed(make_entry(tmp_path, POLICY), old, new)
    with pytest.raises(SubmissionError) as error:
        load_submission(folder)
    assert told in str(error.value)
    assert "\n" not in str(error.value)


def test_a_link_to_another_file_is_no_file_of_the_entry(tmp_path):
    entry = make_entry(tmp_path, POLICY)
    (tmp_path / "elsewhere.py").write_text(POLICY)
    entry.policy_path.unlink()
    entry.policy_path.symlink_to(tmp_path / "elsewhere.py")
    with pytest.raises(SubmissionError, match="link"):
        load_submission(entry.folder)


def test_reading_an_entry_runs_nothing_of_it(tmp_path):
    trace = tmp_path / "ran"
    make_entry(tmp_path, f"open({str(trace)!r}, 'w')\nclass Mine:\n    pass\n")
    assert not trace.exists()


def test_a_name_that_does_not_exist_lists_those_that_do(tmp_path):
    make_entry(tmp_path, POLICY)
    with pytest.raises(SubmissionError, match=r"no submission 'mien' .*did you mean 'mine'"):
        find_submission("mien", tmp_path)


@pytest.mark.parametrize("name", ["", "Mine", "../mine", "a/b", "-x", "x" * 65, "mine.", "CON:"])
def test_a_name_that_is_no_folder_everywhere_is_refused(tmp_path, name):
    with pytest.raises(SubmissionError, match="small letters"):
        find_submission(name, tmp_path)
