"""The rooms of the package keep their order, and heavy libraries load where they are used."""

import ast
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = sorted((ROOT / "pacer_gym").rglob("*.py"))
POLICIES = sorted((ROOT / "policies").glob("*.py"))

# A room imports only rooms of a lower floor: workloads and latency, like envs and scoring,
# share a floor and so never meet.  The package itself ("") re-exports all that lies below
# the command line, so importing it from there would be a circle.
FLOOR = {
    "compiled": 0,
    "errors": 0,
    "provenance": 0,
    "workloads": 1,
    "latency": 1,
    "engine": 2,
    "policy_file": 1,
    "policy": 4,
    "policy_protocol": 3,
    "tactics": 4,
    "live": 5,
    "envs": 6,
    "scoring": 6,
    "leaderboard": 7,
    "": 8,
    "cli": 9,
    "__main__": 10,
}

# Slow to load, or absent from a plain install.
HEAVY = {
    "dask",
    "distributed",
    "jinja2",
    "landlock",
    "matplotlib",
    "minari",
    "pandas",
    "pooch",
    "pyarrow",
    "pyseccomp",
    "ray",
    "rich",
    "sb3_contrib",
    "scipy.stats",
    "sklearn",
    "stable_baselines3",
    "torch",
    "typer",
    "vllm",
}

# Modules written around such a library, which nothing else imports before it is wanted.
WRITTEN_AROUND = {
    "pacer_gym/cli": {"typer"},
    "pacer_gym/envs/sb3.py": {"stable_baselines3"},
    "pacer_gym/live/bare_scheduler.py": {"torch", "vllm"},
    "pacer_gym/live/imposing.py": {"vllm"},
    "pacer_gym/live/scheduler.py": {"vllm"},
}

MAY_PRINT_AND_EXIT = {"cli", "__main__"}

# Modules that are the main program of a process of their own.
PROGRAMS = {"pacer_gym/leaderboard/worker.py", "pacer_gym/leaderboard/worker_main.py"}


class Import(NamedTuple):
    """A dotted name that a module imports, and whether loading the module loads it too."""

    name: str
    line: int
    at_load: bool


def imports_of(tree: ast.AST, *, at_load: bool = True) -> Iterator[Import]:
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.Import):
            yield from (Import(alias.name, node.lineno, at_load) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            # The joined name tells ``from pacer_gym import errors`` from ``from pacer_gym import SLO``.
            module = "." * node.level + (node.module or "")
            yield from (Import(f"{module}.{alias.name}", node.lineno, at_load) for alias in node.names)
        else:
            postponed = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda) or (
                isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)
            )
            yield from imports_of(node, at_load=at_load and not postponed)


def is_within(name: str, packages: set[str]) -> bool:
    return any(name == package or name.startswith(f"{package}.") for package in packages)


def place(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def excused(path: Path) -> set[str]:
    around = (names for where, names in WRITTEN_AROUND.items() if place(path).startswith(where))
    return set().union(*around)


def room_holding(path: Path) -> str:
    first = path.relative_to(ROOT / "pacer_gym").parts[0].removesuffix(".py")
    return "" if first == "__init__" else first


def room_named(name: str) -> str | None:
    """Room of an imported name: "" for the package itself, None outside of it."""
    parts = name.split(".")
    if parts[0] != "pacer_gym":
        return None
    return parts[1] if len(parts) > 1 and parts[1] in FLOOR else ""


def all_imports(paths: list[Path]) -> Iterator[tuple[Path, Import]]:
    for path in paths:
        for found in imports_of(ast.parse(path.read_text(encoding="utf-8"))):
            yield path, found


def test_every_module_lies_in_a_room_that_has_a_floor():
    rooms = {room_holding(path) for path in PACKAGE}
    assert rooms <= FLOOR.keys(), f"give {sorted(rooms - FLOOR.keys())} a floor in this file"


def test_imports_are_absolute():
    relative = [
        f"{place(path)}:{found.line} imports {found.name}"
        for path, found in all_imports(PACKAGE + POLICIES)
        if found.name.startswith(".")
    ]
    assert not relative, "\n".join(relative)


def test_imports_run_downward_only():
    upward = []
    for path, found in all_imports(PACKAGE):
        here, there = room_holding(path), room_named(found.name)
        if there is not None and there != here and FLOOR[there] >= FLOOR[here]:
            upward.append(f"{place(path)}:{found.line} imports {found.name}")
    assert not upward, "\n".join(upward)


def test_a_policy_imports_the_package_and_numpy_and_no_other_policy():
    allowed = {"numpy", "pacer_gym", *sys.stdlib_module_names}
    foreign = [
        f"{place(path)}:{found.line} imports {found.name}"
        for path, found in all_imports(POLICIES)
        if not is_within(found.name, allowed) or is_within(found.name, {"pacer_gym.policies"})
    ]
    assert not foreign, "\n".join(foreign)


def test_heavy_libraries_are_imported_inside_the_function_that_uses_them():
    early = [
        f"{place(path)}:{found.line} imports {found.name}"
        for path, found in all_imports(PACKAGE + POLICIES)
        if found.at_load and is_within(found.name, HEAVY - excused(path))
    ]
    assert not early, "\n".join(early)


def test_only_the_command_line_and_scripts_print_or_exit():
    ending = {"print", "exit", "quit", "sys.exit", "os._exit", "SystemExit"}
    spoken = []
    for path in PACKAGE + POLICIES:
        if place(path) in PROGRAMS or (path in PACKAGE and room_holding(path) in MAY_PRINT_AND_EXIT):
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and ast.unparse(node.func) in ending:
                spoken.append(f"{place(path)}:{node.lineno} calls {ast.unparse(node.func)}")
    assert not spoken, "\n".join(spoken)


def test_importing_the_package_loads_nothing_heavy():
    code = "import json, sys, pacer_gym; print(json.dumps(sorted(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert not HEAVY & set(json.loads(done.stdout))


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("import scipy.stats", [("scipy.stats", True)]),
        ("from scipy import stats", [("scipy.stats", True)]),
        ("try:\n    import torch\nexcept ImportError:\n    pass", [("torch", True)]),
        ("class A:\n    def f(self):\n        import torch", [("torch", False)]),
        ("if TYPE_CHECKING:\n    import pandas as pd", [("pandas", False)]),
        ("from ..engine import view", [("..engine.view", True)]),
    ],
)
def test_the_walk_knows_what_loading_a_module_loads(source, expected):
    assert [(found.name, found.at_load) for found in imports_of(ast.parse(source))] == expected
