"""One entry, results on several tracks: files of their own, a table each, a suite each."""

import json
import os
from dataclasses import replace

import pytest

from pacer_gym.cli import main
from pacer_gym.leaderboard import claims, score, settings, suite
from pacer_gym.leaderboard.board import board_rows, render_board
from pacer_gym.leaderboard.board_reading import BoardError, read_board
from pacer_gym.leaderboard.results import read_results
from pacer_gym.leaderboard.submission import SubmissionError, check_entered, find_submission, load_submission
from pacer_gym.leaderboard.suite import FROZEN_SHA256, OFFICIAL, QUICK, Setting, check_frozen, on_track
from pacer_gym.leaderboard.tasks import tuning_jobs
from pacer_gym.workloads.scenarios import SCENARIOS, TRACKS, TYPICAL_RPS, load_scenario
from pacer_gym.workloads.seeds import DEV_SEEDS, OFFICIAL_SEEDS
from pacer_gym.workloads.slo import SLO
from tests.leaderboard.made_results import (
    made_measured,
    made_results,
    made_submission,
    made_verdict,
    write_json,
)
from tests.leaderboard.small_board import ROOT, small_setting

GPUS = ("a100", "h100")


def enter(board, name, *, strength=1.0, on="h100", **made):
    """An entry of made-up results on cpu and another track."""
    folder = made_submission(board, name, strength=strength, **made)
    toml = folder / "submission.toml"
    toml.write_text(toml.read_text().replace('track = "cpu"', f'track = ["cpu", "{on}"]'))
    told = json.loads((folder / "results.json").read_text())
    found = made_results(name=name, strength=strength, track=on) | {"policy": told["policy"]}
    write_json(folder / f"results-{on}.json", found)
    return folder


@pytest.mark.parametrize("track", GPUS)
def test_official_runs_on_gpus_are_many_and_apart_from_development(track):
    official, quick = on_track(OFFICIAL, track), on_track(QUICK, track)
    assert list(official.scenarios) == list(quick.scenarios) == list(SCENARIOS)
    assert (official.name, quick.name) == ("official", "quick")
    for name, how in official.scenarios.items():
        assert len(how.seeds) >= how.first_seeds >= 10, name
        assert set(how.seeds) <= set(OFFICIAL_SEEDS), name
        assert how.start_rps == TYPICAL_RPS[track][name]
        assert (how.target, how.strict_target) == (0.9, 0.99)
        # Seconds are fewer than on the CPU; requests are about as many.
        cpu = OFFICIAL.scenarios[name]
        assert how.start_rps * how.horizon_s >= 0.85 * cpu.start_rps * cpu.horizon_s, name
        assert set(quick.scenarios[name].seeds) <= set(DEV_SEEDS), name


def test_a_setting_of_ones_own_is_the_same_on_every_track():
    own = small_setting()
    assert on_track(own, "h100") is own
    assert on_track(OFFICIAL, "cpu") is OFFICIAL
    assert on_track(QUICK, "h100") is on_track(QUICK, "h100") is not QUICK


@pytest.mark.parametrize(
    ("track", "standard", "tiers", "code"),
    [
        ("a100", SLO(1.0, 0.05), (SLO(0.5, 0.03), SLO(2.0, 0.1)), SLO(4.0, 0.1)),
        ("h100", SLO(0.5, 0.025), (SLO(0.25, 0.015), SLO(1.0, 0.05)), SLO(2.0, 0.05)),
    ],
)
def test_gpus_serve_requests_of_their_own_length_against_targets_of_their_own(track, standard, tiers, code):
    assert load_scenario("bursty", track=track).slo == standard
    found = load_scenario("tiers", track=track)
    assert (found.slo, found.tiers) == (tiers[0], tiers)
    assert load_scenario("azure-code", track=track).slo == code
    assert (TRACKS[track].prompt_divisor, TRACKS[track].output_divisor) == (1, 1)
    drawn, small = (load_scenario("bursty", track=on).workload(rate_rps=5.0, seed=3) for on in (track, "cpu"))
    assert (-(-drawn.prompt_tokens // 8) == small.prompt_tokens).all()


@pytest.mark.usefixtures("data_folder")
@pytest.mark.parametrize("track", GPUS)
def test_the_suite_of_a_gpu_is_the_frozen_one(track):
    assert check_frozen(track) == FROZEN_SHA256[track]


def test_budgets_are_tuned_at_the_rates_of_the_track():
    quick = on_track(QUICK, "h100")
    jobs = tuning_jobs("budget_tokens", {"bursty": quick.scenarios["bursty"]}, "h100", {"bursty": {}})
    assert {job.how.start_rps for job in jobs.values()} == {TYPICAL_RPS["h100"]["bursty"]}
    assert {job.track for job in jobs.values()} == {"h100"}


def test_a_score_runs_on_the_machine_that_it_names(tmp_path):
    short = {"horizon_s": 20.0, "warmup_s": 0.0, "drain_s": 20.0, "seeds": (1000,), "first_seeds": 1}
    how = replace(on_track(QUICK, "h100").scenarios["drift-step"], **short)
    found = score.score(
        "fixed_budget",
        settings={"budget_tokens": 512},
        track="h100",
        setting=Setting(name="short", scenarios={"drift-step": how}),
        store=tmp_path,
        n_jobs=1,
    )
    assert found.track == "h100"
    assert found.scenarios["drift-step"]["rate_rps"] == TYPICAL_RPS["h100"]["drift-step"]
    assert 0.2 < found.scenarios["drift-step"]["attainment"][0] <= 1.0


def test_the_board_has_a_table_for_every_track(tmp_path):
    enter(tmp_path, "strong")
    enter(tmp_path, "weak", strength=0.5)
    made_submission(tmp_path, "cpu-only", strength=0.8)
    boards = read_board(tmp_path)
    assert [board.track for board in boards] == ["cpu", "h100"]
    assert [[entry.name for entry in board.entries] for board in boards] == [
        ["strong", "cpu-only", "weak"],
        ["strong", "weak"],
    ]
    assert boards[1].suite_sha256 == FROZEN_SHA256["h100"]
    assert boards[1].best_rps["bursty"] == TYPICAL_RPS["h100"]["bursty"]
    assert boards[1].entries[1].robust_score == pytest.approx(0.5)
    # A verdict is of the results of its own track, and so is what a decision took.
    first = [board.entries[0] for board in boards]
    assert [entry.verification.state for entry in first] == ["verified", "unverified"]
    assert [entry.decision_us for entry in first] == [(12.5, 37.5), None]
    folder = tmp_path / "submissions" / "strong"
    write_json(folder / "verified-h100.json", made_verdict(folder / "results-h100.json"))
    write_json(folder / "measured-h100.json", made_measured(7.0))
    again = read_board(tmp_path)[1].entries[0]
    assert (again.verification.state, again.decision_us) == ("verified", (7.0, 21.0))
    rows = board_rows(read_board(tmp_path))
    assert [row["track"] for row in rows if row["name"] == "strong"] == ["cpu", "h100"]


def test_rows_of_the_page_have_ids_of_their_own(tmp_path):
    enter(tmp_path, "mine")
    text = "".join(render_board(tmp_path).values())
    assert "## Track h100" in text
    for anchor in ("mine", "mine.h100"):
        assert text.count(f'<tr id="{anchor}"') == 1
        assert text.count(f'id="About.{anchor}"') == 1
    assert "pacer-gym verify mine --track h100" in text


def test_a_track_without_results_is_an_error_that_says_how_to_get_them(tmp_path):
    folder = enter(tmp_path, "mine")
    (folder / "results-h100.json").unlink()
    with pytest.raises(BoardError, match="score --submission mine --track h100"):
        read_board(tmp_path)


def test_results_of_a_track_that_was_never_entered_are_refused(tmp_path):
    folder = enter(tmp_path, "mine")
    toml = folder / "submission.toml"
    toml.write_text(toml.read_text().replace('track = ["cpu", "h100"]', 'track = "cpu"'))
    entry = load_submission(folder)
    assert check_entered(entry, None) == "cpu"
    with pytest.raises(SubmissionError, match="entered on cpu, not on h100: add it to track"):
        check_entered(entry, "h100")
    results = read_results(folder / "results-h100.json")
    reasons = claims.check_claims(entry, results, small_setting())
    assert any("on track h100, the entry is for suite v1 on cpu" in reason for reason in reasons)


@pytest.mark.parametrize(
    ("tracks", "told"),
    [
        (["gpu"], "track must be one of cpu, a100, h100, got 'gpu'"),
        (["cpu", ""], "track must be one of cpu, a100, h100, got ''"),
        (["h100", "h100"], "track names each machine once, got h100, h100"),
    ],
)
def test_tracks_that_there_are_not_or_twice_are_refused_in_words_of_the_command(
    tmp_path, monkeypatch, capsys, tracks, told
):
    monkeypatch.chdir(tmp_path)
    enter(tmp_path / "leaderboard", "mine")
    words = [word for track in tracks for word in ("--track", track)]
    assert main(["submit", str(ROOT / "policies" / "fixed_budget.py"), "--name", "new", *words]) == 2
    assert capsys.readouterr().err.startswith(f"pacer-gym: {told}")
    for command in (["score", "--submission", "mine", "--quick"], ["verify", "mine"]):
        if len(set(tracks)) == len(tracks):
            assert main([*command, "--track", tracks[-1]]) == 2
            # Nobody is sent to add a track that there is not.
            assert capsys.readouterr().err.startswith(f"pacer-gym: {told}")
    assert [path.name for path in (tmp_path / "leaderboard" / "submissions").iterdir()] == ["mine"]


@pytest.mark.slow
def test_an_entry_is_made_scored_and_verified_on_two_tracks(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    source = str(ROOT / "policies" / "fixed_budget.py")
    words = ["--name", "mine", "--set", "budget_tokens=512", "--track", "h100", "--track", "cpu"]
    assert main(["submit", source, *words]) == 0
    assert find_submission("mine").tracks == ("cpu", "h100")
    folder = tmp_path / "leaderboard" / "submissions" / "mine"
    assert main(["score", "--submission", "mine", "--quick", "--json"]) == 2
    assert "name one --track" in capsys.readouterr().err
    short = {track: short_quick(track) for track in ("cpu", "h100")}
    monkeypatch.setattr(settings, "_ELSEWHERE", {"h100": (on_track(OFFICIAL, "h100"), short["h100"])})
    for room in (settings, suite, score, claims):
        monkeypatch.setattr(room, "QUICK", short["cpu"])
    # In a process of its own: verify refuses to judge a policy that this one has run itself.
    assert in_a_fork(["score", "--submission", "mine", "--quick", "--cache", "cells", "--jobs", "1"]) == 0
    for file, track in (("results.json", "cpu"), ("results-h100.json", "h100")):
        assert json.loads((folder / file).read_text())["track"] == track
    assert json.loads((folder / "measured-h100.json").read_text())["decision_us"]["median"] > 0.0
    assert main(["verify", "mine", "--seed", "1", "--cells", "2", "--fresh", "1", "--jobs", "1"]) == 0
    assert "mine on h100: verified" in capsys.readouterr().out
    assert (folder / "verified.json").is_file()
    assert (folder / "verified-h100.json").is_file()
    assert main(["verify", "mine", "--track", "a100"]) == 2
    assert "not on a100" in capsys.readouterr().err


def in_a_fork(words):
    """Exit status of a command."""
    child = os.fork()
    if child == 0:
        os._exit(main(words))
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def short_quick(track):
    """The quick setting of a track, with one scenario and short runs."""
    short = {"horizon_s": 40.0, "warmup_s": 0.0, "drain_s": 20.0, "tolerance": 0.3}
    how = on_track(QUICK, track).scenarios["poisson-standard"]
    return Setting(name="quick", scenarios={"poisson-standard": replace(how, **short)})
