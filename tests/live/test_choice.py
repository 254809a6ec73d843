"""Which engine is chosen, and what is refused before anything starts; none of it needs vLLM to run."""

import pytest

import pacer_gym as pg
from pacer_gym.cli import main
from pacer_gym.errors import LiveError
from pacer_gym.live.choice import EngineChoice
from pacer_gym.live.versions import installed_vllm

HAS_VLLM = installed_vllm() is not None


def run(**more):
    return pg.run("fixed_budget", "poisson-standard", rate_rps=1.0, horizon_s=10.0, **more)


def test_the_simulator_is_the_engine_unless_another_is_named():
    record = run(engine="simulator")
    assert record == run()
    assert (record.engine, record.failure, record.aborted) == ("simulator", None, ())


def test_an_unknown_engine_is_refused():
    with pytest.raises(ValueError, match="engine must be one of simulator, vllm, got 'sglang'"):
        run(engine="sglang")


@pytest.mark.parametrize("more", [{"model": "tiny"}, {"engine_settings": {"num_blocks": 9}}])
def test_the_simulator_takes_no_model(more):
    with pytest.raises(ValueError, match='go with engine "vllm"'):
        run(**more)


@pytest.mark.skipif(HAS_VLLM, reason="vLLM is installed")
def test_without_vllm_the_cure_is_named():
    with pytest.raises(LiveError, match=r"vLLM is not installed.*pip install"):
        run(engine="vllm", model="tiny")
    with pytest.raises(LiveError, match=r"vLLM is not installed.*pip install"):
        EngineChoice(name="vllm", model="tiny")


@pytest.mark.skipif(not HAS_VLLM, reason="vLLM is not installed")
def test_a_live_engine_needs_a_models_folder(tmp_path):
    with pytest.raises(ValueError, match="needs a model"):
        run(engine="vllm")
    with pytest.raises(ValueError, match=r"holds no config\.json"):
        run(engine="vllm", model=tmp_path)
    with pytest.raises(ValueError, match="there is no folder"):
        run(engine="vllm", model=tmp_path / "nowhere")


@pytest.mark.parametrize(
    "words", [["--engine", "vllm"], ["--engine", "sglang"], ["--engine", "simulator", "--model", "tiny"]]
)
def test_on_the_command_line_a_mistake_is_one_line(words, capsys):
    assert main(["run", "fixed_budget", "--scenario", "poisson-standard", *words]) == 2
    told = capsys.readouterr()
    assert told.out == ""
    assert len(told.err.splitlines()) == 1
