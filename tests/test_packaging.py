"""What a wheel holds, and that it runs a policy from an empty folder without any extra."""

import json
import os
import shutil
import subprocess
import sys
import tomllib
import venv
import zipfile
from email import message_from_bytes
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import pacer_gym

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
# Where a folder of the repository lies in the wheel.
INSIDE = {"pacer_gym": "pacer_gym", "policies": "pacer_gym/policies", "baselines": "pacer_gym/baselines"}
DATA = (
    "pacer_gym/py.typed",
    "pacer_gym/latency/profiles/*.json",
    "pacer_gym/leaderboard/page/*",
    "pacer_gym/leaderboard/page/vendor/*",
    "pacer_gym/workloads/data/*",
)


def run(*command: str | Path, cwd: Path) -> str:
    """Run a command as a fresh shell would; give its output, or fail with all it said."""
    ours = ("PYTHON", "NUMBA_", "COV_", "PACER_GYM_")
    environment = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
    done = subprocess.run([*map(str, command)], cwd=cwd, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, f"{command} gave {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built from a copy, so that neither an old build folder nor this build can spoil the tree."""
    source, out = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("wheel")
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    for name in INSIDE:
        shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__"))
    run(sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", out, source, cwd=source)
    (built,) = out.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def names(wheel: Path) -> set[str]:
    with zipfile.ZipFile(wheel) as archive:
        return set(archive.namelist())


def test_the_wheel_adds_one_name_to_site_packages(names: set[str]):
    dist_info = f"pacer_gym-{PROJECT['version']}.dist-info"
    assert {name.partition("/")[0] for name in names} == {"pacer_gym", dist_info}


def test_the_wheel_holds_every_module_of_the_repository_and_no_other(names: set[str]):
    expected = {
        f"{inside}/{path.relative_to(ROOT / folder).as_posix()}"
        for folder, inside in INSIDE.items()
        for path in (ROOT / folder).rglob("*.py")
    }
    assert {name for name in names if name.endswith(".py")} == expected


@pytest.mark.parametrize("pattern", DATA)
def test_the_wheel_holds_the_data_of_the_package(pattern: str, names: set[str]):
    found = {path.relative_to(ROOT).as_posix() for path in ROOT.glob(pattern) if path.is_file()}
    assert found, f"{pattern} matches nothing in the repository"
    assert found <= names


def test_a_plain_install_asks_for_the_core_dependencies_alone(wheel: Path):
    with zipfile.ZipFile(wheel) as archive:
        (metadata,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        fields = message_from_bytes(archive.read(metadata)).get_all("Requires-Dist", [])
    needs = [Requirement(field) for field in fields]
    plain = {need.name for need in needs if need.marker is None or need.marker.evaluate({"extra": ""})}
    core = "gymnasium jinja2 joblib llvmlite numba numpy pandas pooch rich scipy typer"
    assert plain == set(core.split())


def test_the_version_is_the_same_everywhere():
    version = PROJECT["version"]
    assert pacer_gym.__version__ == version
    assert f"\nversion: {version}\n" in (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert f"\n## {version} " in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")


def test_contributing_gives_a_reason_for_every_dependency():
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    groups = [PROJECT["dependencies"], *PROJECT["optional-dependencies"].values()]
    named = {Requirement(need).name for group in groups for need in group} - {PROJECT["name"]}
    unexplained = {name for name in named if f"| {name} |" not in text}
    assert not unexplained


def test_constraints_pin_every_dependency_to_a_version_it_accepts():
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pins = [Requirement(line) for line in lines if line and not line.startswith("#")]
    assert all(str(pin.specifier).startswith("==") for pin in pins)
    pinned = {canonicalize_name(pin.name): str(pin.specifier).removeprefix("==") for pin in pins}
    # vLLM brings its own pins, of torch and numpy among others.
    extras = [group for extra, group in PROJECT["optional-dependencies"].items() if extra != "live"]
    for need in map(Requirement, sum(extras, PROJECT["dependencies"])):
        if need.name != PROJECT["name"]:
            assert need.specifier.contains(pinned[canonicalize_name(need.name)]), need


@pytest.mark.slow
def test_a_plain_install_runs_a_policy_from_an_empty_folder(wheel: Path, tmp_path: Path):
    home, empty = tmp_path / "venv", tmp_path / "empty"
    empty.mkdir()
    venv.create(home, with_pip=True)
    programs = home / ("Scripts" if os.name == "nt" else "bin")
    pip_install = (programs / "python", "-m", "pip", "install", "--retries", "1")
    try:
        run(*pip_install, "-c", ROOT / "constraints.txt", wheel, cwd=empty)
    except AssertionError as error:
        # Somebody without a network still wants the rest of the tests; in CI the index must be there.
        if "CI" in os.environ:
            raise
        pytest.skip(f"pip cannot install the core dependencies: {error}")

    command = "run fixed_budget --scenario poisson-standard --rate 2.5 --duration 30 --json"
    report = json.loads(run(programs / "pacer-gym", *command.split(), cwd=empty))
    assert 0.0 <= report["attainment"] <= 1.0

    code = "import pacer_gym as pg; print(type(pg.load_policy('fixed_budget')).__name__, pg.__file__)"
    name, _, file = run(programs / "python", "-c", code, cwd=empty).strip().partition(" ")
    assert name == "FixedBudget"
    assert Path(file).is_relative_to(home)
    assert not list(empty.iterdir()), "a run without --out must leave no file behind"
