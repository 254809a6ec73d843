"""Measure how fast PPO of stable-baselines3 trains through the adapter, and where its time goes.

    python scripts/bench_training.py

writes `docs/results/training_speed.md` and `.json`.  It is the training of `baselines/ppo.py`, settings and
all, without its examinations; every figure is the median of several rounds.
"""

import argparse
import statistics
import sys
import time
from collections import defaultdict
from collections.abc import Callable
from typing import Any

from results import markdown_table, write_result

from pacer_gym.baselines.ppo import Settings, environment, model_arguments

ROUNDS = 7
ROLLOUTS = 4
THREADS = (1, 2)


def main(argv: list[str] | None = None) -> int:
    argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    ).parse_args(argv)
    settings = Settings()
    trainings = {threads: Training(settings, threads) for threads in THREADS}
    rounds: dict[str, list[dict[str, float]]] = {str(threads): [] for threads in THREADS}
    for _ in range(ROUNDS):
        for threads, training in trainings.items():
            rounds[str(threads)].append(training.round())
    rows = []
    for threads, told in rounds.items():
        parts = [name for name in told[0] if name != "steps_per_s"]
        shares = [f"{100 * statistics.median(r[name] for r in told):.0f} %" for name in parts]
        rows.append((threads, f"{statistics.median(r['steps_per_s'] for r in told):,.0f}", *shares))
    header = ["threads of torch", "steps/s", *parts]
    page = f"""# Speed of training

{markdown_table(header, rows)}

PPO of stable-baselines3 on `PacerServeVecEnv`: {settings.num_envs} lanes, {settings.n_steps} steps a
rollout, {settings.n_epochs} epochs in batches of {settings.batch_size}, two layers of {settings.hidden};
environment steps a second from end to end, and shares of the time. *environment* is the compiled call with
its observations, infos and new episodes, *acting* the network while collecting, *update* the epochs, *rest*
what stable-baselines3 does around them. Medians of {ROUNDS} rounds of {ROLLOUTS} rollouts, in turn.
"""
    write_result(
        "training_speed", page, {"rounds": rounds}, packages=("numpy", "numba", "torch", "stable-baselines3")
    )
    return 0


class Training:
    """A training that runs on from round to round, with a clock in each of its parts."""

    def __init__(self, settings: Settings, threads: int) -> None:
        import torch
        from stable_baselines3 import PPO

        self._threads, self._settings = threads, settings
        torch.set_num_threads(threads)
        self._spent_s: dict[str, float] = defaultdict(float)
        self._model = PPO("MlpPolicy", environment(settings), **model_arguments(settings))
        env, policy = self._model.env, self._model.policy
        assert env is not None
        env.step = self._timed("environment", env.step)
        policy.forward = self._timed("acting", policy.forward)
        self._model.train = self._timed("update", self._model.train)
        self.round()  # compiles, and fills the engines

    def round(self) -> dict[str, float]:
        """Steps a second of some rollouts with their updates, and the share of each part."""
        import torch

        torch.set_num_threads(self._threads)
        steps = ROLLOUTS * self._settings.num_envs * self._settings.n_steps
        self._spent_s.clear()
        start = time.perf_counter()
        self._model.learn(steps, reset_num_timesteps=False)
        total_s = time.perf_counter() - start
        parts = {name: self._spent_s[name] / total_s for name in ("environment", "acting", "update")}
        return {"steps_per_s": steps / total_s, **parts, "rest": 1.0 - sum(parts.values())}

    def _timed(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            start = time.perf_counter()
            try:
                return function(*args, **kwargs)
            finally:
                self._spent_s[name] += time.perf_counter() - start

        return call


if __name__ == "__main__":
    sys.exit(main())
