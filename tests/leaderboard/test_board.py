"""What the board makes of its entries: shares, ranks, reasons, and the table of README.md."""

import json
import os
from pathlib import Path

import numpy as np
import pytest

from pacer_gym.errors import PacerError
from pacer_gym.leaderboard.board import board_rows, render_board, stale_files, write_board
from pacer_gym.leaderboard.board_data import mean_known
from pacer_gym.leaderboard.board_reading import BoardError, read_board
from pacer_gym.leaderboard.board_text import BEGIN, END, board_markdown
from pacer_gym.leaderboard.suite import DRIFT, ROBUST, TIERS
from pacer_gym.workloads.scenarios import TYPICAL_RPS
from tests.leaderboard.made_results import frozen_sha256, made_results, made_submission, write_json

SUITES = {"cpu": frozen_sha256()}


def read(folder):
    return read_board(folder, suites=SUITES)


def render(folder):
    return render_board(folder, read(folder))


def only(folder):
    (board,) = read(folder)
    return board


def named(folder, name):
    return next(entry for entry in only(folder).entries if entry.name == name)


def test_the_robust_score_is_the_least_share_of_the_best_capacity(tmp_path):
    made_submission(tmp_path, "even", strength=1.0)
    made_submission(tmp_path, "weak", strength=0.9)
    made_submission(tmp_path, "uneven", strength=1.2, strengths={"bursty": 0.6})
    board = only(tmp_path)
    # The best carries 1.2 of the typical rate on all but bursty, where it is 1.
    assert [entry.name for entry in board.entries] == ["even", "weak", "uneven"]
    assert [entry.rank for entry in board.entries] == [1, 2, 3]
    assert [entry.robust_score for entry in board.entries] == pytest.approx([1 / 1.2, 0.9 / 1.2, 0.6])
    assert [entry.mean_share for entry in board.entries] == pytest.approx(
        [(5 / 1.2 + 1) / 6, (5 * 0.9 / 1.2 + 0.9) / 6, 5.6 / 6]
    )
    assert board.best_rps["bursty"] == TYPICAL_RPS["cpu"]["bursty"]


def test_tiers_and_drift_are_no_part_of_the_robust_score(tmp_path):
    made_submission(tmp_path, "one", strength=1.0, strengths=dict.fromkeys((*DRIFT, *TIERS), 0.5))
    made_submission(tmp_path, "other", strength=0.99)
    assert [entry.name for entry in only(tmp_path).entries] == ["one", "other"]
    assert named(tmp_path, "one").robust_score == 1.0


def test_equal_scores_share_a_rank_and_the_next_one_is_skipped(tmp_path):
    for name in ("b", "a"):
        made_submission(tmp_path, name)
    made_submission(tmp_path, "c", strength=0.8)
    assert [(entry.name, entry.rank) for entry in only(tmp_path).entries] == [("a", 1), ("b", 1), ("c", 3)]


def test_where_nobody_carries_anything_nobody_has_a_share(tmp_path):
    results = made_results()
    results["scenarios"]["bursty"] |= {"capacity_rps": 0.0, "zero": True}
    made_submission(tmp_path, "mine", results=results)
    entry = only(tmp_path).entries[0]
    assert entry.shares["bursty"] == entry.robust_score == 0.0


def test_drift_attainment_is_the_mean_over_seeds(tmp_path):
    results = made_results()
    results["scenarios"]["drift-step"] |= {"attainment": [0.9, 0.8, None], "in_drift": [0.5, None, None]}
    made_submission(tmp_path, "mine", results=results)
    assert only(tmp_path).entries[0].attainment("drift-step") == pytest.approx((0.5, 0.85))


def test_the_worst_gap_between_tokens_is_the_largest_of_the_six(tmp_path):
    results = made_results()
    for k, name in enumerate(ROBUST):
        results["scenarios"][name]["reference"]["itl_p99_s"] = None if k == 0 else 0.1 * k
    results["scenarios"]["tiers"]["reference"]["itl_p99_s"] = 9.0
    made_submission(tmp_path, "mine", results=results)
    assert only(tmp_path).entries[0].worst_itl_p99_s == pytest.approx(0.5)


@pytest.mark.parametrize(
    ("made", "why"),
    [
        ({"disqualified": "It read the clock of the simulator."}, "disqualified: It read the clock"),
        ({"verdict": "refused"}, "refused by verify on 2026-01-02: bursty at 2.0"),
        ({"setting": "quick"}, "quick setting"),
        ({"suite_sha256": 64 * "e"}, "scored on another suite (eeeeeeee;"),
    ],
)
def test_what_cannot_be_compared_stays_visible_without_a_rank_and_sets_no_best(tmp_path, made, why):
    made_submission(tmp_path, "honest")
    made_submission(tmp_path, "other", strength=2.0, **made)
    board = only(tmp_path)
    assert [(entry.name, entry.rank) for entry in board.entries] == [("honest", 1), ("other", None)]
    assert board.entries[1].unranked.startswith(why)
    assert board.entries[0].robust_score == 1.0
    assert f"{why.split(':')[0]}" in board_markdown([board])


def test_an_entry_whose_policy_is_not_the_one_that_was_scored_has_no_rank(tmp_path):
    folder = made_submission(tmp_path, "mine")
    path = folder / "policy.py"
    path.write_text(path.read_text() + "\n# one more line\n")
    assert "policy file has changed" in only(tmp_path).entries[0].unranked


def test_an_entry_whose_settings_are_not_those_that_were_scored_has_no_rank(tmp_path):
    made_submission(tmp_path, "mine", settings={"budget_tokens": 64})
    assert only(tmp_path).entries[0].rank == 1
    toml = tmp_path / "submissions" / "mine" / "submission.toml"
    toml.write_text(toml.read_text().replace("budget_tokens = 64", "budget_tokens = 65"))
    assert "settings for azure-chat have changed" in only(tmp_path).entries[0].unranked


def test_what_was_tuned_while_scoring_stands_in_the_results_alone(tmp_path):
    results = made_submission(tmp_path, "mine") / "results.json"
    told = json.loads(results.read_text())
    for name, found in told["scenarios"].items():
        found["settings"] = {"budget_tokens": 64 + len(name)}
    results.write_text(json.dumps(told))
    assert "settings for azure-chat have changed" in only(tmp_path).entries[0].unranked
    told["policy"]["tuned"] = {"what": ["budget_tokens"], "seeds": "development"}
    results.write_text(json.dumps(told))
    assert only(tmp_path).entries[0].rank == 1


def test_an_entry_whose_weights_are_not_those_that_were_scored_has_no_rank(tmp_path):
    folder = made_submission(tmp_path, "mine")
    toml = folder / "submission.toml"
    toml.write_text(toml.read_text().replace("[policy]\n", '[policy]\nweights = ["layer.npz"]\n'))
    np.savez(folder / "layer.npz", weight=np.ones(3))
    assert (
        only(tmp_path).entries[0].unranked == "its weights have changed since it was scored: score it again"
    )


def test_an_entry_without_a_verdict_is_ranked_and_marked(tmp_path):
    made_submission(tmp_path, "mine", verdict=None)
    entry = only(tmp_path).entries[0]
    assert (entry.rank, entry.verification.state) == (1, "unverified")
    assert "| unverified |" in board_markdown([only(tmp_path)])


def test_a_verdict_on_other_results_verifies_nothing(tmp_path):
    folder = made_submission(tmp_path, "mine")
    assert named(tmp_path, "mine").verification.state == "verified"
    results = json.loads((folder / "results.json").read_text())
    results["scenarios"]["bursty"]["capacity_rps"] *= 1.01
    write_json(folder / "results.json", results)
    verification = named(tmp_path, "mine").verification
    assert verification.state == "unverified"
    assert verification.told == "its results have changed since it was verified on 2026-01-02"


def test_a_refusal_of_other_results_takes_no_rank(tmp_path):
    folder = made_submission(tmp_path, "mine", verdict="refused")
    results = json.loads((folder / "results.json").read_text())
    results["scenarios"]["bursty"]["capacity_rps"] *= 1.01
    write_json(folder / "results.json", results)
    assert named(tmp_path, "mine").rank == 1


def test_a_missing_scenario_is_an_error_that_names_it(tmp_path):
    made_submission(tmp_path, "mine", without=("bursty", "tiers"))
    with pytest.raises(BoardError, match=r"lacks bursty, tiers.*pacer-gym score --submission mine"):
        read(tmp_path)


@pytest.mark.parametrize("name", ["bursty", "drift-ramp", "tiers"])
def test_results_that_nothing_can_be_drawn_of_are_an_error_that_names_the_scenario(tmp_path, name):
    results = made_results()
    found = results["scenarios"]
    if name == "bursty":
        found[name] = found["drift-step"]
    elif name == "drift-ramp":
        found[name]["timeline"] = {"edges_s": [], "attainment": []}
    else:
        found[name]["curve"] = {"rates_rps": [], "seeds": [], "attainment": []}
    made_submission(tmp_path, "mine", results=results)
    told = r"tiers\.curve\.rates_rps cannot be" if name == "tiers" else f"something else under {name} than"
    with pytest.raises(PacerError, match=told):
        read(tmp_path)


def test_missing_results_are_an_error_but_for_a_disqualified_entry(tmp_path):
    folder = made_submission(tmp_path, "mine")
    (folder / "results.json").unlink()
    with pytest.raises(BoardError, match="pacer-gym score --submission mine"):
        read(tmp_path)
    made_submission(tmp_path, "cheat", disqualified="It never ran.")
    (tmp_path / "submissions" / "cheat" / "results.json").unlink()
    made_submission(tmp_path / "other", "cheat", disqualified="It never ran.")
    (tmp_path / "other" / "submissions" / "cheat" / "results.json").unlink()
    assert only(tmp_path / "other").entries[0].unranked == "disqualified: It never ran."
    assert "It never ran" in "".join(render(tmp_path / "other").values())


def test_results_of_another_track_are_an_error(tmp_path):
    results = made_results() | {"track": "a100"}
    made_submission(tmp_path, "mine", results=results)
    with pytest.raises(BoardError, match="of track a100"):
        read(tmp_path)


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("results.json", "{"),
        ("measured.json", '{"decision_us": 3}'),
        ("verified.json", "[]"),
        ("verified.json", '{"verdict": "fine"}'),
        ("submission.toml", "name ="),
    ],
)
def test_a_file_that_cannot_be_read_is_an_error_that_names_it(tmp_path, file, text):
    folder = made_submission(tmp_path, "mine")
    (folder / file).write_text(text)
    with pytest.raises(PacerError, match=file.replace(".", r"\.")):
        read(tmp_path)


def test_files_and_hidden_folders_among_the_entries_are_passed_over(tmp_path):
    made_submission(tmp_path, "mine")
    (tmp_path / "submissions" / ".cache").mkdir()
    (tmp_path / "submissions" / "notes.txt").write_text("not an entry")
    assert [entry.name for entry in only(tmp_path).entries] == ["mine"]


def test_a_tuned_entry_is_marked(tmp_path):
    made_submission(tmp_path, "tuned", tuning=["budget_tokens"])
    made_submission(tmp_path, "swept", tuned={"what": ["budget_tokens"], "seeds": "development"})
    made_submission(tmp_path, "plain")
    assert [named(tmp_path, name).is_tuned for name in ("tuned", "swept", "plain")] == [True, True, False]


def test_mean_known_leaves_out_what_is_not_known():
    assert mean_known([None, 1.0, 0.0]) == 0.5
    assert mean_known([]) != mean_known([])  # nan


def test_rows_hold_what_the_table_shows(tmp_path):
    made_submission(tmp_path, "mine")
    made_submission(tmp_path, "rough", setting="quick", decision_us=None)
    first, second = json.loads(json.dumps(board_rows(read(tmp_path)), allow_nan=False))
    assert (first["rank"], first["name"], first["robust_score"]) == (1, "mine", 1.0)
    assert (first["verification"], first["verified_on"]) == ("verified", "2026-01-02")
    assert first["decision_us"] == 12.5
    assert set(first["capacities"]) == {*ROBUST, *TIERS}
    assert first["drift"]["drift-step"]["overall"] == pytest.approx(0.91)
    assert (second["rank"], second["robust_score"], second["decision_us"]) == (None, None, None)


def test_an_empty_board_says_so(tmp_path):
    assert read(tmp_path) == ()
    readme, page = render(tmp_path).values()
    assert "Nothing has been scored yet" in readme
    assert "Nothing has been scored yet" in page


def test_the_same_entries_give_the_same_bytes(tmp_path):
    for k, folder in enumerate((tmp_path / "a", tmp_path / "b")):
        for name in ("one", "two")[:: 1 - 2 * k]:
            made_submission(folder, name)
    first, second = (list(render(folder).values()) for folder in (tmp_path / "a", tmp_path / "b"))
    assert first == second


def test_files_are_written_once_and_stale_when_an_entry_changes(tmp_path):
    folder = made_submission(tmp_path, "mine")
    files = render(tmp_path)
    assert [path.name for path in write_board(files)] == ["README.md", "index.html"]
    assert write_board(render(tmp_path)) == []
    (folder / "measured.json").unlink()
    assert [path.name for path in stale_files(render(tmp_path))] == ["README.md", "index.html"]


def test_what_stands_around_the_markers_is_kept(tmp_path):
    readme = tmp_path / "README.md"
    readme.write_text(f"# Mine\n\nbefore\n{BEGIN}\nstale lines\n{END}\nafter\n")
    made_submission(tmp_path, "mine")
    text = render(tmp_path)[readme]
    assert text.startswith(f"# Mine\n\nbefore\n{BEGIN}\n\n## Track cpu\n")
    assert text.endswith(f"|\n\n{END}\nafter\n")
    assert "stale lines" not in text


@pytest.mark.parametrize("text", ["# No markers\n", f"{END}\n{BEGIN}\n", f"{BEGIN}\n{END}\n{BEGIN}\n{END}\n"])
def test_a_readme_without_a_place_for_the_board_is_an_error(tmp_path, text):
    (tmp_path / "README.md").write_text(text)
    with pytest.raises(BoardError, match="the board goes between them"):
        render_board(tmp_path)


def test_a_readme_that_is_no_text_is_an_error(tmp_path):
    (tmp_path / "README.md").write_bytes(b"\xff\xfe")
    with pytest.raises(BoardError, match="no UTF-8 text"):
        render_board(tmp_path)


def test_a_folder_that_does_not_exist_is_an_error(tmp_path):
    with pytest.raises(BoardError, match="--folder"):
        render_board(tmp_path / "none")


def test_a_folder_in_place_of_a_file_is_left_alone(tmp_path):
    (tmp_path / "index.html").mkdir()
    with pytest.raises(BoardError, match="move it away"):
        render_board(tmp_path)


def test_what_a_submission_says_is_text_in_the_table(tmp_path):
    made_submission(tmp_path, "bad", disqualified=f"a | b <script>x</script> {END} [link](javascript:x) *c*")
    text = board_markdown(read(tmp_path))
    assert "<script>" not in text
    assert END not in text
    row = next(line for line in text.splitlines() if "disqualified" in line)
    assert row.replace(r"\|", "").count("|") == 5
    assert r"\[link\](javascript:x) \*c\*" in row


def test_the_board_of_the_repository_is_up_to_date():
    root = Path(__file__).parents[2]
    stale = [os.path.relpath(path, root) for path in stale_files(render_board(root / "leaderboard"))]
    assert stale == [], "run pacer-gym board"
