"""Make the folder of a submission: whole, checked, and tried, or not at all."""

import inspect
import json
import math
import os
import re
import shlex
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pacer_gym.errors import PacerError, PolicyError
from pacer_gym.leaderboard.identity import plain_settings
from pacer_gym.leaderboard.isolation import PolicyFailed, isolated
from pacer_gym.leaderboard.policy_source import check_source
from pacer_gym.leaderboard.submission import (
    FAMILIES,
    SUBMISSION_FILE,
    Submission,
    SubmissionError,
    load_submission,
    read_submission,
    submission_folder,
)
from pacer_gym.leaderboard.submission_schema import check_tracks
from pacer_gym.leaderboard.texts import as_line
from pacer_gym.leaderboard.weights import check_weights
from pacer_gym.policy import is_privileged, load_policy
from pacer_gym.scoring.destination import clear_leftovers, write_whole
from pacer_gym.scoring.rollout import run
from pacer_gym.workloads.scenarios import SUITE
from pacer_gym.workloads.seeds import DEV_SEEDS

POLICY_FILE = "policy.py"

_LONGEST_IDEA = 1000

# What a policy must get through before anybody spends minutes on it.
_TRIAL_SCENARIO, _TRIAL_RPS, _TRIAL_S = "poisson-standard", 2.0, 20.0

_TEMPLATE = """\
# An entry of the PacerGym leaderboard; docs/leaderboard.md explains every key.
name = {{ name | toml }}
authors = {{ authors | toml }}
suite = {{ suite | toml }}
track = {{ tracks | toml }}  # one, or a list
family = {{ family | toml }}  # heuristic, learned or hybrid
description = {{ description | toml }}
source = {{ source | toml }}  # an address or a citation; may stay empty

[policy]
file = {{ file | toml }}
class = {{ class_name | toml }}
settings = {{ settings | toml }}
settings_by_scenario = {{ settings_by_scenario | toml }}
weights = {{ weights | toml }}

# What was chosen by looking at results. Seeds: none, development, or in words.
[tuning]
what = {{ tuned | toml }}
seeds = {{ tuning_seeds | toml }}
range = {{ tuning_range | toml }}
cost = {{ tuning_cost | toml }}
"""


@dataclass(frozen=True, kw_only=True)
class Draft:
    """What an author says of an entry that is to be made.

    Attributes
    ----------
    policy : str or path
        Reference as `load_policy` takes it.
    name : str
        Name of the entry.
    settings : mapping of str to object
        Constructor arguments.
    settings_by_scenario : mapping of str to mapping
        Further ones, by scenario.
    authors : sequence of str
        Who made it.
    family : str
        ``"heuristic"``, ``"learned"`` or ``"hybrid"``.
    weights : sequence of Path
        Files that the policy reads beside its own.
    tuned : sequence of str
        What was tuned: settings, or weights.
    tuned_on : str
        On which seeds: ``"development"``, or in words.
    tuning_range, tuning_cost : str
        What was tried, and what that took, in words.
    source : str
        An address or a citation.
    tracks : sequence of str
        What it is scored on.
    """

    policy: str | os.PathLike[str]
    name: str
    settings: Mapping[str, object] = field(default_factory=dict)
    settings_by_scenario: Mapping[str, Mapping[str, object]] = field(default_factory=dict)
    authors: Sequence[str] = ("anonymous",)
    family: str = "heuristic"
    weights: Sequence[Path] = ()
    tuned: Sequence[str] = ()
    tuned_on: str = "development"
    tuning_range: str = ""
    tuning_cost: str = ""
    source: str = ""
    tracks: Sequence[str] = ("cpu",)


def make_submission(
    draft: Draft, *, board: str | Path = "leaderboard", force: bool = False, trial: bool = True
) -> Submission:
    """Make the folder of an entry.

    Parameters
    ----------
    draft : Draft
        What is to be entered.
    board : str or Path
        Folder of the board.
    force : bool, default=False
        Replace an entry of that name; its results go with it, since they are another policy's.
    trial : bool, default=True
        Let the copied policy serve a few seconds in isolation, as `verify` will.

    Returns
    -------
    Submission
        The entry, as it lies there.

    Raises
    ------
    PacerError
        If the policy does not stand on its own, weights are no numbers, or the trial fails; nothing has been
        written then.
    FileExistsError
        If there is an entry of that name.
    """
    folder = submission_folder(board, draft.name)
    clear_leftovers(folder)
    if folder.exists():
        if not (folder / SUBMISSION_FILE).is_file():
            raise FileExistsError(
                f"{folder} exists and is no submission, so it is not replaced; choose another name"
            )
        if not force:
            raise FileExistsError(f"{folder} exists; choose another name, or replace it with force (--force)")
    check_tracks(draft.tracks)
    if draft.family not in FAMILIES:
        raise SubmissionError(f"family must be one of {', '.join(FAMILIES)}, got {draft.family!r}")
    if not draft.tuned and (draft.tuning_range or draft.tuning_cost or draft.tuned_on != "development"):
        raise SubmissionError("say what was tuned (--tuned), or leave seeds, range and cost out")
    settings = plain_settings(draft.settings)
    policy_path, class_name, description = _found(draft.policy, settings)
    check_source(policy_path)
    for path in draft.weights:
        check_weights(path)
    names = [Path(path).name for path in draft.weights]
    if len({*names, POLICY_FILE, SUBMISSION_FILE}) < len(names) + 2:
        raise SubmissionError(f"weights need different names, got {', '.join(names)}")
    text = _toml_text(
        name=draft.name,
        authors=list(draft.authors),
        suite=SUITE,
        tracks=draft.tracks[0] if len(draft.tracks) == 1 else list(draft.tracks),
        family=draft.family,
        description=description,
        source=draft.source,
        file=POLICY_FILE,
        class_name=class_name,
        settings=settings,
        settings_by_scenario={name: plain_settings(own) for name, own in draft.settings_by_scenario.items()},
        weights=names,
        tuned=list(draft.tuned),
        tuning_seeds=draft.tuned_on if draft.tuned else "none",
        tuning_range=draft.tuning_range,
        tuning_cost=draft.tuning_cost,
    )

    def fill(partial: Path) -> None:
        partial.mkdir()
        shutil.copyfile(policy_path, partial / POLICY_FILE)
        for path, name in zip(draft.weights, names, strict=True):
            shutil.copyfile(path, partial / name)
        (partial / SUBMISSION_FILE).write_text(text, encoding="utf-8")
        entry = _read_partial(partial, folder.name)
        if trial:
            _try(entry, policy_path)

    write_whole(folder, fill)
    return load_submission(folder)


def toml_value(value: object) -> str:
    r"""Write a plain value as TOML.

    Raises
    ------
    SubmissionError
        If TOML has no such value: it lacks None.

    Examples
    --------
    >>> print(toml_value({"grid": [64, 1e5], "name": 'a "b"', "on": True}))
    { grid = [64, 100000.0], name = "a \"b\"", on = true }
    """
    if isinstance(value, Mapping):
        pairs = (f"{_toml_key(str(key))} = {toml_value(item)}" for key, item in value.items())
        return "{ " + ", ".join(pairs) + " }" if value else "{}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(toml_value, value))}]"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return repr(value) if math.isfinite(value) else str(value)
    if isinstance(value, int):
        return str(value)
    if isinstance(value, str):
        # JSON's texts are TOML's too, but for the one control character that JSON lets through.
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    raise SubmissionError(f"{value!r} has no place in TOML: leave a setting out to keep its default")


def _toml_key(key: str) -> str:
    return key if re.fullmatch(r"[A-Za-z0-9_-]+", key) else toml_value(key)


def _found(reference: str | os.PathLike[str], settings: Mapping[str, object]) -> tuple[Path, str, str]:
    """File, class and idea of a policy, which is built once to see whether its settings suit it."""
    try:
        policy = load_policy(reference, **settings)
    except (PacerError, OSError):
        raise
    except Exception as error:  # a constructor may raise anything
        raise PolicyError(f"policy {os.fspath(reference)}: {type(error).__name__}: {error}") from error
    if is_privileged(policy):
        raise PacerError(f"policy {os.fspath(reference)} sees the simulator itself, so it is not ranked")
    cls = type(policy)
    module = sys.modules[cls.__module__]
    path = Path(str(module.__file__))
    idea = (inspect.getdoc(module) or inspect.getdoc(cls) or f"The policy {cls.__name__}.").split("\n\n")[0]
    return path, cls.__name__, as_line(idea, _LONGEST_IDEA)


def _toml_text(**values: object) -> str:
    import jinja2

    environment = jinja2.Environment(
        undefined=jinja2.StrictUndefined, keep_trailing_newline=True, autoescape=False
    )
    environment.filters["toml"] = toml_value
    return environment.from_string(_TEMPLATE).render(**values)


def _read_partial(partial: Path, name: str) -> Submission:
    """Read the folder that is being made, as if it had its name already."""
    import tomllib

    content = tomllib.loads((partial / SUBMISSION_FILE).read_text(encoding="utf-8"))
    try:
        return read_submission(content, partial, name=name)
    except SubmissionError as error:  # of a file that will be gone
        told = str(error).replace(f"{partial / SUBMISSION_FILE}: ", "").replace(str(partial), name)
        raise SubmissionError(told) from None


def _try(entry: Submission, original: Path) -> None:
    for settings in (entry.settings, *(entry.settings_on(name) for name in entry.settings_by_scenario)):
        try:
            with isolated(entry.policy_reference, settings) as policy:
                run(policy, _TRIAL_SCENARIO, rate_rps=_TRIAL_RPS, seed=DEV_SEEDS[0], horizon_s=_TRIAL_S)
        except PolicyFailed as error:
            command = f"pacer-gym run {shlex.quote(str(original))} --scenario {_TRIAL_SCENARIO}"
            raise SubmissionError(
                f"{original.name} failed in a trial run: {error}; '{command}' shows more"
            ) from error
