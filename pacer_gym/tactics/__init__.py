"""Pieces that policies are made of: who is served first, how long a prompt takes, what fits a step."""

from pacer_gym.tactics.budget import check_token_counts, prefill_room
from pacer_gym.tactics.deadlines import CLOCKS, check_clock, least_slack_s
from pacer_gym.tactics.ordering import (
    earliest_deadline,
    least_laxity,
    moore_hodgson,
    prompt_deadline_s,
    remaining_tokens,
    shortest_remaining,
    sorted_behind,
)
from pacer_gym.tactics.prefill_time import PrefillPace, prefill_times_s
from pacer_gym.tactics.step_forecast import StepForecast, check_margin

__all__ = [
    "CLOCKS",
    "PrefillPace",
    "StepForecast",
    "check_clock",
    "check_margin",
    "check_token_counts",
    "earliest_deadline",
    "least_laxity",
    "least_slack_s",
    "moore_hodgson",
    "prefill_room",
    "prefill_times_s",
    "prompt_deadline_s",
    "remaining_tokens",
    "shortest_remaining",
    "sorted_behind",
]
