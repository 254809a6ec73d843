"""What a policy is worth: running it, measuring what happened, and how much it can carry."""

from pacer_gym.scoring.capacity import find_capacity
from pacer_gym.scoring.capacity_result import CapacityResult, capacity_difference
from pacer_gym.scoring.compare import Compared, Comparison, compare_policies
from pacer_gym.scoring.curve import AttainmentCurve
from pacer_gym.scoring.metrics import attainment, summary, tpot_attainment, ttft_attainment
from pacer_gym.scoring.question import CapacityQuestion, Contender
from pacer_gym.scoring.record import RunRecord
from pacer_gym.scoring.rollout import run
from pacer_gym.scoring.stats import PairedDifference, bootstrap_interval, paired_difference
from pacer_gym.scoring.sweep import Cell, CellError, CellResult, run_cells

__all__ = [
    "AttainmentCurve",
    "CapacityQuestion",
    "CapacityResult",
    "Cell",
    "CellError",
    "CellResult",
    "Compared",
    "Comparison",
    "Contender",
    "PairedDifference",
    "RunRecord",
    "attainment",
    "bootstrap_interval",
    "capacity_difference",
    "compare_policies",
    "find_capacity",
    "paired_difference",
    "run",
    "run_cells",
    "summary",
    "tpot_attainment",
    "ttft_attainment",
]
