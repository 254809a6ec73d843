"""PPO of RLlib on `PacerServe-v0`, by its name alone.

    pip install "pacer-gym[ray]" "ray[rllib]" torch
    python examples/rllib_ppo.py

The part before the colon is imported in every worker, which registers the environment there.
"""

import argparse
import sys

from ray.rllib.algorithms.ppo import PPOConfig


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="PPO of RLlib on PacerServe-v0.")
    parser.add_argument("--iterations", type=int, default=10)
    parser.add_argument("--batch", type=int, default=4000, help="environment steps of an iteration")
    args = parser.parse_args(argv)
    config = (
        PPOConfig()
        .environment(
            "pacer_gym:PacerServe-v0",
            env_config={"scenario": "poisson-standard", "rate_rps": 6.0, "horizon_s": 60.0},
        )
        .env_runners(num_env_runners=0, num_envs_per_env_runner=1)
        .training(train_batch_size_per_learner=args.batch, minibatch_size=min(128, args.batch), num_epochs=2)
        .debugging(seed=0)
    )
    algorithm = config.build_algo()
    for iteration in range(args.iterations):
        told = algorithm.train()["env_runners"]
        print(iteration, "return", told.get("episode_return_mean", "no episode has ended yet"))
    algorithm.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main())
