"""The commands `score` and `merge`: what they write, and how they say no."""

import json
from types import SimpleNamespace

import pytest

from pacer_gym.cli import main
from pacer_gym.cli.score import print_results
from pacer_gym.leaderboard.results import Results, read_measured, read_results
from tests.leaderboard.tiny import source_of

ONE = ["--quick", "--scenario", "drift-step", "--jobs", "2"]


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    return ["--cache", str(tmp_path_factory.mktemp("cells"))]


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_score_is_printed_for_people_and_for_programs(here, cache, capsys):
    words = ["score", "fixed_budget:budget_tokens=64", *ONE, *cache]
    assert main([*words, "--json"]) == 0
    results = Results.from_json(capsys.readouterr().out)
    assert results.policy["settings"] == {"budget_tokens": 64}
    assert main(words) == 0
    told = capsys.readouterr().out
    assert "drift-step" in told
    assert "% while slowed" in told


def test_what_a_mark_means_is_said_once_and_an_open_interval_is_no_dash(capsys):
    capacity = {
        "kind": "capacity", "capacity_rps": 5.0, "interval_rps": [4.5, None], "strict_capacity_rps": None,
        "is_stable": False, "non_monotone": False, "zero": False, "beyond_range": True, "failures": [],
    }  # fmt: skip
    sure = capacity | {"interval_rps": [4.5, 5.5], "is_stable": True, "beyond_range": False}
    single = sure | {"interval_rps": [None, None]}
    print_results(
        SimpleNamespace(scenarios={"bursty": capacity, "tiers": capacity, "one": single, "sure": sure})
    )
    told = " ".join(capsys.readouterr().out.split())
    assert told.count("5.00 req/s, beyond range, not stable above 4.50") == 2
    assert "one 5.00 req/s unknown sure 5.00 req/s 4.50 to 5.50" in told
    assert told.count("even the highest rate that was tried is carried") == 1
    assert told.count("the queue still grows") == 1
    assert "not even the lowest" not in told


def test_parts_are_written_merged_and_not_replaced_unasked(here, cache, capsys):
    words = [
        "score",
        "fixed_budget",
        "--quick",
        "--scenario",
        "drift-step",
        "--scenario",
        "drift-ramp",
        *cache,
    ]
    for k in (1, 2):
        assert main([*words, "--shard", f"{k}/2", "--out", f"part-{k}.json"]) == 0
    assert main([*words, "--out", "results.json"]) == 0
    assert main(["merge", "part-1.json", "part-2.json", "--out", "merged.json", "--partial"]) == 0
    assert (here / "merged.json").read_bytes() == (here / "results.json").read_bytes()
    assert list(read_results(here / "part-1.json").scenarios) == ["drift-step"]
    measured = read_measured(here / "merged.measured.json")
    assert measured.wall_s > 0.0
    assert measured.provenance["cores"] >= 1
    assert "date" not in json.loads((here / "results.json").read_text())
    capsys.readouterr()
    assert main(["merge", "part-1.json", "--out", "results.json", "--partial"]) == 2
    assert "results.json exists" in capsys.readouterr().err
    assert main(["merge", "part-1.json", "--out", "whole.json"]) == 2
    assert "no part holds poisson-tight" in capsys.readouterr().err


def test_failures_are_told(here, capsys):
    (here / "bad.py").write_text(source_of(["raise ValueError('mine')"]))
    assert main(["score", "bad.py", *ONE, "--cache", "cells"]) == 0
    told = " ".join(capsys.readouterr().out.split())
    assert "FAILED, counted as 0: drift-step at" in told
    assert "ValueError: mine" in told


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ([], "name either a policy"),
        (["fixed_budget", "--submission", "mine"], "name either a policy"),
        (["fixed_bugdet"], "did you mean 'fixed_budget'"),
        (["oracle"], "not ranked"),
        (["fixed_budget", "--set", "budget=3"], "no setting 'budget'"),
        (["fixed_budget", "--shard", "3"], "as in 2/4"),
        (["fixed_budget", "--shard", "3/2"], "a shard is I/N"),
        (["fixed_budget", "--scenario", "burst"], "did you mean 'bursty'"),
        (["fixed_budget", "--backend", "slurm"], "there are local, ray, dask"),
        (["fixed_budget", "--tune", "alpha"], "what can be tuned is budget_tokens"),
        (["fixed_budget", "--track", "a99"], "no track 'a99'"),
        (["fixed_budget", "--jobs", "0"], "from 1 to 1024, or -1"),
        (["fixed_budget", "--jobs", "99999999"], "from 1 to 1024, or -1"),
        (["--submission", "nobody"], "nobody"),
        (["--submission", "mine", "--set", "a=1"], "edit that"),
    ],
)
def test_mistakes_are_one_line_and_status_2(here, capsys, words, told):
    assert main(["score", "--quick", *words]) == 2
    error = capsys.readouterr().err
    assert told in error
    assert error.count("\n") == 1


def test_a_cache_that_cannot_be_written_to_is_one_line(here, capsys):
    (here / "file").write_text("")
    assert main(["score", "fixed_budget", *ONE, "--cache", "file/cells"]) == 1
    error = capsys.readouterr().err
    assert "results cannot be kept in file/cells: Not a directory" in error
    assert error.count("\n") == 1


def test_an_existing_result_is_found_out_before_anything_runs(here, capsys):
    (here / "results.json").write_text("{}")
    assert main(["score", "fixed_budget", *ONE, "--out", "results.json"]) == 2
    assert "results.json exists" in capsys.readouterr().err


def test_a_part_or_a_rough_answer_does_not_take_the_place_of_an_entrys_whole_results(here, cache, capsys):
    assert main(["submit", "srpf", "--name", "mine"]) == 0
    results = here / "leaderboard" / "submissions" / "mine" / "results.json"
    one = ["score", "--submission", "mine", *ONE, *cache]
    assert main([*one, "--scenario", "drift-ramp"]) == 0
    whole = results.read_bytes()
    capsys.readouterr()
    assert main(one) == 2
    told = capsys.readouterr().err
    assert "holds 2 scenarios of the quick setting, and this would leave 1 of the quick one" in told
    assert told.count("\n") == 1
    assert main([*one, "--out", "elsewhere.json"]) == 0
    assert results.read_bytes() == whole
    assert main([*one, "--force"]) == 0
    assert list(read_results(results).scenarios) == ["drift-step"]
    # As many scenarios again, but of the setting that ranks.
    results.write_text(results.read_text().replace('"setting": "quick"', '"setting": "official"'))
    official = results.read_bytes()
    assert main(one) == 2
    assert results.read_bytes() == official
    # What cannot be read is no loss.
    results.write_text("{}")
    assert main(one) == 0
