"""What a run does when the machine gives out: the disk, open files, memory. What was saved stays good."""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import itertools
import os
import resource
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax
import pytest
from new_runs import train

from hmx.config.codec import to_toml
from hmx.config.schema import Config
from hmx.errors import ExitCode, HmxError
from hmx.jobs.resume import resume
from hmx.jobs.train import TrainResult
from hmx.records import checkpoints as records
from hmx.records import meta as metas
from hmx.runs import checkpoint
from hmx.runs.sinks import Record, Sink
from hmx.runs.training import Training

MakeConfig = Callable[..., Config]
pytestmark = pytest.mark.usefixtures("compiled_once")


class At(Sink):
    """Does something once an update has been recorded."""

    name = "the accident"

    def __init__(self, update: int, act: Callable[[], None]) -> None:
        self.update, self.act = update, act

    def record(self, record: Record) -> None:
        if record["update"] == self.update:
            self.act()


def saved(run: Path) -> list[int]:
    folder = run / "checkpoints"
    assert not list(folder.glob(".tmp-*")), "what a failed write leaves would fill the disk"
    assert all(records.faults(path) == [] for path in records.listing(folder))
    return [int(path.name) for path in records.listing(folder)]


def fails(cfg: Config, *sinks: Sink) -> tuple[HmxError, Path]:
    with pytest.raises(HmxError) as caught:
        train(cfg, sinks=sinks)
    run = Path(cfg.run.root) / "r"
    assert metas.read(run / "meta.json").state == "failed"
    assert not (run / "lock").exists()
    return caught.value, run


def goes_on(run: Path, deterministic: Any) -> TrainResult:
    """The run can be resumed and is complete then; only what was not written when the disk was full is missing."""
    result = resume(run)
    assert result.state == "finished"
    updates = [record["update"] for record in deterministic(run)]
    assert updates == sorted(set(updates))
    missing = set(range(1, result.total_updates + 1)) - set(updates)
    told = [text for text in result.warnings if "lacks updates" in text]
    assert len(told) == bool(missing)
    assert all(f"lacks updates {min(missing)} to {max(missing)}" in text for text in told)
    return result


@pytest.mark.parametrize("step", ["arrays", "folder"])
@pytest.mark.parametrize("kept", [1, 3])
def test_full_disk_ends_the_run_and_keeps_old_checkpoints(
    step: str, kept: int, make_config: MakeConfig, monkeypatch: pytest.MonkeyPatch, deterministic: Any
) -> None:
    write = checkpoint._write_arrays

    def full(path: Path, leaves: Any) -> None:
        if "-2-" in path.parent.name:
            write(path, leaves)
            return
        write(path, dict(list(leaves.items())[:3]))
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def read_only(self: Path, *given: Any, **more: Any) -> None:
        if self.name.startswith(".tmp-") and "-2-" not in self.name:
            raise OSError(errno.EROFS, os.strerror(errno.EROFS))
        mkdir(self, *given, **more)

    mkdir = Path.mkdir
    with monkeypatch.context() as patch:
        if step == "arrays":
            patch.setattr(checkpoint, "_write_arrays", full)
        else:
            patch.setattr(Path, "mkdir", read_only)
        error, run = fails(make_config(12, run__checkpoint_every=1, run__keep=kept, run__keep_best=0))
    assert error.exit_code == ExitCode.ARTEFACT
    # the chunk after the failure has ended by then, and its own write has failed as well
    assert f"{'No space left' if step == 'arrays' else 'Read-only file system'}" in error.message
    assert "older checkpoints are unchanged" in error.hint
    assert saved(run) == [2]
    goes_on(run, deterministic)


def test_temporarily_full_disk_loses_one_checkpoint(
    make_config: MakeConfig, monkeypatch: pytest.MonkeyPatch, deterministic: Any
) -> None:
    manifest = records.write_manifest

    def full(folder: Path, update: int, *given: Any, **more: Any) -> Any:
        if update == 4:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return manifest(folder, update, *given, **more)

    monkeypatch.setattr(records, "write_manifest", full)
    result = train(make_config(8, run__checkpoint_every=1, run__keep=9))
    (warning,) = result.warnings
    assert "cannot write checkpoint " in warning and "checkpoints/4: No space left on device; trying again" in warning
    assert saved(result.run) == [2, 6, 8]
    assert [record["update"] for record in deterministic(result.run)] == list(range(1, 9))


@pytest.fixture
def limits() -> Iterator[None]:
    """Puts the limits of this process back."""
    kinds = (resource.RLIMIT_FSIZE, resource.RLIMIT_NOFILE)
    before = {kind: resource.getrlimit(kind) for kind in kinds}
    yield
    for kind, values in before.items():
        resource.setrlimit(kind, values)


def limit(kind: int, value: int) -> None:
    resource.setrlimit(kind, (value, resource.getrlimit(kind)[1]))


def test_metrics_file_at_its_size_limit_ends_the_run_after_a_checkpoint(
    make_config: MakeConfig, limits: None, deterministic: Any
) -> None:
    cfg = make_config(400, run__checkpoint_every=1000, run__updates_per_chunk=5)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    # The line that does not fit is cut in the middle.
    error, run = fails(cfg, At(2, lambda: limit(resource.RLIMIT_FSIZE, 220_000)))
    resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert error.exit_code == ExitCode.ARTEFACT
    assert "cannot write " in error.message and "metrics.jsonl: File too large" in error.message.replace(
        "[Errno 27] ", ""
    )
    assert not (run / "metrics.jsonl").read_bytes().endswith(b"\n")
    (last,) = saved(run)
    assert last > 2
    goes_on(run, deterministic)


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="counts open files in /proc")
def test_too_many_open_files_end_the_run_and_keep_the_last_checkpoint(
    make_config: MakeConfig, limits: None, deterministic: Any
) -> None:
    cfg = make_config(30, run__checkpoint_every=1)
    run = Path(cfg.run.root) / "r"
    before = resource.getrlimit(resource.RLIMIT_NOFILE)

    held: list[int] = []

    class Exhaust(Sink):
        def record(self, record: Record) -> None:
            if record["update"] < 6:
                return
            while not (run / "checkpoints" / "4").exists():
                time.sleep(0.01)  # or the write under way would meet the limit half-way
            limit(resource.RLIMIT_NOFILE, 1 + max(int(name) for name in os.listdir("/proc/self/fd")))
            with contextlib.suppress(OSError):
                while True:
                    held.append(os.dup(0))

    try:
        with pytest.raises(HmxError) as caught:
            train(cfg, sinks=[Exhaust()])
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
        for handle in held:
            os.close(handle)
    assert caught.value.exit_code == ExitCode.ARTEFACT
    assert "Too many open files" in caught.value.message
    assert [path.name for path in records.complete(run / "checkpoints")] == ["2", "4"]
    goes_on(run, deterministic)


def fail_in_chunk(number: int, failure: Exception, patch: pytest.MonkeyPatch) -> None:
    """Let a run fail in one of its chunks, counted from 1. The other runs of this module keep their program."""
    compiled = Training._compile

    def failing(*given: Any) -> Any:
        chunk = compiled(*given)
        chunks = itertools.count(1)

        def call(*given: Any) -> Any:
            if next(chunks) == number:
                raise failure
            return chunk.call(*given)

        return dataclasses.replace(chunk, call=call)

    patch.setattr(Training, "_compile", failing)


@pytest.mark.parametrize(
    "failure", [MemoryError(), jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: Out of memory allocating 77 bytes.")]
)
def test_out_of_memory_is_reported_with_a_message(
    failure: Exception, make_config: MakeConfig, monkeypatch: pytest.MonkeyPatch, deterministic: Any
) -> None:
    with monkeypatch.context() as patch:
        fail_in_chunk(4, failure, patch)  # the first chunk is one update
        error, run = fails(make_config(8, run__checkpoint_every=1))
    assert error.exit_code == ExitCode.USAGE
    assert error.message.startswith("not enough memory while training")
    assert "env.num_envs" in error.hint
    assert saved(run)[-1] == 4, "the write under way was waited for"
    goes_on(run, deterministic)


def test_other_device_errors_are_not_reported_as_out_of_memory(
    make_config: MakeConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    fail_in_chunk(2, jax.errors.JaxRuntimeError("INTERNAL: the device fell off the bus"), monkeypatch)
    with pytest.raises(jax.errors.JaxRuntimeError, match="INTERNAL"):
        train(make_config(2))


SMALL_DISK = """
mount -t tmpfs -o size={size} tmpfs {disk} || exit 77
"{python}" -m hmx train --config {disk}/../cfg.toml
code=$?
cp -r {disk}/r {copy}
df --output=avail {disk} | tail -1
exit $code
"""


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("unshare") is None, reason="needs a mount of its own")
@pytest.mark.parametrize("size", ["120k", pytest.param("400k", marks=pytest.mark.thorough)])
def test_disk_of_a_few_kilobytes_keeps_the_run_intact(
    size: str, make_config: MakeConfig, tmp_path: Path, deterministic: Any
) -> None:
    disk, copy = tmp_path / "disk", tmp_path / "copy"
    disk.mkdir()
    cfg = make_config(3000, run__root=str(disk), run__checkpoint_every=1, run__updates_per_chunk=50)
    (tmp_path / "cfg.toml").write_text(to_toml(cfg))
    script = SMALL_DISK.format(size=size, disk=disk, python=sys.executable, copy=copy)
    command = ["unshare", "--map-root-user", "--mount", "sh", "-c", script]
    done = subprocess.run(command, capture_output=True, text=True, cwd=Path(__file__).parents[2])
    if done.returncode == 77 or "unshare" in done.stderr:
        pytest.skip("no mount of its own is allowed here")
    assert done.returncode == ExitCode.ARTEFACT, done.stderr
    assert "Traceback" not in done.stderr
    assert "No space left on device" in done.stderr
    whole = records.listing(copy / "checkpoints")
    assert all(records.faults(path) == [] for path in whole)
    if size == "400k":
        assert whole
        newest = int(whole[-1].name)
        lines = (copy / "metrics.jsonl").read_bytes().split(b"\n")
        assert len(lines) - 1 >= newest
        assert resume(copy, changes={"run.total_steps": (newest + 1) * 32}).state == "finished"
        assert [record["update"] for record in deterministic(copy)] == list(range(1, newest + 2))
