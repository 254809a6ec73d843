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
from pacer_gym.workloads.scenarios import TYPICAL_RPS, scenario_names

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


@pytest.mark.parametrize("command", ["policies", "scenarios", "profiles"])
def test_a_narrow_terminal_cuts_no_name(command, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    assert main([command]) == 0
    table = capsys.readouterr().out
    assert main([command, "--json"]) == 0
    assert all(row["name"] in table for row in json.loads(capsys.readouterr().out))


def test_the_scenarios_are_those_of_the_suite_with_a_rate_to_start_with(capsys):
    main(["scenarios", "--json"])
    rows = json.loads(capsys.readouterr().out)
    assert [row["name"] for row in rows] == list(scenario_names())
    assert {row["name"]: row["typical_rps"] for row in rows} == TYPICAL_RPS["cpu"]


def test_policies_are_listed_with_their_settings(capsys):
    main(["policies"])
    assert "budget_tokens=128" in capsys.readouterr().out
    main(["policies", "--json"])
    settings = {row["name"]: row["settings"] for row in json.loads(capsys.readouterr().out)}
    assert settings["fixed_budget"] == {"budget_tokens": 128}
    assert settings["vllm_default"] == {}


def test_without_a_rate_the_scenarios_typical_one_is_taken_and_named(capsys):
    words = ["run", "fixed_budget", "--scenario", "drift-step", "--duration", "20"]
    assert main([*words, "--json"]) == 0
    typical_rps = TYPICAL_RPS["cpu"]["drift-step"]
    assert json.loads(capsys.readouterr().out)["rate_rps"] == typical_rps
    assert main(words) == 0
    assert capsys.readouterr().out.startswith(f"no --rate given: {typical_rps:g} req/s")
    assert main([*words, "--rate", str(typical_rps)]) == 0
    assert "no --rate" not in capsys.readouterr().out


def test_the_report_says_how_the_run_ended_and_counts_for_people(here, capsys):
    (here / "mine.csv").write_text(TRACE)
    assert main(["run", "srpf", "--trace", "mine.csv", "--slo", "2:0.1"]) == 0
    told = capsys.readouterr().out
    assert "arrivals from 0 s to 3 s; the last request finished at 2.0 s" in told
    assert "33.3 % of requests" in told
    assert "100.0 % (TTFT" in told
    assert "30 tokens " in told
    assert "30 to 30" not in told


@pytest.mark.parametrize("installed", [True, False])
def test_tables_are_parquet_only_where_pyarrow_is_installed(installed, here, monkeypatch):
    if installed:
        pytest.importorskip("pyarrow")
    else:
        monkeypatch.setitem(sys.modules, "pyarrow", None)
    assert main([*RUN, "--out", "new"]) == 0
    assert {path.suffix for path in (here / "new").iterdir()} == {
        ".json",
        ".parquet" if installed else ".csv",
    }


@pytest.mark.skipif(
    not Path("/dev/full").exists(), reason="only some systems have a device that is always full"
)
@pytest.mark.parametrize("words", [["policies"], ["policies", "--json"], ["--help"], ["--version"], RUN])
@pytest.mark.parametrize("buffered", ["", "1"])
def test_output_that_cannot_be_written_is_told_in_one_line(words, buffered, here):
    code = "import sys; from pacer_gym.cli import main; sys.exit(main())"
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-c", code, *words],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            env=os.environ | {"PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": buffered},
        )
    assert done.returncode == 1
    assert done.stderr == "pacer-gym: the output could not be written: No space left on device\n"


def test_a_policy_that_cannot_open_its_file_is_a_crash_and_no_lost_output(here):
    (here / "mine.py").write_text(POLICY.format(decide="open('absent.txt')"))
    with pytest.raises(RuntimeError, match=r"the run failed: .*absent\.txt"):
        main(["run", "mine.py", *RUN[2:]])


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


def test_the_package_runs_as_a_module():
    told = subprocess.run([sys.executable, "-m", "pacer_gym", "run"], capture_output=True, text=True)
    assert told.returncode == 2
    assert told.stderr.startswith("pacer-gym: ")


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ([], "name a command"),
        (["fly"], "No such command 'fly'"),
        (["run"], "Missing argument"),
        (["run", "fixed_budget"], "--scenario NAME, or --trace FILE.csv"),
        (["run", "fixed_budget", "--scenario", "bursty", "--rate", "fast"], "as a number, got 'fast'. See"),
        (["run", "fixed_budget", "--scenario", "bursty", "--rate=fast"], "as a number, got 'fast'. See"),
        (["run", "fixed_budget", "--scenario", "bursty", "--rate", "-1"], "--rate must be a finite"),
        (["run", "fixed_budget", "--scenario", "brusty", "--rate", "1"], "(did you mean 'bursty'?)"),
        ([*RUN, "--duration", "0"], "--duration must be a positive"),
        (["run", "srpf", "--scenario", "tiers", "--slo", "2:0.1"], "leave --slo out"),
        (["run", "fixed_bugdet", *RUN[2:]], "did you mean 'fixed_budget'?"),
        (["run", "absent.py", *RUN[2:]], "no policy file absent.py"),
        ([*RUN, "--colour", "red"], "No such option"),
        ([*RUN, "--seed", "-1"], "seed must be"),
        ([*RUN, "--warmup", "30"], "--warmup must be at least 0 and below --duration=30.0"),
        ([*RUN, "--track", "tpu"], "no track 'tpu'"),
        ([*RUN, "--drift", "sideways"], "--drift must be one of none, step, ramp, periodic, cotenant, got"),
        ([*RUN, "--profile", "tpu"], "no profile 'tpu'"),
        ([*RUN, "--profile", "cpu-smollm2"], "(did you mean 'cpu-smollm2-135m'?)"),
        ([*RUN, "--slo", "2"], "--slo must be TTFT:TPOT"),
        ([*RUN, "--slo", "2:0"], "--slo 2:0: tpot_s must be a positive"),
        ([*RUN, "--set", "budget_tokens"], "--set must be key=value"),
        ([*RUN, "--set", "budget=64"], "no setting 'budget'"),
        ([*RUN, "--set", "budget_tokens=many"], "budget_tokens"),
        ([*RUN, "--set", "budget_tokens=True"], "whole number of tokens, got True"),
        ([*RUN, "--set", "budget_tokens=64", "--set", "budget_tokens=32"], "budget_tokens twice"),
        ([*RUN, "--rate", "1e-320"], "no request of poisson-standard arrives"),
        ([*RUN, "--drift", "cotenant", "--rate", "1e-6", "--duration", "1e7"], "lasts 1,000,000 s at most"),
        (["run", "srpf", "--trace", "late.csv", "--slo", "2:0.1", "--drift", "periodic"], "lower --duration"),
        (["run", "deaf.py", *RUN[2:]], "decide() must take view, as in def decide(self, view)"),
        ([*RUN, "--trace", "trace.csv"], "either"),
        (["run", "srpf", "--trace", "trace.csv"], "holds no latency targets: give --slo"),
        (["run", "srpf", "--trace", "trace.csv", "--slo", "2:0.1", "--track", "tpu"], "no track 'tpu'"),
        (["run", "srpf", "--trace", "absent.csv", "--slo", "2:0.1"], "absent.csv"),
        (["run", "srpf", "--trace", "bad.csv", "--slo", "2:0.1"], "bad.csv"),
        ([*RUN, "--plot", "run.xyz"], "must end in one of"),
        ([*RUN, "--plot", "trace.csv/run.png"], "trace.csv is a file"),
        ([*RUN, "--plot", "run.pgf"], "must end in one of"),
        ([*RUN, "--format", "xlsx"], "parquet, csv"),
        ([*RUN, "--out", "new", "--format", "xlsx"], "parquet, csv"),
        ([*RUN, "--out", "taken", "--format", "csv"], "taken exists"),
        ([*RUN, "--out", "taken", "--format", "csv", "--force"], "holds no record.json"),
        ([*RUN, "--out", "trace.csv/new", "--format", "csv"], "trace.csv is a file"),
        ([*RUN, "--out", "trace.csv", "--format", "csv", "--force"], "trace.csv is a file; name a folder"),
        ([*RUN, "--out", "new/..", "--format", "csv", "--force"], "holds no record.json"),
    ],
)
def test_a_mistake_is_told_in_one_line_and_leaves_nothing_behind(words, told, here, capsys):
    if "--plot" in words:
        pytest.importorskip("matplotlib")
    (here / "trace.csv").write_text(TRACE)
    (here / "bad.csv").write_text(TRACE + "3.0,-5,1\n")
    (here / "late.csv").write_text(TRACE + "1e9,60,1\n")
    (here / "deaf.py").write_text(POLICY.format(decide="pass").replace("self, view", "self"))
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


def test_a_policy_that_ends_the_program_is_a_crash_too(here, capsys):
    (here / "mine.py").write_text(POLICY.format(decide="raise SystemExit(0)"))
    with pytest.raises(RuntimeError, match=r"ended the program, with SystemExit\(0\)"):
        main(["run", "mine.py", *RUN[2:], "--json"])
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize("table_format", ["parquet", "csv"])
def test_a_full_disk_is_told_with_the_path_and_leaves_nothing(here, capsys, table_format):
    resource = pytest.importorskip("resource", reason="limits the size of files, which Windows cannot")
    if table_format == "parquet":
        pytest.importorskip("pyarrow")
    assert main([*RUN, "--json"]) == 0  # compiles the engine, whose cache needs room too
    capsys.readouterr()
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2000, hard))
    try:
        status = main([*RUN, "--out", "new", "--format", table_format])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    printed = capsys.readouterr()
    assert (status, printed.out) == (2, "")
    assert printed.err == "pacer-gym: new could not be written: File too large; choose another path\n"
    assert list(here.iterdir()) == []


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
    (here / "mine.py").write_text(
        POLICY.format(decide="print('serving', flush=True); [time.sleep(0.05) for _ in range(1200)]")
    )
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
    monkeypatch.setattr("pacer_gym.cli.common.BAR_AFTER_S", 0.0)
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
