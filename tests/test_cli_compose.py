"""`pacer-gym profile compose` writes a profile that runs, and tells a mistake in one line."""

import json

import pytest

from pacer_gym.cli import main
from pacer_gym.latency.profiles import load_profile
from tests.latency.compose.made_gpu import write_config, write_gpu

pytest.importorskip("pyarrow")

SMALL = ["--max-batched", "1024", "--max-running", "16", "--max-model", "4096", "--memory", "0.5"]


@pytest.fixture
def model(tmp_path, monkeypatch):
    """A model's config, in a place where a package of the name holds the tables of a made-up GPU."""
    package = tmp_path / "site" / "aiconfigurator_core"
    write_gpu(package)
    (package / "__init__.py").write_text("")
    monkeypatch.syspath_prepend(str(package.parent))
    monkeypatch.chdir(tmp_path)
    return write_config(tmp_path / "made.json")


def compose(model, *words):
    return main(["profile", "compose", "--gpu", "made_gpu", "--model", model, *SMALL, *words])


def test_a_composed_profile_is_written_and_serves(model, tmp_path, capsys):
    assert compose(model, "--host-overhead-us", "250", "--json") == 0
    told = json.loads(capsys.readouterr().out)
    assert told["out"] == "made-gpu-made-bf16.json"
    assert told["extrapolated"] == "nothing"
    profile = load_profile(tmp_path / told["out"])
    assert profile.provenance["host_overhead_s"] == 2.5e-4
    assert profile.provenance["command"].startswith("pacer-gym profile compose --gpu made_gpu")
    assert told["1_decode_ms"] > 0.25
    (tmp_path / "trace.csv").write_text("arrival_s,prompt_tokens,output_tokens\n0,100,5\n0.1,900,3\n")
    words = ["run", str(model_free_policy(tmp_path)), "--trace", "trace.csv", "--slo", "1:0.1"]
    assert main([*words, "--profile", told["out"], "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["requests"] == 2


def model_free_policy(folder):
    """The simplest policy there is."""
    path = folder / "all_at_once.py"
    path.write_text(
        "from pacer_gym import StepDecision\n\n\n"
        "class AllAtOnce:\n"
        "    def reset(self, spec, rng):\n        pass\n\n"
        "    def decide(self, view):\n        return StepDecision(view.limits.max_batched_tokens)\n\n"
        "    def observe(self, outcome):\n        pass\n"
    )
    return path


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--gpu", "other"], "no kernel times for GPU 'other'; there are made_gpu"),
        (["--dtype", "fp8"], "no matrix products of dtype 'fp8' were measured; there are bf16"),
        (["--dtype", "int4"], "dtype must be one of bf16, fp8, got 'int4'"),
        (["--tp", "3"], "tp=3 must divide its 8 heads"),
        (["--max-batched", "2048"], "ask for less, or for extrapolation (--extrapolate)"),
        (["--out", "profile.txt"], "--out must end in .json"),
        (["--memory", "2"], "memory_share must be in (0, 1], got 2.0"),
    ],
)
def test_a_mistake_is_told_in_one_line(model, capsys, words, told):
    assert compose(model, *words) == 2
    error = capsys.readouterr().err
    assert told in error
    assert error.count("\n") == 1


def test_a_profile_that_exists_is_not_replaced_unasked(model, capsys):
    assert compose(model) == 0
    assert compose(model) == 2
    assert "--force" in capsys.readouterr().err
    assert compose(model, "--force") == 0


def test_a_missing_extra_is_named(tmp_path, monkeypatch, capsys):
    import importlib.util

    if importlib.util.find_spec("aiconfigurator_core") is not None:
        pytest.skip("the extra gpu is installed")
    assert main(["profile", "compose", "--gpu", "h100_sxm"]) == 2
    assert 'pip install "pacer-gym[gpu]"' in capsys.readouterr().err
