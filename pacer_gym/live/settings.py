"""What a served policy is told by its environment: `vllm serve` hands a scheduler no arguments.

Nothing here needs vLLM.
"""

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pacer_gym.errors import LiveError
from pacer_gym.latency.profiles import Profile, load_profile
from pacer_gym.policy import Policy, load_policy
from pacer_gym.workloads.slo import SLO

POLICY = "PACER_GYM_POLICY"
POLICY_SETTINGS = "PACER_GYM_POLICY_SETTINGS"
SLO_TARGETS = "PACER_GYM_SLO"
PROFILE = "PACER_GYM_PROFILE"
SEED = "PACER_GYM_SEED"


@dataclass(frozen=True, kw_only=True)
class LiveSettings:
    """The policy of a live engine and what it is told.

    Attributes
    ----------
    policy : str
        Name, file, or file and class, as `load_policy` takes it.
    policy_settings : mapping of str to object
        Passed to the policy's constructor.
    slo : SLO
        The usual targets; a request may bring its own.
    profile : str
        Name or path of the latency profile that tells the policy the engine's speed;
        empty for an engine that nobody has measured.
    seed : int
        Of the policy's own randomness.

    Raises
    ------
    LiveError
        If the seed is negative.

    Examples
    --------
    >>> LiveSettings.from_env({"PACER_GYM_POLICY": "fixed_budget", "PACER_GYM_SLO": "1:0.06"}).slo
    SLO(ttft_s=1.0, tpot_s=0.06)
    """

    policy: str = "pacer"
    policy_settings: Mapping[str, Any] = field(default_factory=dict)
    slo: SLO = field(default=SLO(ttft_s=2.0, tpot_s=0.1))
    profile: str = ""
    seed: int = 0

    def __post_init__(self) -> None:
        if self.seed < 0:
            raise LiveError(f"the seed of a live engine must be 0 or more, got {self.seed}")

    @classmethod
    def from_env(cls, environ: Mapping[str, str] | None = None) -> "LiveSettings":
        """Read the settings from environment variables; what is not set keeps its default.

        Parameters
        ----------
        environ : mapping of str to str, optional
            The process's own environment by default.

        Returns
        -------
        LiveSettings

        Raises
        ------
        LiveError
            If a variable does not hold what it should; the message names it.
        """
        environ = os.environ if environ is None else environ
        default = cls()
        return cls(
            policy=environ.get(POLICY) or default.policy,
            policy_settings=_read_object(environ.get(POLICY_SETTINGS, "")),
            slo=_read_slo(environ[SLO_TARGETS]) if environ.get(SLO_TARGETS) else default.slo,
            profile=environ.get(PROFILE, default.profile),
            seed=_read_seed(environ.get(SEED) or str(default.seed)),
        )

    def to_env(self) -> dict[str, str]:
        """Environment variables that `from_env` reads these settings from.

        Returns
        -------
        dict of str to str

        Examples
        --------
        >>> LiveSettings(policy="fixed_budget", seed=3).to_env()["PACER_GYM_SLO"]
        '2.0:0.1'
        """
        return {
            POLICY: self.policy,
            POLICY_SETTINGS: json.dumps(dict(self.policy_settings), sort_keys=True),
            SLO_TARGETS: f"{self.slo.ttft_s}:{self.slo.tpot_s}",
            PROFILE: self.profile,
            SEED: str(self.seed),
        }

    def make_policy(self) -> Policy:
        """Build the policy; raises `PolicyError` as `load_policy` does."""
        return load_policy(self.policy, **self.policy_settings)

    def load_profile(self) -> Profile | None:
        """Load the profile, None where none is named; raises `ProfileError` as `load_profile` does."""
        return load_profile(self.profile) if self.profile else None


def _read_object(text: str) -> dict[str, Any]:
    try:
        value = json.loads(text) if text else {}
    except json.JSONDecodeError as error:
        raise LiveError(f"{POLICY_SETTINGS} must be a JSON object, got {text!r}: {error}") from None
    if not isinstance(value, dict):
        raise LiveError(
            f'{POLICY_SETTINGS} must be a JSON object of settings, as in {{"alpha": 0.1}}, got {text!r}'
        )
    return value


def _read_slo(text: str) -> SLO:
    try:
        ttft_s, tpot_s = map(float, text.split(":"))
        return SLO(ttft_s, tpot_s)
    except ValueError as error:
        raise LiveError(
            f"{SLO_TARGETS} must be TTFT:TPOT in seconds, as in 2:0.1, got {text!r} ({error})"
        ) from None


def _read_seed(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise LiveError(f"{SEED} must be a whole number, got {text!r}") from None
