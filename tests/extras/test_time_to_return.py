"""rejax as a peer of `benchmarks/time_to_return.py`."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "time_to_return.py"


@pytest.mark.parametrize(("env", "target"), [("cartpole-discrete", 40), ("pendulum", -1150)])
def test_rejax_beats_random_play(env, target):
    pytest.importorskip("rejax")
    command = [sys.executable, str(SCRIPT), env, "--base", "--preset sound", "--peer", "rejax"]
    command += [f"--target={target}", "--seeds=1"]
    env_vars = {**os.environ, "JAX_NUMPY_RANK_PROMOTION": "allow", "JAX_DEBUG_KEY_REUSE": "false"}  # as it expects
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, env=env_vars)
    assert done.returncode == 0, done.stderr
    default, rejax = (line.split() for line in done.stdout.splitlines()[-2:])
    assert (default[-1], rejax[-1]) == ("default", "rejax")
    assert 0 < float(rejax[0]) < 60
