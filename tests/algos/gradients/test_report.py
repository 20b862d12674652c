"""Reports of PPO: the probe, an unchanged state, and agreement with training."""

import copy
import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from training import hypers_of, leaves

from hmx.algos.gradients import results
from hmx.algos.gradients.buckets import ZERO, split
from hmx.algos.gradients.measures import TOTAL, Sums, measure
from hmx.algos.gradients.per_group import gather, layers, make_group_gradients
from hmx.algos.gradients.probe import group_index, grouped, make_prober, play
from hmx.algos.gradients.ranking import make_ranker
from hmx.algos.gradients.reporter import make_reporter
from hmx.algos.gradients.request import ProbeRequest, check
from hmx.algos.ppo.components import make_ppo_components
from hmx.algos.ppo.gradients import GroupBatch, coefficients, components, picked, ppo_sums
from hmx.algos.ppo.loss import policy_advantage
from hmx.algos.ppo.reference import ReferencePolicy
from hmx.algos.ppo.update import fit_codec, make_ppo
from hmx.algos.sequences import Batch
from hmx.config.fields import replace
from hmx.config.learning import PpoConfig
from hmx.config.schema import AlgoConfig, Config, EnvConfig, NetConfig, RewardWeights, RunConfig
from hmx.envs.autoreset import Game, batched
from hmx.envs.protocol import EnvSpec
from hmx.envs.registry import make_env
from hmx.envs.small.counting import make_counting
from hmx.errors import ExitCode, HmxError
from hmx.types import Mean

SMALL = ProbeRequest(groups=6, per_group=4, buckets=2, chunk=3)


def configure(env_id, max_steps=9, num_agents=1, rnn="none", **ppo):
    return Config(
        run=RunConfig(total_steps=10_000),
        env=EnvConfig(id=env_id, num_envs=4, max_steps=max_steps, num_agents=num_agents, recall_delay=2, slip=0.3),
        net=NetConfig(kind="mlp", hidden=(8,), activation="tanh", rnn=rnn, rnn_hidden=4),
        algo=AlgoConfig(num_steps=8, max_grad_norm=0.5),
        ppo=PpoConfig(update_epochs=1, num_minibatches=1, **ppo),
    )


def built(cfg, env=None):
    env = env or make_env(cfg.env, RewardWeights())
    algorithm = make_ppo(cfg, env)
    return env, algorithm, jax.jit(algorithm.init)(jax.random.key(0))


class Case:
    """A state, a reporter that is compiled once, and the report of `SMALL`."""

    def __init__(self, cfg, request=SMALL, env=None):
        self.cfg = cfg
        self.env, self.algorithm, self.state = built(cfg, env)
        self.hypers = self.algorithm.hypers(0)
        self.reporter = make_reporter(cfg, self.env, request)
        self.before = [leaf.copy() for leaf in leaves(self.state)]
        self.report = self.again()

    def again(self, key=7, **more):
        return self.reporter(self.state, self.hypers, jax.random.key(key), **more)


@pytest.fixture(scope="module")
def corridor():
    return Case(configure("corridor", max_steps=30), dataclasses.replace(SMALL, keys="both", crossfit=True))


TEAM = configure(
    "rendezvous", num_agents=2, rnn="gru", value_target="return_norm", advantage_scale="symlog", clip_vf_eps=0.5
)


def experience(cfg):
    """Rows that an update would learn from, with all that goes with them, and what the update says."""
    env, algorithm, state = built(cfg)
    if cfg.ppo.ref:
        other = jax.tree.map(lambda leaf: 3 * leaf, jax.jit(algorithm.init)(jax.random.key(5)).params)
        state = state._replace(learner=state.learner._replace(reference=ReferencePolicy(other, state.actors.obs_stats)))
    parts = make_ppo_components(cfg, env)
    hypers = hypers_of(algorithm)
    # together, so that the rollout is compiled once
    both = jax.jit(lambda *args: (algorithm.experience(*args), algorithm.update(*args)[1]))
    seen, metrics = both(state, hypers)
    names = sorted(key for key in seen if key.startswith("carry_"))
    carry = jax.tree.unflatten(jax.tree.structure(parts.net.initial_carry((1,))), [seen.pop(key) for key in names])
    return parts, state, hypers, Batch(carry=carry, **seen), metrics


def measured(cfg, parts, state, hypers, batch):
    """The report of those rows, each environment a group."""
    params, stats = fit_codec(parts, state, batch)
    frozen = batch._replace(advantage=policy_advantage(cfg.ppo, cfg.algo.gamma, batch, jnp.ones_like(batch.advantage)))
    rows_per_env = batch.sequence_weight.shape[0] // cfg.env.num_envs
    index, real = group_index(frozen, np.arange(batch.sequence_weight.shape[0]) // rows_per_env, cfg.env.num_envs)
    several = make_group_gradients(ppo_sums(parts, "analytic"))
    groups = jax.vmap(picked, (None, 0))(GroupBatch(frozen, frozen.reference), (index, real))
    found = gather(several, params, groups, stats, hypers, chunk=8)
    steps = np.asarray(groups.batch.weight, np.float64).sum((1, 2))
    assert steps.sum() == batch.weight.sum()
    assert float(found.aux.ratio_error.max()) < 1e-5
    names = components("analytic", frozen.reference is not None)
    values = {name: float(value) for name, value in hypers.items()}
    coefs = coefficients(names, cfg.ppo.vf_coef, values, values.get("ref_kl_coef", 0.0))
    return measure(Sums(found.losses, found.grads, steps, np.ones(len(steps))), (), coefs, layers(params)).whole


def test_gradient_norm_and_losses_are_those_of_training_and_its_actor_metrics():
    """On the rows of an update of one gradient step, with two agents that remember and a reference policy.

    `actor/...` are metrics of the update before which a report is due.
    """
    cfg = replace(TEAM, {"ppo.ref": "another run", "ppo.ref_kl_coef": 40.0, "run.grad_report_every": 1})
    parts, state, hypers, batch, metrics = experience(cfg)
    assert jax.tree.leaves(batch.carry)
    whole = measured(cfg, parts, state, hypers, batch)
    assert whole.components["value"].layers["memory/input"] > 0.0
    found = {name: float(metric.total / metric.count) for name, metric in metrics.items() if isinstance(metric, Mean)}
    assert whole.components["kl"].loss == pytest.approx(40.0 * found["train/ref_kl"], rel=1e-4)
    assert whole.components["kl"].norm > 0.01
    assert whole.components[TOTAL].norm == pytest.approx(found["train/grad_norm"], rel=2e-5)
    assert whole.components[TOTAL].loss == pytest.approx(found["train/total_loss"], rel=2e-5)
    assert whole.components["task"].loss == pytest.approx(found["train/policy_loss"], abs=1e-6)
    assert whole.components["value"].loss == pytest.approx(0.5 * found["train/value_loss"], rel=2e-5)
    assert whole.components["entropy"].loss == pytest.approx(-0.01 * found["train/entropy"], rel=2e-5, abs=1e-7)
    for name in ("task", "entropy", "kl"):
        assert found[f"actor/grad_norm/{name}"] == pytest.approx(whole.components[name].norm, rel=1e-4)
    for name in ("entropy", "kl"):
        assert found[f"actor/loss/{name}"] == pytest.approx(whole.components[name].loss, rel=1e-4)
    assert "actor/loss/task" not in found


def test_recomputed_probabilities_match_stored_ones():
    case = Case(TEAM)
    assert case.report.consistency.ratio_error < 1e-5
    lengths = case.report.episodes.lengths.sum()
    assert lengths < case.report.whole.steps <= 2 * lengths  # who is done takes no part
    assert case.again(reference=case.state).whole.components["kl"].raw < 1e-5


def test_report_leaves_the_state_unchanged_and_repeats_with_the_same_key(corridor):
    again = corridor.again()
    for before, after in zip(corridor.before, leaves(corridor.state), strict=True):
        np.testing.assert_array_equal(before, after)
    assert repr(again) == repr(corridor.report)
    other = corridor.again(key=8)
    assert (other.episodes.returns != again.episodes.returns).any()


def test_report_has_consistent_values(corridor):
    report = corridor.report
    assert report.episodes.returns.shape == report.episodes.lengths.shape == report.episodes.truncated.shape == (6, 4)
    assert not report.episodes.truncated.any()
    assert report.consistency.ratio_error < 1e-5 and report.consistency.clip_frac == 0.0
    assert report.episodes.one_start
    whole = report.whole
    assert whole.steps == report.episodes.lengths.sum()
    assert whole.samples == 24
    goal = np.round(
        report.episodes.returns + 0.01 * report.episodes.lengths, 5
    )  # 1 for who arrives, and each step costs .01
    assert set(np.unique(goal)) <= {0.0, 1.0}
    assert {g for b in report.buckets for g in b.groups} == set(range(6))
    assert "kl" not in whole.components and "kl" not in report.coefs
    assert set(whole.components["value"].layers) == {"policy_head", "torso/dense_0", "value_head"}
    assert report.clip_scale == pytest.approx(min(1.0, 0.5 / whole.components[TOTAL].norm))
    crossed = [set(b.crossfit) for b in report.buckets if b.crossfit is not None]
    assert crossed and all(names == {"task", "entropy", "value", "total"} for names in crossed)
    assert report.whole.acted_std == pytest.approx(report.episodes.acted_std.mean())


def test_common_keys_make_equal_actions_lead_to_equal_states():
    """In a corridor that slips half of the time, equal actions lead apart unless the keys are common."""
    env = make_env(dataclasses.replace(configure("corridor").env, slip=0.5), RewardWeights())
    parted = {}
    for common in (False, True):
        group = grouped(env, 8, common)
        step = jax.jit(group.step)
        state, _ = group.reset(jax.random.split(jax.random.key(0), 24))
        for i in range(5):
            state, timestep = step(state, jnp.ones((24, 1), jnp.int32), jax.random.split(jax.random.key(i + 1), 24))
        obs = np.asarray(timestep.obs).reshape(3, 8, -1)
        parted[common] = (obs != obs[:, :1]).any((1, 2))
        assert (obs[:, 0] != obs[:1, 0]).any()  # groups have keys of their own
    assert parted[False].all() and not parted[True].any()


@pytest.fixture(scope="module")
def counting():
    """Episodes of ten steps that pay 0 + 1 + ... + 9, looked at every four steps."""
    cfg = configure("counting")
    env, _, state = built(cfg, make_counting(0, 10))
    parts = make_ppo_components(cfg, env)
    prober = make_prober(parts, ProbeRequest(groups=2, per_group=3, max_length=4))
    assert prober.num_steps == 4
    return lambda limit: play(prober._replace(limit=limit), parts, state, jax.random.key(0))


def test_only_first_episodes_count(counting):
    """Steps after an auto-reset have no weight."""
    probe = counting(70)
    assert (
        (probe.episodes.returns == 45.0).all()
        and (probe.episodes.lengths == 10.0).all()
        and not probe.episodes.truncated.any()
    )
    assert probe.batch.weight.shape == (1, 16 * 6)  # three rounds of play were enough, filled up to four
    weight = np.asarray(probe.batch.weight[0])
    assert weight.sum() == 6 * 10
    assert set(np.asarray(probe.batch.obs)[0, weight > 0, 0]) == set(range(10))
    assert sorted(probe.group[weight > 0]) == [0] * 30 + [1] * 30
    assert sorted(probe.member[weight > 0]) == sorted([0, 1, 2] * 20)


def test_episode_longer_than_the_probe_is_truncated(counting):
    probe = counting(4)
    assert (
        (probe.episodes.returns == 6.0).all()
        and (probe.episodes.lengths == 4.0).all()
        and probe.episodes.truncated.all()
    )
    assert probe.batch.weight.sum() == 6 * 4


def test_episode_truncated_by_its_environment_counts_as_complete():
    cfg = configure("counting", max_steps=4)
    env, _, state = built(cfg)
    parts = make_ppo_components(cfg, env)
    prober = make_prober(parts, ProbeRequest(groups=2, per_group=3))
    probe = play(prober, parts, state, jax.random.key(0))
    assert (probe.episodes.returns == 6.0).all() and not probe.episodes.truncated.any()


def test_episodes_of_a_group_share_their_start_and_groups_differ():
    cfg = configure("rendezvous", num_agents=2)
    env, _, state = built(cfg)
    parts = make_ppo_components(cfg, env)
    prober = make_prober(parts, ProbeRequest(groups=5, per_group=3))
    first = np.asarray(jax.jit(prober.begin)(state, jax.random.key(1)).obs).reshape(5, 3, -1)
    assert (first == first[:, :1]).all()
    assert len(np.unique(first[:, 0], axis=0)) > 1


def coin_env(reward):
    spec = EnvSpec("coin", (1,), jnp.float32, 2, 1, 0, ("coin",), (), ("a", "b"))

    def move(core, action, key):
        return core, {"coin": reward(core, action)}, jnp.ones((), bool)

    return batched(
        spec, Game(lambda key: jax.random.uniform(key), move, lambda x: x[None], lambda x: jnp.ones(2, bool))
    )


@pytest.fixture(scope="module")
def coin():
    """Each start pays what it pays, whatever is done: no group has variance."""
    return Case(configure("corridor"), SMALL, coin_env(lambda core, action: 10.0 * core))


def report_with(case, **change):
    """Report with the programs that are compiled already."""
    reporter = case.reporter = copy.copy(case.reporter)
    reporter.request = dataclasses.replace(SMALL, **change)
    reporter.ranker = make_ranker(reporter.parts, reporter.request.rank)
    return case.again()


def test_groups_without_variance_have_no_task_gradient_under_their_own_baseline(coin):
    """With a critic as baseline they do have one."""
    assert [b.name for b in coin.report.buckets] == [ZERO]
    assert coin.report.whole.components["task"].norm > 0.0
    for advantage in ("group", "group-std"):
        report = report_with(coin, advantage=advantage)
        assert report.whole.components["task"].norm == 0.0
        assert report.whole.components["value"].norm == coin.report.whole.components["value"].norm
    ranked = report_with(coin, rank_zeros=True)
    assert [len(b.groups) for b in ranked.buckets] == [3, 3]


def test_rank_by_return_and_td(coin):
    report = report_with(coin, by="return")
    np.testing.assert_array_equal(report.score, report.episodes.returns.mean(1))
    assert not report.episodes.one_start
    names = {g: b.name for b in report.buckets for g in b.groups}
    assert [names[g] for g in np.argsort(report.score)] == ["bucket_1"] * 3 + ["bucket_2"] * 3
    td = report_with(coin, by="td")
    assert split(td.score, 2) == split(td.episodes.returns.mean(1), 2)  # an untrained critic expects about nothing


def test_kl_from_a_reference_has_a_gradient(coin):
    report_with(coin, kl_coef=0.1)
    same = coin.again(reference=coin.state).whole.components["kl"]
    assert same.raw < 1e-6
    other = jax.tree.map(lambda leaf: 3 * leaf, jax.jit(coin.algorithm.init)(jax.random.key(5)).params)
    apart = coin.again(reference=coin.state._replace(params=other)).whole.components["kl"]
    assert apart.raw > 1e-3
    assert apart.norm == pytest.approx(0.1 * apart.raw)
    assert apart.loss > 0.0


def test_non_finite_rewards_are_refused():
    env = coin_env(lambda core, action: jnp.where(action > 0, jnp.nan, 1.0))
    with pytest.raises(HmxError, match="not finite") as caught:
        Case(configure("corridor"), SMALL, env)
    assert caught.value.exit_code == ExitCode.CHECK_FAILED


@pytest.mark.parametrize(
    ("change", "words", "hint"),
    [
        ({"groups": 1 << 20}, "at most 1,048,576", "--groups 64"),
        ({"kl_coef": float("inf")}, "must be a finite number", "--kl-coef 0"),
    ],
)
def test_request_check_refuses_impossible_values(change, words, hint):
    with pytest.raises(HmxError) as caught:
        check(dataclasses.replace(SMALL, **change))
    assert words in caught.value.message and hint in caught.value.hint
    assert caught.value.exit_code == ExitCode.USAGE


def test_report_refuses_more_gradients_than_memory_holds(monkeypatch):
    monkeypatch.setattr(results, "MAX_BYTES", 4096)
    cfg = configure("corridor")
    reporter = make_reporter(cfg, make_env(cfg.env, RewardWeights()), SMALL)
    with pytest.raises(HmxError, match="GiB") as caught:
        reporter(built(cfg)[2], {}, jax.random.key(0))
    assert "--groups" in caught.value.hint
