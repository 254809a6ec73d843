"""Policies, one file each; `pacer_gym.load_policy` finds them by the file's name."""
