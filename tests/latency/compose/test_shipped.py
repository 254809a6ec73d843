"""The GPU profiles that are shipped serve, tell what they are, and come out the same when composed again."""

import importlib.util
import json
import shlex
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import pacer_gym as pg
from pacer_gym.latency.profiles import load_profile, profile_names

COMPOSED = [name for name in profile_names() if "tp" in load_profile(name).provenance]


def test_four_gpus_are_shipped():
    assert {name.partition("-")[0] for name in COMPOSED} == {"a100", "h100", "h100x4", "h200", "l40s"}


@pytest.mark.parametrize("name", COMPOSED)
def test_a_shipped_profile_serves_requests_the_same_every_time(name):
    workload = pg.Workload([0.0, 0.1, 0.2], [500, 2000, 100], [20, 10, 30]).with_slo(pg.SLO(5.0, 0.2))
    first, again = (pg.run("fixed_budget", workload=workload, profile=name, seed=0) for _ in range(2))
    assert pg.attainment(first) == 1.0
    assert first.requests.equals(again.requests)


@pytest.mark.parametrize("name", COMPOSED)
def test_a_shipped_profile_tells_its_overhead_and_what_was_extrapolated(name):
    profile = load_profile(name)
    told = profile.provenance
    assert told["host_overhead_s"] >= 0.0
    assert ("--extrapolate" in told["command"]) == bool(told["extrapolated"])
    assert told["fit_error_percent"]["offline_fit_on_calibration_steps"] < 8.0
    assert len(profile.to_json()) < 40_000


def test_the_truth_of_a_gpu_and_its_offline_fit_share_no_number():
    for name in COMPOSED:
        profile = load_profile(name)
        truth = {*profile.truth.knot_s, *profile.truth.coefficients, *profile.truth.decode_attention.ravel()}
        assert not (truth - {0.0, 1.0}) & {*profile.coefficients}


def test_a_faster_gpu_has_faster_steps():
    knot = 1024.0
    times = {
        name: float(np.interp(knot, load_profile(name).truth.knot_tokens, load_profile(name).truth.knot_s))
        for name in COMPOSED
        if name.endswith("8b-bf16")
    }
    order = ["l40s", "a100", "h100"]
    assert sorted(order, key=lambda gpu: -times[f"{gpu}-llama-3.1-8b-bf16"]) == order


@pytest.mark.skipif(
    importlib.util.find_spec("aiconfigurator_core") is None, reason="the extra gpu is not installed"
)
@pytest.mark.parametrize("name", COMPOSED)
def test_composing_again_gives_the_same_bytes(name, tmp_path, monkeypatch):
    from pacer_gym.cli import main

    profile = load_profile(name)
    monkeypatch.chdir(tmp_path)
    words = shlex.split(profile.provenance["command"])[1:]
    assert (
        main([*words[: words.index("--out")], *words[words.index("--out") + 2 :], "--out", "again.json"]) == 0
    )
    again = load_profile(Path("again.json"))
    command = {"command": profile.provenance["command"]}
    again = replace(again, name=name, provenance={**again.provenance, **command})
    assert json.loads(again.to_json()) == json.loads(profile.to_json())
