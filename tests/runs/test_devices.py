"""Several devices: the same numbers whatever their count, less work for each, and refusals that name the fix."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hmx.errors import HmxError
from hmx.runs.devices import make_mesh

PROBE = Path(__file__).with_name("devices_probe.py")


def probe(case: str, *counts: int) -> dict[int, dict[str, Any]]:
    flags = f"--xla_force_host_platform_device_count={max(counts)}"
    env = {
        **os.environ,
        "XLA_FLAGS": f"{os.environ.get('XLA_FLAGS', '')} {flags}",
        "PYTHONPATH": str(Path(__file__).parents[2]),
    }
    command = [sys.executable, str(PROBE), case, *map(str, counts)]
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return {int(count): found for count, found in json.loads(done.stdout).items()}


@pytest.mark.parametrize(
    ("case", "counts"),
    [
        ("plain", (1, 8)),
        pytest.param("memory", (1, 4), marks=pytest.mark.thorough),
        pytest.param("hackmatrix", (1, 2), marks=pytest.mark.thorough),
    ],
)
def test_training_is_the_same_on_any_number_of_devices(case: str, counts: tuple[int, ...]) -> None:
    found = probe(case, *counts)
    one = found[1]
    assert one["collectives"] == 0
    for count in counts[1:]:
        many = found[count]
        assert many["spread"] == str(count), "every device holds environments of its own"
        assert many["collectives"] > 0
        assert many["flops"] < 0.75 * one["flops"], "no device does the work of all"
        np.testing.assert_allclose(many["values"], one["values"], rtol=1e-5, atol=1e-5)
        assert many["leaves"].keys() == one["leaves"].keys()
        for name, leaf in one["leaves"].items():
            np.testing.assert_allclose(many["leaves"][name], leaf, rtol=1e-5, atol=1e-5, err_msg=name)


def test_one_device_needs_no_mesh() -> None:
    assert make_mesh(1, 512) is None
    assert make_mesh(0, 512) is None  # all of them, which is one


def test_more_devices_than_available_are_refused() -> None:
    with pytest.raises(HmxError, match=r"run\.devices = 3: only 1 available") as caught:
        make_mesh(3, 512)
    assert "--devices 1; to try 3 devices" in caught.value.hint
    assert "xla_force_host_platform_device_count=3" in caught.value.hint


def test_environments_not_divisible_by_devices_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jax.device_count", lambda: 4)
    with pytest.raises(HmxError, match=r"4 devices do not divide env\.num_envs = 510") as caught:
        make_mesh(0, 510)
    assert caught.value.hint == "--num-envs 508 or --num-envs 512"
    with pytest.raises(HmxError, match=r"do not divide env\.num_envs = 3") as caught:
        make_mesh(4, 3)
    assert caught.value.hint == "--num-envs 4"


def test_several_processes_use_all_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jax.process_count", lambda: 2)
    with pytest.raises(HmxError, match=r"run\.devices = 1: a run of several processes uses all") as caught:
        make_mesh(1, 512)
    assert caught.value.hint == "--devices all"
