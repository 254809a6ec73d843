"""A policy in a process of its own decides as it would in this one, and cannot do more than decide."""

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from pacer_gym.engine import Simulator
from pacer_gym.engine.view import StepDecision
from pacer_gym.latency.profiles import load_profile, profile_names
from pacer_gym.leaderboard import messages
from pacer_gym.leaderboard.isolation import Limits, Nursery, PolicyFailed, isolated
from pacer_gym.leaderboard.lockdown import missing_fences
from pacer_gym.leaderboard.reset_message import decode_reset, encode_reset
from pacer_gym.workloads.scenarios import load_scenario
from pacer_gym.workloads.streams import spawn_streams
from tests.leaderboard.far_policies import POLICY, failure, serve, write

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.skipif("process" in missing_fences(), reason="no process to isolate a policy in")


@pytest.fixture(scope="module")
def nursery():
    with Nursery() as nursery:
        yield nursery


@pytest.mark.parametrize("name", ["pacer", "random_budget", "deadline_order", "qoserve"])
def test_apart_and_together_give_the_same_requests_to_the_last_bit(nursery, name):
    together = serve(name, drift="step")
    with nursery.policy(name) as policy:
        apart = serve(policy, drift="step")
        again = serve(policy, drift="step")
    for other in (apart, again):
        for column, values in together.request_columns.items():
            np.testing.assert_array_equal(values, other.request_columns[column])


def test_a_generator_travels_with_its_state_and_its_children():
    rng = spawn_streams(7).policy
    rng.random(3)
    rng.spawn(1)
    spec = Simulator(
        load_scenario("tiers").workload(rate_rps=2.0, seed=1, horizon_s=20.0),
        load_profile(profile_names()[0]),
        streams=spawn_streams(1),
    ).spec
    told, twin = decode_reset(encode_reset(spec, rng))
    assert twin.random() == rng.random()
    assert twin.spawn(1)[0].random() == rng.spawn(1)[0].random()
    assert (told.limits, told.slo, told.model, told.profile_name) == (
        spec.limits,
        spec.slo,
        spec.model,
        spec.profile_name,
    )
    np.testing.assert_array_equal(told.coefficients, spec.coefficients)
    np.testing.assert_array_equal(told.calibration_ratios, spec.calibration_ratios)


def test_a_view_and_an_outcome_travel_to_the_last_bit():
    workload = load_scenario("tiers").workload(rate_rps=8.0, seed=1, horizon_s=20.0)
    engine = Simulator(workload, load_profile(profile_names()[0]), streams=spawn_streams(1))
    for _ in range(200):
        if not engine.has_work:
            break
        view = engine.view()
        outcome = engine.step(StepDecision(48))
        data = messages.encode_outcome(outcome) + messages.encode_view(view)
        told, offset = messages.decode_outcome(data, 0)
        seen = messages.decode_view(data, offset, view.limits)
        for one, other in ((outcome, told), (view, seen)):
            for name in one._fields:
                np.testing.assert_array_equal(getattr(one, name), getattr(other, name))
                assert type(getattr(one, name)) is type(getattr(other, name))
        assert not seen.prompt_ids.flags.writeable


@pytest.mark.parametrize("data", [b"", b"x" * 15, b"x" * 17, np.array([5, 3, 0, 1, 2]).tobytes()])
def test_bytes_that_are_no_decision_are_refused(data):
    with pytest.raises(messages.MessageError):
        messages.decode_decision(data, num_prompts=2)


def test_what_a_policy_raises_is_told_with_its_name(nursery, tmp_path):
    told = failure(nursery, write(tmp_path, 'raise KeyError("\\x1b[31mno\\nsuch thing")'))
    assert told.startswith("KeyError:")
    assert told.isprintable()


@pytest.mark.parametrize(
    ("decide", "told"),
    [
        ("sys.exit(0)", "SystemExit"),
        ("os._exit(3)", "the process ended itself with status 3"),
        ("os.abort()", "SIGABRT"),
        ("return None", "a decision must be"),
        ("return StepDecision(-1)", "prefill_tokens must be"),
        ("return StepDecision(1, [0, 0, 0])", "each at most once"),
        ("self.decide(view)", "RecursionError"),
        ("os.write(11, b'x' * 100); time.sleep(60)", "what only the worker may"),
        ("os.close(11)", "OSError|ended"),
    ],
)
def test_a_policy_that_ends_or_answers_nonsense_fails_alone(nursery, tmp_path, decide, told):
    found = failure(nursery, write(tmp_path, decide), Limits(decision_s=5.0, start_s=5.0))
    assert re.search(told, found), found
    with nursery.policy("fixed_budget") as policy:
        assert serve(policy).num_steps > 0


def test_time_runs_out_for_one_decision_and_for_all(nursery, tmp_path):
    forever = "while True: pass"
    told = failure(nursery, write(tmp_path, forever), Limits(start_s=1.0))
    assert told == "it took more than 1 s for an answer"
    told = failure(nursery, write(tmp_path, "time.sleep(0.02)"), Limits(total_s=0.5))
    assert told == "it took more than 0.5 s in all"
    told = failure(nursery, write(tmp_path, forever), Limits(start_s=60.0, total_s=1.0))
    assert told in ("it used more than 1 s of processor time", "it took more than 1 s in all")


def test_memory_runs_out_for_the_policy_alone(nursery, tmp_path):
    for taken in ("bytearray(3 * 2**30)", "__import__('mmap').mmap(-1, 4 * 2**30)"):
        told = failure(nursery, write(tmp_path, f"self.kept = {taken}"), Limits(memory_bytes=2**30))
        assert re.match("MemoryError|OSError", told), told


def test_what_a_policy_prints_goes_nowhere(nursery, tmp_path, capfd):
    with nursery.policy(write(tmp_path, "print('hello'); print('there', file=sys.stderr)")) as policy:
        assert serve(policy).num_steps > 0
    assert capfd.readouterr() == ("", "")


def test_kernels_of_its_own_file_are_compiled_though_nothing_can_be_written(nursery, tmp_path):
    source = "import numba\n\n@numba.jit(nopython=True, cache=True)\ndef half(x):\n    return x // 2\n\n"
    reference = write(tmp_path, source=source + POLICY.replace("{decide}", "return StepDecision(half(64))"))
    with nursery.policy(reference) as policy:
        assert serve(policy).num_steps > 0


def test_a_policy_that_asks_for_the_simulator_is_not_let_in(nursery):
    with pytest.raises(PolicyFailed, match="not ranked"), nursery.policy("oracle"):
        pass


def test_settings_reach_the_constructor_and_wrong_ones_are_told(tmp_path):
    with isolated(write(tmp_path), {"budget_tokens": 1}) as policy:
        assert serve(policy).num_steps > serve(write(tmp_path)).num_steps
    with (
        pytest.raises(PolicyFailed, match="did you mean 'budget_tokens'"),
        isolated(write(tmp_path), {"budget": 1}),
    ):
        pass


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux ends a process with its parent")
def test_killing_the_verifier_leaves_no_process_behind(tmp_path):
    reference = write(tmp_path, "time.sleep(3600) if view.now_s > 1.0 else None")
    code = (
        "import sys\nimport pacer_gym as pg\nfrom pacer_gym.leaderboard.isolation import Nursery\n"
        "with Nursery() as nursery, nursery.policy(sys.argv[1]) as policy:\n"
        "    print(*nursery.processes, flush=True)\n"
        "    pg.run(policy, 'poisson-standard', rate_rps=3.0, horizon_s=60.0)"
    )
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    verifier = subprocess.Popen(
        [sys.executable, "-c", code, reference], stdout=subprocess.PIPE, text=True, env=environment
    )
    assert verifier.stdout is not None
    children = [int(word) for word in verifier.stdout.readline().split()]
    assert len(children) == 2
    assert all(Path(f"/proc/{child}").exists() for child in children)
    verifier.send_signal(signal.SIGKILL)
    verifier.communicate()
    for _ in range(600):
        if not any(is_alive(child) for child in children):
            return
        time.sleep(0.1)
    pytest.fail(f"{children} outlived the verifier")


def is_alive(process: int) -> bool:
    try:
        status = Path(f"/proc/{process}/stat").read_text()
    except OSError:
        return False
    return status.rpartition(")")[2].split()[0] != "Z"
