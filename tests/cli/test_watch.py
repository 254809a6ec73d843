"""`pacer-gym watch`: where it shows what, and how it ends."""

import io
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from pacer_gym.cli import main

ROOT = Path(__file__).parents[2]
PROGRAM = "import sys; from pacer_gym.cli import main; sys.exit(main())"
WATCH = ["watch", "pacer", "--scenario", "drift-step", "--rate", "3", "--duration", "60"]
POLICY = """
from pacer_gym.engine.view import StepDecision

class Mine:
    def reset(self, spec, rng): pass
    def decide(self, view):
        {decide}
        return StepDecision(64)
    def observe(self, outcome): pass
"""

WAITING = """if view.now_s > 20.0:
            print("there", file=sys.stderr, flush=True)
            time.sleep(60)"""


class Terminal(io.StringIO):
    def isatty(self):
        return True


def put_on_terminal(monkeypatch):
    """Make stdout a terminal of 80 columns, in a test itself: pytest takes it back after fixtures."""
    for name in ("NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("LINES", "24")
    screen = Terminal()
    monkeypatch.setattr(sys, "stdout", screen)
    return screen


def test_without_a_terminal_lines_come_as_often_as_asked(capsys):
    assert main([*WATCH, "--every", "20"]) == 0
    printed = capsys.readouterr()
    lines = printed.out.splitlines()
    assert [float(one.split()[0]) // 20 for one in lines[:-1]] == [1, 2, 3]
    assert ["slowed" in one for one in lines[:-1]] == [True, False, False]
    assert lines[-1].startswith("pacer on drift-step at 3 req/s, seed 0: ")
    assert lines[-1].endswith("requests met both targets")
    assert printed.err == ""


def test_json_is_that_of_a_run_with_what_was_watched(capsys):
    assert main([*WATCH, "--json", "--seed", "2"]) == 0
    watched = json.loads(capsys.readouterr().out)
    assert main(["run", *WATCH[1:], "--json", "--seed", "2"]) == 0
    run = json.loads(capsys.readouterr().out)
    assert watched | run == watched
    assert watched.keys() - run.keys() == {"met", "missed", "bound_miss_rate", "interrupted"}
    assert watched["interrupted"] is False
    assert watched["met"] == round(run["attainment"] * run["requests"])


def test_help_shows_an_example_that_works(capsys):
    assert main(["watch", "--help"]) == 0
    example = " ".join(capsys.readouterr().out.split()).partition("Example: pacer-gym ")[2].split()
    assert example[0] == "watch"
    assert main(example) == 0


def test_a_terminal_gets_a_panel_that_ends_with_the_run(monkeypatch):
    terminal = put_on_terminal(monkeypatch)
    assert main([*WATCH, "--speed", "max"]) == 0
    text = terminal.getvalue()
    assert "Ctrl-C ends the watch" in text
    assert "finished" in text
    assert text.count("pacer on drift-step") >= 1
    assert text.splitlines()[-1].endswith("requests met both targets")


def test_json_on_a_terminal_keeps_the_panel_out_of_the_output(monkeypatch):
    terminal = put_on_terminal(monkeypatch)
    errors = Terminal()
    monkeypatch.setattr(sys, "stderr", errors)
    assert main([*WATCH, "--speed", "max", "--json"]) == 0
    assert json.loads(terminal.getvalue())["interrupted"] is False
    assert "step time" in errors.getvalue()


def test_a_dumb_terminal_gets_lines(monkeypatch):
    terminal = put_on_terminal(monkeypatch)
    monkeypatch.setenv("TERM", "dumb")
    assert main([*WATCH, "--every", "30", "--speed", "max"]) == 0
    assert "─" not in terminal.getvalue()
    assert "decodes" in terminal.getvalue()


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["watch"], "Missing argument 'policy'"),
        (["watch", "pacer"], "--scenario NAME, or --trace FILE.csv"),
        ([*WATCH, "--speed", "0"], "--speed must be a positive number or max, got '0'"),
        ([*WATCH, "--speed", "-1"], "--speed must be a positive number or max, got '-1'"),
        ([*WATCH, "--speed", "fast"], "--speed must be a positive number or max, got 'fast'"),
        ([*WATCH, "--speed", "nan"], "--speed must be a positive number or max, got 'nan'"),
        ([*WATCH, "--speed", "inf"], "--speed must be a positive number or max, got 'inf'"),
        ([*WATCH, "--every", "0"], "--every must be a positive"),
        ([*WATCH, "--every", "nan"], "--every must be a positive"),
        ([*WATCH, "--engine", "vllm", "--speed", "2"], "serves in real time; leave --speed out"),
        ([*WATCH, "--engine", "gpu"], "engine must be one of simulator, vllm, got 'gpu'"),
        ([*WATCH, "--drift", "sideways"], "--drift must be one of"),
        ([*WATCH, "--rate", "-1"], "--rate must be a finite"),
        ([*WATCH, "--warmup", "60"], "--warmup must be at least 0 and below --duration=60.0"),
        ([*WATCH, "--set", "alpha=2"], "alpha"),
        (["watch", "pacr", *WATCH[2:]], "did you mean 'pacer'?"),
        (["watch", "pacer", "--scenario", "drift-stop"], "did you mean 'drift-step'?"),
    ],
)
def test_a_mistake_is_told_in_one_line(words, told, capsys):
    assert main(words) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert told in printed.err
    assert printed.err.startswith("pacer-gym: ")
    assert printed.err.count("\n") == 1


def start(*words, cwd):
    """Start the command in a process of its own, its output in pipes."""
    return subprocess.Popen(
        [sys.executable, "-c", PROGRAM, *words],
        cwd=cwd,
        env=os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.mark.skipif(os.name == "nt", reason="Windows delivers no SIGINT to a child alone")
@pytest.mark.parametrize("as_json", [False, True])
def test_an_interrupted_watch_tells_what_is_known_and_ends_with_130(tmp_path, as_json):
    (tmp_path / "mine.py").write_text("import sys, time" + POLICY.format(decide=WAITING))
    words = ["watch", "mine.py", *WATCH[2:], "--every", "15", *(["--json"] if as_json else [])]
    process = start(*words, cwd=tmp_path)
    assert process.stderr.readline() == "there\n"
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (130, "pacer-gym: interrupted\n")
    if as_json:
        told = json.loads(out)
        assert told["interrupted"] is True
        assert told["end_s"] > 20.0
        assert told["attainment"] == told["met"] / (told["met"] + told["missed"])
    else:
        first, last = out.splitlines()
        assert first.startswith(("   15.0 s", "   15.1 s"))
        assert "mine.py:Mine on drift-step at 3 req/s, seed 0, stopped at 20." in last


def test_a_policy_that_fails_is_a_crash_and_no_mistake(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text(POLICY.format(decide="raise ValueError('a bug of mine')"))
    with pytest.raises(ValueError, match="a bug of mine"):
        main(["watch", "mine.py", *WATCH[2:]])


def test_a_decision_that_breaks_a_rule_is_told_in_one_line(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text(POLICY.format(decide="return StepDecision(-1)"))
    assert main(["watch", "mine.py", *WATCH[2:]]) == 1
    assert "prefill_tokens" in capsys.readouterr().err


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="only some systems have a full device")
def test_output_that_cannot_be_written_is_no_failed_run(tmp_path):
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM, *WATCH, "--every", "10"],
            cwd=tmp_path,
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            env=os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])},
        )
    assert done.returncode == 1
    assert done.stderr == "pacer-gym: the output could not be written: No space left on device\n"
