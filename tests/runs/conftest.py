"""A learner small enough to follow by hand: its state holds every kind of leaf a real one has."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import pytest

from hmx.agents.types import Algorithm, Decision
from hmx.types import Key, Max, Mean, Metrics, Sum


class Moments(NamedTuple):
    mu: dict[str, jax.Array]
    count: jax.Array


def _init(key: Key) -> dict[str, Any]:
    k_params, k_env, k_run = jax.random.split(key, 3)
    return {
        "params": {"torso": {"kernel": jax.random.normal(k_params, (3, 2))}, "half": jnp.zeros(2, jnp.bfloat16)},
        "opt": (Moments({"kernel": jnp.zeros((3, 2))}, jnp.int32(0)), ()),
        "env": {
            "cells": jax.random.bits(k_env, (4,), jnp.uint32),
            "done": jnp.zeros(4, bool),
            "none": jnp.zeros((0, 3)),
        },
        "keys": jax.random.split(k_run, 4),
        "update": jnp.int32(0),
        "env_steps": jnp.int32(0),
    }


def _update(state: dict[str, Any]) -> tuple[dict[str, Any], Metrics]:
    pairs = jax.vmap(jax.random.split)(state["keys"])
    noise = jax.vmap(lambda k: jax.random.normal(k, (3, 2)))(pairs[:, 1]).mean(0)
    moments = state["opt"][0]
    mu = {"kernel": 0.9 * moments.mu["kernel"] + noise}
    kernel = state["params"]["torso"]["kernel"] - 0.1 * mu["kernel"]
    update = state["update"] + 1
    new = {
        **state,
        "params": {**state["params"], "torso": {"kernel": kernel}},
        "opt": (Moments(mu, moments.count + 1), ()),
        "env": {**state["env"], "done": ~state["env"]["done"]},
        "keys": pairs[:, 0],
        "update": update,
        "env_steps": state["env_steps"] + 8,
    }
    even = (update % 2 == 0)[None]
    metrics: Metrics = {
        "train/loss": Mean.of(kernel),
        "train/mean_episode_return": Mean.of(update.astype(jnp.float32)[None], where=even),
        "stats/highest": Max.of(noise),
        "stats/never": Max(jnp.float32(0), jnp.float32(0)),
        "programs/push": Sum.of(update.astype(jnp.float32)[None]),
    }
    return new, metrics


def _act(state: Any, obs: Any, legal: Any, key: Any, greedy: bool) -> Decision:
    raise NotImplementedError("the loop never acts")


@pytest.fixture(scope="session")
def learner() -> Algorithm:
    return Algorithm(init=_init, update=_update, act=_act)
