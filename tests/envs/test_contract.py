"""Every environment keeps the contract; and the contract's check notices who does not."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from env_checks import check_env

from hmx.config.schema import EnvConfig, RewardWeights
from hmx.envs.autoreset import Game, TeamGame, batched
from hmx.envs.checks.run import run_checks
from hmx.envs.registry import make_env
from hmx.envs.small.counting import make_counting

TINY = ("counting", "corridor", "frozenlake", "frozenlake-slippery", "recall", "rendezvous", "cartpole-discrete")


@pytest.mark.parametrize("env_id", TINY)
def test_environment_passes_the_contract(env_id):
    """A limit of 7 steps is compared with play without one."""
    short, longer = (make_env(EnvConfig(id=env_id, max_steps=n, slip=0.3), RewardWeights()) for n in (7, 0))
    walk = check_env(short, longer=longer, num_envs=3, num_steps=16)
    assert bool(walk.timestep_tp1.truncated.any())


def test_multi_agent_environment_passes_the_contract():
    env = make_env(EnvConfig(id="rendezvous", num_agents=2, max_steps=20), RewardWeights())
    seen = check_env(env, num_envs=3, num_steps=30).timestep_tp1
    assert bool((seen.agent_done.any(-1) & ~seen.agent_done.all(-1)).any())  # one was done before the other
    assert bool(seen.terminated.any()) and bool(seen.truncated.any())


@pytest.mark.thorough
@pytest.mark.slow
def test_hackmatrix_passes_the_contract():
    """Short episodes, so that both kinds of end are seen, with every rule the configuration can switch."""
    cfg = EnvConfig(max_steps=9, undo_depth=2, rules="designed")
    walk = check_env(make_env(cfg, RewardWeights()), num_envs=3, num_steps=24)
    assert bool(walk.timestep_tp1.truncated.any())


def broken(length=0, reset=None, **changes):
    """The counting environment with one promise broken in every step."""
    env = make_counting(5, length)

    def step(state, action, keys):
        state, timestep = env.step(state, action, keys)
        return state, timestep._replace(**{name: change(timestep) for name, change in changes.items()})

    return env._replace(step=step, **({"reset": reset(env)} if reset else {}))


def game(move=None, observe=None, legal=None, start=None, **facts):
    """A line of cells that a player walks along, with parts replaced; two actions, left and right."""

    def walked(cell, action, key):
        after = cell + 2 * action - 1
        return after, {"move": jnp.float32(1)}, jnp.abs(after) > 20

    spec = make_counting(5).spec._replace(reward_terms=("move",), num_actions=2, action_names=("left", "right"))
    spec = spec._replace(**{"action_groups": (("move", 0, 2),), **facts})
    return batched(
        spec,
        Game(
            start or (lambda key: jnp.int32(0)),
            move or walked,
            observe or (lambda cell: cell[None].astype(jnp.float32)),
            legal or (lambda cell: jnp.ones(2, bool)),
        ),
    )


def noisy(draw, start=None, observe=None):
    """A game with random rewards; the state may hold a key."""

    def move(cell, action, key):
        return cell, {"move": draw(cell, key)}, jnp.zeros((), bool)

    return game(move, observe or (lambda cell: jnp.ones(1)), start=start)


def slippery(step):
    """A corridor whose step is replaced."""
    env = make_env(EnvConfig(id="corridor", slip=0.5, max_steps=9), RewardWeights())
    return env._replace(step=lambda *args: step(env, *args))


def cast(env, state, action, keys):
    state, timestep = env.step(state, action, keys)
    return state._replace(steps=state.steps.astype(jnp.float32)), timestep


def done_at_reset(env):
    def reset(keys):
        state, timestep = env.reset(keys)
        return state, timestep._replace(agent_done=~timestep.agent_done)

    return reset


def paid_at_reset(env):
    def reset(keys):
        state, timestep = env.reset(keys)
        return state, timestep._replace(reward=timestep.reward + 1, terms={"count": timestep.terms["count"] + 1})

    return reset


def two_rewards(cell, key):
    return jax.random.uniform(key) + jax.random.normal(key)


def branch(cell, action, key):
    if action > 0:
        cell = cell + 1
    return cell, {"move": jnp.float32(0)}, jnp.zeros((), bool)


def thrust(cell, action, key):
    return cell, {"move": action[0]}, jnp.zeros((), bool)


def wall(cell, action, key):
    """Divide by what is left of a wall, which an illegal step passes."""
    after = cell + 2 * action - 1
    return after, {"move": jnp.float32(1) / (after + 1)}, after > 3


KEY = jax.random.key(3)
PLANTED = {
    "no action is legal": ("masks", broken(legal=lambda ts: ts.legal & False, final_legal=lambda ts: ts.legal & False)),
    "no action is legal where an episode is truncated": (
        "masks", broken(final_legal=lambda ts: ts.final_legal & ~ts.truncated[:, None, None]),
    ),
    "a reward without a term": ("reward-terms", broken(reward=lambda ts: ts.reward + 1)),
    "a reward that is not a number": (
        "finite",
        broken(reward=lambda ts: ts.reward * jnp.nan, terms=lambda ts: {"count": ts.terms["count"] * jnp.nan}),
    ),
    "an observation that overflows": (
        "finite", game(observe=lambda cell: jnp.where(cell > 0, jnp.inf, cell)[None].astype(jnp.float32)),
    ),
    "a reward without agents": ("shapes", broken(reward=lambda ts: ts.reward[:, 0])),
    "a term that the spec lacks": ("shapes", broken(terms=lambda ts: {"other": ts.terms["count"]})),
    "an info that only steps have": ("shapes", broken(info=lambda ts: {"wins": ts.terminated})),
    "an observation of another type": (
        "shapes",
        broken(obs=lambda ts: ts.obs.astype(jnp.int32), final_obs=lambda ts: ts.final_obs.astype(jnp.int32)),
    ),
    "actions without names": ("shapes", game(action_names=("left",))),
    "a wrong batch axis": (
        "shapes", game(state_axis=-1, start=lambda key: jnp.zeros(3, jnp.int32), observe=lambda cell: cell[:1] * 1.0),
    ),
    "a state that changes its type": ("tracing", slippery(cast)),
    "an if on a traced value": ("tracing", game(branch)),
    "terminated and truncated at once": (
        "ends", broken(terminated=lambda ts: ts.truncated, agent_done=lambda ts: ts.truncated[:, None]),
    ),
    "an early truncation": ("ends", broken(truncated=lambda ts: ts.truncated | (ts.obs[:, 0, 0] == 2))),
    "no truncation": (
        "ends",
        broken(
            truncated=lambda ts: ts.truncated & False, final_obs=lambda ts: ts.obs, final_legal=lambda ts: ts.legal
        ),
    ),
    "a step limit that terminates": (
        "ends",
        broken(
            terminated=lambda ts: ts.truncated,
            truncated=lambda ts: ts.truncated & False,
            final_legal=lambda ts: ts.legal,
            agent_done=lambda ts: ts.truncated[:, None],
        ),
    ),
    "a reset that pays": ("ends", broken(reset=paid_at_reset)),
    "a final observation in the middle": ("last-observation", broken(final_obs=lambda ts: ts.obs + 1)),
    "a final observation after the reset": ("last-observation", broken(final_obs=lambda ts: ts.obs)),
    "a final mask in the middle": ("last-observation", broken(final_legal=lambda ts: ts.legal[..., ::-1])),
    "an agent that is not done": ("agents", broken(length=4, agent_done=lambda ts: ts.agent_done & False)),
    "an agent that is done alone": ("agents", broken(agent_done=lambda ts: ts.agent_done | True)),
    "an agent that is done at its reset": ("agents", broken(reset=done_at_reset)),
    "a number of the batch in the observation": (
        "batch",
        broken(obs=lambda ts: ts.obs + ts.obs.shape[0], final_obs=lambda ts: ts.final_obs + ts.obs.shape[0]),
    ),
    "one key for the batch": (
        "batch",
        slippery(lambda env, state, action, keys: env.step(state, action, jax.random.split(keys[0], keys.shape[0]))),
    ),
    "random numbers of NumPy": ("determinism", noisy(lambda cell, key: jnp.float32(np.random.uniform()))),
    "a key used twice": ("keys", noisy(two_rewards)),
    "a key made in the step": ("keys", noisy(lambda cell, key: jax.random.uniform(jax.random.key(7)))),
    "a key of the module": ("keys", noisy(lambda cell, key: jax.random.uniform(KEY))),
    "a key kept in the state": (
        "keys", noisy(lambda cell, key: jax.random.uniform(cell), start=lambda key: key),
    ),
    "an illegal action behind the wall": (
        "illegal-actions",
        game(wall, legal=lambda cell: jnp.stack([cell > 0, cell >= 0]), start=lambda key: jnp.int32(1)),
    ),
    "a force without a limit": (
        "illegal-actions",
        game(
            thrust, legal=lambda cell: jnp.ones(0, bool),
            num_actions=0, action_names=(), action_groups=(), action_dim=1,
        ),
    ),
}  # fmt: skip


@pytest.mark.parametrize("bug", PLANTED)
def test_planted_bug_is_reported(bug):
    check, env = PLANTED[bug]
    found = run_checks(env, num_envs=2, num_steps=12)
    assert [result.check for result in found.failed] == [check], found.failed
    assert found.failed[0].detail and found.failed[0].hint


def stale(env):
    """Show the state before the move as the final observation of a truncated episode."""

    def step(state, action, keys):
        core = state.core
        state, timestep = env.step(state, action, keys)
        before = core[:, None, None].astype(jnp.float32)
        return state, timestep._replace(
            final_obs=jnp.where(timestep.truncated[:, None, None], before, timestep.final_obs)
        )

    return env._replace(step=step)


def limit_terminates(env):
    """Report the step limit as a termination."""

    def step(state, action, keys):
        state, ts = env.step(state, action, keys)
        ended = ts.terminated | ts.truncated
        return state, ts._replace(
            terminated=ended, truncated=ended & False, agent_done=ended[:, None], final_legal=ts.legal
        )

    return env._replace(step=step)


def all_truncated(env):
    """Report a termination at the step limit as a truncation."""

    def step(state, action, keys):
        state, ts = env.step(state, action, keys)
        at_limit = ts.terminated
        return state, ts._replace(
            terminated=ts.terminated & False, truncated=at_limit, agent_done=ts.agent_done & False
        )

    return env._replace(step=step)


@pytest.mark.parametrize(
    ("bug", "length", "check"),
    [(None, 0, None), (stale, 0, "last-observation"), (limit_terminates, 9, "ends"), (all_truncated, 4, "ends")],
)
def test_higher_step_limit_reveals_wrong_terminations(bug, length, check):
    env = make_counting(4, length)
    found = run_checks(bug(env) if bug else env, make_counting(9, length), num_envs=2, num_steps=12)
    assert {result.check for result in found.failed} == ({check} if check else set()), found.failed


def two_agents(first_is_done, pay):
    """Two agents who are paid `pay(step)`; the second is done after step 6, the first where `first_is_done(step)`."""

    def move(step, action, key):
        done = jnp.stack([first_is_done(step + 1) | (step == 5), step == 5])
        return step + 1, {"count": pay(step + 1)}, done

    spec = make_counting(0).spec._replace(
        num_agents=2, num_actions=1, action_names=("a",), action_groups=(("a", 0, 1),)
    )
    return batched(
        spec,
        TeamGame(
            start=lambda key: jnp.int32(0),
            move=move,
            observe=lambda step: jnp.full((2, 1), step, jnp.float32),
            legal=lambda step: jnp.ones((2, 1), bool),
        ),
    )


@pytest.mark.parametrize(
    ("first_is_done", "pay", "message"),
    [
        (lambda step: step >= 3, lambda step: jnp.stack([step <= 3, step > 0]), None),
        (lambda step: step == 3, lambda step: jnp.stack([step <= 3, step > 0]), "takes part again"),
        (lambda step: step >= 3, lambda step: jnp.stack([step <= 4, step > 0]), "that was done is paid"),
    ],
)
def test_done_agent_stays_done_without_reward(first_is_done, pay, message):
    env = two_agents(first_is_done, pay)
    if message is None:
        check_env(env, num_envs=2, num_steps=8)
    else:
        with pytest.raises(AssertionError, match=message):
            check_env(env, num_envs=2, num_steps=8)
