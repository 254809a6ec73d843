"""The command line: what it prints, what it writes, and how it says no."""

import io
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import pacer_gym
from pacer_gym.cli import main
from pacer_gym.scoring import attainment, run, summary
from pacer_gym.scoring.export import read_record
from pacer_gym.workloads.scenarios import scenario_names

ROOT = Path(__file__).parents[1]
RUN = ["run", "fixed_budget", "--scenario", "poisson-standard", "--rate", "2", "--duration", "30"]
TRACE = "arrival_s,prompt_tokens,output_tokens\n0.0,100,20\n0.5,30,10\n2.0,60,1\n"


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def start(*words, cwd, **environment):
    """Start the command in a process of its own."""
    code = "import sys; from pacer_gym.cli import main; sys.exit(main())"
    return subprocess.Popen(
        [sys.executable, "-c", code, *words],
        cwd=cwd,
        env=os.environ | {"PYTHONPATH": str(ROOT)} | environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_run_prints_what_a_reader_asks_first(capsys):
    assert main(RUN) == 0
    printed = capsys.readouterr()
    for word in (
        "attainment",
        "TTFT",
        "TPOT",
        "ITL",
        "P50",
        "P90",
        "P99",
        "goodput",
        "preemptions",
        "seed 0",
    ):
        assert word in printed.out
    assert "cpu-smollm2-135m" in printed.out
    assert "simulated seconds per wall second" in printed.out
    assert printed.err == ""


def test_json_is_the_summary_and_the_same_twice(capsys):
    texts = []
    for _ in range(2):
        assert main([*RUN, "--json"]) == 0
        texts.append(capsys.readouterr().out)
    assert texts[0] == texts[1]
    printed = json.loads(texts[0])
    record = run("fixed_budget", "poisson-standard", rate_rps=2.0, horizon_s=30.0)
    assert {name: printed[name] for name in summary(record)} == summary(record)
    assert (printed["policy"], printed["seed"], printed["profile"]) == ("fixed_budget", 0, "cpu-smollm2-135m")


def test_json_of_a_real_trace_is_the_same_in_two_processes(data_folder, tmp_path):
    words = ["run", "fixed_budget", "--scenario", "azure-chat", "--rate", "2.5", "--duration", "60", "--json"]
    runs = [start(*words, cwd=tmp_path, PYTHONHASHSEED=str(k)) for k in range(2)]
    first, second = (process.communicate(timeout=300) for process in runs)
    assert [process.returncode for process in runs] == [0, 0], first[1] + second[1]
    assert first[0] == second[0]
    assert json.loads(first[0])["requests"] > 0


def test_options_reach_the_run(capsys):
    options = [
        "--seed",
        "3",
        "--warmup",
        "10",
        "--drift",
        "step",
        "--slo",
        "1:0.05",
        "--set",
        "budget_tokens=64",
    ]
    assert main([*RUN, *options, "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed["policy_settings"] == {"budget_tokens": 64}
    assert printed["slo"] == {"ttft_s": 1.0, "tpot_s": 0.05}
    assert (printed["seed"], printed["drift"], printed["window_s"]) == (3, "step", [10.0, 30.0])


def test_a_trace_of_ones_own_is_replayed_at_its_rate_or_another(here, capsys):
    (here / "mine.csv").write_text(TRACE)
    assert main(["run", "srpf", "--trace", "mine.csv", "--slo", "2:0.1", "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert (printed["workload"], printed["requests"], printed["horizon_s"]) == ("mine", 3, 3.0)
    assert main(["run", "srpf", "--trace", "mine.csv", "--slo", "2:0.1", "--rate", "0.1", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["horizon_s"] == 21.0


def test_a_policy_file_of_ones_own_runs(here, capsys):
    source = (ROOT / "policies" / "fixed_budget.py").read_text(encoding="utf-8")
    (here / "mine.py").write_text(source.replace("class FixedBudget", "class Mine"))
    assert main(["run", "mine.py:Mine", *RUN[2:], "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["policy"] == "mine.py:Mine"


def test_out_writes_tables_and_provenance(here, capsys):
    assert main([*RUN, "--out", "results/first", "--format", "csv"]) == 0
    folder = here / "results" / "first"
    assert sorted(path.name for path in folder.iterdir()) == ["record.json", "requests.csv", "steps.csv"]
    assert read_record(folder) == run(
        "fixed_budget", "poisson-standard", rate_rps=2.0, horizon_s=30.0, steps=True
    )
    about = json.loads((folder / "record.json").read_text())
    assert about["provenance"]["command"] == f"pacer-gym {' '.join(RUN)} --out results/first --format csv"
    assert {"commit", "pacer_gym", "numpy", "profile_sha256"} <= about["provenance"].keys()


def test_plot_draws_a_picture(here):
    pytest.importorskip("matplotlib")
    assert main([*RUN, "--plot", "run.png"]) == 0
    assert (here / "run.png").read_bytes().startswith(b"\x89PNG")
    assert [path.name for path in here.iterdir()] == ["run.png"]


@pytest.mark.parametrize("command", ["policies", "scenarios", "profiles"])
def test_lists_are_printed_for_people_and_for_programs(command, capsys):
    assert main([command]) == 0
    table = capsys.readouterr().out
    assert main([command, "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert rows
    assert all(row["name"][:10] in table for row in rows)


def test_the_scenarios_are_those_of_the_suite(capsys):
    main(["scenarios", "--json"])
    assert [row["name"] for row in json.loads(capsys.readouterr().out)] == list(scenario_names())


@pytest.mark.parametrize("words", [[], ["run"], ["policies"], ["scenarios"], ["profiles"]])
def test_help_shows_an_example_that_works(words, capsys, here):
    assert main([*words, "--help"]) == 0
    text = " ".join(capsys.readouterr().out.split())
    example = text.partition("Example: pacer-gym ")[2].strip().split()
    assert example
    if example[0] == "run":
        pytest.importorskip("matplotlib")
        example += ["--duration", "20"]
    assert main(example) == 0


def test_the_version_is_printed(capsys):
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"pacer-gym {pacer_gym.__version__}\n"


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ([], "name a command"),
        (["fly"], "No such command 'fly'"),
        (["run"], "Missing argument"),
        (["run", "fixed_budget"], "--scenario NAME --rate R, or --trace FILE.csv"),
        (["run", "fixed_budget", "--scenario", "bursty"], "--scenario needs --rate"),
        (["run", "fixed_budget", "--scenario", "bursty", "--rate", "fast"], "--rate"),
        (["run", "fixed_budget", "--scenario", "bursty", "--rate", "-1"], "rate_rps"),
        (["run", "fixed_budget", "--scenario", "brusty", "--rate", "1"], "no scenario 'brusty'"),
        (["run", "fixed_bugdet", *RUN[2:]], "did you mean 'fixed_budget'?"),
        (["run", "absent.py", *RUN[2:]], "no policy file absent.py"),
        ([*RUN, "--colour", "red"], "No such option"),
        ([*RUN, "--seed", "-1"], "seed must be"),
        ([*RUN, "--warmup", "30"], "warmup_s must be"),
        ([*RUN, "--track", "tpu"], "no track 'tpu'"),
        ([*RUN, "--drift", "sideways"], "none, step, ramp"),
        ([*RUN, "--profile", "tpu"], "no profile 'tpu'"),
        ([*RUN, "--slo", "2"], "--slo must be TTFT:TPOT"),
        ([*RUN, "--slo", "2:0"], "tpot_s must be a positive"),
        ([*RUN, "--set", "budget_tokens"], "--set must be key=value"),
        ([*RUN, "--set", "budget=64"], "no setting 'budget'"),
        ([*RUN, "--set", "budget_tokens=many"], "budget_tokens"),
        ([*RUN, "--trace", "trace.csv"], "either"),
        (["run", "srpf", "--trace", "trace.csv"], "holds no latency targets: give --slo"),
        (["run", "srpf", "--trace", "trace.csv", "--slo", "2:0.1", "--track", "tpu"], "no track 'tpu'"),
        (["run", "srpf", "--trace", "absent.csv", "--slo", "2:0.1"], "absent.csv"),
        (["run", "srpf", "--trace", "bad.csv", "--slo", "2:0.1"], "bad.csv"),
        ([*RUN, "--plot", "run.xyz"], "must end in one of"),
        ([*RUN, "--plot", "trace.csv/run.png"], "trace.csv"),
        ([*RUN, "--out", "new", "--format", "xlsx"], "parquet, csv"),
        ([*RUN, "--out", "taken", "--format", "csv"], "taken exists"),
        ([*RUN, "--out", "taken", "--format", "csv", "--force"], "holds no record.json"),
        ([*RUN, "--out", "trace.csv/new", "--format", "csv"], "trace.csv"),
    ],
)
def test_a_mistake_is_told_in_one_line_and_leaves_nothing_behind(words, told, here, capsys):
    if "--plot" in words:
        pytest.importorskip("matplotlib")
    (here / "trace.csv").write_text(TRACE)
    (here / "bad.csv").write_text(TRACE + "3.0,-5,1\n")
    (here / "taken").mkdir()
    (here / "taken" / "letter.txt").write_text("dear")
    before = sorted(here.rglob("*"))
    assert main(words) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert told in printed.err
    assert printed.err.startswith("pacer-gym: ")
    assert printed.err.count("\n") == 1
    assert sorted(here.rglob("*")) == before


def test_force_replaces_what_an_earlier_run_wrote(here):
    assert main([*RUN, "--out", "run", "--format", "csv"]) == 0
    assert main([*RUN, "--out", "run", "--format", "csv"]) == 2
    assert main([*RUN, "--out", "run", "--format", "csv", "--seed", "1", "--force"]) == 0
    assert json.loads((here / "run" / "record.json").read_text())["run"]["seed"] == 1


POLICY = """
import time
from pacer_gym.engine.view import StepDecision

class Mine:
    def reset(self, spec, rng): pass
    def decide(self, view):
        {decide}
    def observe(self, outcome): pass
"""


def test_a_decision_that_breaks_a_rule_is_told_in_one_line_with_status_1(here, capsys):
    (here / "mine.py").write_text(POLICY.format(decide="return StepDecision(-1)"))
    assert main(["run", "mine.py", *RUN[2:], "--out", "new", "--format", "csv"]) == 1
    printed = capsys.readouterr().err
    assert "prefill_tokens" in printed
    assert printed.count("\n") == 1
    assert not (here / "new").exists()


def test_a_policy_that_fails_is_a_crash_with_its_traceback(here):
    (here / "mine.py").write_text(POLICY.format(decide="raise ValueError('a bug of mine')"))
    process = start("run", "mine.py", *RUN[2:], "--out", "new", cwd=here)
    out, err = process.communicate(timeout=120)
    assert (process.returncode, out) == (1, "")
    assert 'mine.py", line 8, in decide' in err
    assert "a bug of mine" in err
    assert not (here / "new").exists()


@pytest.mark.skipif(os.name == "nt", reason="Windows delivers no SIGINT to a child alone")
def test_an_interrupted_run_ends_with_130_and_writes_nothing(here):
    (here / "mine.py").write_text(POLICY.format(decide="print('serving', flush=True); time.sleep(60)"))
    process = start("run", "mine.py", *RUN[2:], "--out", "new", "--format", "csv", cwd=here)
    assert process.stdout.readline() == "serving\n"
    time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert err == "pacer-gym: interrupted\n"
    assert sorted(path.name for path in here.iterdir()) == ["mine.py"]


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_a_bar_appears_on_a_terminal_once_a_run_takes_its_time(monkeypatch, capsys):
    quick, patient = Terminal(), Terminal()
    monkeypatch.setattr(sys, "stderr", quick)
    assert main(RUN) == 0
    monkeypatch.setattr(sys, "stderr", patient)
    monkeypatch.setattr("pacer_gym.cli.run.BAR_AFTER_S", 0.0)
    assert main([*RUN, "--duration", "600", "--json"]) == 0
    assert "serving" not in quick.getvalue()
    assert "serving" in patient.getvalue()
    assert "serving" not in capsys.readouterr().out


def test_help_loads_no_plotting_tables_or_learning():
    code = (
        "import sys; from pacer_gym.cli import main; main(['--help']); "
        "sys.exit(bool({'pandas', 'matplotlib', 'scipy.stats', 'torch', 'pooch'} & set(sys.modules)))"
    )
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True, stdout=subprocess.DEVNULL)


def test_attainment_on_the_command_line_is_that_of_the_library(capsys):
    assert main([*RUN, "--json", "--seed", "7"]) == 0
    record = run("fixed_budget", "poisson-standard", rate_rps=2.0, horizon_s=30.0, seed=7)
    assert json.loads(capsys.readouterr().out)["attainment"] == attainment(record)
