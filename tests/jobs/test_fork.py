"""Forks: the state and the records at a checkpoint in a new run, which needs nothing of the old one."""

from __future__ import annotations

import dataclasses
import itertools
import shlex
import shutil
from pathlib import Path

import pytest
from folders import contents
from new_runs import plan, train

from hmx.cli.new_env import EXAMPLE
from hmx.config import codec
from hmx.errors import ExitCode, HmxError
from hmx.jobs import fork as forks
from hmx.jobs.fork import fork
from hmx.jobs.requests import ForkRequest
from hmx.jobs.resume import resume
from hmx.jobs.runs import verify
from hmx.records import meta as metas
from hmx.records.layout import find_run
from hmx.registry import trust, user_code
from hmx.registry.load import load, load_stored
from hmx.runs import checkpoint
from hmx.runs.restoring import restore
from hmx.runs.session import open_session

pytestmark = pytest.mark.usefixtures("compiled_once")
SAVE_OFTEN = {"run__checkpoint_every": 1, "run__keep": 9}
REPLAY = {
    "algo__name": "dqn", "dqn__learn_starts": 32, "dqn__batch_size": 8, "replay__capacity": 48,
    "ppo__update_epochs": 4, "ppo__num_minibatches": 8,
}  # fmt: skip


@pytest.fixture(scope="module")
def trained(tmp_path_factory, new_config):
    """A finished run of 8 updates and two seeds, with checkpoints at 2, 4, 6 and 8."""
    root = tmp_path_factory.mktemp("trained")
    return train(new_config(8, run__root=str(root), run__name="parent", run__num_seeds=2, **SAVE_OFTEN)).run


@pytest.fixture
def parent(trained, tmp_path):
    """A copy of that run."""
    return Path(shutil.copytree(trained, tmp_path / "parent"))


def at(update, name="child"):
    return ForkRequest(at=update, name=name)


def state(run, update):
    """The bits of a checkpoint."""
    session = open_session(load(file=run, environ={}).config)
    arrays = checkpoint.to_host(restore(session, find_run(run), update).state)
    return {name: (array.dtype, array.tobytes()) for name, array in arrays.items()}


def test_a_fork_without_changes_equals_its_parent_bit_for_bit(parent, deterministic):
    before = contents(parent)
    done = fork(parent, at(4))
    assert (done.run, done.state, done.first_update, done.updates) == (parent.parent / "child", "finished", 4, 8)
    assert state(done.run, 8) == state(parent, 8) and state(done.run, 4) == state(parent, 4)
    assert deterministic(done.run) == deterministic(parent) and len(deterministic(parent)) == 16
    assert contents(parent) == before
    assert verify(done.run).damage == () and verify(done.run).intact == (4, 6, 8)
    meta, parents = metas.read(done.run / "meta.json"), metas.read(parent / "meta.json")
    assert meta.run_id != parents.run_id
    (entry,) = meta.resumes
    assert (entry.update, entry.changes) == (4, {})
    assert entry.parent == {"name": "parent", "run_id": parents.run_id}
    assert load_stored(done.run).config.run.name == "child"


def test_a_fork_of_q_learning_continues_with_its_replay_buffer(make_config, deterministic):
    run = train(make_config(4, **SAVE_OFTEN, **REPLAY)).run
    child = fork(run, at(2)).run
    assert state(child, 4) == state(run, 4)
    assert deterministic(child) == deterministic(run)


def test_changes_apply_from_the_checkpoint_on_and_are_recorded(parent, deterministic, watcher):
    shutil.rmtree(parent / "checkpoints" / "8")
    changes = {"algo.learning_rate": "1e-4", "env.slip": 0.0}
    first = fork(parent, at(6, ""), changes=changes, command_line=["hmx", "fork"])
    assert first.run.name == "parent-fork-001"
    old, new = deterministic(parent), deterministic(first.run)
    assert old[:12] == new[:12] and old[12] != new[12]
    ratio = [b["train/learning_rate"] / a["train/learning_rate"] for a, b in zip(old, new, strict=True)]
    assert ratio == pytest.approx([1] * 12 + [0.2] * 4)
    cfg = load(file=first.run, environ={}).config
    assert (cfg.algo.learning_rate, cfg.env.slip) == (1e-4, 0.0)
    (entry,) = metas.read(first.run / "meta.json").resumes
    assert entry.command == ("hmx", "fork")
    assert entry.changes == {"algo.learning_rate": [5e-4, 1e-4], "env.slip": [0.1, 0.0]}

    assert (first.run / "run.toml").read_text().splitlines()[:2] == [
        "# forked from parent at update 6: env.slip 0.1 -> 0.0, algo.learning_rate 0.0005 -> 0.0001",
        f"schema = {codec.SCHEMA}",
    ]

    # A fork of a fork lists both.
    second = forks.plan(first.run, at(8, ""), changes={"run.total_steps": 512})
    assert second.run.name == "parent-fork-001-fork-001" and second.changes == {"run.total_steps": (256, 512)}
    assert second.warnings == ("the linear learning_rate schedule now spans 512 steps",)
    stop = watcher(stop_in="compiling")
    both = fork(first.run, at(8, "second"), changes={"run.total_steps": 288}, sinks=[stop]).run
    entries = metas.read(both / "meta.json").resumes
    assert [(e.update, e.parent["name"], set(e.changes)) for e in entries] == [
        (6, "parent", {"algo.learning_rate", "env.slip"}),
        (8, "parent-fork-001", {"run.total_steps"}),
    ]
    assert deterministic(both) == new and verify(both).damage == ()


def test_an_interrupted_fork_resumes_without_its_parent(parent, deterministic, watcher):
    first = fork(parent, at(2), sinks=[watcher(stop_at=4)])
    assert (first.state, first.updates) == ("interrupted", 4)
    last, records = state(parent, 8), deterministic(parent)
    shutil.rmtree(parent)
    done = resume(first.run)
    assert (done.state, done.first_update) == ("finished", 4)
    assert state(done.run, 8) == last and deterministic(done.run) == records


def test_a_fork_keeps_the_settings_that_continued_its_checkpoint(parent, monkeypatch):
    monkeypatch.setattr(forks, "run_session", None)
    meta = metas.read(parent / "meta.json")
    for update, pair in ((4, [0.99, 0.9]), (6, [0.9, 0.8])):
        meta = metas.resumed(meta, update, [], {"algo.gamma": pair})
    metas.write(parent / "meta.json", meta)
    opened = {update: forks.plan(parent, at(update), changes={"run.keep": 5}) for update in (2, 4, 6)}
    gammas = {update: planned.config.algo.gamma for update, planned in opened.items()}
    assert gammas == {2: 0.99, 4: 0.9, 6: 0.99}
    assert opened[2].warnings == ("the run was changed after update 2; the fork keeps algo.gamma = 0.99",)
    assert opened[6].warnings == () and opened[6].changes == {"run.keep": (9, 5)}


@pytest.mark.parametrize(
    ("changes", "says", "hint"),
    [
        (
            {"env.num_envs": 8},
            "env.num_envs: 4 cannot become 8",
            "--init-from {run}/checkpoints/4 --set env.num_envs=8",
        ),
        (
            {"algo.num_steps": "4", "algo.learning_rate": 1},
            "algo.num_steps: 8 cannot",
            "{run}/checkpoints/4 --set algo.",
        ),
        ({"run.seed": 1}, "run.seed: 0 cannot become 1", "--init-from {run}/checkpoints/4 --set run.seed=1"),
        ({"net.hidden": "9"}, "net.hidden: 8 cannot become 9", "hmx train --config {run} --set net.hidden=9"),
    ],
)
def test_changes_of_the_state_are_refused_with_the_closest_command(parent, changes, says, hint):
    before = contents(parent)
    with pytest.raises(HmxError) as found:
        fork(parent, at(4), changes=changes)
    assert says in found.value.message and found.value.exit_code == ExitCode.USAGE
    assert hint.format(run=parent) in found.value.hint
    assert contents(parent) == before and list(parent.parent.iterdir()) == [parent]


def test_the_suggested_command_starts_from_the_network_of_a_run_with_any_name(parent):
    named = parent.rename(parent.with_name("two words"))
    with pytest.raises(HmxError) as found:
        resume(named, changes={"env.num_envs": 8, "env.max_steps": 10})
    words = shlex.split(found.value.hint)
    assert words[:5] == ["hmx", "train", "--config", str(named), "--init-from"] and words[5] == str(named)
    sets = [text for word, text in itertools.pairwise(words) if word == "--set"]
    loaded = load(file=named, sets=[*sets, "run.name=", f"run.init_from={words[5]}"], environ={})
    planned = plan(loaded.config)
    assert (planned.config.env.num_envs, planned.config.env.max_steps) == (8, 10)
    assert planned.config.run.init_from == str(named / "checkpoints" / "8")


def test_a_finished_run_needs_more_steps_and_a_missing_checkpoint_is_named(parent):
    with pytest.raises(HmxError, match="cannot fork parent at update 8: it ends there") as found:
        fork(parent, changes={"algo.learning_rate": 1e-4})
    assert "--steps 512" in found.value.hint
    with pytest.raises(HmxError, match=r"there is no checkpoint .*/5") as found:
        fork(parent, at(5))
    assert found.value.hint == "checkpoints there: 2, 4, 6, 8" and found.value.exit_code == ExitCode.ARTEFACT
    longer = forks.plan(parent, changes={"run.total_steps": 288})
    assert (longer.update, longer.total_updates) == (8, 9)


def test_a_damaged_checkpoint_is_refused_or_replaced_by_an_older_one(parent):
    (parent / "checkpoints" / "8" / "run.toml").write_text("damaged")
    before = contents(parent)
    with pytest.raises(HmxError, match=r"checkpoint .*8 is damaged: run.toml: 7 bytes") as found:
        fork(parent, at(8))
    assert found.value.exit_code == ExitCode.ARTEFACT
    planned = forks.plan(parent)
    assert planned.update == 6 and "checkpoint 8 is damaged" in planned.warnings[0]
    assert contents(parent) == before


def test_a_taken_name_and_an_interrupt_leave_nothing(parent, monkeypatch):
    with pytest.raises(HmxError, match="parent already exists") as found:
        fork(parent, at(4, "parent"))
    assert found.value.hint == "use another name: --name parent-2"
    with pytest.raises(HmxError, match="'a b' cannot be the name of a run"):
        fork(parent, at(4, "a b"))

    def interrupt(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(checkpoint, "write", interrupt)
    with pytest.raises(KeyboardInterrupt):
        fork(parent, at(4))
    assert list(parent.parent.iterdir()) == [parent]


def test_damaged_records_of_the_parent_are_left_out_with_a_note(parent, lines, watcher):
    text = (parent / "metrics.jsonl").read_text().splitlines(keepends=True)
    (parent / "metrics.jsonl").write_text("".join([text[0], "damaged\n", *text[2:]]))
    done = fork(parent, at(6), sinks=[watcher(stop_in="compiling")])
    assert done.warnings[0].endswith("metrics.jsonl: damaged lines were left out (2)")
    assert [record["update"] for record in lines(done.run)] == [1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6]


def test_a_run_of_the_first_schema_can_be_forked(unpack, tmp_path, lines, watcher):
    old = unpack(1, tmp_path)
    child = fork(old.folder, ForkRequest(), sinks=[watcher(stop_in="compiling")]).run
    assert [record["update"] for record in lines(child)] == [1, 2, 3, 4]
    assert verify(child).damage == ()
    assert metas.read(child / "meta.json").resumes[0].parent == {"name": "corridor", "run_id": ""}


@pytest.mark.thorough
def test_options_of_an_own_environment_may_change_unless_shapes_do(tmp_path, make_config, monkeypatch, watcher):
    monkeypatch.chdir(tmp_path)
    shutil.copy(EXAMPLE, "game.py")
    user_code.allow("./game.py", "env.id")
    run = train(make_config(2, env__id="./game.py", env__max_steps=6, run__updates_per_chunk=1, **SAVE_OFTEN)).run
    with pytest.raises(HmxError, match=r"env.my.step_cost: 0.01 cannot become 0.5") as found:
        resume(run, changes={"env.my.step_cost": "0.5"})
    assert found.value.hint == f"hmx fork {run} --set env.my.step_cost=0.5 --steps 128"  # the run is finished
    child = fork(run, at(1), changes={"env.my.step_cost": "0.5"}, sinks=[watcher(stop_in="compiling")]).run
    assert dict(load(file=child, environ={}).config.env.my)["step_cost"] == 0.5
    assert (child / "environment.py").read_bytes() == Path("game.py").read_bytes() and verify(child).damage == ()
    assert metas.read(child / "meta.json").resumes[0].changes == {"env.my.step_cost": [0.01, 0.5]}
    with pytest.raises(
        HmxError, match=r"does not fit this configuration:\n  actors/env_state/core/obs: saved as"
    ) as found:
        fork(run, at(1, "other"), changes={"env.my.size": "6"})
    bigger = f"hmx train --config {run} --set env.my.size=6"  # whose network has other shapes
    assert found.value.hint == bigger
    with pytest.raises(HmxError, match=r"env.my.size: 5 cannot become 6") as found:
        resume(run, changes={"env.my.size": "6"})
    assert found.value.hint == bigger
    assert plan(load(file=run, sets=["env.my.size=6"], environ={}).config).sizes.num_updates == 2


SIZED = """
import jax.numpy as jnp
ACTIONS, MAX_STEPS, SIZE = 2, 8, 2
def reset(key): return jnp.int32(0), jnp.zeros(SIZE)
def step(state, action, key): return state + 1, jnp.zeros(SIZE), action * 1.0, False
"""


def test_a_size_that_changed_in_the_file_of_the_environment_leads_to_a_new_run(tmp_path, make_config, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("sized.py").write_text(SIZED)
    user_code.allow("./sized.py", "env.id")
    run = train(make_config(2, env__id="./sized.py", run__updates_per_chunk=1, **SAVE_OFTEN)).run
    Path("sized.py").write_text(SIZED.replace("2, 8, 2", "2, 8, 3"))
    monkeypatch.setattr(trust.Permissions, "trust", True)
    monkeypatch.setattr(trust.Permissions, "accept_change", True)
    for again in (lambda: resume(run), lambda: fork(run, at(1))):
        with pytest.raises(HmxError, match=r"does not fit this configuration:\n  actors/env_state") as found:
            again()
        assert found.value.hint == f"hmx train --config {run}"
    assert plan(load(file=run, environ={}).config).sizes.num_updates == 2


def test_meta_of_a_plain_resumption_has_no_field_that_older_versions_lack(parent):
    meta = metas.resumed(metas.read(parent / "meta.json"), 4, [])
    assert '"parent"' not in metas.to_text(meta)
    (entry,) = metas.resumed(dataclasses.replace(meta, resumes=()), 4, [], parent={"name": "x"}).resumes
    assert entry.parent == {"name": "x"}
