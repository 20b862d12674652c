from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from hmx.algos.ppo.components import PpoLearner
from hmx.algos.ppo.reference import ReferencePolicy
from hmx.algos.types import Algorithm
from hmx.errors import ExitCode, HmxError
from hmx.records import checkpoints as records
from hmx.records.checkpoints import Retention
from hmx.records.layout import set_aside
from hmx.runs import checkpoint
from hmx.runs.loop import abstract_state, init_state


class SimpleTree(NamedTuple):
    """A state with a learner."""

    learner: Any


@pytest.fixture
def state(learner: Algorithm) -> Any:
    return init_state(learner, 3, 1)


def same(a: Any, b: Any) -> bool:
    x, y = checkpoint.to_host(a), checkpoint.to_host(b)
    return list(x) == list(y) and all(x[k].dtype == y[k].dtype and x[k].tobytes() == y[k].tobytes() for k in x)


@pytest.mark.parametrize("seeds", [1, 2])
def test_every_kind_of_leaf_round_trips_bit_for_bit(seeds: int, learner: Algorithm, tmp_path: Path) -> None:
    state = init_state(learner, 3, seeds)
    path = checkpoint.write(tmp_path, checkpoint.snapshot(state), 4, keep=Retention(3))
    back = checkpoint.restore(path, abstract_state(learner, 99, seeds))
    assert path == tmp_path / "4"
    assert jax.tree.structure(back) == jax.tree.structure(state)
    assert same(back, state)
    assert back.keys.dtype == state.keys.dtype
    # not borrowed from the host: a donated update must not write into it
    update = learner.update if seeds == 1 else jax.vmap(learner.update, in_axes=(0, None))
    jax.jit(update, donate_argnums=0)(back, learner.hypers(0))


@pytest.mark.parametrize("impl", ["threefry2x32", "rbg", "unsafe_rbg"])
def test_keys_keep_their_implementation(impl: str, tmp_path: Path) -> None:
    state = {"key": jax.random.key(5, impl=impl)}
    back = checkpoint.restore(
        checkpoint.write(tmp_path, checkpoint.snapshot(state), 0, keep=Retention(1)),
        jax.eval_shape(lambda: {"key": jax.random.key(0, impl=impl)}),
    )
    assert jax.random.key_impl(back["key"]) == jax.random.key_impl(state["key"])
    assert same(back, state)


def test_only_the_reference_policy_of_hmx_is_left_out() -> None:
    """It has a file of its own; an own algorithm may use the same name for what it learns."""
    own = {"params": jnp.ones(2)}
    ours = ReferencePolicy(own["params"], None)
    names = [
        set(checkpoint.snapshot(SimpleTree(learner=PpoLearner(jnp.zeros(1), None, reference))).leaves)
        for reference in (own, ours)
    ]
    assert names == [{"learner/value_stats", "learner/reference/params"}, {"learner/value_stats"}]


def test_copy_on_the_device_compiles_nothing_and_shares_no_memory() -> None:
    memory, heard = np.zeros(7919 * 4 + 64, np.uint8), []  # a shape that no other test has
    given = memory[-memory.ctypes.data % 64 :][: 7919 * 4].view(np.float32)  # JAX borrows memory that is aligned
    given[:] = 1.0

    def listen(event: str, duration_secs: float, **_: str | int) -> None:
        heard.append(event)

    jax.monitoring.register_event_duration_secs_listener(listen)
    try:
        copy = checkpoint.copied(given)
    finally:
        jax.monitoring.unregister_event_duration_listener(listen)
    given[:] = 0.0
    assert heard == [] and np.asarray(copy).sum() == 7919


def test_special_numbers_round_trip(tmp_path: Path) -> None:
    values = np.array([np.nan, -np.nan, np.inf, -0.0, 1e-45], np.float32)
    back = checkpoint.restore(
        checkpoint.write(tmp_path, checkpoint.snapshot({"x": jnp.array(values)}), 1, keep=Retention(1)),
        {"x": jnp.zeros(5)},
    )
    assert np.asarray(back["x"]).tobytes() == values.tobytes()


def test_metrics_of_first_episodes_may_be_added_and_removed(tmp_path: Path) -> None:
    """They follow what the environment reports, which may change while a run is stopped."""
    saved = {"actors": {"first": {"kept": jnp.ones(2), "old": jnp.ones(3)}}}
    path = checkpoint.write(tmp_path, checkpoint.snapshot(saved), 1, keep=Retention(1))
    wanted = {"actors": {"first": {"kept": jnp.zeros(2), "new": jnp.ones(4)}}}
    back = checkpoint.restore(path, wanted)
    assert same(back, {"actors": {"first": {"kept": jnp.ones(2), "new": jnp.zeros(4)}}})


def test_images_that_were_stored_as_vectors_are_read(tmp_path: Path) -> None:
    image = jnp.arange(2 * 3 * 4 * 5).reshape(2, 1, 3, 4, 5) % 2 == 0
    vectors = {"actors": {"obs": image.reshape(2, 1, 60).astype(jnp.float32)}}
    path = checkpoint.write(tmp_path, checkpoint.snapshot(vectors), 1, keep=Retention(1))
    assert same(checkpoint.restore(path, {"actors": {"obs": jnp.zeros_like(image)}}), {"actors": {"obs": image}})
    with pytest.raises(HmxError, match="does not fit"):
        checkpoint.restore(path, {"actors": {"obs": jnp.zeros((2, 1, 3, 4, 6))}})


def test_differing_leaves_are_named(tmp_path: Path) -> None:
    path = checkpoint.write(
        tmp_path,
        checkpoint.snapshot({"params": {"w": jnp.zeros((2, 3)), "old": jnp.zeros(1)}, "n": jnp.int32(0)}),
        1,
        keep=Retention(1),
    )
    wanted = {"params": {"w": jnp.zeros((2, 4)), "new": jnp.zeros(1)}, "n": jnp.float32(0)}
    with pytest.raises(HmxError) as caught:
        checkpoint.restore(path, wanted)
    assert caught.value.exit_code == ExitCode.ARTEFACT
    for line in (
        "params/w: saved as float32[2, 3], needed as float32[2, 4]",
        "params/old: saved, but not needed",
        "params/new: needed, but not saved",
        "n: saved as int32[], needed as float32[]",
    ):
        assert line in caught.value.message


def test_newest_checkpoints_are_kept(state: Any, tmp_path: Path) -> None:
    for update in (2, 4, 10):
        checkpoint.write(tmp_path, checkpoint.snapshot(state), update, keep=Retention(2))
    assert [p.name for p in records.complete(tmp_path)] == ["4", "10"]
    assert sorted(os.listdir(tmp_path)) == ["10", "4"]


def test_an_interrupted_deletion_leaves_no_folder_that_looks_like_a_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    saved = checkpoint.snapshot({"x": jnp.zeros(2)})
    for update in (1, 2):
        checkpoint.write(tmp_path, saved, update, keep=None)
    delete = shutil.rmtree

    def killed(path: Path, **options: bool) -> None:
        (Path(path) / records.MANIFEST).unlink()
        raise KeyboardInterrupt

    monkeypatch.setattr(shutil, "rmtree", killed)
    with pytest.raises(KeyboardInterrupt):
        checkpoint.write(tmp_path, saved, 3, keep=Retention(1))
    assert [path.name for path in records.listing(tmp_path) if records.faults(path)] == []
    monkeypatch.setattr(shutil, "rmtree", delete)
    checkpoint.write(tmp_path, saved, 4, keep=Retention(1))
    assert os.listdir(tmp_path) == ["4"]


def test_no_array_is_written_where_there_is_no_room_for_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    saved = checkpoint.snapshot({"x": jnp.zeros(5000), "y": jnp.zeros(7, jnp.int8)})
    asked: list[int] = []

    def allocate(handle: int, start: int, size: int) -> None:
        asked.append(size)
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", allocate, raising=False)  # not on macOS
    monkeypatch.setattr(checkpoint, "_write_arrays", lambda *given: pytest.fail("it has begun"))
    with pytest.raises(HmxError, match="No space left on device"):
        checkpoint.write(tmp_path, saved, 1, keep=None)
    assert asked == [20_007 + (192 << 10)] and os.listdir(tmp_path) == []


def test_a_checkpoint_is_replaced_by_one_of_the_same_update(tmp_path: Path) -> None:
    for value in (1.0, 2.0):
        checkpoint.write(tmp_path, checkpoint.snapshot({"x": jnp.full(2, value)}), 7, keep=Retention(1))
    assert checkpoint.restore(tmp_path / "7", {"x": jnp.zeros(2)})["x"].tolist() == [2.0, 2.0]
    assert os.listdir(tmp_path) == ["7"]


@pytest.mark.parametrize("step", ["_write_arrays", "records.write_manifest", "os.rename"])
def test_killed_save_keeps_older_checkpoints(
    step: str, state: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkpoint.write(tmp_path, checkpoint.snapshot(state), 1, keep=Retention(1))

    def die(*args: Any, **kwargs: Any) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(f"hmx.runs.checkpoint.{step}", die)
        with pytest.raises(HmxError, match=r"cannot write checkpoint .*2: No space left on device"):
            checkpoint.write(tmp_path, checkpoint.snapshot(state), 2, keep=Retention(1))
    assert [p.name for p in records.listing(tmp_path)] == ["1"]
    assert records.faults(tmp_path / "1") == []
    checkpoint.write(tmp_path, checkpoint.snapshot(state), 2, keep=Retention(1))
    assert os.listdir(tmp_path) == ["2"], "what was left of the failed one is gone"


def test_checkpoint_is_complete_before_its_rename(state: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rename = os.rename
    seen: list[str] = []

    def watch(old: Path, new: Path) -> None:
        if Path(new).name != "5":  # orbax renames too
            rename(old, new)
            return
        manifest = records.read_manifest(old)
        assert {file.path for file in manifest.files} | {records.MANIFEST} == {
            path.relative_to(old).as_posix() for path in old.rglob("*") if path.is_file()
        }
        assert all((old / file.path).stat().st_size == file.size for file in manifest.files)
        assert not new.exists()
        seen.append(new.name)
        rename(old, new)

    with monkeypatch.context() as patch:
        patch.setattr("hmx.runs.checkpoint.os.rename", watch)
        checkpoint.write(tmp_path, checkpoint.snapshot(state), 5, keep=Retention(1))
    assert seen == ["5"]


def test_damaged_checkpoint_is_an_error_and_can_be_set_aside(state: Any, tmp_path: Path) -> None:
    path = checkpoint.write(tmp_path, checkpoint.snapshot(state), 1, keep=Retention(1))
    for file in (path / checkpoint.ARRAYS).rglob("*"):
        if file.is_file():
            file.write_bytes(b"x")
    with pytest.raises(HmxError, match="cannot read checkpoint") as caught:
        checkpoint.restore(path, state)
    assert caught.value.exit_code == ExitCode.ARTEFACT
    assert set_aside(path).name == "1.damaged"
    assert records.listing(tmp_path) == []


def test_checkpoint_files_are_not_pickles(state: Any, tmp_path: Path) -> None:
    path = checkpoint.write(tmp_path, checkpoint.snapshot(state), 1, keep=Retention(1))
    files = [p for p in path.rglob("*") if p.is_file()]
    assert len(files) > 3
    assert not any(p.read_bytes().startswith(b"\x80") for p in files)
