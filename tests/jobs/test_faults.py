"""Each call to the file system fails once: nothing saved is lost, the message names the file, the exit code is right.

A few calls of each command by default; `make test ARGS="tests/jobs/test_faults.py --faults 0 -s"` tries every call in
every way. Loss of power is simulated after every checkpoint.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import itertools
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from faults import Disk, Platter, spread
from new_runs import train

from hmx.cli import boundary
from hmx.config import fields, files
from hmx.config.schema import Config
from hmx.errors import HmxError
from hmx.jobs import evaluate as evaluates
from hmx.jobs import resume as resumes
from hmx.records import jsonl
from hmx.records import meta as metas
from hmx.records.paths import RunPaths
from hmx.records.verify import verify
from hmx.runs import checkpoint, session
from hmx.runs.restoring import restore

UPDATES = 3

Job = Callable[[RunPaths], object]


@pytest.fixture(scope="module", autouse=True)
def without_waiting(compiled_once: None) -> Iterator[None]:
    """Nothing waits for a retry."""
    with pytest.MonkeyPatch.context() as patch:
        for module in (files, jsonl):
            patch.setattr(module, "_RETRY_SECONDS", 0.0)
        patch.setattr(boundary, "silence", lambda: None)
        yield


@pytest.fixture(scope="module")
def cfg(new_config: Any) -> Config:
    more = {"run__updates_per_chunk": 1, "run__checkpoint_every": 1, "run__keep": 1, "run__keep_best": 0}
    made: Config = new_config(UPDATES, run__eval_episodes=8, **more)
    return made


class Truth:
    """Undisturbed runs in a folder each: `finished`, and `stopped` after its first update."""

    def __init__(self, cfg: Config, root: Path, watcher: Any, deterministic: Any) -> None:
        self.cfg, self._records = cfg, deterministic
        self.finished, self.stopped = (RunPaths(root / name, "r") for name in ("finished", "stopped"))
        for paths, stop_at in ((self.finished, 0), (self.stopped, 1)):
            train(fields.replace(cfg, {"run.root": str(paths.root)}), sinks=[watcher(stop_at=stop_at)])
        self.end = self.state(self.finished)
        self.returns = [row.return_mean for row in evaluates.evaluate(self.finished.folder).policies]

    def train(self, paths: RunPaths) -> None:
        train(fields.replace(self.cfg, {"run.root": str(paths.root)}))

    def resume(self, paths: RunPaths) -> None:
        resumes.resume(paths.folder)

    def evaluate(self, paths: RunPaths) -> None:
        found = evaluates.evaluate(paths.folder)
        assert found.checkpoint == UPDATES and [row.return_mean for row in found.policies] == self.returns

    def verify(self, paths: RunPaths) -> None:
        for path, what in verify(paths).damage:
            raise HmxError(f"{paths.folder / path}: {what}", exit_code=3)  # type: ignore[arg-type]

    def state(self, paths: RunPaths) -> tuple[dict[str, Any], list[dict[str, Any]]]:
        cfg = fields.replace(self.cfg, {"run.root": str(paths.root)})
        restored = restore(session.open_session(cfg), paths)
        assert restored.update == UPDATES
        return checkpoint.to_host(restored.state), self._records(paths.folder)

    def check_end(self, paths: RunPaths) -> None:
        """The run, resumed if need be, ends in the bits of the undisturbed one."""
        meta = metas.find(paths.meta)
        if meta is None or meta.state != "finished":
            self.resume(paths)
        leaves, records = self.state(paths)
        assert all(np.array_equal(leaves[name], value, equal_nan=True) for name, value in self.end[0].items())
        assert records == self.end[1]
        assert verify(paths).damage == ()


@pytest.fixture(scope="module")
def truth(
    cfg: Config, watcher: Any, deterministic: Any, compiled_once: None, tmp_path_factory: pytest.TempPathFactory
) -> Truth:
    return Truth(cfg, tmp_path_factory.mktemp("truth"), watcher, deterministic)


def run_with(disk: Disk, job: Job, paths: RunPaths) -> tuple[int, str]:
    """The exit code and the messages of a command on a disk."""
    messages = io.StringIO()
    with contextlib.redirect_stderr(messages):
        try:
            with disk:
                job(paths)
            code = 0
        except Exception as error:
            code = boundary.report(error, ["command"])
    return code, messages.getvalue()


def hashes(folder: Path) -> dict[str, str]:
    return {str(p): hashlib.sha256(p.read_bytes()).hexdigest() for p in sorted(folder.rglob("*")) if p.is_file()}


@pytest.mark.parametrize("command", ["train", "resume", "evaluate", "verify"])
def test_failed_call_loses_no_data(truth: Truth, command: str, tmp_path: Path, request: Any) -> None:
    base = {"train": None, "resume": truth.stopped, "evaluate": truth.finished, "verify": truth.finished}[command]
    numbers = itertools.count()

    def fresh() -> RunPaths:
        paths = RunPaths(tmp_path / str(next(numbers)), "r")
        if base is None:
            paths.root.mkdir()
        else:
            shutil.copytree(base.root, paths.root, symlinks=True)
        return paths

    paths = fresh()
    counting = Disk(paths.root)
    assert run_with(counting, getattr(truth, command), paths) == (0, "")
    most = request.config.getoption("faults")
    tried, failures, outcomes = 0, [], {0: 0, 2: 0, 3: 0}
    for number in spread(len(counting.calls), most):
        faults = counting.calls[number].faults
        for fault in faults[number % len(faults) :][:1] if most else faults:
            paths = fresh()
            before = hashes(paths.root)
            disk = Disk(paths.root, number, fault)
            code, messages = run_with(disk, getattr(truth, command), paths)
            tried += 1
            try:
                assert code in (0, 3) or (code == 2 and command == "train"), messages
                outcomes[code] += 1
                assert (str(paths.root) in messages) == (code != 0), messages
                if command in ("evaluate", "verify"):
                    assert hashes(paths.root) == before
                elif checkpoints(paths):
                    truth.check_end(paths)
                else:
                    assert code and command == "train"
            except Exception as problem:
                failures.append(f"{command} call {number} {disk.failed} fault {fault}: exit {code}: {problem!r:.600}")
            shutil.rmtree(paths.root)
    print(f"{command}: {tried} faults in {len(counting.calls)} calls, exit codes {outcomes}")
    assert not failures, "\n".join(failures)


def checkpoints(paths: RunPaths) -> list[Path]:
    return [p for p in paths.checkpoints.glob("*") if p.name.isdigit()]


def test_power_loss_after_a_checkpoint_loses_no_data(truth: Truth, tmp_path: Path, monkeypatch: Any) -> None:
    """Without the names, the content, or both, that were not flushed when the checkpoint was reported as written."""
    paths = RunPaths(tmp_path / "disk", "r")
    paths.root.mkdir()
    platter, saved = Platter(paths.root), []

    def write(folder: Path, state: Any, update: int, *rest: Any) -> Path:
        final = checkpoint_write(folder, state, update, *rest)
        for names, content in ((False, False), (True, False), (False, True)):
            left = RunPaths(tmp_path / f"{update}-{names}-{content}", "r")
            platter.after_power_loss(left.root, names, content)
            saved.append((update, left))
        return final

    checkpoint_write = checkpoint.write
    monkeypatch.setattr(checkpoint, "write", write)
    with Disk(paths.root, note=platter.note):
        truth.train(paths)
    monkeypatch.undo()
    assert len(saved) == 3 * UPDATES
    for update, left in saved:
        assert max(int(p.name) for p in checkpoints(left)) == update
        truth.check_end(left)
