"""What a policy is worth: running it, and measuring what happened."""

from pacer_gym.scoring.metrics import attainment, summary, tpot_attainment, ttft_attainment
from pacer_gym.scoring.record import RunRecord
from pacer_gym.scoring.rollout import run

__all__ = ["RunRecord", "attainment", "run", "summary", "tpot_attainment", "ttft_attainment"]
