"""The decoder whose steps are timed computes what a decoder computes, and its steps become a log."""

import runpy
import sys
from pathlib import Path

import pytest

from pacer_gym.latency.model_shape import ModelShape
from pacer_gym.live.log_header import read_about
from pacer_gym.live.step_log import read_step_log
from tests.latency.compose.made_gpu import write_config

torch = pytest.importorskip("torch")

SCRIPTS = Path(__file__).parents[2] / "scripts"
SHAPE = ModelShape(
    layers=2, heads=4, kv_heads=2, head_size=16, hidden=64, intermediate=96, vocabulary=50, bytes_per_value=2
)


@pytest.fixture(autouse=True)
def one_thread():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def decoders():
    """The module of the decoder, as the script imports it."""
    sys.path.insert(0, str(SCRIPTS))
    import torch_decoder

    yield torch_decoder
    sys.path.remove(str(SCRIPTS))


@pytest.fixture
def decoder(decoders):
    return decoders.Decoder(SHAPE, torch.device("cpu"), torch.float32, cache_tokens=64)


def sampled(decoder, step):
    return decoder.prepare(step)().tolist()


def test_a_prompt_in_two_chunks_samples_what_it_samples_in_one(decoders, decoder):
    whole = sampled(decoder, decoders.Step(decodes=0, context=0, tokens=24, prior=0))
    decoder.cache.zero_()
    for prior, tokens in ((0, 9), (9, 15)):
        last = sampled(decoder, decoders.Step(decodes=0, context=0, tokens=tokens, prior=prior))
    assert last == whole


def test_a_decode_after_a_prompt_samples_what_a_longer_prompt_samples(decoders, decoder):
    longer = sampled(decoder, decoders.Step(decodes=0, context=0, tokens=13, prior=0))
    decoder.cache.zero_()
    sampled(decoder, decoders.Step(decodes=0, context=0, tokens=12, prior=0))
    assert sampled(decoder, decoders.Step(decodes=1, context=12, tokens=0, prior=0)) == longer


def test_decodes_and_a_prompt_of_one_step_do_not_meet(decoders, decoder):
    alone = sampled(decoder, decoders.Step(decodes=0, context=0, tokens=20, prior=0))
    decoder.cache.zero_()
    both = sampled(decoder, decoders.Step(decodes=2, context=5, tokens=20, prior=0))
    assert len(both) == 3
    assert both[-1:] == alone
    assert both[0] == both[1]


def test_a_tiny_grid_is_measured_into_a_log_that_calibration_reads(tmp_path, monkeypatch, capsys):
    monkeypatch.syspath_prepend(str(SCRIPTS))
    main = runpy.run_path(str(SCRIPTS / "measure_gpu.py"))["main"]
    out = tmp_path / "steps.csv"
    config = write_config(tmp_path / "tiny.json", hidden_size=64, intermediate_size=96, head_dim=16)
    words = f"--model {config} --out {out} --device cpu --repeats 2 --warmup 1 --kv-gib 0.001".split()
    grid = ["--decodes", "0", "1", "3", "--contexts", "8", "16", "--chunks", "0", "4", "--prior", "0", "8"]
    assert main([*words, *grid]) == 0
    steps = read_step_log(out)
    # A chunk with and without context alone; 2 x 2 batches of decodes, each alone and beside either chunk.
    assert len(steps) == 2 + 4 * 3
    assert sorted(set(steps.decode_kv_tokens.tolist())) == [0, 9, 17, 27, 51]
    assert steps.context_tokens.max() == 8
    engine, runs = read_about(out)
    assert engine.model.hidden == 64
    assert engine.engine.startswith(f"torch {torch.__version__}, eager")
    assert len(runs) == 1
    assert main([*words, *grid]) == 1
    assert str(out) in capsys.readouterr().err


def test_a_grid_that_does_not_fit_and_a_missing_gpu_are_told(tmp_path, monkeypatch, capsys):
    monkeypatch.syspath_prepend(str(SCRIPTS))
    main = runpy.run_path(str(SCRIPTS / "measure_gpu.py"))["main"]
    words = ["--model", write_config(tmp_path / "tiny.json"), "--out", str(tmp_path / "steps.csv")]
    assert main([*words, "--device", "cpu", "--kv-gib", "0.0001", "--decodes", "99", "--chunks", "0"]) == 1
    assert "no step of this grid fits" in capsys.readouterr().err
    if not torch.cuda.is_available():
        assert main(words) == 1
        assert "no CUDA GPU is present" in capsys.readouterr().err
