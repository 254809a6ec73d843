"""`pacer-gym serve`: what it prints, and how it says no."""

import json
import os
import subprocess
import sys

import pytest

from pacer_gym.cli import main
from pacer_gym.live.versions import installed_vllm

FOLDER = "PROMETHEUS_MULTIPROC_DIR"


@pytest.fixture
def model(tmp_path, monkeypatch):
    """A model's folder, and a vLLM that can only be asked for its version."""
    folder, about = tmp_path / "model", tmp_path / "site" / "vllm-0.32.0.dist-info"
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    about.mkdir(parents=True)
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: vllm\nVersion: 0.32.0\n")
    monkeypatch.syspath_prepend(about.parent)
    return str(folder)


def test_a_dry_run_prints_the_command_and_starts_nothing(model, capsys):
    words = ["serve", "--model", model, "--policy", "pacer:alpha=0.2", "--slo", "1:0.06", "--dry-run"]
    assert main([*words, "--", "--port", "8001"]) == 0
    printed = capsys.readouterr().out
    for word in ("PACER_GYM_POLICY=pacer", '{"alpha": 0.2}', "PACER_GYM_SLO=1.0:0.06", "--port 8001", FOLDER):
        assert word in printed


def test_a_dry_run_for_programs_is_json(model, capsys):
    assert main(["serve", "--model", model, "--set", "alpha=0.2", "--dry-run", "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed["environment"]["PACER_GYM_POLICY"] == "pacer"
    assert json.loads(printed["environment"]["PACER_GYM_POLICY_SETTINGS"]) == {"alpha": 0.2}
    assert model in printed["command"]
    assert printed["fresh_folder_variable"] == FOLDER


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["--policy", "pacr"], "did you mean 'pacer'"),
        (["--policy", "pacer:alfa=1"], "no setting 'alfa'"),
        (["--policy", "oracle"], "simulator"),
        (["--profile", "nix"], "no profile 'nix'"),
        (["--slo", "2"], "--slo must be TTFT:TPOT"),
        (["--slo", "0:0.1"], "--slo 0:0.1"),
        (["--seed", "-1"], "seed"),
        (["--json"], "--dry-run"),
        (["--port", "8001"], "--port"),
        (["--", "--scheduler-cls", "mine"], "leave --scheduler-cls out"),
        (["--model", "nowhere"], "no model folder nowhere"),
    ],
)
def test_a_mistake_is_one_line_and_status_2(model, capsys, options, told):
    assert main(["serve", "--model", model, *options]) == 2
    printed = capsys.readouterr()
    assert told in printed.err
    assert printed.err.count("\n") == 1
    assert printed.out == ""


@pytest.mark.skipif(installed_vllm() is not None, reason="vLLM is installed")
def test_a_missing_vllm_is_one_line_and_status_2(tmp_path, capsys):
    (tmp_path / "config.json").write_text("{}")
    assert main(["serve", "--model", str(tmp_path)]) == 2
    assert "vLLM is not installed" in capsys.readouterr().err


def test_it_becomes_the_server(tmp_path):
    """Program, arguments and variables arrive in a process of the same number, with a folder for metrics."""
    program = tmp_path / "program.py"
    program.write_text(
        "import json, os, sys\n"
        f"folder = os.listdir(os.environ['{FOLDER}'])\n"
        "print(json.dumps([os.getpid(), sys.argv[1:], os.environ['A'], folder]))\n"
    )
    code = (
        "import sys\n"
        "from pacer_gym.live.serve import ServeCommand\n"
        f"words = (sys.executable, {str(program)!r}, 'two words')\n"
        "ServeCommand(words=words, variables={'A': 'b'}).replace_process()\n"
    )
    environment = os.environ | {"TMPDIR": str(tmp_path)}
    process = subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, cwd=tmp_path, env=environment
    )
    printed, _ = process.communicate(timeout=120)
    assert json.loads(printed) == [process.pid, ["two words"], "b", []]
