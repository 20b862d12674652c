"""What Tab offers, asked the way the shells ask."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from hmx.config.fields import FIELDS

ROOT = Path(__file__).parents[2]


def offered(shell, line: str, cwd: Path | None = None) -> list[str]:
    """The completions of a line in bash; the cursor stands at its end."""
    words = line.split(" ")
    asked = {"COMP_WORDS": "\n".join(words), "COMP_CWORD": str(len(words) - 1)}
    done = shell("-m", "hmx", _HMX_COMPLETE="complete_bash", **asked)
    assert done.stderr == ""
    return done.stdout.split()


@pytest.mark.parametrize(
    ("line", "answer"),
    [
        (
            "hmx ",
            ["train", "resume", "evaluate", "watch", "play", "compute-config", "grad-report", "score-buffer", "runs"],
        ),
        ("hmx runs ", ["list", "verify", "sync"]),
        ("hmx tr", ["train"]),
        ("hmx train --env frozen", ["frozenlake", "frozenlake-slippery"]),
        ("hmx train --preset q", ["quick"]),
        ("hmx train --wandb off", ["offline"]),
        ("hmx train --dry", ["--dry-run"]),
        ("hmx train --set algo.lr_", ["algo.lr_schedule=", "algo.lr_end=", "algo.lr_warmup="]),
        ("hmx train --set algo.lr_schedule=c", ["algo.lr_schedule=constant", "algo.lr_schedule=cosine"]),
        ("hmx train --set net.shared_torso=", ["net.shared_torso=true", "net.shared_torso=false"]),
        ("hmx train --set algo.gamma=", ["algo.gamma=0.99"]),
        ("hmx evaluate x --policy g", ["greedy"]),
        ("hmx score-buffer x --metric t", ["tv", "tv_bins"]),
        ("hmx score-buffer x --aggregate m", ["mean", "max"]),
        ("hmx score-buffer x --actions s", ["single-dev", "sampled:"]),
    ],
)
def test_tab(shell, line, answer):
    assert offered(shell, line) == answer


def test_every_key_of_the_configuration_is_offered(shell):
    assert offered(shell, "hmx train --set ") == [f"{key}=" for key in FIELDS]


@pytest.mark.parametrize("command", ["resume", "evaluate", "watch"])
def test_runs_are_offered(shell, tmp_path, trained, command):
    assert offered(shell, f"hmx {command} ") == []
    shutil.copytree(trained, tmp_path / "runs")
    assert offered(shell, f"hmx {command} cor") == ["corridor"]


@pytest.mark.parametrize(
    ("line", "answer", "replies"),
    [
        ("hmx train --set algo.ga", "algo.gamma=", ["nospace", "algo.gamma="]),
        ("hmx train --set algo.lr_schedule=c", "algo.lr_schedule=constant", ["constant"]),
        ("hmx evaluate ", "corridor", ["corridor"]),
    ],
)
def test_the_script_for_bash(tmp_path, environ, line, answer, replies):
    """Sources the committed script and presses Tab, as far as a script can."""
    stub = tmp_path / "hmx"
    stub.write_text(f'#!/bin/sh\necho "$COMP_WORDS|$COMP_CWORD" > asked\necho {answer}\n')
    stub.chmod(0o755)
    code = f"""
    source {ROOT / "completions" / "hmx.bash"}
    compopt() {{ echo $2; }}
    COMP_LINE='{line}'; COMP_POINT=${{#COMP_LINE}}
    _hmx_completion ./hmx
    printf '%s\\n' "${{COMPREPLY[@]}}"
    """
    done = subprocess.run(["bash", "-c", code], env=environ(), cwd=tmp_path, capture_output=True, text=True)
    assert done.stdout.split() == replies and done.stderr == ""
    words = line.split(" ")
    assert (tmp_path / "asked").read_text() == "\n".join(words) + f"|{len(words) - 1}\n"
