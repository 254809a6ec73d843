"""The board's two files: README.md, which any host of repositories shows, and index.html.

Both are made of the entries' folders alone, so that the same entries give the same bytes, and
whether the files are up to date can be checked by making them again.
"""

import math
from collections.abc import Sequence
from pathlib import Path

from pacer_gym.leaderboard.board_data import BoardEntry, TrackBoard
from pacer_gym.leaderboard.board_reading import BoardError, read_board
from pacer_gym.leaderboard.board_text import BEGIN, END, board_markdown
from pacer_gym.leaderboard.page import board_page
from pacer_gym.leaderboard.suite import DRIFT, ROBUST, TIERS
from pacer_gym.scoring.destination import write_whole

README, PAGE = "README.md", "index.html"

_NEW_README = f"""# Leaderboard

{BEGIN}

{END}
"""


def render_board(folder: str | Path, tracks: Sequence[TrackBoard] | None = None) -> dict[Path, str]:
    """Make the board's files, without writing them.

    Parameters
    ----------
    folder : str or Path
        The board's folder.
    tracks : sequence of TrackBoard, optional
        What `read_board` returns for it; read unless given.

    Returns
    -------
    dict of Path to str
        What each file should hold.

    Raises
    ------
    BoardError
        If the folder does not exist, or its README.md has no place for the board.
    PacerError
        As `read_board`.

    Examples
    --------
    >>> from tempfile import mkdtemp
    >>> [path.name for path in render_board(mkdtemp())]
    ['README.md', 'index.html']
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise BoardError(f"no folder {folder}: make it, or name the board's with --folder")
    for path in (folder / README, folder / PAGE):
        if path.is_symlink():
            raise BoardError(f"{path} is a link, and the board's file belongs there: remove it")
        if path.is_dir():
            raise BoardError(f"{path} is a folder, and the board's file belongs there: move it away")
    tracks = read_board(folder) if tracks is None else tracks
    readme = folder / README
    around = _read_text(readme) if readme.is_file() else _NEW_README
    return {readme: _between_markers(readme, around, tracks), folder / PAGE: board_page(tracks)}


def write_board(files: dict[Path, str]) -> list[Path]:
    """Write those of the board's files that have changed, each whole or not at all.

    Parameters
    ----------
    files : dict of Path to str
        As `render_board` returns them.

    Returns
    -------
    list of Path
        Files that were written.
    """
    stale = stale_files(files)
    for path in stale:
        _write(path, files[path].encode())
    return stale


def stale_files(files: dict[Path, str]) -> list[Path]:
    """Files that do not hold what they should."""
    return [
        path for path, content in files.items() if not path.is_file() or path.read_bytes() != content.encode()
    ]


def board_rows(tracks: Sequence[TrackBoard]) -> list[dict[str, object]]:
    """The table as plain values, one row an entry, in its order.

    Parameters
    ----------
    tracks : sequence of TrackBoard
        As `read_board` returns them.

    Returns
    -------
    list of dict
        Shares and attainments in [0, 1]; None where something is not known.
    """
    return [_row(board, entry) for board in tracks for entry in board.entries]


def _row(board: TrackBoard, entry: BoardEntry) -> dict[str, object]:
    return {
        "track": board.track,
        "rank": entry.rank,
        "name": entry.name,
        "robust_score": _known(entry.robust_score),
        "mean_share": _known(entry.mean_share),
        "capacities": {name: _capacity(entry, name) for name in (*ROBUST, *TIERS)},
        "drift": {
            name: dict(zip(("in_drift", "overall"), map(_known, entry.attainment(name)), strict=True))
            for name in DRIFT
        },
        "worst_itl_p99_s": _known(entry.worst_itl_p99_s),
        "decision_us": None if entry.decision_us is None else entry.decision_us[0],
        "family": entry.submission.family,
        "tuned": entry.is_tuned,
        "verification": entry.verification.state,
        "verified_on": entry.verification.date if entry.verification.state == "verified" else None,
        "unranked": entry.unranked or None,
    }


def _capacity(entry: BoardEntry, scenario: str) -> dict[str, object]:
    found = entry.scenario(scenario)
    return {
        "capacity_rps": found.get("capacity_rps"),
        "interval_rps": found.get("interval_rps"),
        "share": entry.shares.get(scenario),
    }


def _known(value: float) -> float | None:
    return None if math.isnan(value) else value


def _between_markers(path: Path, text: str, tracks: Sequence[TrackBoard]) -> str:
    if text.count(BEGIN) != 1 or text.count(END) != 1 or text.index(BEGIN) > text.index(END):
        raise BoardError(
            f"{path} must hold one line {BEGIN!r} and, below it, one {END!r}: the board goes between them"
        )
    before, after = text[: text.index(BEGIN)], text[text.index(END) :]
    return f"{before}{BEGIN}\n\n{board_markdown(tracks).strip()}\n\n{after}"


def _read_text(path: Path) -> str:
    try:
        return path.read_bytes().decode("utf-8")
    except UnicodeDecodeError:
        raise BoardError(f"{path} is no UTF-8 text: restore it, or remove it to have a new one") from None


def _write(path: Path, content: bytes) -> None:
    def fill(partial: Path) -> None:
        partial.write_bytes(content)

    write_whole(path, fill)
