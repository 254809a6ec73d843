"""Write a run to a folder, whole or not at all, and read it back.

A folder holds the request table, the step table if the run kept one, and
`record.json`: what was run, its metrics, and where the numbers came from.
"""

import csv
import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from pacer_gym.engine import ITL_EDGES_S, DriftTable, checked_drift
from pacer_gym.scoring.destination import RECORD_FILE, check_destination, write_whole
from pacer_gym.scoring.metrics import summary
from pacer_gym.scoring.record import RunRecord
from pacer_gym.workloads.slo import SLO

if TYPE_CHECKING:
    import pandas as pd

RECORD_SCHEMA = 1
TABLE_FORMATS = ("parquet", "csv")


def check_table_format(table_format: str) -> None:
    """Refuse an unknown table format, or one whose package is missing.

    Raises
    ------
    ValueError
        If the format is none of `TABLE_FORMATS`.
    ImportError
        If it needs a package that is not installed; the message names the extra.
    """
    if table_format not in TABLE_FORMATS:
        raise ValueError(f"table format must be one of {', '.join(TABLE_FORMATS)}, got {table_format!r}")
    if table_format == "parquet":
        try:
            import pyarrow  # noqa: F401  # pandas imports it, with a message of its own
        except ImportError as error:
            raise ImportError(
                'Parquet tables need pyarrow: pip install "pacer-gym[parquet]", or write csv (--format csv)'
            ) from error


def write_record(
    record: RunRecord,
    folder: str | Path,
    *,
    table_format: str = "parquet",
    force: bool = False,
    provenance: Mapping[str, object] | None = None,
) -> Path:
    """Write a run to a folder that appears only once it is complete.

    Parameters
    ----------
    record : RunRecord
        The run.
    folder : str or Path
        Folder to make; its parents are made too.
    table_format : {"parquet", "csv"}
        Format of the tables.  Both keep every bit of every number.
    force : bool, default=False
        Replace a folder that an earlier run wrote.
    provenance : mapping, optional
        Versions, commit and command, as plain values, for `record.json`.

    Returns
    -------
    Path
        The folder.

    Raises
    ------
    FileExistsError, NotADirectoryError, PermissionError
        As `check_destination`.
    ImportError
        If the format needs a package that is not installed.
    """
    check_table_format(table_format)
    check_destination(folder, folder=True, force=force)
    used = np.flatnonzero(record.itl_counts)
    first, last = (int(used[0]), int(used[-1])) if used.size else (0, -1)
    about = {
        "schema": RECORD_SCHEMA,
        "tables": table_format,
        "run": record.description(),
        "metrics": summary(record),
        "engine": {"num_steps": record.num_steps, "step_s_sum": record.step_s_sum},
        "itl": {"first_bin": first, "counts": record.itl_counts[first : last + 1].tolist()},
        "provenance": dict(provenance or {}),
        "timing": {"wall_s": record.wall_s},
    }

    def fill(partial: Path) -> None:
        partial.mkdir()
        for name, table in (("requests", record.requests), ("steps", record.steps)):
            if table is not None:
                _write_table(table, partial / f"{name}.{table_format}")
        (partial / RECORD_FILE).write_text(to_json(about) + "\n", encoding="utf-8")

    write_whole(Path(folder), fill)
    return Path(folder)


def read_record(folder: str | Path) -> RunRecord:
    """Read a run that `write_record` wrote; the two records are equal.

    Raises
    ------
    FileNotFoundError
        If the folder holds no run.
    ValueError
        If the run was written by a newer version.
    """
    folder = Path(folder)
    about = json.loads((folder / RECORD_FILE).read_text(encoding="utf-8"))
    if about["schema"] != RECORD_SCHEMA:
        raise ValueError(
            f"{folder / RECORD_FILE} has schema {about['schema']}, this version reads {RECORD_SCHEMA}: "
            "upgrade pacer-gym"
        )
    table_format, told = about["tables"], about["run"]
    steps_file = folder / f"steps.{table_format}"
    counts = np.zeros(ITL_EDGES_S.size - 1, np.int64)
    first, kept = about["itl"]["first_bin"], about["itl"]["counts"]
    counts[first : first + len(kept)] = kept
    return RunRecord(
        request_columns=_read_columns(folder / f"requests.{table_format}"),
        step_columns=_read_columns(steps_file) if steps_file.is_file() else None,
        itl_counts=counts,
        policy=told["policy"],
        policy_settings=told["policy_settings"],
        scenario=told["scenario"],
        workload_name=told["workload"],
        rate_rps=told["rate_rps"],
        seed=told["seed"],
        profile_name=told["profile"],
        drift=_read_drift(told["drift"]),
        slo=SLO(
            **{name: math.inf if target_s is None else target_s for name, target_s in told["slo"].items()}
        ),
        window_s=(told["window_s"][0], told["window_s"][1]),
        horizon_s=told["horizon_s"],
        end_s=told["end_s"],
        num_steps=about["engine"]["num_steps"],
        step_s_sum=about["engine"]["step_s_sum"],
        wall_s=about["timing"]["wall_s"],
        # A run of an earlier version was a simulated one.
        engine=told.get("engine", "simulator"),
        failure=told.get("failure"),
        aborted=tuple(told.get("aborted", ())),
    )


def to_json(value: object) -> str:
    """JSON text with sorted keys, where null stands for what is infinite or undefined.

    Examples
    --------
    >>> to_json({"b": float("inf"), "a": 1}).split()
    ['{', '"a":', '1,', '"b":', 'null', '}']
    """
    return json.dumps(_finite(value), indent=2, sort_keys=True, allow_nan=False)


def _read_drift(told: str | dict[str, list[float]]) -> str | DriftTable:
    if isinstance(told, str):
        return told
    return checked_drift(DriftTable(np.array(told["time_s"]), np.array(told["factor"])))


def _write_table(table: "pd.DataFrame", path: Path) -> None:
    if path.suffix == ".parquet":
        table.to_parquet(path, index=False)
    else:
        table.to_csv(path, index=False)  # numbers by repr: they read back to the last bit


def _read_columns(path: Path) -> dict[str, np.ndarray]:
    if path.suffix == ".parquet":
        import pandas as pd

        table = pd.read_parquet(path)
        return {str(name): table[name].to_numpy() for name in table.columns}
    # Not by pandas, some versions of which round the last bit of a number.
    with path.open(encoding="utf-8", newline="") as file:
        names, *rows = csv.reader(file)
    return {name: _parse(name, [row[k] for row in rows]) for k, name in enumerate(names)}


def _parse(name: str, values: list[str]) -> np.ndarray:
    """Read a column of text back into the type it was written from."""
    if name.endswith("_s"):
        return np.array([float(value or "nan") for value in values])
    if name in ("rejected", "forced"):
        return np.array([value == "True" for value in values], bool)
    return np.array([int(value) for value in values], np.int64)


def _finite(value: Any) -> Any:
    """Replace what JSON cannot say, inf and nan, by None, all the way down."""
    if isinstance(value, Mapping):
        return {str(key): _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
