"""Whether a composed profile may go beyond what was measured, and where it did."""

from dataclasses import dataclass, field

from pacer_gym.errors import ProfileError


@dataclass(slots=True)
class Reach:
    """Refuses what lies outside the tables, or takes it down where extrapolation was asked for.

    Attributes
    ----------
    extrapolate : bool
        Whether to go on.
    beyond : list of str
        What was extrapolated, and how, in the order met.

    Examples
    --------
    >>> Reach().leave("decode attention of 99 requests", "at most 64 were measured", "linearly")
    Traceback (most recent call last):
        ...
    pacer_gym.errors.ProfileError: decode attention of 99 requests: at most 64 were measured; ask for less,
    or for extrapolation (--extrapolate)
    """

    extrapolate: bool = False
    beyond: list[str] = field(default_factory=list)

    def leave(self, what: str, measured: str, how: str) -> None:
        """Go beyond the tables for `what`, of which `measured` says the end, in the way of `how`.

        Raises
        ------
        ProfileError
            If extrapolation was not asked for.
        """
        if not self.extrapolate:
            raise ProfileError(f"{what}: {measured}; ask for less, or for extrapolation (--extrapolate)")
        told = f"{what}, {how}: {measured}"
        if told not in self.beyond:
            self.beyond.append(told)
