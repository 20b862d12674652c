"""Q-learning as an algorithm: what it stores, when it learns and scores, and that it can be taken back."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from probes import GAMMA, assert_solved, matching_for_ever
from training import assert_same, build, hypers_of, last_mean, leaves, train_seeds

from hmx.algos.build import make_algorithm
from hmx.config.fields import replace
from hmx.config.schema import Config
from hmx.envs.small.counting import make_counting
from hmx.records.metrics_table import METRICS

BASE = {
    "algo.name": "dqn", "env.id": "corridor", "env.num_envs": 4, "env.max_steps": 20, "algo.num_steps": 4,
    "net.kind": "mlp", "net.hidden": (8,), "run.total_steps": 1600, "replay.capacity": 64, "replay.survey_every": 2,
    "dqn.learn_starts": 32, "dqn.batch_size": 8, "dqn.gradient_steps": 2, "algo.learning_rate": 0.01,
}  # fmt: skip
SCORED = {
    "score__every": 2, "score__transitions": 12, "score__chunk": 6, "score__rollouts": 2, "score__horizon": 5,
    "replay__mixing": "additive", "replay__mu": 0.0,
}  # fmt: skip


def configure(**changes):
    return replace(Config(), {**BASE, **{key.replace("__", "."): value for key, value in changes.items()}})


def compiled(cfg, env=None):
    algorithm = build(cfg) if env is None else make_algorithm(cfg, env)
    return algorithm, jax.jit(algorithm.update)


def run(algorithm, update, updates, state=None, first=0):
    state, metrics = jax.jit(algorithm.init)(jax.random.key(3)) if state is None else state, []
    for number in range(first, updates):
        state, found = update(state, hypers_of(algorithm, number))
        metrics.append(found)
    return state, metrics


@pytest.fixture(scope="module")
def corridor():
    """Q-learning with scoring after six updates, and what each reported."""
    algorithm, update = compiled(configure(**SCORED))
    state, metrics = run(algorithm, update, 6)
    return algorithm, update, state, metrics


@pytest.fixture(scope="module")
def plain():
    """Q-learning without scoring, and its update."""
    return compiled(configure())


def test_fields_of_a_stored_transition_belong_together():
    """The counting environment shows, allows and pays the number of the step; an episode is cut after six."""
    cfg = configure(env__id="counting", env__max_steps=6, algo__num_steps=5, env__num_envs=3, replay__capacity=24)
    algorithm, update = compiled(replace(cfg, {"dqn.learn_starts": 24}), make_counting(6))
    state = jax.jit(algorithm.init)(jax.random.key(0))
    for number in range(3):
        state, _ = update(state, hypers_of(algorithm, number, gradient_steps=0.0))
    replay, items = state.learner.replay, state.learner.replay.items
    assert int(replay.size) == 24 and int(replay.num_added) == 45 and int(replay.position) == 21
    step = np.asarray(items.obs_t[:, 0, 0])
    assert set(step) == set(range(6))
    allowed = (np.arange(4)[None] - step[:, None]) % 4 < 2
    np.testing.assert_array_equal(items.legal_t[:, 0], allowed)
    assert allowed[np.arange(24), items.action_t[:, 0]].all()
    np.testing.assert_array_equal(items.reward_tp1, step)
    # also where the episode was cut: what is seen is its own last state, and so is what would be legal there
    np.testing.assert_array_equal(items.obs_tp1[:, 0, 0], step + 1)
    np.testing.assert_array_equal(items.legal_tp1[:, 0], (np.arange(4)[None] - step[:, None] - 1) % 4 < 2)
    np.testing.assert_array_equal(items.truncated_tp1, step == 5)
    assert items.alive_t.all() and not items.agent_done_tp1.any() and not items.terminated_tp1.any()
    np.testing.assert_array_equal(np.asarray(replay.env_states.core), step)
    births = np.asarray(replay.birth)
    assert sorted(births) == list(range(21, 45)) and births[21] == 21


def test_learning_starts_when_the_buffer_has_enough_transitions(corridor):
    algorithm, update, _, _ = corridor
    begun = jax.jit(algorithm.init)(jax.random.key(3))
    first, found = update(begun, hypers_of(algorithm, 0))
    assert_same(first.params, begun.params)
    assert int(first.learner.gradient_steps) == 0 and float(found["train/total_loss"].count) == 0
    second, found = update(first, hypers_of(algorithm, 1))
    assert int(second.learner.gradient_steps) == 2 and float(found["train/total_loss"].count) == 2
    assert any((x != y).any() for x, y in zip(leaves(first.params), leaves(second.params), strict=True))
    # hard copies every 250 gradient steps: not yet
    assert_same(second.learner.target_params, begun.params)


def test_all_metrics_are_documented(corridor):
    reported = {name for found in corridor[3] for name in found if not name.startswith(("reward/", "actions/"))}
    known = set(METRICS)
    assert reported <= known
    assert {f"train/{name}" for name, value in corridor[0].hypers(0).items() if not isinstance(value, bool)} <= known
    assert {"replay/coverage", "replay/staleness_p90", "score/mean", "replay/is_weight_min"} <= reported


def test_every_survey_counts_dormant_units(corridor):
    algorithm, update, _, _ = corridor
    state = jax.jit(algorithm.init)(jax.random.key(3))
    torso = state.params["torso"]
    bias = torso["dense_0"]["bias"].at[:5].set(-100.0)
    dead = state._replace(params={**state.params, "torso": {"dense_0": {**torso["dense_0"], "bias": bias}}})
    _, metrics = run(algorithm, update, 2, dead)
    found = [metric["train/dormant_units"] for metric in metrics]
    assert [float(metric.count) for metric in found] == [0, 8]
    assert 5 <= float(found[1].total) < 8


def test_scoring_runs_on_schedule_and_is_counted(corridor):
    _, _, state, metrics = corridor
    passes = [float(found["score/mean"].count) for found in metrics]
    assert passes == [0, 12, 0, 12, 0, 12]
    replay = state.learner.replay
    scored = np.asarray(replay.scored)
    assert int(replay.num_scored) == scored.sum() > 12
    coverage = metrics[5]["replay/coverage"]
    assert float(coverage.total) == pytest.approx(scored.sum() / 64)
    assert float(metrics[4]["replay/coverage"].count) == 0
    # those written in the last update bear its mark, and there are as many as were chosen
    newest = scored & (np.asarray(replay.scored_at) == int(replay.num_added))
    assert newest.sum() == 12
    mean = metrics[5]["score/mean"]
    written = np.asarray(replay.consequence_scores)[newest]
    np.testing.assert_allclose(float(mean.total / mean.count), written.mean(), rtol=1e-5)
    assert 0.0 <= float(metrics[5]["score/ended"].total) <= 12.0


def test_update_can_be_undone_bit_for_bit(corridor):
    """Seven updates go round the ring: what they overwrote is put back, to the last leaf of the state."""
    algorithm, update, state, _ = corridor
    assert int(state.learner.replay.num_added) > 64
    after, _ = update(state, hypers_of(algorithm, 7))
    choose = jax.jit(algorithm.select)
    assert_same(choose(jnp.bool_(True), after, state), after)
    back = choose(jnp.bool_(False), after, state)
    assert_same(back, state)
    assert_same(update(back, hypers_of(algorithm, 7))[0], after)


def test_forget_restores_learned_parameters(corridor):
    algorithm, update, state, _ = corridor
    after, _ = update(state, hypers_of(algorithm, 7))
    rest = algorithm.forget(state, after)
    assert_same((rest.params, rest.opt_state), (state.params, state.opt_state))
    assert_same(rest.learner.target_params, state.learner.target_params)
    assert_same((rest.actors, rest.learner.replay, rest.update), (after.actors, after.learner.replay, after.update))


def test_batches_of_an_update_can_be_reproduced(corridor):
    algorithm, update, state, _ = corridor
    found = jax.jit(algorithm.experience)(state, hypers_of(algorithm, 7))
    assert found["target"].shape == (2, 8) and found["obs_t"].shape == (2, 8, 1, 8)
    after, metrics = update(state, hypers_of(algorithm, 7))
    np.testing.assert_array_equal(found["weights"].min(1).sum(), metrics["replay/is_weight_min"].total)
    assert (np.asarray(after.learner.replay.size) > np.asarray(found["index"])).all()


def test_policy_is_greedy_or_uses_the_final_epsilon(corridor):
    algorithm, _, state, _ = corridor
    act = jax.jit(algorithm.act, static_argnums=6)
    obs, legal = jnp.tile(jnp.eye(8)[3], (2000, 1, 1)), jnp.ones((2000, 1, 2), bool)
    begins = jnp.ones(2000, bool)
    greedy, _ = act(state, (), obs, legal, begins, jax.random.key(0), True)
    best = int(greedy.action[0, 0])
    assert (greedy.action == best).all() and (greedy.log_prob == 0.0).all() and (greedy.probs[..., best] == 1.0).all()
    sampled, _ = act(state, (), obs, legal, begins, jax.random.key(0), False)
    np.testing.assert_allclose(sampled.probs[0, 0, best], 0.95 + 0.025, rtol=1e-6)
    others = float((sampled.action != best).mean())
    assert 0.025 - 0.012 < others < 0.025 + 0.012
    np.testing.assert_array_equal(sampled.value, greedy.value)
    only, _ = act(state, (), obs[:1], legal[:1].at[..., best].set(False), begins[:1], jax.random.key(0), True)
    assert int(only.action[0, 0]) == 1 - best


def test_additive_replay_with_mu_0_equals_prioritised_replay_bit_for_bit(corridor, plain):
    _, _, mixed, metrics = corridor
    unmixed, _ = run(*plain, 6)
    assert float(metrics[3]["score/mean"].count) == 12 and int(mixed.learner.replay.num_scored) > 12
    assert_same(
        (unmixed.params, unmixed.learner.target_params, unmixed.opt_state),
        (mixed.params, mixed.learner.target_params, mixed.opt_state),
    )
    np.testing.assert_array_equal(unmixed.learner.replay.td_errors, mixed.learner.replay.td_errors)


def test_q_learning_solves_a_probe():
    """Actions that must match what is seen, in an episode without an end."""
    probe, updates = matching_for_ever(), 500
    cfg = configure(
        env__id="corridor",
        env__num_envs=16,
        algo__gamma=GAMMA,
        net__hidden=(16,),
        net__activation="tanh",
        replay__capacity=1024,
        dqn__batch_size=64,
        dqn__target_every=10,
        run__total_steps=updates * 64,
        replay__survey_every=10_000,
    )
    assert_solved(probe, make_algorithm(cfg, probe.env), updates)


def test_agents_trained_together_equal_agents_trained_alone(plain):
    algorithm, update = plain
    keys = jax.random.split(jax.random.key(5), 2)
    both = jax.jit(jax.vmap(algorithm.update, in_axes=(0, None)))
    with jax.debug_key_reuse(False):
        state = jax.jit(jax.vmap(algorithm.init))(keys)
        for number in range(3):
            state, _ = both(state, hypers_of(algorithm, number))
        second = jax.tree.map(lambda leaf: leaf[1], state)
    alone = jax.jit(algorithm.init)(keys[1])
    for number in range(3):
        alone, _ = update(alone, hypers_of(algorithm, number))
    for x, y in zip(leaves(second), leaves(alone), strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-4, atol=1e-5)


@pytest.mark.thorough
def test_a_team_of_two_learns_to_meet_and_go_home():
    """Rendezvous by value decomposition; see hmx/envs/small/rendezvous.py for the optimum of 3.676."""
    cfg = configure(
        env__id="rendezvous",
        env__num_agents=2,
        env__num_envs=32,
        env__max_steps=30,
        algo__gamma=0.95,
        algo__learning_rate=2e-3,
        net__hidden=(64,),
        replay__capacity=8192,
        dqn__batch_size=64,
        dqn__gradient_steps=4,
        dqn__target_every=50,
        dqn__learn_starts=512,
        run__total_steps=1200 * 128,
        replay__survey_every=10_000,
    )
    algorithm = build(cfg)
    trained = train_seeds(algorithm, 1200)
    returns = [last_mean(metrics, "train/mean_episode_return", 50) for _, metrics in trained]
    assert np.median(returns) > 3.4  # with a twentieth of random actions
