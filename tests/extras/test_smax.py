"""Battles of SMAX behind the contract of our environments, against JaxMARL itself."""

import json
import signal
import subprocess
import sys
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from env_checks import check_env
from new_runs import plan, train

from hmx.config.extras import install
from hmx.config.fields import replace
from hmx.config.learning import DqnConfig, PpoConfig, ReplayConfig, ScoreConfig
from hmx.config.schema import AlgoConfig, Config, EnvConfig, NetConfig, RewardWeights, RunConfig
from hmx.envs.pictures import picture
from hmx.envs.registry import make_env, sizes_of
from hmx.envs.suites.entries import SCENARIOS
from hmx.envs.suites.smax import make_smax
from hmx.errors import HmxError
from hmx.jobs.resume import resume
from hmx.records.layout import find_run
from hmx.registry.environments import known_sizes
from hmx.registry.load import load
from hmx.reports.score_buffer.job import dry_run, score_buffer
from hmx.reports.score_buffer.request import ScoreRequest
from hmx.runs.checkpoint import to_host
from hmx.runs.restoring import restore
from hmx.runs.session import open_session
from hmx.runs.sinks import Sink

jaxmarl = pytest.importorskip("jaxmarl")

ALLIES, STOP, ATTACK, LIMIT = 3, 4, 5, 100
ENVS, STEPS = 16, 30


def made(scenario="3m", **values):
    return make_env(EnvConfig(id=f"smax/{scenario}", **values), RewardWeights())


def test_environment_passes_the_contract():
    walk = check_env(made(max_steps=12), num_envs=2, num_steps=30)
    assert bool(walk.timestep_tp1.truncated.any())


@pytest.fixture(scope="module")
def battle():
    """One compiled program of 16 battles: the environment, its first states, and its step."""
    env = made()
    state, first = jax.jit(env.reset)(jax.random.split(jax.random.key(0), ENVS))
    step = jax.jit(env.step).lower(state, jnp.zeros((ENVS, ALLIES), jnp.int32), keys_of(0)).compile()
    return env, state, first, step


def keys_of(t):
    return jax.random.split(jax.random.fold_in(jax.random.key(1), t), ENVS)


@pytest.fixture(scope="module")
def played(battle):
    """Units attack whom they can and else walk east; per step the state, legal actions, actions, and what followed."""
    _, state, timestep, step = battle
    rows = []
    for t in range(STEPS):
        legal = np.asarray(timestep.legal)
        attack = np.where(legal[..., ATTACK:].any(-1), ATTACK + legal[..., ATTACK:].argmax(-1), 1)
        action = np.where(legal[..., 1], attack, STOP).astype(np.int32)
        after, timestep = step(state, jnp.asarray(action), keys_of(t))
        rows.append((state, legal, action, after, timestep))
        state = after
    return rows


def test_legal_actions_follow_from_unit_positions(played):
    """Four directions for the living, standing still for all, and an attack on each living enemy within five units."""
    out_of_reach = dead = 0
    for state, legal, _, _, _ in played:
        units = state.core.state
        place, alive = np.asarray(units.unit_positions), np.asarray(units.unit_alive)
        apart = np.linalg.norm(place[:, :ALLIES, None] - place[:, None, ALLIES:], axis=-1)
        ours = alive[:, :ALLIES]
        np.testing.assert_array_equal(legal[..., :STOP], np.repeat(ours[..., None], STOP, -1))
        assert legal[..., STOP].all()
        in_reach = (apart < 5.0) & alive[:, None, ALLIES:] & ours[..., None]
        np.testing.assert_array_equal(legal[..., ATTACK:], in_reach)
        out_of_reach += (~in_reach & ours[..., None]).sum()
        dead += (~ours).sum()
    assert dead > 20 and out_of_reach > 20


def test_dead_units_share_team_reward_until_the_battle_ends(played):
    paid = 0
    for state, _, _, _, timestep in played:
        reward = np.asarray(timestep.reward)
        np.testing.assert_array_equal(reward, np.repeat(reward[:, :1], ALLIES, 1))
        np.testing.assert_array_equal(timestep.agent_done, np.repeat(timestep.terminated[:, None], ALLIES, 1))
        dead = ~np.asarray(state.core.state.unit_alive[:, :ALLIES])
        paid += (dead & (reward > 0) & ~np.asarray(timestep.terminated)[:, None]).sum()
    assert paid > 5


def test_wins_are_reported_in_the_winning_step(played):
    """And pay 1; health taken pays its share, so that a victory makes 2 in all."""
    won, lost, total = 0, 0, np.zeros(ENVS)
    for _, _, _, _, timestep in played:
        wins, over = np.asarray(timestep.info["wins_sum"]), np.asarray(timestep.terminated)
        np.testing.assert_array_equal(timestep.terms["win"], ALLIES * wins)
        np.testing.assert_array_equal(timestep.info["win_rate_episode"], wins)
        assert not timestep.truncated.any() and (wins <= over).all()
        total += np.asarray(timestep.reward)[:, 0]
        np.testing.assert_allclose(total[wins > 0], 2.0, rtol=1e-5)
        assert (total[over & (wins == 0)] < 1.001).all()
        total[over] = 0.0
        won, lost = won + wins.sum(), lost + (over & (wins == 0)).sum()
    assert won > 3 and lost > 3


def test_step_matches_jaxmarl(battle, played):
    """Its step without auto-reset, with the part of our key that moves; the enemy's dice are of that key too."""
    smax = theirs()
    own = jax.jit(jax.vmap(lambda key, core, action: stacked(smax, key, core, action)))
    moving = jax.jit(jax.vmap(lambda key: jax.random.split(key)[0]))
    over = 0
    for t in (0, 9, 12, 15):
        state, _, action, _, timestep = played[t]
        obs, reward, done = own(moving(keys_of(t)), state.core, jnp.asarray(action))
        np.testing.assert_allclose(timestep.final_obs, obs, rtol=1e-6, atol=1e-6)
        np.testing.assert_allclose(timestep.reward[:, 0], reward, rtol=1e-6, atol=1e-6)
        np.testing.assert_array_equal(timestep.terminated, done)
        fresh = np.asarray(timestep.obs != timestep.final_obs).any((1, 2))
        np.testing.assert_array_equal(fresh, np.asarray(done))
        over += int(done.sum())
    assert over


def theirs():
    from jaxmarl.environments.smax import HeuristicEnemySMAX, map_name_to_scenario

    return HeuristicEnemySMAX(scenario=map_name_to_scenario("3m"))


def stacked(smax, key, core, action):
    obs, _, reward, done, _ = smax.step_env(key, core, dict(zip(smax.agents, action, strict=True)))
    return jnp.stack([obs[agent] for agent in smax.agents]), reward["ally_1"], done["__all__"]


def late(state, steps, health):
    """The battles one step before `steps`, the units of each with such `health` (allies', enemies')."""
    units = state.core.state
    left = np.concatenate([np.repeat(health[:, :1], ALLIES, 1), np.repeat(health[:, 1:], ALLIES, 1)], 1)
    units = units.replace(step=jnp.full(ENVS, steps - 1, units.step.dtype), unit_health=jnp.asarray(left, jnp.float32))
    return state._replace(core=state.core.replace(state=units), steps=jnp.full(ENVS, steps - 1, jnp.int32))


def test_step_limit_truncates_undecided_battles(battle):
    """JaxMARL calls all four done in step 100: both sides stand, the enemy is dead, we are, and nobody is left."""
    _, state, _, step = battle
    health = np.tile([[45.0, 45.0], [45.0, 0.0], [0.0, 45.0], [0.0, 0.0]], (ENVS // 4, 1))
    action = jnp.full((ENVS, ALLIES), STOP)
    for steps in (LIMIT, LIMIT - 1):
        _, timestep = step(late(state, steps, health), action, keys_of(0))
        cut = [steps == LIMIT, False, False, False] * (ENVS // 4)
        assert timestep.truncated.tolist() == cut
        assert timestep.terminated.tolist() == [False, True, True, True] * (ENVS // 4)
        assert timestep.info["wins_sum"].tolist() == [0, 1, 0, 0] * (ENVS // 4)
        shown = np.asarray(timestep.final_obs != timestep.obs).any((1, 2))
        np.testing.assert_array_equal(shown, np.asarray(timestep.truncated | timestep.terminated))
    after, timestep = step(late(state, LIMIT, health), action, keys_of(0))
    assert timestep.final_legal[0, :, :STOP].all() and not after.steps.any() and not after.core.state.step.any()


def test_truncation_shows_the_mask_of_the_last_state(battle):
    """Enemies within reach when the limit cuts; the next battle begins with none."""
    _, state, _, step = battle
    near = late(state, LIMIT, np.full((ENVS, 2), 45.0))
    units = near.core.state
    place = units.unit_positions.at[:, ALLIES:].set(units.unit_positions[:, :ALLIES] + 1.5)
    near = near._replace(core=near.core.replace(state=units.replace(unit_positions=place)))
    _, timestep = step(near, jnp.full((ENVS, ALLIES), STOP), keys_of(0))
    assert timestep.truncated.all()
    assert timestep.final_legal[..., ATTACK:].any(-1).all() and not timestep.legal[..., ATTACK:].any()


def test_every_scenario_has_the_sizes_stated_without_jaxmarl():
    from jaxmarl.environments.smax.smax_env import MAP_NAME_TO_SCENARIO

    assert {name: (int(s.num_allies), int(s.num_enemies)) for name, s in MAP_NAME_TO_SCENARIO.items()} == SCENARIOS
    for name, (allies, _) in SCENARIOS.items():
        spec = make_smax(f"smax/{name}", 0).spec
        sizes = known_sizes(EnvConfig(id=f"smax/{name}"))
        assert (*spec.obs_shape, spec.num_actions) == (sizes.features, sizes.num_actions)
        assert (spec.num_agents, spec.max_steps) == (allies, LIMIT)
        assert load(environ={}, flags={"env.id": f"smax/{name}"}).config.env.num_agents == allies


@pytest.mark.parametrize("scenario", ["3m", "3s_vs_5z", "27m_vs_30m"])
def test_every_scenario_state_has_the_stated_size(scenario):
    assert known_sizes(EnvConfig(id=f"smax/{scenario}")) == sizes_of(made(scenario))


def test_world_state_matches_jaxmarl_and_reaches_only_the_value():
    """Of each unit health, place as shares of a map of 32 by 32, cooldown and type; then all teams and all types."""
    cfg = EnvConfig(id="smax/3m", num_agents=ALLIES, world_state=True)
    env = make_env(cfg, RewardWeights())
    state, shown = jax.jit(env.reset)(jax.random.split(jax.random.key(0), 2))
    plain = jax.jit(made().reset)(jax.random.split(jax.random.key(0), 2))[1]
    assert (env.spec.obs_shape, env.spec.value_only) == ((75 + 72,), 72)
    np.testing.assert_array_equal(shown.obs[..., :75], plain.obs)
    world = np.asarray(shown.obs[..., 75:])
    np.testing.assert_array_equal(world, np.repeat(world[:, :1], ALLIES, 1))
    units = world[:, 0, :60].reshape(2, 6, 10)
    np.testing.assert_allclose(units[..., 1:3] * 32, state.core.state.unit_positions, rtol=1e-6)
    np.testing.assert_array_equal(np.delete(units, [1, 2], -1), np.tile([1.0, 0, 1, 0, 0, 0, 0, 0], (2, 6, 1)))
    np.testing.assert_array_equal(world[:, 0, 60:], np.tile([0.0] * 3 + [1] * 3 + [0] * 6, (2, 1)))


def test_shorter_step_limit_applies_and_longer_one_does_not():
    assert [make_smax("smax/3m", given).spec.max_steps for given in (0, 30, 1000)] == [LIMIT, 30, LIMIT]


def test_second_version_resamples_units_and_positions():
    env = made("smacv2_5_units")
    state, timestep = jax.jit(env.reset)(jax.random.split(jax.random.key(0), 8))
    types = np.asarray(state.core.state.unit_types)
    assert len(np.unique(types)) > 3 and len(np.unique(types, axis=0)) > 4
    assert timestep.obs.shape == (8, 5, 127) and np.isfinite(timestep.obs).all()


def test_another_version_is_refused(monkeypatch):
    monkeypatch.setattr(jaxmarl, "__version__", "0.1.0")
    with pytest.raises(HmxError, match=r"installed is 0\.1\.0, not 0\.2") as found:
        made()
    assert found.value.hint == install("smax")


def test_import_prints_nothing_and_keeps_the_streams():
    code = (
        "import sys; held = sys.stdout, sys.stderr; from hmx.envs.suites.smax import _made; _made('3m');"
        "assert held == (sys.stdout, sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


class Stopper(Sink):
    """Ends the run after an update, as Ctrl-C would."""

    name = "the stopper"

    def __init__(self, update):
        self.update = update

    def record(self, record):
        if record["update"] == self.update:
            signal.raise_signal(signal.SIGTERM)


def small(root, name, **values):
    """Four updates on eight battles of up to 20 steps."""
    run = RunConfig(name=name, root=str(root), total_steps=4 * 8 * 16, updates_per_chunk=1, eval_episodes=0)
    env = EnvConfig(id="smax/3m", num_envs=8, num_agents=ALLIES, max_steps=20)
    return Config(run=run, env=env, net=NetConfig(hidden=(16,)), **values)


def lines(run):
    """The metrics of each update without those that measure the machine."""
    clock = {"elapsed", "wall_time", "run", "train/steps_per_sec", "train/steps_per_cpu_sec"}
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [{k: v for k, v in row.items() if k not in clock} for row in rows]


@pytest.fixture(scope="module")
def learned(tmp_path_factory):
    """Value decomposition, with scores by rollouts, once whole and once in two parts."""
    root = tmp_path_factory.mktemp("runs")
    parts = {
        "algo": AlgoConfig(name="dqn", num_steps=16, learning_rate=1e-3, max_grad_norm=10.0),
        "dqn": DqnConfig(batch_size=16, gradient_steps=4, learn_starts=128, target_every=4),
        "replay": ReplayConfig(capacity=256, mixing="additive", replacement=False, survey_every=2, save=True),
        "score": ScoreConfig(every=2, transitions=4, chunk=4, rollouts=2, horizon=4),
    }
    whole = train(small(root, "whole", **parts)).run
    first = train(small(root, "parts", **parts), sinks=[Stopper(2)])
    assert (first.state, first.updates) == ("interrupted", 2)
    return whole, resume(first.run).run


def saved(run):
    return to_host(restore(open_session(load(file=run, environ={}).config), find_run(run)).state)


def test_stopped_run_resumes_to_the_same_bits(learned):
    """With the battles under way, the buffer and the battles it holds."""
    whole, parts = learned
    x, y = saved(whole), saved(parts)
    assert [name for name in x if x[name].tobytes() != y[name].tobytes()] == [] and list(x) == list(y)
    assert any(name.startswith("learner/replay/env_states/core/state/unit_health") for name in x), list(x)
    assert lines(whole) == lines(parts) and len(lines(whole)) == 4


def test_value_decomposition_reports_wins_and_scores(learned):
    rows = lines(learned[0])
    assert {"stats/wins", "reward/damage", "actions/attack_frac", "replay/coverage"} <= set(rows[-1])
    rates = [row["stats/win_rate"] for row in rows if row["train/num_episodes"]]
    assert rates and all(0.0 <= rate <= 1.0 for rate in rates)
    assert rates == pytest.approx([r["stats/wins"] / r["train/num_episodes"] for r in rows if r["train/num_episodes"]])
    assert np.isfinite([row["train/total_loss"] for row in rows[1:]]).all()


def test_buffer_scores_compare_alternative_actions_of_each_unit(learned, tmp_path):
    request = ScoreRequest(positions=4, rollouts=2, horizon=6)
    whole = learned[0]
    buffer = whole / "reports" / "buffer.npz"
    assert dry_run(buffer, checkpoint=whole, request=request).actions == 1 + ALLIES * 7
    found = score_buffer(buffer, checkpoint=whole, request=request, out=tmp_path / "o")
    for row in found.top:
        units: Any = row.state["battle"]
        assert 1 <= len([unit for unit in units if unit["side"] == "ally"]) <= ALLIES < len(units) + ALLIES
        assert all(unit["kind"] == "marine" and 0 < unit["health"] <= 45 and 0 <= unit["x"] <= 32 for unit in units)
        assert "allies in blue" in picture(row.state).alt
    assert found.top


def test_ppo_with_shared_parameters_updates(tmp_path):
    """And with a value that sees the whole battle."""
    ppo = PpoConfig(num_minibatches=2, update_epochs=1, value_target="identity")
    cfg = small(tmp_path, "ppo", algo=AlgoConfig(num_steps=16), ppo=ppo)
    cfg = replace(cfg, {"env.world_state": True, "net.shared_torso": False})
    run = train(cfg).run
    rows = lines(run)
    assert "stats/win_rate" in rows[-1] and np.isfinite([row["train/total_loss"] for row in rows]).all()
    params = saved(run)
    assert params["params/torso/dense_0/kernel"].shape == (75, 16)
    assert params["params/value_torso/dense_0/kernel"].shape == (75 + 72, 16)
    counted = sum(leaf.size for name, leaf in params.items() if name.startswith("params/"))
    assert plan(replace(cfg, {"run.name": "other"})).memory.parameters == counted
