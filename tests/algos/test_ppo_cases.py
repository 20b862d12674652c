"""What implementations of PPO do differently, against numbers worked out independently; each case has two sides."""

import dataclasses
from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from ppo_cases import CASES, arrays, case

from hmx.algos.optim import clip
from hmx.algos.ppo.aspects import value_weight
from hmx.config.schema import Config, EnvConfig, NetConfig, RunConfig
from hmx.nets.layers import Torso, dense
from hmx.registry import derive
from hmx.rl import normaliser, policies, tanh_normal
from hmx.rl.advantages import gae, normalise, variant_gae
from hmx.rl.value_codec import make_codec

# 1.1 the advantage and the axis it is summed along


def over(axis, delta_bt, resets_bt, gamma, gae_lambda):
    """Errors into advantages: with no values, the rewards are the errors, and a termination stops the sum."""
    delta, ended = jnp.asarray(delta_bt, jnp.float32).T, jnp.asarray(resets_bt, bool).T
    nothing = jnp.zeros_like(delta)
    return variant_gae(delta, nothing, nothing, ended, nothing, gamma, gae_lambda, axis=axis).advantage_t.T


def test_1_1_axis():
    given, expected, same = case("gae_axis/square")
    common = given["td_residuals_BT"], given["resets_BT"], given["gamma"], given["lambda_"]
    right, wrong = over("time", *common), over("batch", *common)
    same(right, expected["over_time_BT"])
    same(wrong, expected["over_batch_BT"])
    same(jnp.abs(right - wrong).max(), expected["max_abs_difference"])


def test_1_1_permuting_rows_permutes_advantages():
    given, expected, same = case("gae_axis/permutation")
    delta, order = np.array(given["td_residuals_BT"]), given["permutation"]
    rest = np.zeros(delta.shape, bool), given["gamma"], given["lambda_"]
    same(over("time", delta, *rest), expected["adv_BT"])
    permuted = over("time", delta[order], *rest)
    same(permuted, expected["adv_of_permuted_BT"])
    same(permuted, np.array(expected["adv_BT"])[order])
    assert not np.allclose(over("batch", delta[order], *rest), over("batch", delta, *rest)[np.array(order)])


def test_1_1_brax_advantage_is_not_gae():
    given, expected, same = case("brax_advantage/not_gae")
    reward, value, last = arrays(given, "rewards_TB", "values_TB", "bootstrap_B")
    value_tp1, never = jnp.concatenate([value[1:], last[None]]), jnp.zeros(reward.shape, bool)
    for text in ("0.0", "0.5", "0.95", "1.0"):
        wanted, rest = expected[text], (never, never, given["gamma"], float(text))
        brax = variant_gae(reward, value, value_tp1, *rest, form="brax")
        plain = variant_gae(reward, value, value_tp1, *rest)
        same(brax.advantage_t, wanted["brax_advantages_TB"])
        same(brax.target_t, wanted["brax_vs_TB"])
        same(plain.advantage_t, wanted["gae_advantages_TB"])
        same(plain.target_t, wanted["gae_returns_TB"])
    two_steps = variant_gae(reward, value, value_tp1, never, never, given["gamma"], 0.0, form="brax")
    same(two_steps.advantage_t, expected["identity_lambda_0"]["delta_plus_gamma_delta_next_TB"])


# 1.2 the end of an episode

ENDS = {
    "bootstrap": ("bootstrap_advantages_TB", "bootstrap_returns_TB"),
    "terminal": ("terminal_advantages_TB", "terminal_returns_TB"),
    "leak": ("leak_advantages_TB", "leak_returns_TB"),
}
BRAX_ENDS = {
    "mask": ("brax_advantages_TB", "brax_vs_TB"),
    "timeout_reward": ("brax_bootstrap_on_timeout_advantages_TB", "brax_bootstrap_on_timeout_vs_TB"),
}


@pytest.mark.parametrize("pattern", ["no_end", "termination_mid", "truncation_mid", "truncation_last"])
def test_1_2_end_of_an_episode(pattern):
    given, expected, same = case(f"truncation/{pattern}")
    reward, value, true_next = arrays(given, "rewards_TB", "values_TB", "true_next_values_TB")
    ends = [jnp.asarray(given[name], bool) for name in ("termination_TB", "truncation_TB")]
    for form, modes in (("gae", ENDS), ("brax", BRAX_ENDS)):
        for mode, names in modes.items():
            found = variant_gae(reward, value, true_next, *ends, given["gamma"], given["lambda_"], mode, form)
            for got, name in zip(found, names, strict=True):
                same(got, expected[name])
    last = jnp.asarray(given["bootstrap_B"], jnp.float32)
    plain = gae(reward, value, last, true_next, *ends, given["gamma"], given["lambda_"])
    same(plain.advantage_t, expected["bootstrap_advantages_TB"])


def test_1_2_perfect_values_have_zero_advantage():
    given, expected, same = case("truncation/constant_value_property")
    reward, value, true_next = arrays(given, "rewards_TB", "values_TB", "true_next_values_TB")
    ends = [jnp.asarray(given[name], bool) for name in ("termination_TB", "truncation_TB")]
    find = partial(variant_gae, reward, value, true_next, *ends, given["gamma"], given["lambda_"])
    same(find("bootstrap").advantage_t, expected["bootstrap_advantages_TB"], atol=1e-3)
    same(find("mask", "brax").advantage_t, expected["brax_advantages_TB"], atol=1e-3)
    same(find("terminal").advantage_t, expected["terminal_advantages_TB"], atol=1e-3)
    assert float(find("terminal").advantage_t[2, 0]) == pytest.approx(expected["terminal_delta_at_cut"], rel=1e-4)


# 1.3 the value loss


def test_1_3_half_and_clip():
    given, expected, same = case("value_loss/scale")
    values, targets, old = arrays(given, "values", "targets", "old_values")
    codec = make_codec("identity")

    def loss(values, half, eps):
        weight = value_weight(dataclasses.replace(Config().ppo, vf_coef=given["coef"], vf_half=half))
        return weight * codec.loss(values[:, None], targets, old, eps, ()).mean()

    for half, name in ((True, "brax"), (False, "scs")):
        same(loss(values, half, 0.0), expected[f"{name}_loss"])
        same(jax.grad(loss)(values, half, 0.0), expected[f"{name}_grad_wrt_values"])
    same(loss(values, True, given["clip"]), expected["brax_clipped_loss"])


def test_1_3_adam_cancels_the_factor_unless_a_joint_norm_is_clipped():
    given, expected, same = case("value_loss/adam_scale_invariance")

    def updates(factor, limit):
        transform = optax.chain(clip("joint", limit), optax.scale_by_adam(eps=1e-8), optax.scale(-given["lr"]))
        state, told = transform.init({"policy": jnp.zeros(2), "value_head": jnp.zeros(3)}), []
        for policy, value in zip(given["policy_grads"], given["value_grads"], strict=True):
            grads = {"policy": jnp.asarray(policy), "value_head": factor * jnp.asarray(value)}
            told.append(optax.tree.norm(grads))
            update, state = transform.update(grads, state)
            yield update, told

    for factor in (1, 2):
        wanted = expected[f"x{factor}"]
        free, clipped = list(updates(factor, 0.0)), list(updates(factor, given["max_grad_norm"]))
        same([u["value_head"] for u, _ in free], wanted["value_updates_no_clip"], atol=1e-8)
        same([u["policy"] for u, _ in clipped], wanted["policy_updates_joint_clip_half"], atol=1e-8)
        same([u["value_head"] for u, _ in clipped], wanted["value_updates_joint_clip_half"], atol=1e-8)
        same(clipped[-1][1], wanted["joint_norms"])


# 1.4 and 1.5 deviation and entropy of actions


def test_1_4_standard_deviation():
    given, expected, same = case("std/parameterization")
    raw = jnp.asarray(given["raw"], jnp.float32)

    def std(raw, kind, least):
        return tanh_normal.split(jnp.stack([jnp.zeros_like(raw), raw], -1), kind, least)[1][..., 0]

    for name, kind, least in (("brax", "softplus", given["min_std"]), ("scs", "exp", 0.0)):
        same(std(raw, kind, least), expected[f"{name}_std"], atol=0)
        same(jax.grad(lambda r, k=kind, m=least: std(r, k, m).sum())(raw), expected[f"{name}_dstd_draw"], atol=0)
        same(std(jnp.zeros(1), kind, least)[0], expected[f"{name}_std_at_raw_zero"])
    same(std(jnp.asarray([expected["raw_for_unit_std_brax"]]), "softplus", given["min_std"]), [1.0])


def test_1_4_log_density():
    given, expected, same = case("std/log_prob")
    output, raw = jnp.asarray([*given["mean"], *given["raw_std"]]), jnp.asarray(given["pre_tanh_action"])
    for name, kind, least in (("brax", "softplus", 0.001), ("scs", "exp", 0.0)):
        moments = tanh_normal.split(output, kind, least)
        same(tanh_normal.normal_log_prob(*moments, raw), expected[name]["gaussian_log_prob"])
        same(tanh_normal.log_prob(*moments, raw), expected[name]["tanh_log_prob"])


def test_1_5_ratio_does_not_depend_on_the_squash():
    given, expected, same = case("entropy/ratio_unaffected")
    raw, m0, s0, m1, s1 = arrays(given, "raw_action", "mean_old", "std_old", "mean_new", "std_new")
    for density in (tanh_normal.normal_log_prob, tanh_normal.log_prob):
        same(jnp.exp(density(m1, s1, raw) - density(m0, s0, raw)), expected["ratio"])


def test_1_5_entropies():
    given, expected, same = case("entropy/exact")
    mean, std = jnp.asarray(given["mean_std"], jnp.float32).T[..., None]
    same(tanh_normal.gaussian_entropy(std), expected["gaussian_entropy"])
    np.testing.assert_allclose(tanh_normal.entropy(mean, std), expected["tanh_entropy"], rtol=2e-4, atol=2e-4)
    keys = jax.random.split(jax.random.key(0), 20_000)
    sampled = jax.vmap(lambda k: tanh_normal.sampled_entropy(k, mean, std))(keys)
    error = 4.0 * sampled.std(0) / np.sqrt(len(keys))
    assert bool((jnp.abs(sampled.mean(0) - jnp.asarray(expected["tanh_entropy"])) < error + 1e-3).all())
    stds = jnp.linspace(0.5, 1.5, 1001)[:, None]
    bonus = tanh_normal.entropy(jnp.zeros_like(stds), stds)
    assert float(stds[bonus.argmax(), 0]) == pytest.approx(expected["argmax_std_at_mean_zero"], abs=2e-3)
    assert float(bonus.max()) == pytest.approx(expected["max_entropy_at_mean_zero"], abs=1e-4)
    uniform = policies.tanh_gaussian(1).max_entropy(jnp.ones((1, 0), bool))
    assert float(uniform[0]) == pytest.approx(expected["uniform_bound"])


def test_1_5_gradients_of_entropy_bonuses():
    """The Gaussian's pushes the log-deviation by 1 and never moves the mean; the squashed one pulls the mean to 0."""
    output, none = jnp.array([[1.0, 0.0]]), jnp.ones((1, 0), bool)

    def pull(kind):
        head = policies.tanh_gaussian(1, "exp", 0.0, kind)
        return jax.grad(lambda o: head.entropy(o, none, None).sum())(output)[0]

    assert pull("gaussian").tolist() == [0.0, 1.0]
    assert float(pull("tanh_quadrature")[0]) < -0.5
    assert 0.0 < float(pull("tanh_quadrature")[1]) < 0.5


# 1.6 and 1.7 weights and layer norm


def kernel(init, gain, fan_in, width=64):
    return dense(width, gain, "layer", init).init(jax.random.key(1), jnp.zeros((1, fan_in)))["params"]


def test_1_6_initial_weights():
    given, expected, _ = case("init/rules")
    for fan_in in given["fan_in"]:
        wanted = expected["lecun"][str(fan_in)]
        drawn = kernel("lecun_uniform", 1.0, fan_in, 4096)
        assert float(jnp.abs(drawn["kernel"]).max()) <= wanted["lecun_uniform_bound"] * (1 + 1e-6)
        assert float(jnp.var(drawn["kernel"])) == pytest.approx(wanted["lecun_variance"], rel=0.05)
        assert not bool(drawn["bias"].any())
        for gain in (expected["scs_gain_every_layer_and_head"], expected["cleanrl_gains"]["hidden"]):
            weights = np.asarray(kernel("orthogonal", gain, fan_in)["kernel"], np.float64)
            gram = weights.T @ weights if fan_in >= 64 else weights @ weights.T
            np.testing.assert_allclose(gram, gain**2 * np.eye(len(gram)), atol=1e-5)
    gains = expected["cleanrl_gains"]
    default = NetConfig()
    assert (default.gain_hidden, default.gain_policy, default.gain_value) == pytest.approx(tuple(gains.values()))


def test_1_7_order_of_layer_norm():
    given, expected, same = case("layer_norm/order")
    x, w1, b1, w2, b2 = arrays(given, "x", "W1", "b1", "W2", "b2")
    for norm, name in (("none", "none"), ("post", "brax"), ("pre", "scs")):
        order = {} if norm == "none" else {"norm_order": norm}
        torso = Torso((4,), NetConfig(activation="silu", layer_norm=norm != "none", **order))
        params = torso.init(jax.random.key(0), x[None])["params"]
        params["dense_0"] = {"kernel": w1, "bias": b1}
        hidden = torso.apply({"params": params}, x[None])[0]
        same(hidden, expected[f"{name}_hidden"])
        same(hidden @ w2 + b2, expected[f"{name}_out"])
        if norm != "none":
            same([hidden.mean(), hidden.var()], expected[f"{name}_hidden_mean_var"])


# 1.8 gradient clipping


def test_1_8_gradient_clipping():
    given, expected, same = case("grad_clip/global_norm")
    policy, value = arrays(given, "policy", "value")
    grads = {"torso": policy, "value_head": value}
    same(optax.tree.norm(grads), expected["norm"])

    def clipped(kind, limit):
        transform = clip(kind, limit)
        got = transform.update(grads, transform.init(grads))[0]
        return got["torso"], got["value_head"]

    for kind in ("joint", "per_network", "elementwise"):
        for got, part in zip(clipped(kind, given["max_norm"]), ("policy", "value"), strict=True):
            same(got, expected[f"{kind}_{part}"])
    for got, part in zip(clipped("joint", 14.0), ("policy", "value"), strict=True):
        same(got, expected[f"under_threshold_{part}"])
    assert clipped("joint", 0.0)[1].tolist() == given["value"]


# 1.9 the budget


def test_1_9_budget():
    _, expected, _ = case("resets/brax_schedule")
    assert len(expected["schedules"]) == 7
    for wanted in expected["schedules"]:
        per_env = wanted["env_steps_per_training_step"] // wanted["num_envs"]
        epochs = max(wanted["num_evals"] - 1, 1) * max(wanted["num_resets_per_eval"], 1)
        assert epochs == wanted["epochs"]
        cfg = Config(
            run=RunConfig(total_steps=wanted["num_timesteps"], budget="brax", budget_epochs=epochs),
            env=EnvConfig(num_envs=wanted["num_envs"]),
        )
        cfg = dataclasses.replace(cfg, algo=dataclasses.replace(cfg.algo, num_steps=per_env))
        assert derive.derive(cfg).total_env_steps == wanted["total_env_steps"]
        exact = dataclasses.replace(cfg, run=dataclasses.replace(cfg.run, budget="exact"))
        over = derive.derive(exact).total_env_steps - wanted["num_timesteps"]
        assert 0 <= over < wanted["env_steps_per_training_step"]


# 2.2 devices: one program over the whole minibatch


def test_2_2_advantages_are_normalised_as_a_whole():
    given, expected, same = case("devices/advantage_normalization")
    advantage = jnp.asarray(given["advantages"])
    same(normalise(advantage), expected["whole"])
    same(jax.vmap(normalise)(advantage.reshape(given["shards"], -1)).reshape(-1), expected["per_shard"])


def test_2_2_the_mean_of_equal_shards_is_the_mean():
    given, expected, same = case("devices/gradient_mean")
    grads = jnp.asarray(given["per_sample_grads"])
    same(grads.mean(0), expected["mean"])
    same(grads.reshape(given["shards"], -1, 2).mean(1).mean(0), expected["mean_of_shard_means"])


# 2.4 observation normalisation


def test_2_4_statistics():
    given, expected, same = case("obs_norm/statistics")
    stats = normaliser.init_stats((2,))
    same(stats.mean, expected["before_any_data"]["mean"])
    for ddof in (0, 1):
        same(normaliser.std(stats, ddof), expected["before_any_data"]["std"])
    for batch, *wanted in zip(
        given["batches"], *(expected[n] for n in ("brax_welford", "scs_welford", "brax_ema")), strict=True
    ):
        stats = normaliser.merge(stats, jnp.asarray(batch), jnp.ones(len(batch)))
        population, sample, moving = wanted
        assert int(stats.count[1]) == population["count"] == sample["count"] == moving["count"]
        for one, ddof in ((population, 0), (sample, 1), (moving, 0)):
            same(stats.mean, one["mean"])
            same(normaliser.std(stats, ddof), one["std"])
        same(stats.var, moving["var"])
    same(stats.mean, expected["pooled_mean"])
    same(normaliser.std(stats), expected["pooled_population_std"])


def test_2_4_the_first_ratio_shows_when_statistics_moved():
    given, expected, same = case("obs_norm/first_ratio")
    obs, action = arrays(given, "observations", "actions")
    stats = normaliser.init_stats((1,))
    moved = normaliser.merge(stats, obs[:, None], jnp.ones(4))
    same([float(moved.mean[0]), float(normaliser.std(moved)[0])], given["stats_after"])

    def density(stats):
        mean = given["weight"] * normaliser.normalise(stats, obs[:, None])
        return tanh_normal.log_prob(mean, jnp.full_like(mean, given["std"]), action[:, None])

    for learning, name in ((stats, "after"), (moved, "before")):
        same(jnp.exp(density(learning) - density(stats)), expected[f"ratio_update_{name}_learning"])


def test_every_case_is_used():
    """A pattern of ends of an episode is put together from its family's name and its own."""
    text = "".join(path.read_text() for path in Path(__file__).parent.glob("test_ppo_*.py"))
    for name in CASES:
        assert f'"{name}"' in text or f'"{name.partition("/")[2]}"' in text
