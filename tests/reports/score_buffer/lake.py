"""A run on FrozenLake whose network is the table of optimal values, and a buffer of all its states."""

from __future__ import annotations

from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from lake_values import CELLS, GAMMA, optimal_values

from hmx.config import codec
from hmx.config.learning import PpoConfig
from hmx.config.schema import AlgoConfig, Config, EnvConfig, NetConfig, RunConfig
from hmx.records.checkpoints import CheckpointInfo, Retention
from hmx.runs import buffers, checkpoint
from hmx.runs.loop import init_state
from hmx.runs.session import open_session


def make_run(root: Path, **env: object) -> Path:
    """A run whose logits and values are those of the table, exactly: each hidden unit is a cell."""
    cfg = Config(
        run=RunConfig(name="lake", root=str(root), total_steps=32, updates_per_chunk=1, eval_episodes=0),
        env=EnvConfig(**{"id": "frozenlake", "num_envs": 4, "max_steps": 100, **env}),
        net=NetConfig(kind="mlp", hidden=(64,)),
        algo=AlgoConfig(num_steps=8, gamma=float(GAMMA)),
        ppo=PpoConfig(update_epochs=1, num_minibatches=2, value_target="identity"),
    )
    state, run = init_state(open_session(cfg).algorithm, 0, 1), root / "lake"
    (run / "checkpoints").mkdir(parents=True)
    (run / "run.toml").write_text(codec.to_toml(cfg))
    values = jnp.asarray(optimal_values())
    params = {
        "torso": {"dense_0": {"kernel": jnp.eye(64), "bias": jnp.zeros(64)}},
        "policy_head": {"kernel": values, "bias": jnp.zeros(4)},
        "value_head": {"kernel": values.max(1, keepdims=True), "bias": jnp.zeros(1)},
    }
    jax.tree.map(lambda old, new: np.testing.assert_equal(old.shape, new.shape), state.params, params)
    info = CheckpointInfo(env_steps=32, shape_digest=codec.shape_digest(cfg), config_digest=codec.digest(cfg))
    saved = checkpoint.snapshot(state._replace(params=params))

    def add_copy(folder: Path) -> None:
        (folder / "run.toml").write_text(codec.to_toml(cfg))

    checkpoint.write(run / "checkpoints", saved, 1, Retention(3), info, add_files=add_copy)
    return run


def make_buffer(path: Path, taken: np.ndarray | None = None, **env: object) -> Path:
    """All 53 states of the lake, with the best action, or others, taken; births in an order of their own."""
    cfg = Config(env=EnvConfig(**{"id": "frozenlake", "num_envs": 1, "max_steps": 100, **env}))
    size = len(CELLS)
    session_env = open_session(cfg).env
    taken = optimal_values()[CELLS].argmax(1) if taken is None else taken
    header = buffers.header_of(
        cfg, session_env.spec, capacity=64, size=size, position=size, num_added=1000, run="lake", td_max=1.0
    )
    buffers.save(
        path,
        buffers.Buffer(
            header=header,
            items={
                "obs_t": np.eye(64, dtype=np.float32)[CELLS][:, None],
                "legal_t": np.ones((size, 1, 4), bool),
                "action_t": taken.astype(np.int32)[:, None],
            },
            env_states={"core": CELLS, "steps": np.zeros(size, np.int32)},
            td_errors=np.linspace(0, 1, size, dtype=np.float32),
            consequence_scores=np.zeros(size, np.float32),
            scored=np.zeros(size, bool),
            scored_at=np.zeros(size, np.uint32),
            birth=(np.arange(size, dtype=np.uint32) * 7) % 53 + 900,
        ),
    )
    return path
