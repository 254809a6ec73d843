"""What serves: the simulated engine, and the types that pass between an engine and a policy."""

from pacer_gym.engine.drift import (
    DRIFT_KINDS,
    DriftTable,
    as_drift_table,
    check_drift_kind,
    check_loop_drift,
    checked_drift,
    drift_table,
)
from pacer_gym.engine.protocol import Engine
from pacer_gym.engine.simulator import Simulator
from pacer_gym.engine.state import ITL_EDGES_S
from pacer_gym.engine.view import EngineSpec, EngineView, StepDecision, StepOutcome

__all__ = [
    "DRIFT_KINDS",
    "ITL_EDGES_S",
    "DriftTable",
    "Engine",
    "EngineSpec",
    "EngineView",
    "Simulator",
    "StepDecision",
    "StepOutcome",
    "as_drift_table",
    "check_drift_kind",
    "check_loop_drift",
    "checked_drift",
    "drift_table",
]
