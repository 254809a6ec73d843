"""How a policy is found: by name, by file, or by file and class."""

import inspect
import os
import sys
from pathlib import Path
from types import ModuleType

from pacer_gym.errors import PolicyError, did_you_mean
from pacer_gym.policy_file import builtin_folder, load_policy_file
from pacer_gym.policy_protocol import (
    CompiledSteps,
    Policy,
    PrivilegedPolicy,
    compiled_steps,
    is_privileged,
    needs_prompts,
)

__all__ = [
    "CompiledSteps",
    "Policy",
    "PrivilegedPolicy",
    "compiled_steps",
    "is_privileged",
    "load_policy",
    "needs_prompts",
    "policy_defaults",
    "policy_names",
    "policy_reference",
]

# What a policy can do, and with what the engine calls it.
_METHODS = {"reset": ("spec", "rng"), "decide": ("view",), "observe": ("outcome",)}


def load_policy(reference: str | os.PathLike[str], /, **settings: object) -> Policy:
    """Build a policy from its name, its file, or its file and class.

    Parameters
    ----------
    reference : str or path
        ``"fixed_budget"``, ``"path/to/file.py"`` or ``"path/to/file.py:ClassName"``.
        A file of the working folder comes first; where there is none,
        ``"policies/NAME.py"`` means the built-in file of that name.
    **settings
        Passed to the policy's constructor, after a check against its signature.

    Returns
    -------
    Policy
        A fresh instance; the caller resets it.

    Raises
    ------
    PolicyError
        If there is no such policy, its file fails to import or does not define exactly one
        policy (name the class then), or the settings do not suit it.

    Notes
    -----
    A file is run once for each content it has had: the same text gives the same class, an edited
    file a new one, and two files of one name never meet.

    Examples
    --------
    >>> load_policy("fixed_budget", budget_tokens=64).budget_tokens
    64
    >>> load_policy("fixed_bugdet")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
        ...
    pacer_gym.errors.PolicyError: no policy named 'fixed_bugdet' (did you mean 'fixed_budget'?); ...
    """
    where, class_name = _split_reference(os.fspath(reference))
    module = load_policy_file(_find_file(where))
    return _build(_choose_class(module, class_name), str(reference), settings)


def policy_names() -> list[str]:
    """Names of the built-in policies, sorted.

    Examples
    --------
    >>> "deadline_order" in policy_names()
    True
    """
    return sorted(path.stem for path in builtin_folder().glob("*.py") if not path.stem.startswith("_"))


def policy_reference(policy: object) -> str:
    """Reference by which `load_policy` finds a policy's class again, for records.

    Parameters
    ----------
    policy : Policy or its class
        Settings are not part of the reference.

    Returns
    -------
    str
        The name of a built-in policy; ``"file.py:ClassName"`` of any other, relative to the
        working folder where the file lies below it; ``"module:ClassName"`` of a class that no
        file holds, such as a notebook's.

    Examples
    --------
    >>> policy_reference(load_policy("policies/fixed_budget.py"))
    'fixed_budget'
    """
    cls = policy if isinstance(policy, type) else type(policy)
    module = sys.modules.get(cls.__module__)
    if module is None or getattr(module, "__file__", None) is None:
        return f"{cls.__module__}:{cls.__qualname__}"
    path = Path(str(module.__file__)).resolve()
    if path.parent == builtin_folder():
        return path.stem if _policy_classes(module) == [cls] else f"{path.stem}:{cls.__name__}"
    here = Path.cwd()
    shown = path.relative_to(here) if path.is_relative_to(here) else path
    return f"{shown.as_posix()}:{cls.__name__}"


def policy_defaults(policy: object) -> dict[str, object]:
    """Settings of a policy, which ``--set`` and `load_policy` take, and their defaults.

    Parameters
    ----------
    policy : Policy or its class
        What an instance was given does not matter.

    Returns
    -------
    dict of str to object
        In the order of the constructor; a setting without a default is left out.

    Examples
    --------
    >>> policy_defaults(load_policy("fixed_budget", budget_tokens=64))
    {'budget_tokens': 128}
    """
    cls = policy if isinstance(policy, type) else type(policy)
    return {p.name: p.default for p in _named_parameters(cls) if p.default is not p.empty}


def _split_reference(reference: str) -> tuple[str, str | None]:
    """Split off the class; what follows a colon that belongs to the path is no identifier."""
    where, colon, class_name = reference.rpartition(":")
    if colon and class_name.isidentifier() and not Path(reference).is_file():
        return where, class_name
    return reference, None


def _find_file(where: str) -> Path:
    """Resolve a name or a path to an existing file."""
    path = Path(where)
    if path.suffix == ".py":
        if path.is_file():
            return path.resolve()
        builtin = builtin_folder() / path.name
        if path.parts == ("policies", path.name) and builtin.is_file():
            return builtin
        raise PolicyError(f"no policy file {where}; {_what_exists()}")
    names = policy_names()
    if where in names:
        return builtin_folder() / f"{where}.py"
    if path.exists():
        raise PolicyError(f"the name of a policy's file ends in .py, got {where!r}; {_what_exists()}")
    raise PolicyError(f"no policy named {where!r}{did_you_mean(where, names)}; {_what_exists()}")


def _policy_classes(module: ModuleType) -> list[type]:
    """Public policy classes a file defines itself, in the order of definition."""
    found = (value for name, value in vars(module).items() if not name.startswith("_"))
    own = (value for value in found if isinstance(value, type) and value.__module__ == module.__name__)
    return [cls for cls in dict.fromkeys(own) if not _missing_methods(cls)]  # aliases count once


def _missing_methods(cls: type) -> list[str]:
    return [name for name in _METHODS if not callable(getattr(cls, name, None))]


def _choose_class(module: ModuleType, class_name: str | None) -> type:
    """Pick the named class, or the only policy there is."""
    classes = _policy_classes(module)
    listed = ", ".join(cls.__name__ for cls in classes) or "none"
    if class_name is None:
        if len(classes) == 1:
            return classes[0]
        if not classes:
            raise PolicyError(
                f"{module.__file__} defines no policy: a class with the methods {', '.join(_METHODS)}"
            )
        raise PolicyError(
            f"{module.__file__} defines several policies: {listed}; "
            f"name one, as in '{Path(str(module.__file__)).name}:{classes[0].__name__}'"
        )
    chosen = getattr(module, class_name, None)
    if not isinstance(chosen, type):
        raise PolicyError(f"no class {class_name!r} in {module.__file__}; policies it defines: {listed}")
    if missing := _missing_methods(chosen):
        raise PolicyError(
            f"{class_name} in {module.__file__} is no policy, it lacks {', '.join(missing)}; "
            f"policies it defines: {listed}"
        )
    return chosen


def _build(cls: type, reference: str, settings: dict[str, object]) -> Policy:
    """Call the constructor, after checking the settings' names."""
    accepts_any = any(p.kind is p.VAR_KEYWORD for p in inspect.signature(cls).parameters.values())
    named = _named_parameters(cls)
    names = [p.name for p in named]
    shown = (p.name if p.default is p.empty else f"{p.name}={p.default!r}" for p in named)
    accepts = f"it accepts {', '.join(shown) or 'none'}"
    for name in settings:
        if name not in names and not accepts_any:
            hint = did_you_mean(name, names)
            raise PolicyError(f"policy {reference} has no setting {name!r}{hint}; {accepts}")
    if required := [p.name for p in named if p.default is p.empty and p.name not in settings]:
        raise PolicyError(f"policy {reference} needs {', '.join(required)}; {accepts}")
    try:
        policy: Policy = cls(**settings)
    except (TypeError, ValueError) as error:
        raise PolicyError(f"policy {reference}: {error}") from error
    for name, arguments in _METHODS.items():
        signature = inspect.signature(getattr(policy, name))
        try:
            signature.bind(*arguments)
        except TypeError:
            taken = ", ".join(arguments)
            raise PolicyError(
                f"policy {reference}: {name}{signature} must take {taken}, as in def {name}(self, {taken})"
            ) from None
    return policy


def _named_parameters(cls: type) -> list[inspect.Parameter]:
    """Arguments that a constructor takes by name."""
    parameters = inspect.signature(cls).parameters.values()
    return [p for p in parameters if p.kind in (p.KEYWORD_ONLY, p.POSITIONAL_OR_KEYWORD)]


def _what_exists() -> str:
    return f"built in are {', '.join(policy_names())}; others are files, as in 'path/to/file.py:ClassName'"
