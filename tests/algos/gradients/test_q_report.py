"""Reports on Q-learning: agreement with what training does, what replay makes of transitions, and cases by hand."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from training import hypers_of, leaves

from hmx.algos.build import make_algorithm
from hmx.algos.dqn.gradient_terms import group_gradients, make_td_functions, td_targets_of, with_num_envs
from hmx.algos.dqn.learning import td_losses
from hmx.algos.dqn.replay_gradients import of_state
from hmx.algos.dqn.update import make_dqn_components
from hmx.algos.gradients.buckets import UNDEFINED, ZERO
from hmx.algos.gradients.per_group import flat
from hmx.algos.gradients.reporter import make_reporter
from hmx.algos.gradients.request import ProbeRequest
from hmx.algos.gradients.stored import Stored, _start_std, drawn, episodes
from hmx.algos.types import Episode, RolloutState
from hmx.config.fields import replace
from hmx.config.schema import Config, RewardWeights
from hmx.envs.registry import make_env
from hmx.errors import ExitCode, HmxError
from hmx.nets import QNet
from hmx.replay import blank
from hmx.replay.offline import history

CFG = replace(
    Config(),
    {
        "algo.name": "dqn", "env.id": "rendezvous", "env.num_agents": 2, "env.num_envs": 4, "env.max_steps": 9,
        "algo.num_steps": 4, "net.kind": "mlp", "net.hidden": (8,), "run.total_steps": 1600, "replay.capacity": 96,
        "replay.mixing": "td", "replay.alpha_td": 0.9, "replay.is_beta": 0.4, "replay.is_beta_end": 0.4,
        "dqn.learn_starts": 32, "dqn.batch_size": 16, "dqn.gradient_steps": 1, "dqn.n_step": 3, "dqn.double": True,
        "dqn.loss": "huber", "algo.learning_rate": 0.05, "dqn.target_every": 3, "algo.max_grad_norm": 0.01,
    },
)  # fmt: skip
SMALL = ProbeRequest(groups=6, per_group=4, buckets=2, chunk=4)
STORED = ProbeRequest(groups=8, per_group=6, buckets=3, by="td", replay=True)


class Learned:
    """Two agents after eight updates, one before the last: the buffer holds 96 transitions and is full after it."""

    def __init__(self):
        self.env = make_env(CFG.env, RewardWeights())
        self.algorithm = make_algorithm(CFG, self.env)
        self.parts = make_dqn_components(CFG, self.env)
        update = jax.jit(lambda *args: (*self.algorithm.update(*args), self.algorithm.experience(*args)))
        state = jax.jit(self.algorithm.init)(jax.random.key(3))
        for number in range(8):
            self.before, self.hypers = state, self.algorithm.hypers(number)
            state, self.metrics, self.seen = update(state, hypers_of(self.algorithm, number))
        self.state = state

    def metric(self, name):
        found = self.metrics[name]
        return float(found.total / found.count)

    def report(self, request, stored=None, key=7, hypers=None):
        reporter = make_reporter(CFG, self.env, request, stored)
        return reporter(self.state, hypers or self.hypers, jax.random.key(key))


@pytest.fixture(scope="module")
def learned():
    return Learned()


@pytest.fixture(scope="module")
def probe(learned):
    return learned.report(dataclasses.replace(SMALL, keys="both", crossfit=True))


@pytest.fixture(scope="module")
def replayed(learned):
    return learned.report(STORED)


def test_gradient_is_that_of_training(learned):
    """Of the very minibatch of an update: its targets, its weighted loss and its gradient."""
    parts = with_num_envs(learned.parts, CFG.env.num_envs)
    index, weights = (np.asarray(learned.seen[name][0]) for name in ("index", "weights"))
    replay = learned.state.learner.replay
    networks = (learned.before.params, learned.before.learner.target_params)
    functions = make_td_functions(parts, True, 2)
    found = td_targets_of(functions, *networks, history(replay.items, replay.birth), index)
    np.testing.assert_allclose(found.target, learned.seen["target"][0], rtol=1e-6)
    assert np.abs(found.td_error).mean() == pytest.approx(learned.metric("train/td_error"), rel=1e-5)
    place = np.arange(len(index))  # a transition drawn twice has two places
    items = jax.tree.map(lambda leaf: leaf[index], replay.items)
    groups = [place[:5], place[5:12], place[12:]]
    grads = group_gradients(functions, networks[0], items, groups, found.target, weights)
    assert grads.losses[:, 1].sum() / 16 == pytest.approx(learned.metric("train/total_loss"), rel=1e-5)
    assert np.linalg.norm(grads.grads[:, 1].sum(0)) / 16 == pytest.approx(learned.metric("train/grad_norm"), rel=1e-4)
    # the sums of groups are those of one group, however they are cut
    single = functions._replace(chunk=1)
    whole = group_gradients(single, networks[0], items, [place], found.target, weights, width=16)
    np.testing.assert_allclose(grads.grads.sum(0), whole.grads[0], rtol=1e-4, atol=1e-7)


def test_td_errors_equal_those_stored_by_training(learned):
    """What the last gradient step wrote, with the networks that it had."""
    replay = learned.state.learner.replay
    index = np.unique(learned.seen["index"][0])
    networks = (learned.before.params, learned.before.learner.target_params)
    functions = make_td_functions(with_num_envs(learned.parts, CFG.env.num_envs), False, 1)
    found = td_targets_of(functions, *networks, history(replay.items, replay.birth), index)
    np.testing.assert_allclose(np.abs(found.td_error), replay.td_errors[index], rtol=1e-5, atol=1e-6)


TABLE = jnp.array([[1.0, 2.0, 3.0, 9.0], [4.0, 8.0, 6.0, 5.0]])


def by_hand(loss, **fields):
    """A transition from state 0 by action 0 to state 1: its target, TD error, and gradients of losses and weights."""
    cfg = replace(CFG, {"env.id": "corridor", "env.num_agents": 1, "dqn.loss": loss, "dqn.n_step": 1})
    cfg = replace(cfg, {"dqn.double": False, "algo.gamma": 0.5})
    net = QNet(lambda key: TABLE, lambda table, obs: table[obs[..., 0].astype(jnp.int32)])
    parts = make_dqn_components(cfg, make_env(cfg.env, RewardWeights()))._replace(net=net)
    items = blank(1, 1, (1,), jnp.float32, 4)
    usual = {"reward_tp1": [1.0], "agent_done_tp1": [[False]], "obs_tp1": [[[1.0]]]}
    items = items._replace(**{name: jnp.asarray(value) for name, value in {**usual, **fields}.items()})
    functions, slot = make_td_functions(with_num_envs(parts, 1), True, 1), np.zeros(1, int)
    found = td_targets_of(functions, TABLE, 10 * TABLE, history(items, jnp.zeros(1, jnp.uint32)), slot)
    grads = group_gradients(functions, TABLE, items, [slot], found.target, np.float32([0.25]))
    return float(found.target[0]), float(found.td_error[0]), grads.losses[0], grads.grads[0].reshape(2, 2, 4)


def test_transition_matches_a_hand_calculation():
    target, error, losses, grads = by_hand("squared")
    assert (target, error) == (1 + 0.5 * 80, 40.0)
    np.testing.assert_array_equal(losses, [800.0, 200.0])
    assert grads[0, 0, 0] == -40.0 and np.count_nonzero(grads[0]) == 1
    np.testing.assert_array_equal(grads[1], 0.25 * grads[0])
    assert by_hand("huber")[3][0, 0, 0] == -1.0


def test_correct_prediction_has_exactly_no_gradient():
    target, error, losses, grads = by_hand("squared", agent_done_tp1=[[True]])
    assert (target, error) == (1.0, 0.0)
    assert not losses.any() and not grads.any()


def test_report_on_stored_transitions_matches_direct_computation(learned, replayed):
    """Shares add up, and the whole is what all of its transitions make, by brute force."""
    assert [b.name for b in replayed.buckets] == ["bucket_1", "bucket_2", "bucket_3"]
    assert [b.steps for b in replayed.buckets] == [16, 16, 16]
    replay = replayed.replay
    slots = np.concatenate([list(group) for group in replay.slots])
    assert len(set(slots)) == 48 and replayed.stored == 96
    assert sum(b.share for b in replayed.buckets) == pytest.approx(1.0)
    assert sum(b.replayed_share for b in replayed.buckets) == pytest.approx(1.0)
    assert sum(b.draws for b in replayed.buckets) == pytest.approx(1.0)
    assert replay.prioritised and replay.beta == pytest.approx(0.4)
    scores = [np.mean([replayed.score[g] for g in b.groups]) for b in replayed.buckets]
    assert scores == sorted(scores)
    probs = np.asarray(learned.parts.replay.probs(learned.state.learner.replay), np.float64)
    density = 96 * probs[slots]
    assert replayed.buckets[2].draws == pytest.approx(
        sum(96 * probs[list(replay.slots[g])].sum() for g in replayed.buckets[2].groups) / density.sum()
    )
    functions = make_td_functions(with_num_envs(learned.parts, 4), False, 1)
    state = learned.state
    found = td_targets_of(
        functions,
        state.params,
        state.learner.target_params,
        history(state.learner.replay.items, state.learner.replay.birth),
        slots,
    )
    items = jax.tree.map(lambda leaf: leaf[slots], state.learner.replay.items)

    def loss(params, weight):
        return (weight * td_losses(learned.parts, params, items, jnp.asarray(found.target))[0]).mean()

    norms = (replayed.whole.components["td"].norm, replayed.whole.replayed_norm)
    for norm, weight in zip(norms, (np.ones(48), density**0.6), strict=True):
        grads = flat(jax.grad(loss)(state.params, np.float32(weight)))
        assert norm == pytest.approx(float(jnp.linalg.norm(grads)), rel=1e-4)
    assert replayed.clip_scale == pytest.approx(0.01 / replayed.whole.replayed_norm)


def test_importance_weights_with_exponent_one_undo_replay(learned, replayed):
    undone = learned.report(STORED, hypers={**learned.hypers, "is_beta": 1.0})
    for undone_bucket, bucket in zip(undone.buckets, replayed.buckets, strict=True):
        assert undone_bucket.replayed_share == pytest.approx(undone_bucket.share, rel=1e-5)
        assert undone_bucket.draws == bucket.draws


def test_saved_buffer_gives_the_report_of_the_checkpoint(learned, replayed):
    stored = of_state(learned.parts, learned.state.learner.replay)
    assert learned.report(STORED, stored).whole == replayed.whole
    refreshed = stored._replace(td_errors=np.abs(np.arange(96.0)))
    assert learned.report(STORED, refreshed).consistency.td_rank != replayed.consistency.td_rank


@pytest.mark.parametrize("by", ["priority", "age", "consequence", "return", "reward_std"])
def test_rank_transitions_by_other_values(learned, by):
    stored = of_state(learned.parts, learned.state.learner.replay)
    scores = np.where(np.arange(96) % 3 == 0, 0.0, np.arange(96.0))
    stored = stored._replace(scores=scores, scored=np.arange(96) % 2 == 0)
    report = learned.report(dataclasses.replace(STORED, by=by), stored)
    slots = {b.name: [s for g in b.groups for s in report.replay.slots[g]] for b in report.buckets}
    if by == "priority":
        assert stored.probs[slots["bucket_1"]].max() <= stored.probs[slots["bucket_3"]].min()
    if by == "age":
        assert stored.birth[slots["bucket_1"]].min() > stored.birth[slots["bucket_3"]].max()
    if by == "consequence":
        assert all(s % 2 for s in slots[UNDEFINED]) and all(s % 6 == 0 for s in slots[ZERO])
        assert scores[slots["bucket_1"]].max() < scores[slots["bucket_3"]].min()
    if by == "return":
        assert np.isnan(report.score[[*report.buckets[-1].groups]]).all()
    assert sum(map(len, slots.values())) == 48


def ring(num_added, done, cut=(), size=None, envs=2):
    """`size` transitions of two environments with the number of the step as reward; some of them end episodes."""
    size = size or num_added
    birth = (np.arange(num_added - size, num_added) % 2**32).astype(np.uint32)
    order = np.random.default_rng(0).permutation(size)
    items = blank(size, 1, (1,), jnp.float32, 2)
    number = np.arange(size)
    items = items._replace(
        reward_tp1=jnp.asarray(number, jnp.float32)[order],
        agent_done_tp1=jnp.asarray(np.isin(number, done))[order][:, None],
        truncated_tp1=jnp.asarray(np.isin(number, cut))[order],
        obs_t=jnp.asarray(number % envs, jnp.float32)[order][:, None, None],
    )
    ret, std = episodes(Stored("a ring", envs, num_added, birth[order], items))
    back = np.argsort(order)
    return ret[back], std[back]


def test_episodes_are_rebuilt_from_the_order_of_transitions():
    """Environment 0 has 0 2 | 4 6 (cut) | 8, environment 1 has 1 3 5 | 7 9: the last of either goes on."""
    ret, std = ring(10, done=(2, 5), cut=(6,))
    np.testing.assert_array_equal(ret, [2, 9, 2, 9, 10, 9, 10, np.nan, np.nan, np.nan])
    # returns 2 and 10 begin alike, 9 begins alone
    assert std[0] == std[4] == pytest.approx(np.std([2, 10], ddof=1)) and np.isnan(std[1])


def test_stored_standard_deviations_are_equal_where_only_rounding_differs():
    """Two starts with returns 4.1 and 4.2, and 4.7 and 4.8, in float32."""
    ret = np.float32([4.1, 4.7, 4.2, 4.8]).astype(np.float64)
    std = _start_std(jnp.array([0.0, 1.0, 0.0, 1.0])[:, None], np.arange(4), ret)
    assert len(set(std)) == 1 and std[0] == pytest.approx(np.sqrt(0.005), rel=1e-5)


def test_episode_with_overwritten_start_is_unknown():
    """The same steps in a buffer that has lost those before, when births have wrapped around."""
    ret, _ = ring(2**32 + 4, done=(2, 5), cut=(6,), size=10)
    np.testing.assert_array_equal(ret, [np.nan] * 4 + [10, np.nan, 10] + [np.nan] * 3)


def test_report_on_episodes_has_consistent_values(learned, probe):
    assert probe.algo == "dqn" and probe.epsilon == pytest.approx(learned.hypers["epsilon"])
    assert probe.consistency.ratio_error < 1e-5 and probe.consistency.value_error < 1e-5
    whole = probe.whole
    assert (
        list(whole.components) == ["td", "total"] and whole.components["td"].norm == whole.components["total"].norm > 0
    )
    assert whole.steps == probe.episodes.lengths.sum() and whole.samples == 24
    assert probe.episodes.acted_std.shape == (6,) and probe.clip_scale < 1.0
    assert sum(b.share for b in probe.buckets) == pytest.approx(1.0)
    assert {b.name: b.crossfit for b in probe.buckets}["bucket_1"].keys() == {"td", "total"}


def test_report_leaves_the_state_unchanged_and_repeats(learned, probe):
    before = leaves(learned.state)
    again = learned.report(dataclasses.replace(SMALL, keys="both", crossfit=True, buckets=1))
    for one, other in zip(before, leaves(learned.state), strict=True):
        np.testing.assert_array_equal(one, other)
    assert again.whole == probe.whole
    np.testing.assert_array_equal(again.episodes.returns, probe.episodes.returns)


def test_rank_groups_by_td_error(learned, probe):
    found = learned.report(dataclasses.replace(SMALL, by="td", chunk=24))
    assert found.whole.components["td"].norm == pytest.approx(probe.whole.components["td"].norm, rel=1e-5)
    assert (found.score > 0).all()


def test_episodes_of_a_group_start_in_one_stored_state(learned):
    """Each group in a state of its own, and all of a group in one."""
    asked = []
    replay = learned.state.learner.replay

    def at_slots(slots):
        asked.append(slots)
        states = learned.parts.replay.env_states(replay, jnp.asarray(slots))
        items = jax.tree.map(lambda leaf: leaf[slots], replay.items)
        count = len(slots)
        return RolloutState(
            states, items.obs_t, items.legal_t, Episode.start(count), (), jnp.ones(count, bool), ~items.alive_t
        )

    stored = of_state(learned.parts, replay)._replace(at=at_slots)
    report = learned.report(SMALL, stored)
    (slots,) = asked
    assert slots.shape == (24,) and len(set(slots)) == 6 and (slots.reshape(6, 4) == slots[::4, None]).all()
    assert report.stored == 96 and report.replay is None
    assert report.consistency.ratio_error < 1e-5
    # nine steps less those already taken: an episode is cut where it would have been
    taken = np.asarray(replay.env_states.steps)[slots]
    assert (report.episodes.lengths.reshape(-1) <= 9 - taken).all()


def test_non_finite_networks_are_refused(learned):
    own = learned.state.learner
    broken_params = jax.tree.map(lambda leaf: leaf * jnp.nan, own.target_params)
    broken = learned.state._replace(learner=own._replace(target_params=broken_params))
    for request in (SMALL, STORED):
        with pytest.raises(HmxError, match="not finite") as caught:
            make_reporter(CFG, learned.env, request)(broken, learned.hypers, jax.random.key(7))
        assert caught.value.exit_code == ExitCode.CHECK_FAILED


def test_too_few_transitions_are_refused(learned):
    stored = of_state(learned.parts, learned.state.learner.replay)
    with pytest.raises(HmxError, match=r"cannot draw 97 transitions: .* holds 96") as caught:
        drawn(stored, 97, [0])
    assert caught.value.exit_code == ExitCode.USAGE and "--groups" in caught.value.hint
    with pytest.raises(HmxError, match="by consequence: none has a score among 48 of 96"):
        learned.report(dataclasses.replace(STORED, by="consequence"))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"advantage": "group"}, "not from advantages"),
        ({"kl_coef": 0.1}, "no policy to measure a KL"),
        ({"kl": "k1"}, "no policy to measure a KL"),
    ],
)
def test_q_learning_refuses_options_it_does_not_have(learned, change, words):
    with pytest.raises(HmxError, match=words) as caught:
        make_reporter(CFG, learned.env, dataclasses.replace(SMALL, **change))
    assert caught.value.exit_code == ExitCode.USAGE
    reporter = make_reporter(CFG, learned.env, SMALL)
    with pytest.raises(HmxError, match="no policy to measure a KL"):
        reporter(learned.state, learned.hypers, jax.random.key(0), learned.state.params)
