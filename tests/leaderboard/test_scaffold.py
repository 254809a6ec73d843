"""`submit` makes a whole folder or nothing, from a policy that stands on its own."""

import json
import pickle
import tomllib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pacer_gym.errors import PacerError
from pacer_gym.leaderboard.policy_source import SourceError, check_source
from pacer_gym.leaderboard.scaffold import Draft, make_submission, toml_value
from pacer_gym.leaderboard.submission import SubmissionError

POLICY = '''
"""One budget for all.

Explained at length."""

import numpy as np
from pacer_gym.engine.view import StepDecision


class Mine:
    def __init__(self, *, budget_tokens=64):
        self.budget_tokens = budget_tokens

    def reset(self, spec, rng):
        pass

    def decide(self, view):
        return StepDecision(self.budget_tokens)

    def observe(self, outcome):
        pass
'''
LEARNED = POLICY.replace(
    "    def reset",
    """
    def read(self):
        from pathlib import Path
        with np.load(Path(__file__).with_name("net.npz")) as arrays:
            return int(arrays["budget"][0])

    def reset""",
).replace("StepDecision(self.budget_tokens)", "StepDecision(self.read())")


def test_a_built_in_policy_becomes_an_entry(tmp_path):
    draft = Draft(
        policy="deadline_order", name="edf-64", settings={"budget_tokens": 64}, authors=["A", 'B "C"']
    )
    entry = make_submission(draft, board=tmp_path)
    assert entry.class_name == "DeadlineOrder"
    assert entry.settings == {"budget_tokens": 64}
    assert entry.authors == ("A", 'B "C"')
    assert entry.description
    assert entry.tuning.what == ()
    assert entry.tuning.seeds == "none"
    assert sorted(path.name for path in entry.folder.iterdir()) == ["policy.py", "submission.toml"]


def test_the_idea_is_the_first_paragraph_of_the_file(tmp_path):
    (tmp_path / "mine.py").write_text(POLICY)
    entry = make_submission(Draft(policy=tmp_path / "mine.py", name="mine"), board=tmp_path)
    assert entry.description == "One budget for all."
    assert entry.policy_path.read_text() == POLICY


def test_weights_come_along_and_are_tried(tmp_path):
    (tmp_path / "mine.py").write_text(LEARNED)
    np.savez(tmp_path / "net.npz", budget=np.array([48]))
    draft = Draft(
        policy=f"{tmp_path}/mine.py:Mine", name="mine", family="learned", weights=[tmp_path / "net.npz"]
    )
    entry = make_submission(draft, board=tmp_path / "board")
    assert [path.name for path in entry.weights] == ["net.npz"]
    with pytest.raises(PacerError, match="FileNotFoundError"):
        make_submission(Draft(policy=f"{tmp_path}/mine.py", name="without"), board=tmp_path / "board")
    assert [path.name for path in (tmp_path / "board" / "submissions").iterdir()] == ["mine"]


def test_what_was_tuned_is_told_in_the_entry(tmp_path):
    told = {
        "tuned_on": "episodes from 1,000,000",
        "tuning_range": 'budgets "16" to 2048',
        "tuning_cost": "9 h",
    }
    draft = Draft(policy="srpf", name="mine", tuned=["weights", "budget_tokens"], **told)
    tuning = make_submission(draft, board=tmp_path, trial=False).tuning
    assert tuning.what == ("weights", "budget_tokens")
    assert (tuning.seeds, tuning.range, tuning.cost) == tuple(told.values())


@pytest.mark.parametrize("said", [{"tuned_on": "seed 3"}, {"tuning_range": "all"}, {"tuning_cost": "9 h"}])
def test_how_nothing_was_tuned_needs_no_words(tmp_path, said):
    with pytest.raises(SubmissionError, match="say what was tuned"):
        make_submission(Draft(policy="srpf", name="mine", **said), board=tmp_path)


def test_pickled_weights_are_refused_and_nothing_is_written(tmp_path):
    (tmp_path / "mine.py").write_text(POLICY)
    (tmp_path / "net.npz").write_bytes(pickle.dumps([1.0]))
    with pytest.raises(PacerError, match=r"no \.npz file"):
        make_submission(
            Draft(policy=tmp_path / "mine.py", name="mine", weights=[tmp_path / "net.npz"]),
            board=tmp_path / "b",
        )
    assert not (tmp_path / "b").exists()


def test_an_entry_is_replaced_by_force_alone_and_its_results_go_too(tmp_path):
    entry = make_submission(Draft(policy="srpf", name="mine"), board=tmp_path, trial=False)
    (entry.folder / "results.json").write_text("{}")
    with pytest.raises(FileExistsError, match="force"):
        make_submission(Draft(policy="aimd", name="mine"), board=tmp_path, trial=False)
    assert (entry.folder / "results.json").exists()
    replaced = make_submission(Draft(policy="aimd", name="mine"), board=tmp_path, force=True, trial=False)
    assert replaced.class_name.lower() == "aimd"
    assert not (entry.folder / "results.json").exists()


def test_a_folder_of_something_else_is_never_replaced(tmp_path):
    (tmp_path / "submissions" / "mine").mkdir(parents=True)
    (tmp_path / "submissions" / "mine" / "thesis.tex").write_text("years of work")
    with pytest.raises(FileExistsError, match="no submission"):
        make_submission(Draft(policy="aimd", name="mine"), board=tmp_path, force=True)


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"policy": "oracle"}, "not ranked"),
        ({"policy": "aimdd"}, "did you mean 'aimd'"),
        ({"family": "magic"}, "family must be one of"),
        ({"settings": {"budget": 1}}, "no setting 'budget'"),
        ({"name": "My Policy"}, "small letters"),
        ({"settings_by_scenario": {"burst": {}}}, "did you mean 'bursty'"),
        ({"tracks": ["gpu"]}, "^track must be one of"),
        ({"tracks": []}, "or a list of such"),
    ],
)
def test_what_cannot_be_entered_is_refused_and_nothing_is_written(tmp_path, changes, told):
    with pytest.raises(PacerError, match=told):
        make_submission(Draft(**{"policy": "aimd", "name": "mine"} | changes), board=tmp_path, trial=False)
    assert not list(tmp_path.rglob("*.toml"))


def test_a_policy_that_fails_in_its_trial_is_named_with_what_shows_more(tmp_path):
    path = tmp_path / "mine.py"
    path.write_text(
        "class Mine:\n"
        "    def reset(self, spec, rng): pass\n"
        "    def decide(self, view): return 1 / 0\n"
        "    def observe(self, outcome): pass\n"
    )
    with pytest.raises(
        PacerError, match=r"^mine\.py failed in a trial run: ZeroDivisionError.* 'pacer-gym run "
    ):
        make_submission(Draft(policy=path, name="mine"), board=tmp_path)
    assert not (tmp_path / "submissions" / "mine").exists()


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("import helper", "a file beside it"),
        ("from helper import best", "a file beside it"),
        ("from .helper import best", "a file beside it"),
        ("from . import helper", "a file beside it"),
        ("import nested.deep", "a file beside it"),
        ("import torch", "plain install"),
        ("from pacer_gym.policies.srpf import SRPF", "another policy"),
        ("from pacer_gym.policies import srpf", "another policy"),
        ("import policies.srpf", "another policy"),
        ("def f():\n    import helper", "a file beside it"),
        ("def f(:", "no Python"),
    ],
)
def test_a_policy_that_does_not_stand_on_its_own_is_refused_by_line(tmp_path, line, told):
    (tmp_path / "helper.py").write_text("best = 1")
    (tmp_path / "nested").mkdir()
    (tmp_path / "nested" / "__init__.py").touch()
    path = tmp_path / "mine.py"
    path.write_text(f"import numpy as np\n{line}\n")
    with pytest.raises(SourceError, match=rf"^mine\.py, line [23].*{told}"):
        check_source(path)


def test_pythons_own_library_and_what_a_plain_install_has_may_be_imported(tmp_path):
    path = tmp_path / "mine.py"
    path.write_text(
        "import math, json, numpy.linalg\nfrom scipy import special\nfrom numba import jit\n"
        "import pacer_gym as pg\nfrom pacer_gym.tactics import prefill_room\n"
    )
    check_source(path)


plain = st.recursive(
    st.booleans()
    | st.integers(-(2**60), 2**60)
    | st.floats(allow_nan=False)
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), inner, max_size=3)
    ),
    max_leaves=8,
)


@given(plain)
def test_a_plain_value_reads_back_from_toml_as_it_was(value):
    told = tomllib.loads(f"value = {toml_value(value)}\n")["value"]
    assert told == value
    assert json.dumps(told) == json.dumps(value)


def test_none_has_no_place_in_toml():
    with pytest.raises(SubmissionError, match="leave a setting out"):
        toml_value({"a": [None]})
