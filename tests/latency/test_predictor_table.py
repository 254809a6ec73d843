"""The table of predictors can be made from any steps file, and says how it was made."""

import json
import runpy
import sys
from pathlib import Path

import pytest

from tests.latency.made_steps import CONFIG, write_steps

SCRIPT = Path(__file__).parents[2] / "scripts" / "table_predictors.py"


@pytest.fixture(scope="module")
def main():
    return runpy.run_path(str(SCRIPT))["main"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("steps")
    write_steps(folder / "steps.csv", 500)
    (folder / "config.json").write_text(json.dumps(CONFIG))
    return folder


def test_the_table_ranks_the_model_that_made_the_steps_first(main, folder, tmp_path):
    out = tmp_path / "results" / "table"
    assert main(["--steps", str(folder / "steps.csv"), "--out", str(out), "--repeats", "2"]) == 0
    result = json.loads(out.with_suffix(".json").read_text())
    errors = result["errors_percent"]
    assert len(errors) == 6
    for by_split in errors.values():
        assert len(by_split["random"]) == len(by_split["extrapolating"]) == 2
    linear = max(errors["physics-shaped linear"]["extrapolating"])
    assert linear < 5.0 < min(errors["gradient-boosted trees"]["extrapolating"])
    assert result["num_steps"] == 450
    provenance = result["provenance"]
    assert provenance["steps_file"] == "steps.csv"
    page = out.with_suffix(".md").read_text()
    for text in (
        "| roofline + 2 scalars |",
        "| 50.2 |",
        "seed: 0",
        provenance["cpu"],
        provenance["steps_sha256"],
    ):
        assert text in page
    assert str(tmp_path) not in page + json.dumps(result)


def test_the_same_seed_gives_the_same_errors(main, folder, tmp_path):
    texts = []
    for name in ("a", "b"):
        main(["--steps", str(folder / "steps.csv"), "--out", str(tmp_path / name), "--repeats", "2"])
        texts.append(json.loads((tmp_path / name).with_suffix(".json").read_text())["errors_percent"])
    assert texts[0] == texts[1]


def test_steps_it_cannot_use_end_it_with_a_reason(main, folder, tmp_path, monkeypatch, capsys):
    steps = str(folder / "steps.csv")
    assert main(["--steps", steps, "--out", str(tmp_path / "x"), "--border", "100000"]) == 1
    assert "error: only 0 steps have more than 100000 tokens; lower --border" in capsys.readouterr().err
    for option, value, reason in (
        ("--border", "0", "only 0 steps have at most 0 tokens; raise --border"),
        ("--warmup", "480", "only 20 steps are left without the first 480"),
    ):
        assert main(["--steps", steps, "--out", str(tmp_path / "x"), option, value]) == 1
        assert reason in capsys.readouterr().err
    with monkeypatch.context() as without:
        without.setitem(sys.modules, "sklearn.ensemble", None)
        assert main(["--steps", steps, "--out", str(tmp_path / "x")]) == 1
    assert (
        'error: growing trees needs scikit-learn: pip install "pacer-gym[trees]"' in capsys.readouterr().err
    )
    assert main(["--steps", str(folder / "none.csv"), "--out", str(tmp_path / "x")]) == 1
    assert "no steps file at" in capsys.readouterr().err
    monkeypatch.delenv("PACER_GYM_DATA", raising=False)
    for wrong in ([], ["--repeats", "1", "--steps", steps], ["--warmup", "-1", "--steps", steps]):
        with pytest.raises(SystemExit) as stopped:
            main(wrong)
        assert stopped.value.code == 2
    assert list(tmp_path.iterdir()) == []
