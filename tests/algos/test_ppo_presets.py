"""The whole loss of each preset from one batch, and the passes of the value network that it takes."""

import dataclasses
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.extend.core import jaxprs_in_params
from ppo_cases import case

from hmx.algos.collector import Rollout
from hmx.algos.ppo.aspects import value_weight
from hmx.algos.ppo.components import make_head, make_ppo_components
from hmx.algos.ppo.loss import ppo_loss
from hmx.algos.ppo.update import _init, _rollout, make_batch
from hmx.config.schema import RewardWeights
from hmx.envs.registry import make_env
from hmx.nets.build import Net, NetOutput
from hmx.registry.load import load
from hmx.types import Transition


def preset(name, num_steps, gamma=0.99, **ppo):
    sets = [f"algo.num_steps={num_steps}", f"algo.gamma={gamma}", *(f"ppo.{key}={value}" for key, value in ppo.items())]
    cfg = load(preset=name, sets=sets, environ={}, check=False).config
    return dataclasses.replace(cfg, env=dataclasses.replace(cfg.env, num_envs=2, id="pendulum"))


HYPERS = {"clip_eps": jnp.float32(0.3), "ent_coef": jnp.float32(0.0)}
LAST, NEXT = 100, 200  # observations are numbers of places: [t, b], the last of b, what follows [t, b]


def speaking(given, cfg):
    """A network that says what the case says, by the number of the place it is asked about."""
    mean, raw = (np.array(given[name]) for name in ("mean_TBA", "raw_std_TBA"))
    logits = jnp.asarray(np.concatenate([mean, raw], -1).reshape(6, -1), jnp.float32)
    said = np.zeros(300, np.float32)
    said[:6] = np.reshape(given["values_TB"], -1)
    said[LAST : LAST + 2] = given["bootstrap_B"]
    said[NEXT : NEXT + 6] = np.reshape(given["true_next_values_TB"], -1)
    values = jnp.asarray(said)

    def unroll(params, carry, obs, reset):
        place = obs[..., 0]
        return NetOutput(logits[jnp.minimum(place, 5)], values[place][..., None]), carry

    def apply(params, carry, obs, reset):
        return unroll(params, carry, obs, reset)

    return Net(lambda key: {}, apply, unroll, lambda batch: (), lambda params, fn: params)


@pytest.mark.parametrize("name", ["brax", "scs", "scs-doc"])
def test_loss_of_a_preset_matches_an_independent_computation(name):
    given, all_expected, _ = case("loss/whole")
    expected = all_expected[name.replace("-", "_")]
    cfg = preset(
        name, gamma=given["gamma"], gae_lambda=given["lambda_"], reward_scale=given["reward_scaling"], obs_norm="none",
        gae_axis="time", num_steps=3, bptt_horizon=3, num_minibatches=1, ent_coef=0.0,
    )  # fmt: skip
    assert (cfg.ppo.clip_eps, cfg.ppo.vf_coef) == (expected["clip"], given["vf_coef"])
    parts = make_ppo_components(cfg, make_env(cfg.env, RewardWeights()))._replace(net=speaking(given, cfg))
    place = jnp.arange(6).reshape(3, 2, 1, 1)
    raw = jnp.asarray(given["raw_action_TBA"], jnp.float32)[:, :, None]
    logits = jax.jit(lambda: speaking(given, cfg).unroll((), (), place, None)[0].logits)()
    log_prob = make_head(cfg, 2).log_prob(logits, jnp.ones((3, 2, 1, 0), bool), raw)
    tb = [jnp.asarray(given[key], jnp.float32)[..., None] for key in ("rewards_TB", "old_minus_new_log_prob_TB")]
    ends = [jnp.asarray(given[key], bool)[..., None] for key in ("termination_TB", "truncation_TB")]
    flat = jnp.zeros((3, 2, 1))
    seen = Transition(
        obs_t=place, legal_t=jnp.ones((3, 2, 1, 0), bool), reset_t=flat[..., 0] > 0, alive_t=flat == 0, action_t=raw,
        log_prob_t=log_prob + tb[1], value_t=flat, reward_tp1=tb[0], terminated_tp1=ends[0], truncated_tp1=ends[1],
        value_final_tp1=flat, final_obs_tp1=place + NEXT,
    )  # fmt: skip
    last = jnp.arange(2).reshape(2, 1, 1) + LAST
    rows = jax.jit(lambda rollout: make_batch(rollout, cfg, 3))
    batch = rows(Rollout(seen, (), flat[0], last, jnp.zeros(2, bool)))
    hypers = {"clip_eps": jnp.float32(cfg.ppo.clip_eps), "ent_coef": jnp.float32(1.0)}
    total, metrics = jax.jit(partial(ppo_loss, parts))({}, (), hypers, batch)
    entropy = float(metrics["train/entropy"].total)
    if expected["gaussian_entropy"] is not None:
        assert entropy == pytest.approx(expected["gaussian_entropy"], rel=1e-5)
    assert float(metrics["train/policy_loss"].total) == pytest.approx(expected["policy_loss"], rel=1e-4)
    assert value_weight(cfg.ppo) * float(metrics["train/value_loss"].total) == pytest.approx(
        expected["value_loss"], rel=1e-5
    )
    assert float(total) + entropy == pytest.approx(expected["total_without_entropy"], rel=1e-4)
    wrong = parts._replace(cfg=dataclasses.replace(cfg, ppo=dataclasses.replace(cfg.ppo, gae_axis="batch")))
    otherwise = float(jax.jit(partial(ppo_loss, wrong))({}, (), hypers, batch)[0])
    assert abs(otherwise + entropy - expected["total_without_entropy"]) > 0.1


def rows_through(jaxpr, shape):
    """Rows of every product with a kernel of that shape, in all nested programs."""
    found = 0
    for eqn in jaxpr.eqns:
        if eqn.primitive.name == "dot_general" and eqn.invars[1].aval.shape == shape:
            found += eqn.invars[0].aval.size // shape[0]
        for inner in jaxprs_in_params(eqn.params):
            found += rows_through(inner, shape)
    return found


@pytest.mark.parametrize("forward", ["shift", "both"])
def test_2_1_value_passes(forward):
    _, expected, _ = case("value_forward/count")
    for wanted in expected["counts"]:
        length, rows = wanted["T"], wanted["B"]
        cfg = preset(
            "brax", num_steps=length, bptt_horizon=length, num_minibatches=1, value_forward=forward, obs_norm="none"
        )
        cfg = dataclasses.replace(cfg, net=dataclasses.replace(cfg.net, hidden=(2,), value_hidden=(7,)))
        cfg = dataclasses.replace(cfg, env=dataclasses.replace(cfg.env, num_envs=rows))
        parts = make_ppo_components(cfg, make_env(cfg.env, RewardWeights()))
        shapes = jax.eval_shape(lambda key, parts=parts: one_batch(parts, key), jax.random.key(0))
        program = jax.make_jaxpr(lambda p, b, parts=parts: ppo_loss(parts, p, (), HYPERS, b)[0])(*shapes)
        assert rows_through(program.jaxpr, (3, 7)) == wanted["brax" if forward == "shift" else "scs"]


def one_batch(parts, key):
    state = _init(parts, key)
    _, rollout, _ = _rollout(parts, state, jax.random.key(1))
    return state.params, make_batch(rollout, parts.cfg, parts.horizon)
