"""What a Gymnasium user expects: content checkers, a spec, wrappers, a page and a picture."""

import importlib.util
import inspect
import warnings
from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from gymnasium.wrappers import RecordEpisodeStatistics, RenderCollection

import pacer_gym as pg
from pacer_gym.envs import PacerServeEnv, spaces
from pacer_gym.workloads.scenarios import scenario_names

ROOT = Path(__file__).parents[2]
IDS = [env_id for env_id, spec in gym.registry.items() if str(spec.entry_point).startswith("pacer_gym.")]
RENDER_MODES = [None, *PacerServeEnv.metadata["render_modes"]]
REQUESTS = pg.Workload(arrival_s=[0.0, 0.4, 1.0], prompt_tokens=[40, 300, 9], output_tokens=[5, 1, 30])

# One of each argument of the constructor that is neither an action nor a render mode.
OPTIONS = [
    *({"scenario": name} for name in scenario_names()),
    {"scenario": pg.load_scenario("bursty")},
    {"profile": pg.load_profile("cpu-smollm2-135m"), "track": "cpu"},
    {"rate_rps": (1.0, 9.0)},
    {"workload": REQUESTS, "horizon_s": None},
    {"workload": REQUESTS, "slo": pg.SLO(0.05, 0.01)},
    *({"drift": kind} for kind in ("none", "step", "ramp", "periodic", "cotenant")),
    {"slo": pg.SLO(float("inf"), float("inf"))},
    {"horizon_s": 5.0},
    {"engine": "simulator", "model": None, "engine_settings": None},
]


def script(name):
    """A script of the repository as a module."""
    spec = importlib.util.spec_from_file_location(name, ROOT / "scripts" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def skip_without_extras(render_mode):
    if render_mode == "rgb_array":
        pytest.importorskip("matplotlib", reason="needs the extra plot")


def check_both(env, *, skip_render_check):
    """Ask both checkers, for which a warning is a complaint."""
    sb3 = pytest.importorskip("stable_baselines3.common.env_checker", reason="needs the extra rl")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_env(env.unwrapped, skip_render_check=skip_render_check)
        sb3.check_env(env.unwrapped, skip_render_check=skip_render_check)


def test_the_package_registers_an_id_and_every_argument_is_tried():
    assert "PacerServe-v0" in IDS
    tried = set().union(*OPTIONS) | {"action", "render_mode", "with_view"}
    assert tried == set(inspect.signature(PacerServeEnv).parameters)


@pytest.mark.parametrize("env_id", IDS)
@pytest.mark.parametrize("action", spaces.ACTIONS)
@pytest.mark.parametrize("render_mode", RENDER_MODES)
def test_checkers_have_nothing_to_say_of_any_action_and_render_mode(env_id, action, render_mode):
    skip_without_extras(render_mode)
    env = gym.make(env_id, action=action, render_mode=render_mode, horizon_s=20.0)
    check_both(env, skip_render_check=False)


@pytest.mark.parametrize("env_id", IDS)
@pytest.mark.parametrize("option", OPTIONS, ids=str)
def test_checkers_have_nothing_to_say_of_any_option(env_id, option, request):
    if "azure" in str(option.get("scenario")):
        request.getfixturevalue("data_folder")
    env = gym.make(env_id, **{"horizon_s": 20.0} | option)
    # Without a render mode Gymnasium's checker would make one environment for each.
    check_both(env, skip_render_check=True)


def test_views_are_the_same_for_a_seed_although_nan_confuses_gymnasiums_checker():
    sb3 = pytest.importorskip("stable_baselines3.common.env_checker", reason="needs the extra rl")
    env, again = (gym.make("PacerServe-v0", with_view=True, horizon_s=20.0).unwrapped for _ in range(2))
    sb3.check_env(env)
    infos = [env.reset(seed=1)[1], again.reset(seed=1)[1]]
    for _ in range(100):
        left, right = (info["view"] for info in infos)
        for one, other in zip(left, right, strict=True):
            np.testing.assert_array_equal(one, other)  # nan equals nan here
        infos = [env.step(6)[4], again.step(6)[4]]


def test_the_metadata_names_modes_that_work_and_a_rate():
    assert PacerServeEnv.metadata["render_fps"] > 0
    for mode in PacerServeEnv.metadata["render_modes"]:
        skip_without_extras(mode)
        env = gym.make("PacerServe-v0", render_mode=mode, horizon_s=20.0)
        env.reset(seed=0)
        env.step(5)
        shown = env.render()
        assert isinstance(shown, str if mode == "ansi" else np.ndarray)
        assert env.render_mode == mode


def test_a_spec_survives_json_and_makes_the_same_environment():
    env = gym.make("PacerServe-v0", scenario="bursty", rate_rps=3.0, horizon_s=20.0)
    assert (env.spec.id, env.spec.max_episode_steps, env.spec.nondeterministic) == (
        "PacerServe-v0",
        None,
        False,
    )
    again = gym.make(gym.envs.registration.EnvSpec.from_json(env.spec.to_json()))
    for one, other in zip(env.reset(seed=3)[0], again.reset(seed=3)[0], strict=True):
        assert one == other
    for _ in range(50):
        np.testing.assert_array_equal(env.step(6)[0], again.step(6)[0])


def test_the_registry_lists_it():
    assert "PacerServe-v0" in gym.pprint_registry(disable_print=True)


def test_common_wrappers_work():
    pytest.importorskip("matplotlib", reason="needs the extra plot")
    env = gym.make("PacerServe-v0", render_mode="rgb_array", horizon_s=2.0)
    env = RecordEpisodeStatistics(RenderCollection(env))
    env.reset(seed=0)
    total = steps = 0
    over = False
    while not over:
        _, reward, terminated, truncated, info = env.step(6)
        total, steps, over = total + reward, steps + 1, terminated or truncated
    assert (info["episode"]["r"], info["episode"]["l"]) == (total, steps)
    assert len(env.render()) == steps + 1


def test_the_page_is_what_docstring_spaces_and_registration_say():
    made = script("make_environment_page")
    assert made.PAGE.read_text(encoding="utf-8") == made.page()
    assert made.UNITS.keys() == {entry.name for entry in spaces.OBSERVATION}


def test_the_page_has_gymnasiums_sections_and_every_entry_action_and_argument():
    text = (ROOT / "docs" / "environment.md").read_text(encoding="utf-8")
    headings = [line[3:] for line in text.splitlines() if line.startswith("## ")]
    expected = [
        "Description",
        "Action Space",
        "Observation Space",
        "Rewards",
        "Starting State",
        "Episode End",
    ]
    assert headings[:6] == expected
    assert {"Arguments", "Version History"} <= set(headings)
    for k, entry in enumerate(spaces.OBSERVATION):
        assert f"| {k} | `{entry.name}` | {entry.low:g} | {entry.high:g} | {entry.scaling} |" in text
    for kind in spaces.ACTIONS:
        assert f"| `{kind}` | `{spaces.action_space(kind)}` |" in text
    for name in inspect.signature(PacerServeEnv).parameters:
        assert f"| `{name}` |" in text


def test_the_page_is_found_stale(tmp_path, monkeypatch, capsys):
    made = script("make_environment_page")
    monkeypatch.setattr(made, "PAGE", tmp_path / "environment.md")
    assert made.main(["--check"]) == 1
    assert "run python scripts/make_environment_page.py" in capsys.readouterr().err
    assert made.main([]) == 0
    assert made.main(["--check"]) == 0


def test_the_entry_for_gymnasiums_list_follows_its_template():
    text = (ROOT / "docs" / "gymnasium_entry.md").read_text(encoding="utf-8")
    entry = text.split("```markdown\n")[1].split("```")[0].splitlines()
    assert entry[0].startswith("- [PacerGym: ")
    assert entry[1] == entry[4] == ""
    assert entry[2].startswith("  ![Gymnasium version dependency](https://img.shields.io/badge/Gymnasium-v")
    assert entry[3].startswith("  ![GitHub stars](https://img.shields.io/github/stars/")
    assert 2 <= entry[5].count(". ") + entry[5].endswith(".") <= 5
    tested = (ROOT / "constraints.txt").read_text(encoding="utf-8")
    version = entry[2].split("Gymnasium-v")[1].split("-")[0]
    assert f"gymnasium=={version}\n" in tested


def test_the_gif_moves_is_small_and_loops():
    image = pytest.importorskip("PIL.Image", reason="needs the extra test")
    path = ROOT / "docs" / "images" / "episode.gif"
    assert path.stat().st_size < 1_500_000
    with image.open(path) as gif:
        assert gif.size == (640, 480)
        assert gif.n_frames > 50
        assert gif.info["loop"] == 0
        first = np.asarray(gif.convert("RGB"))
        gif.seek(gif.n_frames - 1)
        assert (first != np.asarray(gif.convert("RGB"))).any()


def test_the_rule_of_the_gif_takes_the_largest_budget_that_fits():
    pytest.importorskip("matplotlib", reason="needs the extra plot")
    made = script("make_gif")
    observation = np.zeros(spaces.NUM_OBSERVATIONS, np.float32)
    for tokens, expected in ((0.0, 0), (15.9, 0), (16.1, 16), (130.0, 128), (1e5, 2048)):
        observation[made.HEADROOM] = tokens / (tokens + 128.0)
        assert spaces.BUDGETS[made.what_fits(observation)] == expected
