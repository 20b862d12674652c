"""Replay buffers to a file and back, and what is refused before anything is played."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from hmx.config import fields
from hmx.config.learning import ReplayConfig
from hmx.config.schema import Config
from hmx.envs.registry import make_env
from hmx.errors import ExitCode, HmxError
from hmx.replay import Replay
from hmx.runs import buffers


class Item(NamedTuple):
    obs_t: Any
    legal_t: Any
    action_t: Any
    reward_tp1: Any


def collected(env_id: str, steps: int) -> tuple[Config, Any, Any, list[Any]]:
    """A buffer of three environments and twelve slots, of first positions, which are quicker to compile than steps."""
    cfg = fields.replace(Config(), {"env.id": env_id, "env.num_envs": 3, "env.max_steps": 50, "env.undo_depth": 1})
    env = make_env(cfg.env, cfg.reward)
    replay = Replay(12, 3, ReplayConfig(), env.spec.state_axis)
    reset = jax.jit(env.reset)
    state, seen = reset(jax.random.split(jax.random.key(1), 3))
    buffer, states = None, []
    for t in range(steps):
        k_act, k_reset = jax.random.split(jax.random.fold_in(jax.random.key(2), t))
        action = jax.random.categorical(k_act, jnp.log(seen.legal.astype(jnp.float32))).astype(jnp.int32)
        after, shown = reset(jax.random.split(k_reset, 3))
        item = Item(seen.obs, seen.legal, action, shown.reward)
        buffer = replay.init(item, state) if buffer is None else buffer
        buffer = replay.add(buffer, item, state)
        states.append(state)
        state, seen = after, shown
    buffer = replay.set_scores(buffer, jnp.array([1]), buffer.birth[1:2], jnp.array([0.5]))
    return cfg, env, buffer, states


@pytest.fixture(scope="module", params=["corridor", pytest.param("hackmatrix", marks=pytest.mark.slow)])
def filled(request: pytest.FixtureRequest) -> Any:
    return collected(request.param, 2 if request.param == "corridor" else 5)


def test_loaded_buffer_keeps_its_environment_states(filled: Any, tmp_path: Path) -> None:
    cfg, env, state, states = filled
    made = buffers.from_replay(state, cfg, env.spec, run="r", update=3)
    buffers.save(tmp_path / "b.npz", made)
    found = buffers.load(tmp_path / "b.npz")
    buffers.check(found, cfg, env, "b.npz")
    size = min(12, 3 * len(states))
    assert found.header.size == size and found.header.num_added == 3 * len(states) and found.header.update == 3
    for name, leaf in buffers.named(made).items():
        np.testing.assert_array_equal(buffers.named(found)[name], leaf)
        assert leaf.shape[0] == size and buffers.named(found)[name].dtype == leaf.dtype
    assert list(np.flatnonzero(found.scored)) == [1] and found.consequence_scores[1] == 0.5
    # of the newest transitions of all environments, the state before the step
    newest = [int(np.flatnonzero(found.birth == 3 * (len(states) - 1) + e)[0]) for e in range(3)]
    jax.tree.map(np.testing.assert_array_equal, buffers.env_states(found, env, np.array(newest)), states[-1])


def test_incompatible_buffer_is_refused_with_each_difference(filled: Any) -> None:
    cfg, env, state, _ = filled
    good = buffers.from_replay(state, cfg, env.spec)

    def refused(buffer: buffers.Buffer = good, cfg: Config = cfg) -> str:
        with pytest.raises(HmxError) as caught:
            buffers.check(buffer, cfg, env, "b.npz")
        assert caught.value.exit_code == ExitCode.ARTEFACT and caught.value.hint
        return caught.value.message

    assert "was filled in" in refused(cfg=fields.replace(cfg, {"env.id": "counting"}))
    assert "env.max_steps = 50 in the buffer, 60 here" in refused(cfg=fields.replace(cfg, {"env.max_steps": 60}))
    assert "no environment states" in refused(dataclasses.replace(good, env_states={}))
    empty = dataclasses.replace(good, header=dataclasses.replace(good.header, size=0))
    assert "is empty" in refused(empty)
    cut = {name: leaf for name, leaf in good.items.items() if name != "legal_t"}
    assert "items/legal_t: missing" in refused(dataclasses.replace(good, items=cut))
    name = next(iter(good.env_states))
    wide = {**good.env_states, name: good.env_states[name].astype(np.float64)}
    assert f"env_states/{name}: float64" in refused(dataclasses.replace(good, env_states=wide))
    more = {**good.env_states, "wind": good.birth}
    assert "env_states/wind: not part" in refused(dataclasses.replace(good, env_states=more))
    for action in (-1, env.spec.num_actions):
        items = {**good.items, "action_t": np.full_like(good.items["action_t"], action)}
        assert "the action of slot 0 is not legal" in refused(dataclasses.replace(good, items=items))


def test_unsupported_arrays_are_refused(filled: Any, tmp_path: Path) -> None:
    cfg, env, state, _ = filled
    good = buffers.from_replay(state, cfg, env.spec)
    odd = dataclasses.replace(good, items={**good.items, "note": np.array([None] * len(good.birth))})
    with pytest.raises(HmxError, match="cannot save items/note: files cannot contain object"):
        buffers.save(tmp_path / "b.npz", odd)
    assert list(tmp_path.iterdir()) == []
