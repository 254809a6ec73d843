"""What the challengers are trained on, what they are held out from, and on which seeds.

Trained on are six scenarios of the suite and two made ones: long prompts with short outputs, and
requests of different targets.  Held out are both Azure traces, since two windows of one trace may share
requests with the official runs, one kind of drift, and the suite's own mixture of targets.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from pacer_gym.envs.episode import EpisodeSource
from pacer_gym.envs.spaces import OBSERVATION
from pacer_gym.envs.vector_env import PacerServeVectorEnv
from pacer_gym.workloads.scenarios import Scenario, Track, load_scenario
from pacer_gym.workloads.seeds import DEV_SEEDS
from pacer_gym.workloads.slo import SLO

# As azure-code asks for it: much to read and little to say.
PROMPT_HEAVY = Scenario(
    name="prompt-heavy",
    arrivals="mmpp",
    track=Track(name="cpu", profile_name="cpu-smollm2-135m", prompt_divisor=4, output_divisor=16),
)

# Targets differ from request to request, and none is one of the suite's.
MIXED_TARGETS = Scenario(
    name="mixed-targets",
    slo=SLO(1.5, 0.08),
    tiers=(SLO(1.5, 0.08), SLO(2.5, 0.13), SLO(6.0, 0.25)),
)

# About what Pacer carries on `DEV_SEEDS`, in requests/s.
KNEE_RPS = {
    "poisson-tight": 5.5,
    "poisson-standard": 7.5,
    "poisson-relaxed": 8.6,
    "bursty": 5.2,
    "prompt-heavy": 4.8,
    "mixed-targets": 7.3,
    "drift-step": 5.8,
    "drift-cotenant": 5.6,
    "azure-chat": 7.6,
    "azure-code": 2.3,
    "drift-ramp": 6.6,
    "tiers": 6.3,
}
TRAINED_ON = (
    "poisson-tight", "poisson-standard", "poisson-relaxed", "bursty", "prompt-heavy",
    "mixed-targets", "drift-step", "drift-cotenant",
)  # fmt: skip
HELD_OUT = ("azure-chat", "azure-code", "drift-ramp", "tiers")

_PROGRESS = [entry.name for entry in OBSERVATION].index("progress")

TRAIN_SEED = 1_000_000
"""Episodes of training begin at this seed: far from every set of `pacer_gym.workloads.seeds`."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Mixture:
    """Which episodes an agent meets.

    Attributes
    ----------
    names : tuple of str
        Scenarios, dealt out to the lanes in turn.
    load : (float, float)
        Least and greatest rate, as a share of `KNEE_RPS`.
    horizon_s : (float, float)
        Shortest and longest episode, in seconds, over the lanes.
    """

    names: tuple[str, ...] = TRAINED_ON
    load: tuple[float, float] = (0.7, 1.15)
    horizon_s: tuple[float, float] = (120.0, 300.0)


class MixedEnv(PacerServeVectorEnv):
    """`PacerServeVectorEnv` in which every lane has a scenario, a range of rates and a length of its own.

    Parameters
    ----------
    num_envs : int
    mixture : Mixture
    action : str
        As `PacerServeEnv` takes it.
    reward_scale : float, default=1.0
        What rewards are multiplied by, so that returns stay near 1.
    autoreset_mode : str
    """

    def __init__(
        self,
        num_envs: int,
        *,
        mixture: Mixture,
        action: str = "budget",
        reward_scale: float = 1.0,
        autoreset_mode: str = "SameStep",
    ) -> None:
        super().__init__(num_envs, action=action, autoreset_mode=autoreset_mode)
        self._reward_scale = reward_scale
        low, high = mixture.load
        horizons_s = np.linspace(*mixture.horizon_s, num_envs)
        self._sources = []
        for lane in range(num_envs):
            name = mixture.names[lane % len(mixture.names)]
            knee_rps = KNEE_RPS[name]
            self._sources.append(
                EpisodeSource(
                    scenario=scenario_named(name),
                    rate_rps=(low * knee_rps, high * knee_rps),
                    horizon_s=float(horizons_s[lane]),
                )
            )

    def step(self, actions: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        """As the parent, with scaled rewards."""
        observations, rewards, terminated, truncated, infos = super().step(actions)
        rewards *= self._reward_scale
        for final in infos.get("final_obs", ()):
            if final is not None:
                final[_PROGRESS] = 0.0
        return observations, rewards, terminated, truncated, infos

    def _observations(self) -> np.ndarray:
        observations = super()._observations()
        observations[:, _PROGRESS] = 0.0  # no engine tells a policy when its run will end
        return observations


def scenario_named(name: str) -> Scenario:
    """A scenario of the suite, or a made one."""
    made = {scenario.name: scenario for scenario in (PROMPT_HEAVY, MIXED_TARGETS)}
    return made[name] if name in made else load_scenario(name)


def exam(num_seeds: int = 2, *, horizon_s: float = 300.0, action: str = "budget") -> "Exam":
    """All scenarios at their knees on the first of `DEV_SEEDS`."""
    return Exam((*TRAINED_ON, *HELD_OUT), num_seeds, horizon_s=horizon_s, action=action)


class Exam:
    """Attainment of an agent in given scenarios, on `DEV_SEEDS`.

    Parameters
    ----------
    names : tuple of str
    num_seeds : int
    horizon_s : float
        Requests that arrive until then are served and judged until then.
    action : str
    """

    def __init__(self, names: tuple[str, ...], num_seeds: int, *, horizon_s: float, action: str) -> None:
        self.names = names
        self._seeds = [seed for seed in DEV_SEEDS[:num_seeds] for _ in names]
        mixture = Mixture(names=names, load=(1.0, 1.0), horizon_s=(horizon_s, horizon_s))
        self.envs = MixedEnv(len(self._seeds), mixture=mixture, action=action, autoreset_mode="Disabled")

    def attainment(self, choose: Callable[[np.ndarray, MixedEnv], np.ndarray]) -> dict[str, float]:
        """Mean attainment by scenario.

        Parameters
        ----------
        choose : callable
            From (n, 24) observations and the environment, which has the masks, to n actions.
        """
        envs = self.envs
        observations, _ = envs.reset(seed=self._seeds)
        lanes = envs.num_envs
        attainment, over = np.zeros(lanes), np.zeros(lanes, np.bool_)
        while not over.all():
            observations, _, terminated, truncated, infos = envs.step(choose(observations, envs))
            ended = (terminated | truncated) & ~over
            attainment[ended] = infos["attainment"][ended]
            over |= ended
            spare = terminated | truncated
            if spare.any() and not over.all():
                # A lane that is done goes through another episode, which nobody looks at.
                observations, _ = envs.reset(options={"reset_mask": spare})
        table = attainment.reshape(-1, len(self.names)).mean(axis=0)
        return dict(zip(self.names, table.tolist(), strict=True))
