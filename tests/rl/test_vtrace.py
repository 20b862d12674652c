"""V-trace-clipped advantages in both conventions, against reference numbers (float64) and their own laws."""

import json
from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from vtrace_conventions import segment_vtrace, vtrace_targets

from hmx.rl.advantages import bootstraps, gae, normalise, variant_gae, vtrace_gae

CASES = json.loads((Path(__file__).parent / "advantage_cases.json").read_text())
CLOSE = {"rtol": 1e-5, "atol": 1e-6}
RHO_CLIP, C_CLIP = 1.2, 0.9
GAMMA, LAMBDA = 0.9, 0.8
T, ROWS = 5, 3


# As one program for each shape: operation by operation, each would be compiled for itself.
ANY = {
    function: jax.jit(function, static_argnames=names)
    for function, names in {
        segment_vtrace: ("time_axis",), vtrace_gae: (), gae: (), vtrace_targets: (), normalise: (),
        variant_gae: ("episode_end", "form"),
    }.items()
}  # fmt: skip


def reference(kind):
    return pytest.mark.parametrize("case", CASES[kind], ids=lambda case: case["id"])


def arrays(case, *names):
    return (jnp.asarray(case["inputs"][name], jnp.float32) for name in names)


def numbers(case, *names):
    return {name: case["inputs"][name] for name in names}


def check(got, case, advantages="advantages", targets="returns"):
    np.testing.assert_allclose(got.advantage_t, case["expected"][advantages], **CLOSE)
    np.testing.assert_allclose(got.target_t, case["expected"][targets], **CLOSE)


@reference("segment_vtrace")
def test_segments(case):
    rows = arrays(case, "values", "rewards", "dones", "ratio")
    check(ANY[segment_vtrace](*rows, **numbers(case, "gamma", "gae_lambda", "rho_clip", "c_clip"), time_axis=1), case)


@reference("one_more_slot")
def test_bootstrap_value_gives_every_slot_an_advantage(case):
    values, rewards, dones, ratio = arrays(case, "values", "rewards", "dones", "ratio")
    bootstrap = jnp.where(dones[1:], 0.0, values[1:])
    hyper = numbers(case, "gamma", "gae_lambda", "rho_clip", "c_clip")
    check(ANY[vtrace_gae](ratio, rewards[1:], values[:-1], bootstrap, dones[1:], 0.0, **hyper), case)


@reference("usual_gae")
def test_usual_convention(case):
    reward, value, last, terminated = arrays(case, "rewards", "values", "bootstrap_value", "terminations")
    hyper = numbers(case, "gamma", "gae_lambda")
    check(ANY[gae](reward, value, last, value, terminated, jnp.zeros_like(terminated), **hyper), case)


@reference("trunc_bootstrap_gae")
def test_truncation(case):
    reward, value, following = arrays(case, "rewards", "values", "next_values")
    terminated, truncated = arrays(case, "terminations", "truncations")
    final = jnp.where(truncated, following, jnp.nan)  # not to be read elsewhere
    hyper = numbers(case, "gamma", "gae_lambda")
    check(ANY[gae](reward, value, following[-1], final, terminated, truncated, **hyper), case)


@reference("brax_gae")
def test_brax(case):
    reward, value, last = arrays(case, "rewards", "values", "bootstrap_value")
    terminated, truncated = arrays(case, "termination", "truncation")
    following = jnp.concatenate([value[1:], last[None]])
    ends = (terminated, truncated)
    got = ANY[variant_gae](
        reward, value, following, *ends, **numbers(case, "gamma", "gae_lambda"), episode_end="mask", form="brax"
    )
    check(got, case, targets="vs")
    np.testing.assert_allclose(got.target_t - value, case["expected"]["vs_minus_values"], rtol=1e-5, atol=1e-6)


@reference("impala_vtrace")
def test_impala(case):
    ratio, reward, value, last = arrays(case, "ratio", "rewards", "values", "bootstrap_value")
    (terminated,) = arrays(case, "terminations")
    hyper = numbers(case, "gamma", "gae_lambda", "rho_clip", "c_clip", "pg_rho_clip")
    uncut = jnp.zeros_like(terminated)
    check(
        ANY[vtrace_targets](ratio, reward, value, last, value, terminated, uncut, **hyper), case, "pg_advantages", "vs"
    )


@reference("normalise")
def test_normalise(case):
    (advantage,) = arrays(case, "advantages")
    eps = case["inputs"]["eps"]
    np.testing.assert_allclose(ANY[normalise](advantage, eps=eps), case["expected"]["ddof0_all"], **CLOSE)
    counts = jnp.ones_like(advantage).at[:, -1].set(0.0)
    np.testing.assert_allclose(
        ANY[normalise](advantage, counts, eps), case["expected"]["ddof0_stats_without_last_slot"], **CLOSE
    )


# The laws, on small random rollouts. One shape, so that each function is compiled once.

estimate = jax.jit(partial(vtrace_gae, gamma=GAMMA, rho_clip=RHO_CLIP, c_clip=C_CLIP))
targets = jax.jit(partial(vtrace_targets, gamma=GAMMA, gae_lambda=LAMBDA, rho_clip=RHO_CLIP, c_clip=C_CLIP))
segments = jax.jit(partial(segment_vtrace, gamma=GAMMA, gae_lambda=LAMBDA, rho_clip=RHO_CLIP, c_clip=C_CLIP))
plain = jax.jit(partial(gae, gamma=GAMMA, gae_lambda=LAMBDA))
with_bootstraps = jax.jit(bootstraps)


def rollout(seed):
    """Ratios, rewards, values, the value after the last step, final values, terminated and truncated."""
    draw = np.random.default_rng(seed)
    ratio = jnp.asarray(np.exp(draw.normal(size=(T, ROWS))), jnp.float32)
    reward, value, final = (jnp.asarray(draw.normal(size=(T, ROWS)), jnp.float32) for _ in range(3))
    ended = draw.integers(0, 5, (T, ROWS))
    return ratio, reward, value, final[0] + 1.0, final, jnp.asarray(ended == 1), jnp.asarray(ended == 2)


seeds = given(st.integers(0, 2**31))


@seeds
def test_ratios_clipped_to_1_are_on_policy(seed):
    ratio, reward, value, last, final, terminated, truncated = rollout(seed)
    bootstrap = with_bootstraps(value, last, final, terminated, truncated)
    at_one = jax.jit(vtrace_gae)(
        1.0 + 1e6 * ratio, reward, value, bootstrap, terminated | truncated, 0.0, GAMMA, LAMBDA, 1.0, 1.0
    )
    on_policy = plain(reward, value, last, final, terminated, truncated)
    np.testing.assert_allclose(at_one.advantage_t, on_policy.advantage_t, **CLOSE)
    np.testing.assert_allclose(at_one.target_t, on_policy.target_t, **CLOSE)


@seeds
def test_lambda_zero_is_the_weighted_error_of_one_step(seed):
    ratio, reward, value, last, final, terminated, truncated = rollout(seed)
    bootstrap = with_bootstraps(value, last, final, terminated, truncated)
    got = estimate(ratio, reward, value, bootstrap, terminated | truncated, 0.0, gae_lambda=0.0)
    error = np.minimum(ratio, RHO_CLIP) * (reward + GAMMA * bootstrap - value)
    np.testing.assert_allclose(got.advantage_t, error, **CLOSE)


@seeds
def test_ratio_0_cuts_the_trace_and_done_isolates_earlier_steps(seed):
    ratio, reward, value, last, final, terminated, truncated = rollout(seed)
    cut = ratio.at[2, 0].set(0.0)
    done = (terminated | truncated).at[2, 1].set(True)
    bootstrap = with_bootstraps(value, last, final, terminated, truncated)

    def advantage(reward, advantage_last):
        return np.asarray(estimate(cut, reward, value, bootstrap, done, advantage_last, gae_lambda=LAMBDA).advantage_t)

    before, after = advantage(reward, 0.0), advantage(reward.at[3:].add(100.0), 7.0)
    np.testing.assert_array_equal(before[:3, :2], after[:3, :2])
    assert before[2, 0] == 0.0
    assert (before[3:] != after[3:]).all()


@seeds
def test_next_advantage_joins_two_halves(seed):
    ratio, reward, value, last, final, terminated, truncated = rollout(seed)
    rest = (ratio, reward, value, with_bootstraps(value, last, final, terminated, truncated), terminated | truncated)
    late = estimate(*(x[3:] for x in rest), 0.5, gae_lambda=LAMBDA)
    early = estimate(*(x[:3] for x in rest), late.advantage_t[0], gae_lambda=LAMBDA)
    whole = estimate(*rest, 0.5, gae_lambda=LAMBDA)
    np.testing.assert_allclose(jnp.concatenate([early.advantage_t, late.advantage_t]), whole.advantage_t, **CLOSE)


@seeds
def test_perfect_critic_has_zero_advantages(seed):
    ratio, reward, value, last, final, terminated, truncated = rollout(seed)
    value = np.array(value)
    following = np.asarray(last)
    for t in reversed(range(T)):
        worth = np.where(terminated[t], 0.0, np.where(truncated[t], final[t], following))
        following = value[t] = reward[t] + GAMMA * worth
    value = jnp.asarray(value)
    for got in (
        plain(reward, value, last, final, terminated, truncated),
        targets(ratio, reward, value, last, final, terminated, truncated),
    ):
        np.testing.assert_allclose(got.advantage_t, 0.0, atol=1e-5)
        np.testing.assert_allclose(got.target_t, value, **CLOSE)


@seeds
def test_targets_minus_values_are_the_clipped_advantage(seed):
    ratio, reward, value, last, final, terminated, truncated = rollout(seed)
    bootstrap = with_bootstraps(value, last, final, terminated, truncated)
    kernel = estimate(ratio, reward, value, bootstrap, terminated | truncated, 0.0, gae_lambda=LAMBDA)
    got = targets(ratio, reward, value, last, final, terminated, truncated)
    np.testing.assert_allclose(got.target_t - value, kernel.advantage_t, **CLOSE)


@seeds
def test_a_segment_never_reads_its_first_reward_and_done_nor_its_last_ratio(seed):
    ratio, reward, value, _, _, terminated, _ = rollout(seed)
    got = segments(value, reward, terminated, ratio)
    other = segments(value, reward.at[0].set(9.0), terminated.at[0].set(~terminated[0]), ratio.at[-1].set(9.0))
    np.testing.assert_array_equal(got.advantage_t, other.advantage_t)
    np.testing.assert_array_equal(got.advantage_t[-1], 0.0)


def test_segment_equals_a_bootstrapped_rollout_of_one_step_less():
    ratio, reward, value, _, _, terminated, _ = rollout(1)
    got = segments(value, reward, terminated, ratio)
    uncut, on_policy = jnp.zeros_like(terminated[1:]), jnp.ones_like(ratio)
    np.testing.assert_allclose(
        segment_vtrace(value, reward, terminated, on_policy, GAMMA, LAMBDA, 1.0, 1.0).advantage_t[:-1],
        gae(reward[1:], value[:-1], value[-1], value[:-1], terminated[1:], uncut, GAMMA, LAMBDA).advantage_t,
        **CLOSE,
    )
    rows = segment_vtrace(value.T, reward.T, terminated.T, ratio.T, GAMMA, LAMBDA, RHO_CLIP, C_CLIP, time_axis=1)
    np.testing.assert_allclose(rows.advantage_t.T, got.advantage_t, **CLOSE)
    np.testing.assert_allclose(rows.target_t.T, got.target_t, **CLOSE)


def test_advantages_have_no_gradient():
    ratio, reward, value, last, final, terminated, truncated = rollout(0)

    def everything(ratio, value):
        bootstrap = bootstraps(value, last, final, terminated, truncated)
        clipped = vtrace_gae(
            ratio, reward, value, bootstrap, terminated | truncated, 0.0, GAMMA, LAMBDA, RHO_CLIP, C_CLIP
        )
        rows = segment_vtrace(value, reward, terminated, ratio, GAMMA, LAMBDA, RHO_CLIP, C_CLIP)
        impala = targets(ratio, reward, value, last, final, terminated, truncated)
        return sum(leaf.sum() for leaf in jax.tree.leaves((clipped, rows, impala)))

    for gradient in jax.grad(everything, argnums=(0, 1))(ratio, value):
        np.testing.assert_array_equal(gradient, 0.0)


@pytest.mark.parametrize("axes", [1, 2, 3], ids=["T", "TE", "TEA"])
def test_flags_have_the_leading_axes_of_the_rewards(axes):
    draw = np.random.default_rng(0)
    ratio, reward, value, final = (jnp.asarray(draw.normal(size=(4, 2, 3)), jnp.float32) for _ in range(4))
    flags = [jnp.asarray(draw.integers(0, 2, (4, 2, 3)[:axes]), bool) for _ in range(2)]
    full = [jnp.asarray(np.broadcast_to(np.reshape(f, f.shape + (1,) * (3 - axes)), (4, 2, 3))) for f in flags]
    for few, many in zip(
        targets(ratio, reward, value, final[0], final, *flags),
        targets(ratio, reward, value, final[0], final, *full),
        strict=True,
    ):
        np.testing.assert_allclose(few, many, **CLOSE)


@seeds
def test_normalising_ignores_steps_of_weight_0(seed):
    draw = np.random.default_rng(seed)
    advantage = draw.normal(3.0, 5.0, (4, 3)).astype(np.float32)
    counts = np.ones((4, 3), bool)
    counts[draw.integers(4), draw.integers(3)] = False
    got = np.asarray(normalise(jnp.asarray(np.where(counts, advantage, np.nan)), jnp.asarray(counts)))[counts]
    np.testing.assert_allclose(got, normalise(jnp.asarray(advantage[counts])), rtol=1e-4, atol=1e-5)
    everything = normalise(jnp.asarray(advantage), jnp.ones((4,)))
    np.testing.assert_allclose(everything, normalise(jnp.asarray(advantage)), rtol=1e-4, atol=1e-5)


def test_normalising_an_empty_batch_is_finite():
    assert np.isfinite(normalise(jnp.ones((2, 3)), jnp.zeros((2, 3)))).all()
