"""`pacer-gym watch` on a live vLLM tells what a run of it records."""

import json
from dataclasses import replace

import pytest

pytest.importorskip("vllm", reason='vLLM is not installed: pip install "pacer-gym[live]"')

from pacer_gym.cli import main
from pacer_gym.scoring.metrics import attainment
from pacer_gym.scoring.rollout import prepare
from pacer_gym.scoring.watching import RunSoFar, Watched
from pacer_gym.workloads.slo import SLO
from tests.live.tiny_model import TINY_LLAMA, tiny_profile, tiny_server, tiny_workload, write_model_folder

pytestmark = pytest.mark.live


@pytest.mark.parametrize("slo", [SLO(60.0, 60.0), SLO(0.05, 0.01)])
def test_what_is_told_on_the_way_is_what_the_record_says(slo, tmp_path):
    with tiny_server(tmp_path) as server:
        ready = prepare(
            "pacer",
            workload=tiny_workload(40, seconds=1.0, slo=slo),
            profile=tiny_profile(),
            engine="vllm",
            model=server,
        )
        so_far = RunSoFar(ready)
        record = replace(ready, policy=Watched(ready.policy, so_far, lambda: None, rehearsals=1)).run()
    told = so_far.verdicts.met, so_far.verdicts.missed
    so_far.close(record)
    assert so_far.num_steps == record.num_steps  # and nothing of the rehearsal
    assert so_far.bound.scored == record.num_steps
    assert so_far.verdicts.attainment == attainment(record)
    # Only who finished with the last step is still missing.
    assert 35 <= sum(told) <= so_far.verdicts.met + so_far.verdicts.missed == 40


def test_the_command_serves_and_tells(tmp_path, capsys):
    folder = write_model_folder(tmp_path / "model", TINY_LLAMA)
    profile = tmp_path / "tiny.json"
    profile.write_text(replace(tiny_profile(), name="tiny").to_json())
    rows = "\n".join(f"{0.1 * k},{20 + k},5" for k in range(20))
    (tmp_path / "trace.csv").write_text(f"arrival_s,prompt_tokens,output_tokens\n{rows}\n")
    words = ["--trace", str(tmp_path / "trace.csv"), "--slo", "60:60", "--profile", str(profile)]
    words += ["--engine", "vllm", "--model", str(folder)]
    assert main(["watch", "pacer", *words, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["engine"], told["interrupted"], told["met"], told["missed"]) == ("vllm", False, 20, 0)
