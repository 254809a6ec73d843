"""Tracks: the machines that serve the suite, and what is promised on each.

A scenario says what arrives and how urgent it is; a track says how long its requests are, what
urgent means in seconds, and at which rate to start looking.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from pacer_gym.workloads.slo import SLO


@dataclass(frozen=True, kw_only=True, slots=True)
class Track:
    """A machine to serve the suite, and how much smaller than a datacentre's its requests are.

    Attributes
    ----------
    name : str
        What the track is called.
    profile_name : str
        The latency profile of its machine.
    prompt_divisor, output_divisor : int
        Prompts and outputs are divided by these, rounded up.
    """

    name: str
    profile_name: str
    prompt_divisor: int = 1
    output_divisor: int = 1

    def __post_init__(self) -> None:
        for name in ("prompt_divisor", "output_divisor"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, got {getattr(self, name)}")


# Outputs keep more of their length than prompts: divided by 8, every fifth code completion would be
# a single token, which has no time per token to miss.  GPUs serve requests as they were recorded.
TRACKS = {
    "cpu": Track(name="cpu", profile_name="cpu-smollm2-135m", prompt_divisor=8, output_divisor=2),
    "a100": Track(name="a100", profile_name="a100-llama-3.1-8b-bf16"),
    "h100": Track(name="h100", profile_name="h100-llama-3.1-8b-bf16"),
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Targets:
    """What is promised on a track, by how urgent a request is.

    Attributes
    ----------
    tight, standard, relaxed : SLO
        Of chat.
    code : SLO
        Of code completions, whose prompts are longer.
    """

    tight: SLO
    standard: SLO
    relaxed: SLO
    code: SLO


TARGETS: Mapping[str, Targets] = MappingProxyType(
    {
        "cpu": Targets(
            tight=SLO(1.0, 0.06), standard=SLO(2.0, 0.1), relaxed=SLO(4.0, 0.2), code=SLO(2.0, 0.1)
        ),
        # Half and a quarter of the CPU's.
        "a100": Targets(
            tight=SLO(0.5, 0.03), standard=SLO(1.0, 0.05), relaxed=SLO(2.0, 0.1), code=SLO(4.0, 0.1)
        ),
        "h100": Targets(
            tight=SLO(0.25, 0.015), standard=SLO(0.5, 0.025), relaxed=SLO(1.0, 0.05), code=SLO(2.0, 0.05)
        ),
    }
)


# Rates to start with: about what a good policy still carries on the track's machine.  They belong to
# no scenario, since a variant of one would inherit a rate that is not its own.
TYPICAL_RPS = {
    "cpu": {
        "poisson-tight": 4.9,
        "poisson-standard": 6.5,
        "poisson-relaxed": 7.6,
        "bursty": 4.6,
        "azure-chat": 6.6,
        "azure-code": 1.8,
        "drift-step": 4.2,
        "drift-ramp": 5.2,
        "drift-cotenant": 5.2,
        "tiers": 5.3,
    },
    "a100": {
        "poisson-tight": 6.5,
        "poisson-standard": 9.5,
        "poisson-relaxed": 11.0,
        "bursty": 5.6,
        "azure-chat": 10.0,
        "azure-code": 2.1,
        "drift-step": 6.0,
        "drift-ramp": 7.5,
        "drift-cotenant": 7.5,
        "tiers": 8.2,
    },
    "h100": {
        "poisson-tight": 17.0,
        "poisson-standard": 26.0,
        "poisson-relaxed": 28.0,
        "bursty": 14.0,
        "azure-chat": 27.0,
        "azure-code": 6.0,
        "drift-step": 17.0,
        "drift-ramp": 21.0,
        "drift-cotenant": 19.0,
        "tiers": 20.0,
    },
}
