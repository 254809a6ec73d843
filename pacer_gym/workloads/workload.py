"""A workload: when requests arrive and how long they are, as plain arrays.

Arrays, not request objects: an engine copies them into its state in one go, and a
million requests cost 24 MB.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike

from pacer_gym.errors import WorkloadError
from pacer_gym.workloads.checks import as_numbers, check_closed_loop, check_counts
from pacer_gym.workloads.columns import REQUIRED, TARGETS, find_breach, read_columns
from pacer_gym.workloads.slo import SLO


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Workload:
    """Requests in the order they arrive.

    Array-likes are copied into read-only arrays, and every value is checked.

    Attributes
    ----------
    arrival_s : (n,) np.ndarray of float64
        Arrival times, in seconds, 0 or more, sorted.
    prompt_tokens, output_tokens : (n,) np.ndarray of int64
        Lengths, from 1 to 10,000,000 tokens.
    ttft_slo_s, tpot_slo_s : (n,) np.ndarray of float64, or None
        Latency targets of each request, in seconds; None leaves them to the run.
        A target of ``inf`` is always met.
    name : str
        What to call the workload in reports.
    concurrency : int or None
        Of a closed loop: how many requests are with the engine at any time; `arrival_s` is 0 then.
        None where requests come by the clock, whatever the engine does.

    Raises
    ------
    WorkloadError
        If there are no requests, arrays differ in length, or a value breaks a rule;
        the message names the request, the column and the rule.

    Examples
    --------
    >>> Workload([0.0, 0.5, 2.0], [100, 30, 60], [20, 10, 1], name="three")
    <Workload three: 3 requests in 2.0 s, mean prompt 63 and output 10 tokens>
    """

    arrival_s: np.ndarray
    prompt_tokens: np.ndarray
    output_tokens: np.ndarray
    ttft_slo_s: np.ndarray | None = None
    tpot_slo_s: np.ndarray | None = None
    name: str = ""
    concurrency: int | None = None

    def __post_init__(self) -> None:
        columns = {
            name: as_numbers(name, values)
            for name in (*REQUIRED, *TARGETS)
            if (values := getattr(self, name)) is not None or name in REQUIRED
        }
        count = columns["arrival_s"].size
        if lengths := [f"{name} {values.size}" for name, values in columns.items() if values.size != count]:
            raise WorkloadError(f"arrays must be equally long: arrival_s has {count}, {', '.join(lengths)}")
        if count == 0:
            raise WorkloadError("a workload needs at least one request, got none")
        if breach := find_breach(columns):
            value = columns[breach.column][breach.row]
            raise WorkloadError(f"request {breach.row}, {breach.column}: {value} {breach.rule}")
        for name, values in columns.items():
            own = np.array(values, dtype=np.int64 if name in REQUIRED[1:] else np.float64)
            own.flags.writeable = False
            object.__setattr__(self, name, own)
        if self.concurrency is not None:
            check_closed_loop(self.concurrency, self.arrival_s)

    def __len__(self) -> int:
        """Count the requests."""
        return int(self.arrival_s.size)

    def __repr__(self) -> str:
        """Name, count, span and mean lengths in one line."""
        requests = "1 request" if len(self) == 1 else f"{len(self):,} requests"
        loop = None if self.concurrency is None else f"in a closed loop of {self.concurrency}"
        return (
            f"<Workload {self.name or 'unnamed'}: {requests} {loop or f'in {self.arrival_s[-1]:.1f} s'}, "
            f"mean prompt {self.prompt_tokens.mean():.0f} and output {self.output_tokens.mean():.0f} tokens>"
        )

    @property
    def rate_rps(self) -> float:
        """Requests per second between the first and the last arrival.

        Raises
        ------
        WorkloadError
            If all requests arrive at one instant.

        Examples
        --------
        >>> Workload([1.0, 2.0, 5.0], [9, 9, 9], [9, 9, 9]).rate_rps
        0.5
        """
        span_s = float(self.arrival_s[-1] - self.arrival_s[0])
        if span_s == 0.0:
            raise WorkloadError(f"{self!r} has no rate: all its requests arrive at {self.arrival_s[0]} s")
        return (len(self) - 1) / span_s

    @classmethod
    def closed_loop(
        cls,
        concurrency: int,
        prompt_tokens: ArrayLike,
        output_tokens: ArrayLike,
        requests: int,
        *,
        name: str = "closed-loop",
    ) -> "Workload":
        """Requests of so many users who each send the next one when the last is done.

        The load follows the engine, which is how engines are benchmarked, and not what a service meets.

        Parameters
        ----------
        concurrency : int
            Requests that are with the engine at any time, from 1.
        prompt_tokens, output_tokens : int or (requests,) array_like of int
            Lengths, of all or of each request, in tokens.
        requests : int
            How many are served in all, 1 or more.
        name : str, default="closed-loop"

        Returns
        -------
        Workload
            Its requests arrive when they are run: at 0, or when another one is done or rejected.

        Raises
        ------
        WorkloadError
            If a value is out of range, or lengths are not `requests` in number.

        Examples
        --------
        >>> Workload.closed_loop(8, 1024, 128, requests=80)
        <Workload closed-loop: 80 requests in a closed loop of 8, mean prompt 1024 and output 128 tokens>
        """
        check_counts(concurrency=concurrency, requests=requests)
        prompts, outputs = (
            np.full(requests, tokens) if np.ndim(tokens) == 0 else np.asarray(tokens)
            for tokens in (prompt_tokens, output_tokens)
        )
        return cls(np.zeros(requests), prompts, outputs, name=name, concurrency=concurrency)

    @classmethod
    def from_csv(cls, path: str | os.PathLike[str]) -> "Workload":
        """Read a workload from a CSV file.

        Parameters
        ----------
        path : str or path-like
            A UTF-8 file, its first line a header: ``arrival_s, prompt_tokens,
            output_tokens`` and, if wanted, ``ttft_slo_s, tpot_slo_s``; or Azure's
            ``TIMESTAMP, ContextTokens, GeneratedTokens``, timed from the first
            row.  Order of columns, quotes, blank lines and further columns do not
            matter.

        Returns
        -------
        Workload
            Named after the file.

        Raises
        ------
        WorkloadError
            If the file cannot be read or a row breaks a rule; the message names
            file, line, column, value and rule.
        """
        return cls._of(read_columns(Path(path)), name=Path(path).stem)

    def to_csv(self, path: str | os.PathLike[str]) -> None:
        """Write the workload so that `from_csv` reads back the same numbers.

        Parameters
        ----------
        path : str or path-like
            File to write; an existing one is replaced.

        Raises
        ------
        WorkloadError
            If it is a closed loop.
        """
        if self.concurrency is not None:
            raise WorkloadError(f"{self!r} has no arrival times to write: keep the call that makes it")
        columns = {name: values.tolist() for name, values in self._columns().items()}
        with open(path, "w", encoding="utf-8", newline="") as file:
            file.write(",".join(columns) + "\n")
            file.writelines(",".join(map(repr, row)) + "\n" for row in zip(*columns.values(), strict=True))

    def with_slo(self, slo: SLO) -> "Workload":
        """Fill in the targets that the workload leaves open.

        Parameters
        ----------
        slo : SLO
            Targets for every request where the workload has none of its own.

        Returns
        -------
        Workload
            A workload with both targets; its own ones are kept.

        Examples
        --------
        >>> plain = Workload([0.0, 1.0], [9, 9], [9, 9], ttft_slo_s=[1.0, 3.0])
        >>> full = plain.with_slo(SLO(ttft_s=2.0, tpot_s=0.1))
        >>> full.ttft_slo_s, full.tpot_slo_s
        (array([1., 3.]), array([0.1, 0.1]))
        """
        if self.ttft_slo_s is not None and self.tpot_slo_s is not None:
            return self  # nothing is open, and nothing in it can be changed
        ttft_slo_s = np.full(len(self), slo.ttft_s) if self.ttft_slo_s is None else self.ttft_slo_s
        tpot_slo_s = np.full(len(self), slo.tpot_s) if self.tpot_slo_s is None else self.tpot_slo_s
        return replace(self, ttft_slo_s=ttft_slo_s, tpot_slo_s=tpot_slo_s)

    def scaled_to(self, rate_rps: float) -> "Workload":
        """Stretch or squeeze time so that requests arrive at another rate.

        Parameters
        ----------
        rate_rps : float
            Requests per second, from the first arrival to the last.

        Returns
        -------
        Workload
            The same requests; all gaps are multiplied by one number, so bursts stay bursts.

        Raises
        ------
        ValueError
            If the rate is not finite and positive.
        WorkloadError
            If the workload has no rate, or scaled arrivals would lie too far out.

        Examples
        --------
        >>> Workload([0.0, 1.0, 4.0], [9, 9, 9], [9, 9, 9]).scaled_to(2.0).arrival_s
        array([0.  , 0.25, 1.  ])
        """
        if not 0.0 < rate_rps < np.inf:
            raise ValueError(f"rate_rps must be a finite, positive number, got {rate_rps}")
        return replace(self, arrival_s=self.arrival_s * (self.rate_rps / rate_rps))

    def head(self, n: int) -> "Workload":
        """Keep the first `n` requests, or all if there are fewer.

        Parameters
        ----------
        n : int
            How many to keep, 1 or more.

        Returns
        -------
        Workload
            The first requests, with their targets.

        Raises
        ------
        ValueError
            If `n` is below 1.
        """
        if n < 1:
            raise ValueError(f"a workload keeps at least 1 request, got n={n}")
        first = {name: values[:n] for name, values in self._columns().items()}
        return replace(self._of(first, name=self.name), concurrency=self.concurrency)

    def _columns(self) -> dict[str, np.ndarray]:
        """The arrays that are there, by name."""
        named = ((field.name, getattr(self, field.name)) for field in fields(self))
        return {name: values for name, values in named if isinstance(values, np.ndarray)}

    @classmethod
    def _of(cls, columns: Mapping[str, np.ndarray], *, name: str) -> "Workload":
        return cls(
            arrival_s=columns["arrival_s"],
            prompt_tokens=columns["prompt_tokens"],
            output_tokens=columns["output_tokens"],
            ttft_slo_s=columns.get("ttft_slo_s"),
            tpot_slo_s=columns.get("tpot_slo_s"),
            name=name,
        )
