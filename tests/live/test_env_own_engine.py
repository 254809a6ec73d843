"""An environment that starts its own vLLM stops it too, and outlives its failure."""

import gymnasium as gym
import pytest
from gymnasium.utils.env_checker import check_env

from pacer_gym.errors import EngineFailed

pytest.importorskip("vllm", reason='vLLM is not installed: pip install "pacer-gym[live]"')

from tests.live.tiny_model import TINY_LLAMA, tiny_profile, tiny_workload, write_model_folder

pytestmark = pytest.mark.live


def test_close_stops_it_and_a_failed_one_is_started_again(tmp_path):
    folder = write_model_folder(tmp_path / "tiny", TINY_LLAMA)
    settings = {"workload": tiny_workload(20, seconds=0.5), "profile": tiny_profile()}
    env = gym.make("PacerServe-v0", engine="vllm", model=str(folder), **settings)
    env.reset(seed=0)
    env.step(6)
    inner = env.unwrapped
    inner._source._server._engine.engine_core.engine_core.model_executor.driver_worker = None
    with pytest.raises(EngineFailed, match="vLLM failed in a step"):
        env.step(6)
    with pytest.raises(RuntimeError, match="reset"):
        env.step(6)
    env.reset(seed=0)
    env.step(6)
    env.close()
    env.close()

    again = gym.make("PacerServe-v0", engine="vllm", model=str(folder), **settings)
    check_env(again.unwrapped, skip_render_check=True)
    again.close()
