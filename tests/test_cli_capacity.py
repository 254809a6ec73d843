"""The commands `capacity` and `compare`: what they find, what they answer, and how they say no."""

import io
import json
import shlex
import sys

import pytest

from pacer_gym.cli import main
from pacer_gym.scoring import find_capacity

FAST = ["--duration", "30", "--warmup", "0", "--seeds", "2", "--tolerance", "0.2", "--jobs", "1"]
CAPACITY = ["capacity", "fixed_budget", "--scenario", "poisson-standard", *FAST]
COMPARE = ["compare", "srpf", "vllm_default", "--scenario", "poisson-standard", "--no-tune", *FAST]
ON_TRACE = ["--trace", "mine.csv", "--slo", "2:0.1", *FAST]

EASY, CROWDED = (100, 20), (3000, 900)


@pytest.fixture
def here(tmp_path, monkeypatch):
    """A folder with a trace of 40 requests, and some that are no use."""
    monkeypatch.chdir(tmp_path)
    for name, count, step_s, (prompt_tokens, output_tokens) in (
        ("mine", 40, 0.5, EASY), ("few", 3, 0.5, EASY), ("instant", 40, 0.0, EASY), ("huge", 40, 0.5, CROWDED)
    ):  # fmt: skip
        rows = (f"{step_s * k},{prompt_tokens + 3 * k},{output_tokens}\n" for k in range(count))
        (tmp_path / f"{name}.csv").write_text("arrival_s,prompt_tokens,output_tokens\n" + "".join(rows))
    return tmp_path


def printed_json(words, capsys):
    assert main([*words, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_capacity_is_that_of_the_library(capsys):
    result = find_capacity(
        "fixed_budget", "poisson-standard", seeds=range(1000, 1002), horizon_s=30.0, warmup_s=0.0,
        tolerance=0.2, n_jobs=1,
    )  # fmt: skip
    assert printed_json(CAPACITY, capsys) == json.loads(json.dumps(result.description()))


def test_capacity_tells_people_rate_interval_and_curve(capsys):
    assert main([*CAPACITY, "--set", "budget_tokens=64", "--quick"]) == 0
    told = capsys.readouterr().out
    for words in ("budget_tokens=64", "req/s", "90 %", "interval", "seeds 1000 to 1001", "worst seed"):
        assert words in told
    assert "at 99 %" not in told  # which --quick leaves out


def test_settings_are_read_from_the_reference_too(here, capsys):
    found = printed_json(["capacity", "fixed_budget:budget_tokens=64", *ON_TRACE], capsys)
    assert found["policy_settings"] == {"budget_tokens": 64}
    assert (found["policy"], found["scenario"]) == ("fixed_budget", "mine")


def test_what_no_rate_suits_is_an_answer(here, capsys):
    words = ["--trace", "huge.csv", "--slo", "0.01:0.001", *FAST]
    assert main(["capacity", "fixed_budget", *words]) == 0
    assert "0 req/s" in capsys.readouterr().out
    assert main(["compare", "fixed_budget", *words, "--no-tune"]) == 0
    assert "None of them keeps the targets even at 0.1 req/s" in capsys.readouterr().out


def test_what_the_range_is_too_short_for_is_an_answer(here, capsys):
    words = ["compare", "srpf", "fixed_budget", *ON_TRACE, "--range", "0.1:0.3", "--no-tune"]
    assert main(words) == 0
    told = capsys.readouterr().out
    assert "above 0.30" in told
    assert "Passed at the highest rate that was tried: srpf, fixed_budget. Raise the range." in told
    assert [policy["behind_best_rps"] for policy in printed_json(words, capsys)["policies"]] == [None, None]


def test_compare_ranks_on_common_seeds_that_tuning_has_not_seen(here, capsys):
    found = printed_json(["compare", "srpf", "fixed_budget", *ON_TRACE], capsys)
    policies = found["policies"]
    rates_rps = [policy["capacity"]["capacity_rps"] for policy in policies]
    assert rates_rps == sorted(rates_rps, reverse=True)
    assert policies[0]["name"] == found["best"]
    assert policies[0]["behind_best_rps"] is None
    for policy in policies[1:]:
        assert policy["behind_best_rps"] == pytest.approx(policy["capacity"]["capacity_rps"] - rates_rps[0])
    assert {tuple(policy["capacity"]["curve"]["seeds"]) for policy in policies} == {(2000, 2001)}
    tuned = {policy["tuned"]["order"]: policy for policy in policies if policy["tuned"]}
    assert set(tuned) == {"arrival", "deadline"}
    assert {policy["capacity"]["policy"] for policy in tuned.values()} == {"fixed_budget", "deadline_order"}
    for policy in tuned.values():
        assert policy["tuned"]["seeds"] == [1000, 1001]
        assert policy["capacity"]["policy_settings"]["budget_tokens"] == policy["tuned"]["budget_tokens"]
    budget = tuned["arrival"]["tuned"]["budget_tokens"]
    assert f"--max-num-batched-tokens {budget} " in found["vllm_flags"]


def test_compare_ends_in_what_to_run_with_flags_on_one_line(here, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "60")
    assert main(["compare", "srpf", *ON_TRACE]) == 0
    told = capsys.readouterr().out
    answer = told.partition("What to run")[2]
    assert "carries most" in answer
    assert any(
        line.startswith("  --max-num-batched-tokens ") and line.rstrip().endswith(" --enable-chunked-prefill")
        for line in answer.splitlines()
    )
    assert "scored on the same as all" in " ".join(told.split())
    assert "intervals say nothing of other traffic" in " ".join(told.split())  # 40 requests, over and over


@pytest.mark.parametrize(
    ("scenario", "targets"),
    [("poisson-standard", ["--slo", "2:0.1"]), ("tiers", [])],  # a server takes one pair; tiers have two
)
def test_what_carries_most_comes_with_the_command_that_serves_with_it(scenario, targets, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "40")
    policy = "srpf:budget_tokens=64"
    assert main(["compare", policy, "--scenario", scenario, "--no-tune", *FAST]) == 0
    answer = capsys.readouterr().out.partition("What to run")[2]
    (command,) = (shlex.split(line) for line in answer.splitlines() if line.startswith("  pacer-gym "))
    assert command == ["pacer-gym", "serve", "--model", "path/to/model", "--policy", policy, *targets]


def test_both_draw_their_curves(here):
    pytest.importorskip("matplotlib")
    for words in (CAPACITY, COMPARE):
        picture = here / f"{words[0]}.png"
        assert main([*words, "--plot", picture.name]) == 0
        assert picture.read_bytes().startswith(b"\x89PNG")
        assert main([*words, "--plot", picture.name]) == 2
        assert main([*words, "--plot", picture.name, "--force"]) == 0


def test_a_policy_that_sees_the_simulator_is_admitted_when_asked_for_and_never_the_best(capsys):
    words = ["compare", "oracle", *COMPARE[2:], "--allow-privileged", "--duration", "15", "--seeds", "1"]
    assert main(words) == 0
    told = capsys.readouterr().out
    assert "oracle *" in told
    assert "which no engine can run" in told
    found = printed_json(words, capsys)
    assert found["best"] == "vllm_default"
    assert {policy["name"]: policy["privileged"] for policy in found["policies"]} == {
        "oracle": True,
        "vllm_default": False,
    }


@pytest.mark.parametrize("command", ["capacity", "compare"])
def test_help_shows_an_example_that_works(command, capsys, here):
    pytest.importorskip("matplotlib")
    assert main([command, "--help"]) == 0
    text = " ".join(capsys.readouterr().out.split())
    example = shlex.split(text.partition("Example: pacer-gym ")[2])
    (here / "my.csv").write_bytes((here / "mine.csv").read_bytes())
    assert main([*example, *FAST]) == 0


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["capacity"], "Missing argument"),
        (["compare", "--scenario", "bursty"], "Missing argument"),
        (["capacity", "srpf"], "--scenario NAME, or --trace FILE.csv"),
        ([*COMPARE, "--trace", "mine.csv"], "--scenario NAME, or --trace FILE.csv"),
        (["compare", "srpf", "--trace", "mine.csv"], "holds no latency targets: give --slo"),
        (["compare", "srpf", "--trace", "absent.csv", "--slo", "2:0.1"], "absent.csv"),
        (["compare", "srpf", "--trace", "few.csv", "--slo", "2:0.1"], "3 requests in 1.0 s"),
        (["compare", "srpf", "--trace", "few.csv", "--slo", "2:0.1"], "takes 20 requests or more"),
        (["compare", "srpf", "--trace", "instant.csv", "--slo", "2:0.1"], "has no rate"),
        (["compare", "srpf", "--trace", "mine.csv", "--slo", "2:0.1", "--track", "tpu"], "no track 'tpu'"),
        (["capacity", "srpf", "--scenario", "tiers", "--slo", "2:0.1"], "leave --slo out"),
        (["capacity", "srfp", *CAPACITY[2:]], "did you mean 'srpf'?"),
        ([*CAPACITY, "--set", "budget=64"], "no setting 'budget'"),
        (["capacity", "srpf:budget=64", *CAPACITY[2:]], "no setting 'budget'"),
        ([*CAPACITY, "--set", "budget_tokens=64", "--set", "budget_tokens=32"], "budget_tokens twice"),
        (["capacity", "srpf:a=1,a=2", *CAPACITY[2:]], "give a twice"),
        ([*CAPACITY, "--profile", "tpu"], "no profile 'tpu'"),
        ([*CAPACITY, "--target", "90"], "--target must be in (0, 1), got 90"),
        ([*CAPACITY, "--tolerance", "2"], "--tolerance must be from 0.001 to 1"),
        ([*CAPACITY, "--range", "2"], "--range must be LOWEST:HIGHEST"),
        ([*CAPACITY, "--range", "2:1"], "--range must be LOWEST:HIGHEST with 0 < lowest < highest"),
        ([*CAPACITY, "--duration", "0"], "--duration must be a positive"),
        ([*CAPACITY, "--warmup", "30"], "--warmup must be at least 0 and below"),
        ([*CAPACITY, "--seeds", "0"], "'--seeds'"),
        ([*CAPACITY, "--jobs", "0"], "--jobs must be from 1 to 1024"),
        ([*CAPACITY, "--jobs", "99999999"], "--jobs must be from 1 to 1024"),
        ([*CAPACITY, "--plot", "run.xyz"], "must end in one of"),
        ([*COMPARE, "oracle"], "sees the simulator, which no engine can offer; admit it"),
        ([*COMPARE, "oracle"], "with --allow-privileged"),
        (["compare", "oracle", "--allow-privileged", *COMPARE[3:]], "at least one policy that an engine"),
        ([*COMPARE, "srpf:budget_tokens=128"], "are the same policy; name it once"),
    ],
)  # fmt: skip
def test_a_mistake_is_told_in_one_line_before_anything_runs(words, told, here, capsys):
    before = sorted(here.rglob("*"))
    assert main(words) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert told in printed.err
    assert printed.err.startswith("pacer-gym: ")
    assert printed.err.count("\n") == 1
    assert sorted(here.rglob("*")) == before


def test_a_policy_that_fails_in_the_middle_is_told_in_one_line_with_status_1(here, capsys):
    (here / "mine.py").write_text(
        "class Mine:\n"
        "    def reset(self, spec, rng): pass\n"
        "    def decide(self, view): raise ValueError('a bug of mine')\n"
        "    def observe(self, outcome): pass\n"
    )
    assert main(["compare", "mine.py:Mine", *ON_TRACE, "--no-tune"]) == 1
    told = capsys.readouterr().err
    assert "mine.py:Mine on mine at" in told
    assert "a bug of mine" in told
    assert told.count("\n") == 1


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_a_bar_on_a_terminal_says_what_is_under_way(monkeypatch, capsys):
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setattr("pacer_gym.cli.common.BAR_AFTER_S", 0.0)
    assert main([*CAPACITY, "--json"]) == 0
    assert main([*COMPARE, "--json"]) == 0
    shown = terminal.getvalue()
    assert "fixed_budget" in shown
    assert "/2: " in shown
    assert "/2: " not in capsys.readouterr().out
