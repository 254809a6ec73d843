"""Learned challengers: one training file each, their agents in `agents/`, their curves in `results/`.

Installed as `pacer_gym.baselines`.  `docs/rl.md` says what was tried and what came of it.
"""
