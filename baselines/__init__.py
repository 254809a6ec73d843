"""Learned challengers: one training file each, beside its settings, its weights and its result table.

Installed as `pacer_gym.baselines`.  There are none yet.
"""
