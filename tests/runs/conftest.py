"""A learner small enough to follow by hand: its state holds every kind of leaf a real one has."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import pytest

from hmx.algos.sharding import replicate
from hmx.algos.types import Algorithm
from hmx.runs import loop as loops
from hmx.runs.chunk import Chunk, compile_chunk
from hmx.types import Array, Key, Max, Mean, Metrics, Sum

# What `fault` makes of an update, by number: nothing, or a number that is not finite in that place.
FAULTS = ("none", "reward", "loss", "gradient", "parameter")


class Moments(NamedTuple):
    mu: dict[str, jax.Array]
    count: jax.Array


class State(NamedTuple):
    params: dict[str, Any]
    opt: Any
    env: dict[str, jax.Array]
    keys: jax.Array
    agent: jax.Array  # which of the seeds side by side this is
    update: jax.Array
    env_steps: jax.Array


def _init(key: Key) -> State:
    k_params, k_env, k_run = jax.random.split(key, 3)
    return State(
        params={"torso": {"kernel": jax.random.normal(k_params, (3, 2))}, "half": jnp.zeros(2, jnp.bfloat16)},
        opt=(Moments({"kernel": jnp.zeros((3, 2))}, jnp.int32(0)), ()),
        env={
            "cells": jax.random.bits(k_env, (4,), jnp.uint32),
            "done": jnp.zeros(4, bool),
            "none": jnp.zeros((0, 3)),
        },
        keys=jax.random.split(k_run, 4),
        agent=jnp.int32(0),
        update=jnp.int32(0),
        env_steps=jnp.int32(0),
    )


def _update(state: State, hypers: dict[str, Array]) -> tuple[State, Metrics]:
    here = (hypers["fault_agent"] < 0) | (hypers["fault_agent"] == state.agent)

    def spoilt(name: str, value: Array) -> Array:
        hit = here & (hypers["fault"] == FAULTS.index(name))
        return jnp.where(hit, jnp.asarray(jnp.inf if name == "parameter" else jnp.nan, value.dtype), value)

    pairs = jax.vmap(jax.random.split)(state.keys)
    noise = spoilt("gradient", jax.vmap(lambda k: jax.random.normal(k, (3, 2)))(pairs[:, 1]).mean(0))
    moments = state.opt[0]
    mu = {"kernel": 0.9 * moments.mu["kernel"] + noise}
    kernel = state.params["torso"]["kernel"] - hypers["rate"] * mu["kernel"]
    update = state.update + 1
    new = state._replace(
        params={"torso": {"kernel": kernel}, "half": spoilt("parameter", state.params["half"])},
        opt=(Moments(mu, moments.count + 1), ()),
        env={**state.env, "done": ~state.env["done"]},
        keys=pairs[:, 0],
        update=update,
        env_steps=state.env_steps + 8,
    )
    even = (update % 2 == 0)[None]
    metrics: Metrics = {
        "train/mean_reward": Mean.of(spoilt("reward", jnp.float32(0.5))),
        "train/total_loss": Mean.of(spoilt("loss", kernel)),
        "train/grad_norm": Mean.of(jnp.abs(noise).sum()),
        "train/mean_episode_return": Mean.of(update.astype(jnp.float32)[None], where=even),
        "stats/highest": Max.of(noise),
        "stats/never": Max(-jnp.float32(jnp.inf), jnp.float32(0)),  # as merging leaves it without data
        "programs/push": Sum.of(update.astype(jnp.float32)[None]),
    }
    return new, metrics


def _hypers(update: int) -> dict[str, float]:
    return {"rate": 0.1 / (1 + update), "fault": 0.0, "fault_agent": -1.0}


def _forget(before: State, after: State) -> State:
    return after._replace(params=before.params, opt=before.opt)


def _partitions(state: State) -> State:
    return replicate(state)


def _experience(state: State, hypers: dict[str, Array]) -> dict[str, Array]:
    return {"keys": state.keys, "kernel": state.params["torso"]["kernel"] * hypers["rate"], "done": state.env["done"]}


def _never(*given: Any) -> Any:
    raise NotImplementedError("the loop never acts")


@pytest.fixture(scope="session")
def learner() -> Algorithm:
    return Algorithm(
        init=_init,
        update=_update,
        hypers=_hypers,
        act=_never,
        initial_carry=_never,
        forget=_forget,
        partitions=_partitions,
        experience=_experience,
    )


@pytest.fixture(scope="session")
def chunk(learner: Algorithm) -> Chunk:
    return compile_chunk(learner, loops.abstract_state(learner, 0, 1), length=3)


@pytest.fixture(scope="session")
def chunk_of_two(learner: Algorithm) -> Chunk:
    return compile_chunk(learner, loops.abstract_state(learner, 0, 2), length=3, num_seeds=2)


@pytest.fixture(scope="session")
def skipping(learner: Algorithm) -> Chunk:
    return compile_chunk(learner, loops.abstract_state(learner, 0, 2), length=3, num_seeds=2, on_nonfinite="skip")
