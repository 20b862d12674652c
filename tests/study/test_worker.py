"""Workers: what they train, how they share a study, and what is left after they are stopped or killed."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from hmx.config.fields import get, replace
from hmx.config.learning import PpoConfig
from hmx.config.schema import AlgoConfig, Config, EnvConfig, NetConfig, RunConfig
from hmx.errors import HmxError
from hmx.jobs.evaluation import RANDOM, read_evaluation
from hmx.jobs.resume import resume
from hmx.jobs.runs import list_runs
from hmx.records.artefact import sealed
from hmx.records.frozen import read_config
from hmx.records.lock import SCHEMA, RunLock
from hmx.records.owner import Owner, mark_of
from hmx.records.paths import RunPaths
from hmx.registry.load import Loaded
from hmx.runs.checkpoint import to_host
from hmx.runs.restoring import restore
from hmx.runs.session import open_session
from hmx.runs.sinks import EndState, Record, Sink
from hmx.study import worker
from hmx.study.best import best_trial
from hmx.study.create import add_to_study, new_study
from hmx.study.folder import read_study
from hmx.study.kills import note_kill
from hmx.study.records import RungResult, Trial, rung_file, write_once
from hmx.study.request import AddRequest, SearchRequest
from hmx.study.status import study_status
from hmx.study.verify import verify_study
from hmx.study.worker import WorkStep, work

ROOT = Path(__file__).parents[2]
TINY = Config(
    run=RunConfig(total_steps=9 * 32, updates_per_chunk=2, eval_episodes=0, num_seeds=2, checkpoint_every=1),
    env=EnvConfig(id="corridor", num_envs=4, max_steps=20),
    net=NetConfig(kind="mlp", hidden=(8,)),
    algo=AlgoConfig(num_steps=8),
    ppo=PpoConfig(update_epochs=1, num_minibatches=2),
)
pytestmark = pytest.mark.usefixtures("one_process")
SPACE = ["algo.learning_rate=1e-4..1e-1:log"]
REQUEST = SearchRequest(
    trials=4, rungs=2, eta=3, sampler="random", synchronous=True, confirm=2, confirm_top=1, metric="train/entropy",
    minimize=True,
)  # fmt: skip


def make(folder: Path, space: list[str] = SPACE, request: SearchRequest = REQUEST, cfg: Config = TINY) -> Path:
    return new_study(folder, {"base": Loaded(cfg)}, space, request).folder


def decisions(folder: Path) -> dict[str, str]:
    """Return the digest of every decision and result by path, and of the last state of every run by its name."""
    files = [path for path in folder.rglob("*.json") if path.parent.parent.name in ("trials", "confirm")]
    kept = {path for path in files if path.name != "meta.json"} | set(folder.glob("*.toml"))
    found = {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(kept)}
    study, programs = read_study(folder), worker.Programs()
    for run in (*(trial.paths for trial in study.trials), *(one.paths for one in study.confirmations)):
        state = restore(open_session(read_config(run), run, programs=programs), run).state
        data = b"".join(leaf.tobytes() for leaf in to_host(state).values())
        found[f"{run.root.name}/{run.name}"] = hashlib.sha256(data).hexdigest()
    return found


class StopAt(Sink):
    """Stops the worker, or raises an exception as a kill would, at the records of an update."""

    name = "the stopper"

    def __init__(self, update: int, error: BaseException | None = None) -> None:
        self.update, self.error = update, error

    def record(self, record: Record) -> None:
        if record["update"] == self.update:
            self.update = 0
            if self.error is not None:
                raise self.error
            signal.raise_signal(signal.SIGTERM)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An undisturbed study that has finished; tests do not change it."""
    folder = make(tmp_path_factory.mktemp("studies") / "calm")
    work(folder)
    return folder


@pytest.fixture
def copy(finished: Path, tmp_path: Path) -> Path:
    """A copy of the finished study, to change."""
    return Path(shutil.copytree(finished, tmp_path / finished.name))


def test_a_trial_that_ends_at_a_rung_is_paused_and_not_interrupted(tmp_path: Path) -> None:
    ends: list[str] = []

    class Watch(Sink):
        def close(self, state: EndState) -> None:
            ends.append(state)

    work(make(tmp_path / "lr"), sinks=lambda: [Watch()])
    assert ends == ["paused"] * 4 + ["finished"] * 2  # four trials, one promotion, one confirmation


def test_study_runs_to_its_end(finished: Path) -> None:
    found = study_status(finished)
    assert found.finished
    assert found.states == {"finished": 1, "paused": 3}
    assert found.rungs == (4, 1)
    assert (found.confirmed, found.confirmations) == (1, 1)
    assert found.leading[0].confirmed is not None
    assert found.steps_done == 2 * (3 * 3 + 9) * 32 + 2 * 9 * 32
    assert found.cpu_seconds > 0
    assert verify_study(finished).differences == ()


def test_trials_are_ordinary_runs(finished: Path) -> None:
    runs = list_runs(finished / "trials").runs
    assert [(run.name, run.state) for run in runs if run.state == "finished"] == [
        (f"{study_status(finished).leading[0].trial:04d}", "finished")
    ]
    assert sorted(run.update for run in runs) == [3, 3, 3, 9]
    for trial in read_study(finished).trials:
        config = read_config(trial.paths)
        assert get(config, "algo.learning_rate") == trial.values["algo.learning_rate"]
        assert (config.run.name, config.run.num_seeds) == (trial.folder.name, 2)


def test_confirmation_uses_seeds_that_no_trial_had(finished: Path) -> None:
    (confirmation,) = read_study(finished).confirmations
    config = read_config(confirmation.paths)
    assert confirmation.seeds == (2, 3)
    assert (config.run.seed, config.run.num_seeds) == (2, 2)
    best = best_trial(finished)
    assert best.best.trial == confirmation.trial
    assert best.config.run.eval_episodes > 0


def test_paused_trial_can_be_resumed_as_a_run(copy: Path) -> None:
    paused = next(trial for trial in read_study(copy).trials if len(trial.rungs) == 1)
    assert resume(paused.folder).updates == 9
    assert verify_study(copy).differences == ()  # the result at its rung does not depend on later records


def test_nothing_is_done_twice(copy: Path) -> None:
    before = decisions(copy)
    assert work(copy).trained == 0
    assert decisions(copy) == before


KILLED = """
import os, sys
from pathlib import Path
from hmx.records.lock import RunLock
from hmx.records.paths import RunPaths
with RunLock(RunPaths(Path(sys.argv[1]), sys.argv[2])):
    os.kill(os.getpid(), 9)
"""


def kill_worker(trial: Path) -> None:
    """Leave the lock of a process that was killed, as the kernel does if the memory is full."""
    command = [sys.executable, "-c", KILLED, str(trial.parent), trial.name]
    assert subprocess.run(command, env={**os.environ, "PYTHONPATH": str(ROOT)}).returncode == -9


def test_a_trial_that_kills_its_workers_fails_after_three(copy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    add_to_study(copy, (), AddRequest(trials=1))
    assert make_proposal(copy) == 5
    trial, taken = copy / "trials" / "0005", []

    def dies(lock: RunLock, new: object, **more: object) -> None:
        taken.append(int(lock.paths.name))
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("hmx.study.worker.train_to", dies)
        for _ in range(3):
            with pytest.raises(KeyboardInterrupt):
                work(copy)
            kill_worker(trial)
    steps: list[WorkStep] = []
    work(copy, tell=steps.append)
    assert taken == [5, 5, 5]
    (failed,) = [step for step in steps if step.kind == "failed"]
    assert (failed.trial, failed.message) == (5, "killed its worker 3 times without progress")
    assert read_study(copy).trials[4].failed and study_status(copy).finished
    assert not list(copy.rglob("kills.json"))


def test_progress_resets_the_count_of_killed_workers(copy: Path) -> None:
    """A worker that is killed again and again loses nothing, as long as one gets further than all before."""
    paths = RunPaths(copy / "trials", "0001")
    lines = paths.metrics.read_bytes().splitlines(keepends=True)
    shutil.rmtree(paths.checkpoints)
    paths.metrics.write_bytes(b"")
    counts = []
    for seen in (2, 2, 0, 4, 2, 4):  # lines, two of each update, when a worker was killed
        paths.metrics.write_bytes(b"".join(lines[:seen]))
        counts.append(note_kill(paths))
    assert counts == [1, 2, 3, 1, 2, 3]
    (paths.folder / "kills.json").write_text("damaged")
    assert note_kill(paths) == 1


def test_verify_finds_checkpoints_of_another_trial(copy: Path) -> None:
    first, second = (copy / "trials" / name / "checkpoints" for name in ("0001", "0002"))
    first.rename(copy / "old")
    second.rename(first)
    (copy / "old").rename(second)
    found = {where for where, what in verify_study(copy).differences if "belongs to another run" in what}
    assert {where.partition("/checkpoints/")[0] for where in found} == {"trials/0001", "trials/0002"}


def test_verify_finds_the_run_of_another_trial(copy: Path) -> None:
    """The whole run, so that its files fit together."""
    places = [copy / "trials" / name for name in ("0001", "0002")]
    for name in ("run.toml", "meta.json", "metrics.jsonl", "checkpoints"):
        (places[0] / name).rename(copy / "old")
        (places[1] / name).rename(places[0] / name)
        (copy / "old").rename(places[1] / name)
    found = dict(verify_study(copy).differences)
    assert "the run of another trial: algo.learning_rate is" in found["trials/0001"]


def test_verify_finds_records_that_two_workers_wrote(copy: Path) -> None:
    path = copy / "trials" / "0001" / "metrics.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([*lines, *lines[-2:]]))
    found = dict(verify_study(copy).differences)
    update = json.loads(lines[-1])["update"]
    assert found["trials/0001/metrics.jsonl"] == f"has update {update} more than once"


@pytest.mark.parametrize("place", ["trials", "trials/0005", "confirm", "confirm/0001", "configs"])
def test_work_changes_nothing_outside_the_study(copy: Path, place: str, tmp_path: Path) -> None:
    """A link in a study from a stranger leads to a folder with files that a run would delete or replace."""
    add_to_study(copy, (), AddRequest(trials=1))
    assert make_proposal(copy) == 5
    outside = tmp_path / "outside"
    (copy / "confirm" / "0001").mkdir(exist_ok=True)
    (copy / place).rename(outside)
    (copy / place).symlink_to(outside)
    for name in ("reports/notes.txt", "checkpoints/1/arrays", "environment.py"):
        (outside / name).parent.mkdir(parents=True, exist_ok=True)
        (outside / name).write_text("precious")
    before = {path: path.lstat().st_mtime_ns for path in outside.rglob("*")}
    with pytest.raises(HmxError, match=f"{place}: a link instead of a folder") as refused:
        work(copy)
    assert refused.value.exit_code == 3
    assert {path: path.lstat().st_mtime_ns for path in outside.rglob("*")} == before


def test_work_replaces_links_inside_a_trial(copy: Path, tmp_path: Path) -> None:
    add_to_study(copy, (), AddRequest(trials=1))
    assert make_proposal(copy) == 5
    for name in (names := ("checkpoints", "reports", "diagnosis", "metrics.jsonl", "environment.py")):
        outside = tmp_path / "outside" / name
        outside.parent.mkdir(exist_ok=True)
        outside.write_text("precious") if "." in name else outside.mkdir()
        (copy / "trials" / "0005" / name).symlink_to(outside)
    before = {path: path.lstat().st_mtime_ns for path in tmp_path.glob("outside/*")}
    assert work(copy).trained > 0
    assert not any((copy / "trials" / "0005" / name).is_symlink() for name in names)
    assert {path: path.lstat().st_mtime_ns for path in tmp_path.glob("outside/*")} == before


def test_a_study_behind_a_link_works(copy: Path, tmp_path: Path) -> None:
    add_to_study(copy, (), AddRequest(trials=1))
    (tmp_path / "link").symlink_to(copy)
    assert work(tmp_path / "link").trained > 0
    assert study_status(copy).finished


def test_work_removes_what_killed_workers_left(copy: Path) -> None:
    (copy / "trials" / "0005").mkdir()
    ended = f"{2**30}-{mark_of(os.getpid()).split('-')[1]}-1"
    for place in (copy, copy / "configs", copy / "trials" / "0001", copy / "trials" / "0005"):
        (place / f".study.9.toml.tmp-{ended}-0011").write_text("torn")
    work(copy)
    assert not list(copy.rglob(".*.tmp-*"))


def test_stopped_and_killed_workers_leave_an_equal_study(finished: Path, tmp_path: Path) -> None:
    """A worker that is stopped at a checkpoint, one killed in a run, one before it and one between two files."""
    folder = make(tmp_path / "calm")
    stopped = work(folder, sinks=lambda: [StopAt(2)])
    assert stopped.signum == signal.SIGTERM
    for update in (1, 3, 3):
        with pytest.raises(KeyboardInterrupt):
            work(folder, sinks=lambda at=update: [StopAt(at, KeyboardInterrupt())])
    written = iter(range(3))

    def killed(path: Path, record: object) -> bool:
        if path.name.startswith(("rung", "promote")) and next(written, None) is not None:
            raise KeyboardInterrupt
        return write_once(path, record)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(worker, "write_once", killed)
        for _ in range(3):
            with pytest.raises(KeyboardInterrupt):
                work(folder)
        now = time.time
        patch.setattr(time, "time", lambda: now() - 86_400)  # the clock of the last worker is a day behind
        patch.setattr(worker, "write_once", write_once)
        work(folder)
    assert decisions(folder) == decisions(finished)
    assert not list(folder.rglob("lock"))


def test_worker_leaves_a_trial_to_the_process_that_holds_it(copy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another host counts as alive until its heartbeat stops; then its trial is taken over."""
    add_to_study(copy, (), AddRequest(trials=1))
    assert make_proposal(copy) == 5
    lock = hold(copy / "trials" / "0005")
    assert [task.host for task in study_status(copy).running] == ["node7"]
    steps: list[WorkStep] = []
    monkeypatch.setattr("hmx.study.worker._Worker._wait", lambda self: os.utime(lock, (1, 1)))
    work(copy, tell=steps.append)
    assert [step.kind for step in steps][:2] == ["waiting", "rung"]
    assert study_status(copy).finished


def test_synchronous_decisions_do_not_depend_on_the_order_of_results(
    finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another host holds trial 1 until its heartbeat stops, so the results of all other trials come first."""
    folder = make(tmp_path / "calm")
    assert make_proposal(folder) == 1
    lock = hold(folder / "trials" / "0001")
    steps: list[WorkStep] = []
    monkeypatch.setattr("hmx.study.worker._Worker._wait", lambda self: os.utime(lock, (1, 1)))
    work(folder, tell=steps.append)
    assert [step.trial for step in steps if step.kind == "rung"][:4] == [2, 3, 4, 1]
    assert decisions(folder) == decisions(finished)


def test_best_trial_is_confirmed_when_fresh_seeds_are_added_later(tmp_path: Path) -> None:
    folder = make(tmp_path / "s", request=dataclasses.replace(REQUEST, trials=2, confirm=0))
    work(folder)
    assert read_study(folder).confirmations == ()
    add_to_study(folder, (), AddRequest(confirm=2))
    assert not study_status(folder).finished
    work(folder)
    found = study_status(folder)
    assert (found.finished, found.confirmed, found.settings.trials) == (True, 1, 2)
    assert [one.seeds for one in read_study(folder).confirmations] == [(2, 3)]


def test_number_of_fresh_seeds_cannot_change_after_a_confirmation(copy: Path) -> None:
    with pytest.raises(HmxError, match=r"cannot confirm on 5 seeds: trial \d is confirmed on 2"):
        add_to_study(copy, (), AddRequest(confirm=5))
    with pytest.raises(HmxError, match="nothing to add"):
        add_to_study(copy, (), AddRequest(confirm=2))


def hold(run: Path) -> Path:
    """Write the lock of a process of another host, and return its path."""
    other = Owner(host="node7", pid=4242, started="1", boot="another boot", since="2026-01-01T00:00:00+00:00")
    lock = run / "lock"
    lock.write_text(sealed({"schema": SCHEMA, **dataclasses.asdict(other)}))
    return lock


def make_proposal(folder: Path) -> int:
    """Have a worker propose the next trial and end before it trains; return its number."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("hmx.study.worker._Worker._train", lambda self: bool(self._tasks()) and _leave())
        with pytest.raises(KeyboardInterrupt):
            work(folder)
    return read_study(folder).trials[-1].number


def _leave() -> None:
    raise KeyboardInterrupt


def test_other_versions_of_packages_are_refused_unless_allowed(copy: Path) -> None:
    settings = copy / "study.1.toml"
    settings.write_text(re.sub('jax = ".*"', 'jax = "0.1"', settings.read_text()))
    with pytest.raises(HmxError, match=r"was made with other versions: jax 0\.1 is") as refused:
        work(copy)
    assert "--other-versions" in refused.value.hint
    assert work(copy, other_versions=True).trained == 0


def paused_trials(folder: Path) -> list[Trial]:
    """Return the trials of a finished study that were not promoted, as if their results were not written yet."""
    trials = [trial for trial in read_study(folder).trials if len(trial.rungs) == 1]
    for trial in trials:
        rung_file(trial.folder, 0).unlink()
    return trials


def test_result_of_a_worker_killed_before_writing_it_is_computed_from_the_run(finished: Path, copy: Path) -> None:
    trials = paused_trials(copy)
    before = [trial.paths.metrics.read_bytes() for trial in trials]
    assert work(copy).trained == len(trials)
    assert [trial.paths.metrics.read_bytes() for trial in trials] == before
    assert decisions(copy) == decisions(finished)


def test_run_of_another_trial_is_reported(copy: Path) -> None:
    one, other, *_ = paused_trials(copy)
    for name in ("run.toml", "meta.json", "metrics.jsonl"):
        shutil.copy(other.folder / name, one.folder / name)
    shutil.rmtree(one.paths.checkpoints)
    shutil.copytree(other.paths.checkpoints, one.paths.checkpoints)
    with pytest.raises(HmxError, match=f"{one.folder.name} is not the run of trial {one.number}: algo.learning_rate"):
        work(copy)


def test_metrics_with_a_lost_update_are_reported(copy: Path) -> None:
    one = paused_trials(copy)[0]
    lines = one.paths.metrics.read_text().splitlines(keepends=True)
    one.paths.metrics.write_text("".join(lines[:2] + lines[3:]))
    with pytest.raises(HmxError, match="lacks records of updates 1 to 3") as damaged:
        work(copy)
    assert damaged.value.exit_code == 3


def test_evaluation_is_the_mean_return_of_the_games_at_the_end(tmp_path: Path) -> None:
    cfg = replace(TINY, {"run.eval_episodes": 4})
    request = dataclasses.replace(REQUEST, trials=1, rungs=None, confirm=0, metric="evaluation", minimize=False)
    folder = make(tmp_path / "s", request=request, cfg=cfg)
    work(folder)
    (trial,) = read_study(folder).trials
    rows, _ = read_evaluation(trial.paths)
    trained = [row for row in rows if row.policy != RANDOM]
    assert [row.episodes for row in trained] == [4, 4]
    assert [result.per_seed for result in trial.rungs] == [tuple(row.return_mean for row in trained)]
    assert verify_study(folder).differences == ()


def test_trial_whose_sizes_do_not_fit_is_refused_and_does_not_count(tmp_path: Path) -> None:
    space = ["ppo.num_minibatches=2|3", "algo.num_steps=8|6"]
    request = dataclasses.replace(REQUEST, trials=3, rungs=1, confirm=0, sampler_seed=5)
    folder = make(tmp_path / "s", space, request)
    steps: list[WorkStep] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("hmx.study.worker._Worker._train_locked", lambda self, task, lock: write_result(task))
        work(folder, tell=steps.append)
    study = read_study(folder)
    refused = [trial for trial in study.trials if trial.refused]
    assert len(study.accepted) == 3
    assert refused
    assert all(trial.values == {"ppo.num_minibatches": 3, "algo.num_steps": 8} for trial in refused)
    assert "ppo.num_minibatches" in refused[0].refused
    assert [step.kind for step in steps].count("refused") == len(refused)


def write_result(task: Trial) -> None:
    """Write a result without training."""
    result = RungResult(rung=len(task.rungs), update=1, env_steps=1, per_seed=(0.0,), objective=0.0)
    write_once(rung_file(task.folder, len(task.rungs)), result)


def test_update_that_is_not_finite_fails_its_trial_and_not_the_study(tmp_path: Path) -> None:
    request = dataclasses.replace(REQUEST, trials=2, rungs=1, confirm=0)
    folder = make(tmp_path / "s", ["algo.learning_rate=1e30..1e38:log"], request)
    steps: list[WorkStep] = []
    work(folder, tell=steps.append)
    assert [step.kind for step in steps] == ["failed", "failed"]
    study = read_study(folder)
    assert all("not finite" in trial.failed and trial.objective is None for trial in study.trials)
    assert study_status(folder).states == {"failed": 2}
    assert str(folder) not in study.trials[0].failed  # equal studies in other folders have equal files
