"""Replays: stretches of a run that are trained again tell a changed run from an intact one and from another machine."""

from __future__ import annotations

import dataclasses
import itertools
import json
import random
import shutil
import tempfile
from pathlib import Path

import pytest
import receipts
from folders import contents
from new_runs import train

from hmx.jobs import replay as replays
from hmx.jobs.fork import changed_later, fork
from hmx.jobs.requests import ForkRequest, VerifyRequest
from hmx.jobs.resume import resume
from hmx.jobs.runs import verify
from hmx.records import meta as metas
from hmx.records.paths import RunPaths
from hmx.runs.programs import Programs
from hmx.runs.signals import StopNow

pytestmark = pytest.mark.usefixtures("compiled_once")
OFTEN = {"run__checkpoint_every": 1, "run__keep": 9}


@pytest.fixture(autouse=True)
def compiled_with_the_runs(shared_programs, monkeypatch):
    """Replays share the compiled programs of the runs too."""
    monkeypatch.setattr(replays, "Programs", lambda: shared_programs)


@pytest.fixture(scope="module")
def made(tmp_path_factory, new_config):
    """A finished run of 8 updates with checkpoints at 2, 4, 6 and 8."""
    root = tmp_path_factory.mktemp("made")
    return train(new_config(8, run__root=str(root), run__name="made", **OFTEN)).run


@pytest.fixture
def run(made, tmp_path, monkeypatch):
    """A copy of that run; temporary folders go to `scratch`."""
    (tmp_path / "scratch").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "scratch"))
    return RunPaths(tmp_path, Path(shutil.copytree(made, tmp_path / "copy")).name)


def outcomes(paths, count=99, seed=0):
    """First and last update and outcome of each stretch of a run whose files look intact."""
    found = verify(paths.folder, VerifyRequest(replay=count, seed=seed))
    assert found.damage == ()
    return [(row.first, row.last, row.outcome) for row in found.replay.stretches]


def equal(*updates):
    return [(first + 1, last, "equal") for first, last in itertools.pairwise(updates)]


def test_an_intact_run_is_equal_and_is_only_read(run, tmp_path, monkeypatch):
    monkeypatch.setattr(replays, "Programs", Programs)  # compiled again, as by the command
    before = contents(run.folder)
    assert outcomes(run) == equal(0, 2, 4, 6, 8)
    assert contents(run.folder) == before
    assert list((tmp_path / "scratch").iterdir()) == []


def test_evaluations_while_a_run_trains_are_replayed(new_config, tmp_path):
    values = {"run__eval_episodes": 4, "run__evaluations": 3, "env__max_steps": 20}
    run = train(new_config(8, run__root=str(tmp_path), **OFTEN, **values)).run
    paths = RunPaths(run.parent, run.name)
    assert outcomes(paths) == equal(0, 2, 4, 6, 8)
    lines = [json.loads(line) for line in paths.metrics.read_text().splitlines()]
    forged = [line | ({"eval/return": 9.0} if line["update"] == 6 else {}) for line in lines]
    assert forged != lines
    paths.metrics.write_text("".join(json.dumps(line) + "\n" for line in forged))
    receipts.reseal(paths)
    found = verify(run, VerifyRequest(replay=99, seed=0))
    (row,) = found.replay.with_outcome("different")
    assert (row.first, row.last, row.update, row.quantity) == (5, 6, 6, "eval/return")


def test_the_seed_draws_the_stretches(run, monkeypatch):
    drawn = []
    monkeypatch.setattr(replays, "_replay", lambda paths, known, first, *_: drawn.append(first) or None)
    monkeypatch.setattr(replays, "RunReplay", lambda **given: given["seed"])
    for seed in range(20):
        replays.replay(run, VerifyRequest(replay=2, seed=seed))
    pairs = list(zip(drawn[::2], drawn[1::2], strict=True))
    assert all(first < second for first, second in pairs) and len(set(pairs)) > 3
    assert set(drawn) == {0, 2, 4, 6}
    assert len({replays.replay(run, VerifyRequest(replay=1)) for _ in range(3)}) == 3  # another draw each time


FORGED = {
    receipts.edit_last_digit: "",
    receipts.flip_bit: "",
    receipts.better_network: "params/policy_head/bias of update 8",
    receipts.cut_short: "record of update 7",
    receipts.learning_rate: "train/approx_kl of update 1",
}
"""Forgery -> the first difference, "" for what the forgery says; `benchmarks/receipts.py` has more."""


@pytest.mark.parametrize("forge", FORGED, ids=lambda forge: forge.__name__)
def test_a_forged_run_is_found_where_it_was_changed(run, forge):
    said = forge(run, random.Random(1)).replace("checkpoint", "update")
    receipts.reseal(run)
    found = verify(run.folder, VerifyRequest(replay=99, seed=0))
    assert found.damage == ()  # no digest shows it
    first, *_ = found.replay.with_outcome("different")
    assert f"{first.quantity} of update {first.update}" == (FORGED[forge] or said)
    if forge.__name__ in ("edit_last_digit", "better_network", "cut_short"):  # in one stretch only
        assert [row.outcome for row in found.replay.stretches].count("different") == 1


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"versions": {"jax": "0.0.1"}}, "made on jax 0.0.1; here: jax "),
        ({"device": "NVIDIA H200 (1 of 8)"}, "made on device NVIDIA H200; here: device cpu"),
        ({"processor": "arm64-1"}, "made on processor arm64-1; here: processor "),
    ],
)
def test_another_machine_or_version_differs_from_a_changed_run(run, changes, said):
    for meta in (run.meta, *run.checkpoints.glob("*/meta.json")):
        known = metas.read(meta)
        metas.write(
            meta,
            dataclasses.replace(known, **{**changes, "versions": {**known.versions, **changes.get("versions", {})}}),
        )
    receipts.reseal(run)
    found = verify(run.folder, VerifyRequest(replay=99)).replay
    assert {row.outcome for row in found.stretches} == {"not replayed"}
    assert all(row.reason.startswith(said) for row in found.stretches)


def test_the_number_of_unused_devices_is_no_other_machine():
    here = {"device": "cpu", "processor": "a", "versions": {}}
    assert metas.differences(dataclasses.replace(metas.collect("cpu (1 of 8)"), processor="a"), here) == {}
    assert metas.differences(metas.collect("cpu (2 of 8)"), here) == {"device": ("cpu (2 of 8)", "cpu")}


def test_a_run_of_another_program_is_accused_of_nothing(run):
    for meta in run.checkpoints.glob("*/meta.json"):
        metas.write(meta, dataclasses.replace(metas.read(meta), arithmetic="an earlier hmx"))
    receipts.edit_last_digit(run, random.Random(1))
    receipts.reseal(run)
    found = verify(run.folder, VerifyRequest(replay=99)).replay
    assert sorted(row.outcome for row in found.stretches) == ["equal", "equal", "equal", "not replayed"]


def test_changed_settings_apply_from_their_update_on(new_config, tmp_path):
    """Also in the middle of a stretch, where the checkpoint of the resumption is gone."""
    first = train(new_config(4, run__root=str(tmp_path), **OFTEN)).run
    longer = resume(first, changes={"run.total_steps": 8 * 32, "algo.learning_rate": 1e-3}).run
    paths = RunPaths(longer.parent, longer.name)
    assert outcomes(paths) == equal(0, 2, 4, 6, 8)
    shutil.rmtree(paths.checkpoint(4))
    assert outcomes(paths) == equal(0, 2, 6, 8)


def test_a_stretch_of_another_machine_is_not_replayed(new_config, tmp_path):
    run = train(new_config(4, run__root=str(tmp_path), **OFTEN)).run
    paths = RunPaths(run.parent, run.name)
    metas.write(paths.meta, dataclasses.replace(metas.read(paths.meta), processor="arm64-1"))
    resume(run, changes={"run.total_steps": 8 * 32})
    (entry,) = metas.read(paths.meta).resumes
    assert "processor arm64-1 became" in entry.notes[0]
    assert outcomes(paths) == equal(0, 2, 4, 6, 8)
    shutil.rmtree(paths.checkpoint(4))
    assert outcomes(paths) == [*equal(0, 2), (3, 6, "not replayed"), *equal(6, 8)]


@pytest.mark.parametrize("update", [0, 9])
def test_records_outside_the_updates_of_a_run_are_found(new_config, tmp_path, update):
    """Also that of one seed of two: curves and reports would show it."""
    made = train(new_config(8, run__root=str(tmp_path), run__num_seeds=2, **OFTEN)).run
    paths = RunPaths(made.parent, made.name)
    lines = paths.metrics.read_text().splitlines(keepends=True)
    more = json.dumps({**json.loads(lines[-1]), "update": update, "env_steps": update * 32}) + "\n"
    paths.metrics.write_text("".join([*lines, more] if update else [more, *lines]))
    receipts.reseal(paths)
    found = verify(made, VerifyRequest(replay=99, seed=0))
    assert [(row.update, row.quantity) for row in found.replay.with_outcome("different")] == [(update, "record")]


def test_a_run_that_claims_to_be_a_fork_shows_which_updates_are_not_replayed(run):
    lines = [json.loads(line) for line in run.metrics.read_text().splitlines()]
    forged = [line | ({"train/mean_episode_return": 99.0} if line["update"] <= 6 else {}) for line in lines]
    run.metrics.write_text("".join(json.dumps(line) + "\n" for line in forged))
    claim = metas.Resume(at="", update=6, command=(), parent={"name": "other", "run_id": "x"})
    metas.write(run.meta, dataclasses.replace(metas.read(run.meta), resumes=(claim,)))
    receipts.reseal(run)
    found = verify(run.folder, VerifyRequest(replay=99))
    assert [(row.first, row.outcome) for row in found.replay.stretches] == [(7, "equal")]
    assert found.notes[-1].what.startswith("updates 1 to 6 were copied from the run other, and are not replayed")


def test_a_fork_is_replayed_from_where_it_began(run):
    child = fork(run.folder, ForkRequest(at=4, name="child"), changes={"algo.learning_rate": 1e-3}).run
    paths = RunPaths(child.parent, child.name)
    assert outcomes(paths) == equal(4, 6, 8)
    shutil.rmtree(paths.checkpoint(4))
    assert outcomes(paths) == [(5, 6, "not replayed"), *equal(6, 8)]


def test_records_after_the_last_checkpoint_are_compared(run):
    meta = metas.read(run.checkpoint(6) / "meta.json")  # as a kill after update 8 leaves it
    metas.write(run.meta, dataclasses.replace(meta, state="interrupted"))
    shutil.rmtree(run.checkpoint(8))
    assert outcomes(run) == equal(0, 2, 4, 6, 8)
    lines = run.metrics.read_text().splitlines(keepends=True)
    last = json.loads(lines[-1])
    run.metrics.write_text("".join(lines[:-1]) + json.dumps({**last, "train/entropy": 0.5}) + "\n")
    assert outcomes(run) == [*equal(0, 2, 4, 6), (7, 8, "different")]


def test_a_signal_ends_a_replay_and_leaves_nothing(run, tmp_path, monkeypatch, watcher):
    before, make = contents(run.folder), replays.make_sinks
    monkeypatch.setattr(replays, "make_sinks", lambda run, paths, more: make(run, paths, [watcher(stop_at=4)]))
    with pytest.raises(StopNow):
        verify(run.folder, VerifyRequest(replay=99))
    assert list((tmp_path / "scratch").iterdir()) == []
    assert contents(run.folder) == before


def test_changes_that_were_trained_over_apply_before_their_update():
    change = metas.Resume(at="", update=10, command=(), changes={"algo.learning_rate": [0.1, 0.2]})
    again = metas.Resume(at="", update=5, command=())  # checkpoint 10 was damaged
    assert changed_later([change], 5) == {"algo.learning_rate": 0.1}
    assert changed_later([change, again], 5) == {}
    assert changed_later([change, again], 4) == {"algo.learning_rate": 0.1}
