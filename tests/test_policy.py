import pickle
import sys
import traceback
from pathlib import Path

import pytest

from pacer_gym.errors import PolicyError
from pacer_gym.policy import Policy, load_policy, policy_defaults, policy_names, policy_reference

ROOT = Path(__file__).parents[1]
BUILT_IN = [
    "aimd",
    "deadline_order",
    "fixed_budget",
    "least_laxity",
    "p_pas",
    "random_budget",
    "srpf",
    "vllm_default",
]

ONE = """
class {name}:
    def __init__(self, *, budget_tokens=7): self.budget_tokens = budget_tokens
    def reset(self, spec, rng): pass
    def decide(self, view): return None
    def observe(self, outcome): pass
"""


def write(path, text):
    path.write_text(text, encoding="utf-8")
    return path


def failure(reference, **settings):
    with pytest.raises(PolicyError) as caught:
        load_policy(reference, **settings)
    return str(caught.value)


def test_the_names_are_the_files():
    assert set(BUILT_IN) <= set(policy_names())
    assert policy_names() == sorted(path.stem for path in (ROOT / "policies").glob("[!_]*.py"))


@pytest.mark.parametrize("name", BUILT_IN)
@pytest.mark.parametrize("folder", ["checkout", "empty"])
def test_name_file_and_class_name_the_same_policy_from_any_folder(name, folder, tmp_path, monkeypatch):
    monkeypatch.chdir(ROOT if folder == "checkout" else tmp_path)
    by_name, by_file = load_policy(name), load_policy(f"policies/{name}.py")
    by_class = load_policy(f"policies/{name}.py:{type(by_name).__name__}")
    assert type(by_name) is type(by_file) is type(by_class)
    assert isinstance(by_name, Policy)
    assert by_name is not by_file


def test_a_file_of_the_working_folder_comes_before_the_built_in_one(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "policies").mkdir()
    write(tmp_path / "policies" / "fixed_budget.py", ONE.format(name="Mine"))
    assert type(load_policy("policies/fixed_budget.py")).__name__ == "Mine"
    assert type(load_policy("fixed_budget")).__name__ == "FixedBudget"


def test_a_path_object_works_and_so_does_an_absolute_path(tmp_path):
    path = write(tmp_path / "mine.py", ONE.format(name="Mine"))
    assert type(load_policy(path)) is type(load_policy(str(path))) is type(load_policy(f"{path}:Mine"))


def test_settings_reach_the_constructor(tmp_path):
    assert load_policy("fixed_budget", budget_tokens=64).budget_tokens == 64
    assert (
        load_policy(write(tmp_path / "mine.py", ONE.format(name="Mine")), budget_tokens=3).budget_tokens == 3
    )


def test_an_unknown_setting_lists_the_accepted_ones_with_their_defaults():
    message = failure("fixed_budget", budget=64)
    assert "no setting 'budget' (did you mean 'budget_tokens'?)" in message
    assert "it accepts budget_tokens=128" in message
    assert "it accepts none" in failure("vllm_default", budget_tokens=64)


def test_defaults_are_those_of_the_constructor_whatever_an_instance_was_given(tmp_path):
    first = load_policy(write(tmp_path / "mine.py", ONE.format(name="Mine")), budget_tokens=3)
    assert policy_defaults(first) == policy_defaults(type(first)) == {"budget_tokens": 7}
    assert policy_defaults(load_policy("vllm_default")) == {}


def test_a_setting_that_the_constructor_refuses_keeps_its_reason():
    message = failure("fixed_budget", budget_tokens=-1)
    assert message == "policy fixed_budget: budget_tokens must be at least 1, got -1"


def test_a_setting_without_a_default_is_asked_for(tmp_path):
    text = ONE.format(name="Mine").replace("budget_tokens=7", "weights")
    text = text.replace("self.budget_tokens = budget_tokens", "pass")
    path = write(tmp_path / "mine.py", text)
    assert "needs weights; it accepts weights" in failure(path)


def test_a_constructor_that_takes_any_setting_gets_any(tmp_path):
    text = ONE.format(name="Mine").replace("*, budget_tokens=7", "**settings")
    text = text.replace("budget_tokens = budget_tokens", "settings = settings")
    assert load_policy(write(tmp_path / "mine.py", text), reference="x").settings == {"reference": "x"}


@pytest.mark.parametrize(
    "reference", ["fixed_bugdet", "fixed-budget", "", "nowhere/fixed_budget.py", ":", "x:Y"]
)
def test_a_miss_lists_what_exists(reference):
    message = failure(reference)
    assert "aimd, " in message
    assert "path/to/file.py:ClassName" in message


def test_a_near_miss_is_recognised():
    assert "did you mean 'least_laxity'?" in failure("least_laxty")


def test_a_file_of_another_kind_is_refused_by_its_name(tmp_path):
    path = write(tmp_path / "mine.txt", ONE.format(name="Mine"))
    assert "ends in .py" in failure(path)
    assert "ends in .py" in failure(tmp_path)


def test_a_class_that_is_missing_lists_the_policies_there_are(tmp_path):
    path = write(tmp_path / "two.py", ONE.format(name="First") + ONE.format(name="Second"))
    message = failure(f"{path}:Third")
    assert "no class 'Third'" in message
    assert "First, Second" in message


def test_several_policies_in_a_file_must_be_told_apart(tmp_path):
    path = write(tmp_path / "two.py", ONE.format(name="First") + ONE.format(name="Second"))
    message = failure(path)
    assert "several policies: First, Second; name one, as in 'two.py:First'" in message
    assert type(load_policy(f"{path}:Second")).__name__ == "Second"


def test_helpers_aliases_and_imported_policies_do_not_count(tmp_path):
    text = ONE.format(name="_Base") + "class Helper: pass\nclass Mine(_Base): pass\nAlias = Mine\n"
    text += "from pacer_gym.policy import Policy\n"
    assert type(load_policy(write(tmp_path / "mine.py", text))).__name__ == "Mine"


def test_a_class_that_is_no_policy_says_what_it_lacks(tmp_path):
    path = write(tmp_path / "mine.py", "class Mine:\n    def decide(self, view): ...\n")
    assert "it lacks reset, observe" in failure(f"{path}:Mine")
    assert "defines no policy: a class with the methods reset, decide, observe" in failure(path)


@pytest.mark.parametrize(
    ("good", "bad", "told"),
    [
        ("reset(self, spec, rng)", "reset(self)", "reset() must take spec, rng"),
        ("decide(self, view)", "decide(self, view, clock)", "decide(view, clock) must take view"),
        ("observe(self, outcome)", "observe(self)", "as in def observe(self, outcome)"),
    ],
)
def test_a_method_that_the_engine_cannot_call_is_refused(good, bad, told, tmp_path):
    text = ONE.format(name="Mine")
    assert good in text
    assert told in failure(write(tmp_path / "mine.py", text.replace(good, bad)))


def test_a_file_that_fails_to_import_names_file_line_and_exception(tmp_path):
    path = write(tmp_path / "broken.py", "import math\n\ndef helper():\n    return 1 / 0\n\nhelper()\n")
    with pytest.raises(
        PolicyError, match=r"broken\.py, line 4: ZeroDivisionError: division by zero"
    ) as caught:
        load_policy(path)
    assert isinstance(caught.value.__cause__, ZeroDivisionError)
    shown = "".join(traceback.format_exception(caught.value))
    assert "return 1 / 0" in shown


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("x = 1\ndef f(:\n", "line 2: SyntaxError"),
        (
            "\n\nimport no_such_module_here\n",
            "line 3: ModuleNotFoundError: No module named 'no_such_module_here'",
        ),
        ("raise SystemExit(3)\n", "line 1: SystemExit: 3"),
        ("import json\njson.loads('{')\n", "line 2: JSONDecodeError"),
    ],
)
def test_every_way_to_fail_at_import_is_told(text, expected, tmp_path):
    assert f"broken.py, {expected}" in failure(write(tmp_path / "broken.py", text))


def test_a_failed_import_leaves_nothing_behind_and_a_mended_file_loads(tmp_path):
    path = write(tmp_path / "mine.py", "raise RuntimeError\n")
    before = set(sys.modules)
    failure(path)
    assert set(sys.modules) == before
    write(path, ONE.format(name="Mine"))
    assert type(load_policy(path)).__name__ == "Mine"


def test_two_files_of_one_name_do_not_meet(tmp_path):
    paths = [tmp_path / "a" / "mine.py", tmp_path / "b" / "mine.py"]
    for path, name in zip(paths, ("First", "Second"), strict=True):
        path.parent.mkdir()
        write(path, ONE.format(name=name))
    policies = [load_policy(path) for path in paths]
    assert [type(policy).__name__ for policy in policies] == ["First", "Second"]
    assert "mine" not in sys.modules
    assert [type(pickle.loads(pickle.dumps(policy))) for policy in policies] == [type(p) for p in policies]


def test_the_same_text_gives_the_same_class_and_an_edit_a_new_one(tmp_path):
    path = write(tmp_path / "mine.py", ONE.format(name="Mine"))
    first = load_policy(path)
    assert type(load_policy(path)) is type(first)
    # As long as before, and within the same second.
    write(path, ONE.format(name="Mine").replace("=7", "=8"))
    assert load_policy(path).budget_tokens == 8
    assert type(pickle.loads(pickle.dumps(first))) is type(first)
    assert not (tmp_path / "__pycache__").exists()


def test_dataclasses_and_the_files_own_path_work_in_a_policy_file(tmp_path):
    text = """
from __future__ import annotations
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

HERE = Path(__file__).parent

@dataclass
class Mine:
    budgets: list[int] = field(default_factory=list)
    here: ClassVar[Path] = HERE
    def reset(self, spec, rng): pass
    def decide(self, view): return None
    def observe(self, outcome): pass
"""
    policy = load_policy(write(tmp_path / "with-dash.v2.py", text), budgets=[1, 2])
    assert policy.here == tmp_path.resolve()
    assert pickle.loads(pickle.dumps(policy)) == policy


def test_a_reference_finds_the_class_again(tmp_path, monkeypatch):
    assert policy_reference(load_policy("policies/srpf.py:Srpf")) == "srpf"
    path = write(tmp_path / "two.py", ONE.format(name="First") + ONE.format(name="Second"))
    second = load_policy(f"{path}:Second")
    assert policy_reference(second) == f"{path.resolve().as_posix()}:Second"
    monkeypatch.chdir(tmp_path)
    assert policy_reference(type(second)) == "two.py:Second"
    assert type(load_policy(policy_reference(second))) is type(second)


def test_a_class_that_no_file_holds_is_named_by_its_module():
    mine = type("Mine", (), {"__module__": "__nowhere__"})
    assert policy_reference(mine()) == "__nowhere__:Mine"
