"""Which policy a scheduler serves, and what that policy is told.

Nothing here needs vLLM.
"""

from dataclasses import dataclass

import numpy as np

from pacer_gym.engine.view import EngineSpec
from pacer_gym.latency.profiles import Profile
from pacer_gym.live.settings import LiveSettings
from pacer_gym.live.viewing import Clock, WallClock
from pacer_gym.policy import Policy
from pacer_gym.workloads.slo import SLO
from pacer_gym.workloads.streams import spawn_streams


@dataclass(frozen=True, kw_only=True)
class Binding:
    """The policy of a scheduler.

    Attributes
    ----------
    policy : Policy
        Not yet reset.
    slo : SLO
        The usual targets.
    profile : Profile, or None
        What has been measured of the engine's speed.
    spec : EngineSpec, or None
        Told to the policy in place of what is read from vLLM and the profile.
    rng : np.random.Generator
        The policy's randomness.
    clock : Clock
        The engine's.
    """

    policy: Policy
    slo: SLO
    profile: Profile | None
    spec: EngineSpec | None
    rng: np.random.Generator
    clock: Clock

    @classmethod
    def from_settings(cls, settings: LiveSettings) -> "Binding":
        """Bind what the settings of a server name.

        Raises
        ------
        PolicyError, ProfileError
            If there is no such policy or profile.
        """
        return cls(
            policy=settings.make_policy(),
            slo=settings.slo,
            profile=settings.load_profile(),
            spec=None,
            rng=spawn_streams(settings.seed).policy,
            clock=WallClock(),
        )
