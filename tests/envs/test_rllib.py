"""The RLlib example runs where RLlib is installed."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def test_the_example_trains():
    pytest.importorskip("ray.rllib", reason="needs ray[rllib]", exc_type=ImportError)
    program = [sys.executable, "examples/rllib_ppo.py", "--iterations", "1", "--batch", "64"]
    done = subprocess.run(program, cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-2000:]
    assert "return" in done.stdout
