"""One seed, five independent random streams.

Every policy must meet the same requests and the same noise, so what arrives, how
long it is, how the machine behaves and what a policy draws never share a stream:
a policy that draws once more must not shift the next arrival.
"""

import operator
from typing import NamedTuple

import numpy as np

LN2 = 0.6931471805599453
SQRT_HALF = 0.7071067811865476


class RandomStreams(NamedTuple):
    """The random streams of one run, by what they decide.

    Attributes
    ----------
    arrivals : np.random.Generator
        When requests arrive.
    lengths : np.random.Generator
        How long their prompts and outputs are, and which tier they belong to.
    residuals : np.random.Generator
        Where in the measured residuals a run begins.
    drift : np.random.Generator
        When the machine is slowed.
    policy : np.random.Generator
        What a randomised policy draws.
    """

    arrivals: np.random.Generator
    lengths: np.random.Generator
    residuals: np.random.Generator
    drift: np.random.Generator
    policy: np.random.Generator


def spawn_streams(seed: int | np.random.Generator) -> RandomStreams:
    """Make the five streams of a run.

    Parameters
    ----------
    seed : int or np.random.Generator
        A non-negative seed, or a generator whose children the streams become.
        ``np.random.default_rng(7)``, or an environment's `np_random` right after
        ``reset(seed=7)``, gives exactly the streams of the seed 7.

    Returns
    -------
    RandomStreams
        Streams that have drawn nothing yet.

    Raises
    ------
    TypeError
        If `seed` is neither; None would make a run that nobody can repeat.
    ValueError
        If the seed is negative.

    Examples
    --------
    >>> first, again = spawn_streams(7), spawn_streams(np.random.default_rng(7))
    >>> first.arrivals.random() == again.arrivals.random()
    True
    >>> first.lengths.random() == again.residuals.random()
    False
    """
    if not isinstance(seed, np.random.Generator):
        try:
            value = operator.index(seed)
        except TypeError:
            raise TypeError(f"seed must be a whole number or a numpy Generator, got {seed!r}") from None
        if value < 0:
            raise ValueError(f"seed must not be negative, got {value}")
        seed = np.random.default_rng(value)
    return RandomStreams(*seed.spawn(len(RandomStreams._fields)))


def unit_exponentials(rng: np.random.Generator, count: int) -> np.ndarray:
    """Draw exponential variables of mean 1, one uniform each, the same on every machine.

    Parameters
    ----------
    rng : np.random.Generator
        Source of the uniforms.
    count : int
        How many to draw.

    Returns
    -------
    (count,) np.ndarray of float64
        The draws, 0 or more.

    Notes
    -----
    Numpy's own exponentials, and its logarithm, go through the C library or the
    CPU's vector unit, and those differ in the last bit from machine to machine.
    Here the inverse transform uses nothing but the four operations, which IEEE 754
    rounds alike everywhere.

    Examples
    --------
    >>> unit_exponentials(np.random.default_rng(0), 3).round(4)
    array([1.0132, 0.3144, 0.0418])
    """
    return np.abs(_log(1.0 - rng.random(count)))


def _log(x: np.ndarray) -> np.ndarray:
    """Natural logarithm of normal positive numbers, from the area-tangent series."""
    mantissa, exponent = np.frexp(x)
    low = mantissa < SQRT_HALF
    mantissa = np.where(low, 2.0 * mantissa, mantissa)
    exponent = exponent - low
    s = (mantissa - 1.0) / (mantissa + 1.0)  # at most 0.172 in size
    square = s * s
    series = np.full_like(s, 1.0 / 25.0)  # the next term is below 1e-20
    for k in range(23, 0, -2):
        series = series * square + 1.0 / k
    return exponent * LN2 + 2.0 * s * series
