"""A policy is what its file, its weights and its settings hold, wherever they lie."""

from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest

from pacer_gym.errors import PolicyError
from pacer_gym.leaderboard.identity import package_identity, plain_settings, policy_identity

SOURCE = """
from pathlib import Path
import numpy as np
from pacer_gym.engine.view import StepDecision

class Learned:
    def __init__(self, *, weights="net.npz", budget_tokens=64):
        self.budget = np.load(Path(__file__).parent / weights)["budget"]

    def reset(self, spec, rng): ...
    def decide(self, view): return StepDecision(int(self.budget))
    def observe(self, outcome): ...
"""


@dataclass
class MadeEntry:
    name: str
    policy_reference: str
    weights: list[Path] = field(default_factory=list)


def write_policy(folder: Path, budget: int = 64, comment: str = "") -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "mine.py").write_text(SOURCE + comment, encoding="utf-8")
    np.savez(folder / "net.npz", budget=budget)
    return folder / "mine.py"


def test_the_same_content_elsewhere_is_the_same_policy(tmp_path):
    here, there = (policy_identity(write_policy(tmp_path / name)) for name in ("a", "b"))
    assert here.path != there.path
    assert (here.source_sha256, here.weights_sha256) == (there.source_sha256, there.weights_sha256)
    assert (here.name, here.class_name) == ("mine", "Learned")


def test_another_source_or_other_weights_are_another_policy(tmp_path):
    first = policy_identity(write_policy(tmp_path / "a"))
    edited = policy_identity(write_policy(tmp_path / "b", comment="# edited\n"))
    trained = policy_identity(write_policy(tmp_path / "c", budget=32))
    assert first.source_sha256 != edited.source_sha256
    assert first.weights_sha256 == edited.weights_sha256 != trained.weights_sha256


def test_an_entry_brings_its_name_and_its_weights(tmp_path):
    path = write_policy(tmp_path / "a")
    entry = MadeEntry("my-entry", f"{path}:Learned", [path.parent / "net.npz"])
    found = policy_identity(entry)
    assert found.name == "my-entry"
    assert found.weights_sha256 == policy_identity(path).weights_sha256
    assert list(found.weights) == ["net.npz"]


def test_weights_that_are_missing_are_named(tmp_path):
    path = write_policy(tmp_path / "a")
    with pytest.raises(PolicyError, match=r"none\.npz"):
        policy_identity(MadeEntry("my-entry", str(path), [path.parent / "none.npz"]))


def test_a_policy_that_sees_the_simulator_is_not_ranked():
    with pytest.raises(PolicyError, match="not ranked"):
        policy_identity("oracle")


def test_settings_that_json_cannot_keep_are_refused():
    assert plain_settings({"a": (1, 2.5), "b": None}) == {"a": [1, 2.5], "b": None}
    for value in (object(), float("nan"), {1, 2}):
        with pytest.raises(PolicyError, match="plain values"):
            plain_settings({"a": value})


def test_the_package_is_its_version_and_the_code_that_decides_results():
    assert len(package_identity()["sources_sha256"]) == 64
