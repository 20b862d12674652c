"""Signals in the middle of a phase, sent to the real command in a separate process.

The process blocks in the phase under test until it receives the first signal, or forever, so no test depends on timing.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from new_runs import train

from hmx.config.codec import to_toml
from hmx.config.schema import Config
from hmx.jobs.resume import resume
from hmx.records import checkpoints as records
from hmx.records import meta as metas

MakeConfig = Callable[..., Config]
TWICE = [False, pytest.param(True, marks=pytest.mark.thorough)]

SCRIPT = """
    import os, sys, threading, time
    from types import SimpleNamespace

    place, times = sys.argv[1:3]
    sys.argv[1:] = sys.argv[3:]
    from hmx.runs import checkpoint, saving, training
    from hmx.runs.signals import interruptible
    from hmx.runs.sinks import SinkGroup

    heard = threading.Event()
    phase_from_signal = SinkGroup.phase_from_signal

    def hold(where, end=None):
        os.write(1, f"{where}\\n".encode())
        (end or (heard if times == "once" else threading.Event())).wait()

    def hear(self, phase):
        heard.set()
        phase_from_signal(self, phase)

    def compile_chunk(*given):
        interruptible(lambda: hold("compiling", threading.Event()))

    def write(path, leaves):
        if "-4-" in path.parent.name:
            if times == "clock":
                now, saving.SLOW = time.time, 0.5
                time.time = lambda: now() - 86_400
            hold("saving")
        write_really(path, leaves)

    SinkGroup.phase_from_signal = hear
    if place == "compiling":
        training.compile_chunk = compile_chunk
    elif place == "saving":
        write_really, checkpoint._write_arrays = checkpoint._write_arrays, write
    else:
        run = SimpleNamespace(
            log=lambda *given, **more: None, define_metric=lambda *given, **more: None,
            finish=lambda exit_code: hold("finishing"),
        )
        sys.modules["wandb"] = SimpleNamespace(
            login=lambda prompt: True, init=lambda **given: run, Settings=SimpleNamespace, run=None, teardown=id
        )
    from hmx.__main__ import main

    main()
"""


def play(
    place: str, twice: bool, cfg: Config, folder: Path, clock: bool = False, command: Sequence[str] = ("train",)
) -> tuple[int, str, Path]:
    """Return exit code, stderr and run folder of `hmx train` or `hmx resume` after one or two signals in a phase.

    With `clock`, the phase blocks forever and the system clock is set back by a day.
    """
    (folder / "cfg.toml").write_text(to_toml(cfg))
    times = "clock" if clock else "twice" if twice else "once"
    run = Path(cfg.run.root) / cfg.run.name
    source = ["--config", str(folder / "cfg.toml")] if command[0] == "train" else [str(run)]
    words = [place, times, *command, *source]
    line = [sys.executable, "-c", textwrap.dedent(SCRIPT), *words]
    env = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    with subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env) as process:
        try:
            assert process.stdout is not None
            first = process.stdout.readline()
            if first == f"{place}\n":
                process.send_signal(signal.SIGINT)
                if twice:
                    process.send_signal(signal.SIGTERM)  # two of a kind may arrive as one
            _, said = process.communicate()
        finally:
            process.kill()
    assert first == f"{place}\n", said
    assert "Traceback" not in said
    return process.returncode, said, run


def newest(run: Path) -> int | None:
    path, broken = records.newest_intact(run / "checkpoints")
    assert not broken
    return int(path.name) if path else None


@pytest.mark.parametrize("twice", TWICE)
def test_signals_during_compilation_stop_the_run(twice: bool, make_config: MakeConfig, tmp_path: Path) -> None:
    """The compilation never ends: a first signal does not wait for it."""
    code, said, run = play("compiling", twice, make_config(9), tmp_path)
    assert code == (143 if twice else 130)
    assert "stopping ... saves a checkpoint first; Ctrl-C again stops at once" in said
    assert (f"hmx train --config {run}/run.toml" if twice else f"hmx resume {run}") in said
    assert newest(run) == (None if twice else 0)
    assert metas.read(run / "meta.json").state == "interrupted"
    if not twice:
        assert resume(run).updates == 9


def test_a_signal_while_a_resumed_run_compiles_keeps_its_checkpoint(make_config: MakeConfig, tmp_path: Path) -> None:
    cfg = make_config(4)
    train(cfg)
    code, said, run = play("compiling", False, cfg, tmp_path, command=("resume", "--steps", str(9 * 32)))
    assert code == 130 and f"hmx resume {run}" in said
    assert newest(run) == 4
    assert resume(run).updates == 9


@pytest.mark.parametrize("twice", [False, True])
def test_signals_while_a_checkpoint_is_written(
    twice: bool, make_config: MakeConfig, tmp_path: Path, deterministic: Callable[[Path], list[dict[str, float]]]
) -> None:
    cfg = make_config(1_000_000, run__checkpoint_every=1, algo__lr_schedule="constant")
    code, said, run = play("saving", twice, cfg, tmp_path)
    assert code == (143 if twice else 130)
    assert f"hmx resume {run}" in said
    done = newest(run)
    assert done is not None
    if twice:
        assert done == 2, "the write of update 4 was abandoned"
        assert list((run / "checkpoints").glob(".tmp-4-*"))
    else:
        assert done >= 4
        assert not list((run / "checkpoints").glob(".tmp-*"))
    assert resume(run, changes={"run.total_steps": (done + 2) * 32}).updates == done + 2
    assert [record["update"] for record in deterministic(run)] == list(range(1, done + 3))
    assert not list((run / "checkpoints").glob(".tmp-*"))


def test_one_signal_stops_a_run_that_waits_for_a_clock_set_back(make_config: MakeConfig, tmp_path: Path) -> None:
    cfg = make_config(1_000_000, run__checkpoint_every=1)
    code, said, run = play("saving", False, cfg, tmp_path, clock=True)
    assert code == 130
    assert f"hmx resume {run}" in said
    assert newest(run) == 2


@pytest.mark.parametrize("twice", TWICE)
def test_signals_while_wandb_finishes_end_the_run(twice: bool, make_config: MakeConfig, tmp_path: Path) -> None:
    code, _, run = play("finishing", twice, make_config(2, run__wandb="online"), tmp_path)
    assert code == (143 if twice else 130)
    assert metas.read(run / "meta.json").state == "finished", "whatever becomes of what was not sent"
    assert newest(run) == 2
