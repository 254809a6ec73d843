"""What episodes may be: each argument one thing, or several of which every reset draws one."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from pacer_gym.engine.drift import DRIFT_KINDS
from pacer_gym.latency.profiles import Profile, load_profile
from pacer_gym.workloads.scenarios import Scenario, load_scenario

T = TypeVar("T")

OPTIONS = ("rate_rps",)


@dataclass(frozen=True, kw_only=True)
class Choices:
    """What `reset` draws from; of a single choice nothing is drawn.

    Attributes
    ----------
    scenarios : tuple of tuple of (Scenario, Profile)
        One entry a scenario, in it one a track, with the profile of its machine.
    profiles : tuple of Profile
        In place of those; empty to keep them.
    drifts : tuple of str
        In place of the scenarios' own; empty to keep those.
    rate_rps : (float, float)
        Least and greatest offered load, in requests/s.
    """

    scenarios: tuple[tuple[tuple[Scenario, Profile], ...], ...]
    profiles: tuple[Profile, ...]
    drifts: tuple[str, ...]
    rate_rps: tuple[float, float]

    @classmethod
    def of(cls, *, scenario: Any, track: Any, profile: Any, drift: Any, rate_rps: Any) -> "Choices":
        """Read the environment's arguments.

        Raises
        ------
        ValueError
            If a name is unknown, a list empty, or a rate no rate.
        TypeError
            If an argument is of another type than it says.
        """
        tracks = _several("track", track)
        scenarios = tuple(_on_tracks(one, tracks) for one in _several("scenario", scenario))
        profiles = tuple(_profile(one) for one in _several("profile", profile)) if profile is not None else ()
        drifts = _several("drift", drift) if drift is not None else ()
        for kind in drifts:
            if kind not in DRIFT_KINDS:
                raise ValueError(f"drift must be one of {', '.join(DRIFT_KINDS)}, got {kind!r}")
        return cls(scenarios=scenarios, profiles=profiles, drifts=drifts, rate_rps=rate_range(rate_rps))

    def all_drifts(self) -> set[str]:
        """Every kind of drift that may be drawn."""
        return set(self.drifts) or {scenario.drift for tracks in self.scenarios for scenario, _ in tracks}

    def draw(
        self, rng: np.random.Generator, options: Mapping[str, Any] | None
    ) -> tuple[Scenario, Profile, str | None, float]:
        """Draw what the next episode is like: scenario, profile, drift (None: the scenario's) and rate."""
        rate_rps = self.rate_rps
        if options:
            unknown = set(options) - set(OPTIONS)
            if unknown:
                raise ValueError(
                    f"reset takes the option 'rate_rps' only, got {', '.join(sorted(map(repr, unknown)))}"
                )
            rate_rps = rate_range(options["rate_rps"])
        scenario, profile = _pick(rng, _pick(rng, self.scenarios))
        if self.profiles:
            profile = _pick(rng, self.profiles)
        drift = _pick(rng, self.drifts) if self.drifts else None
        low, high = rate_rps
        return scenario, profile, drift, low if low == high else float(rng.uniform(low, high))


def require(name: str, value: object, kind: type, what: str) -> None:
    """Refuse an argument of another type.

    Raises
    ------
    TypeError
        Naming the argument and what it has to be.
    """
    if not isinstance(value, kind):
        raise TypeError(f"{name} must be {what}, got {value!r}")


def rate_range(rate_rps: Any) -> tuple[float, float]:
    """Lowest and highest rate of a number or a pair.

    Raises
    ------
    ValueError
        If it is neither, or not positive, finite and ascending.

    Examples
    --------
    >>> rate_range(3.0), rate_range((2.0, 6.0))
    ((3.0, 3.0), (2.0, 6.0))
    """
    try:
        low, high = np.broadcast_to(np.asarray(rate_rps, np.float64), 2).tolist()
    except (TypeError, ValueError):
        raise ValueError(f"rate_rps must be a number or a pair (low, high), got {rate_rps!r}") from None
    if not 0.0 < low <= high < math.inf:
        raise ValueError(f"rate_rps must be positive and finite, low before high, got {rate_rps!r}")
    return low, high


def _several(name: str, value: Any) -> tuple[Any, ...]:
    """One or several choices as a tuple."""
    several = tuple(value) if isinstance(value, Sequence) and not isinstance(value, str) else (value,)
    if not several:
        raise ValueError(f"{name} must name one choice at least, got an empty list")
    return several


def _on_tracks(scenario: Any, tracks: tuple[str, ...]) -> tuple[tuple[Scenario, Profile], ...]:
    if isinstance(scenario, str):
        scenarios = [load_scenario(scenario, track=track) for track in tracks]
    else:
        require("scenario", scenario, Scenario, "a name or a Scenario, or a list of them")
        scenarios = [scenario]
    return tuple((one, load_profile(one.track.profile_name)) for one in scenarios)


def _profile(profile: Any) -> Profile:
    loaded = load_profile(profile) if isinstance(profile, str) else profile
    require("profile", loaded, Profile, "a name, a .json file or a Profile, or a list of them")
    return loaded


def _pick(rng: np.random.Generator, choices: tuple[T, ...]) -> T:
    return choices[int(rng.integers(len(choices)))] if len(choices) > 1 else choices[0]
