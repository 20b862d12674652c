"""Environments of users: files, modules and packages."""

from __future__ import annotations

import sys
from importlib.metadata import EntryPoint

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from env_checks import check_env
from new_runs import prepare

import hmx
from hmx.config import codec
from hmx.config.schema import EnvConfig, RewardWeights
from hmx.envs.registry import make_env, sizes_of
from hmx.envs.single import Single, from_single, strange_truths
from hmx.errors import ExitCode, HmxError
from hmx.registry import trust, user_code
from hmx.registry.check import warnings
from hmx.registry.environments import known_sizes
from hmx.registry.load import load
from hmx.runs.session import _suited

GAME = """
from dataclasses import dataclass
import jax, jax.numpy as jnp
ACTIONS = ("left", "right")
MAX_STEPS = 9

@dataclass(frozen=True)
class Options:
    size: int = 4
    cost: float = 0.01

def observe(state, options):
    return jax.nn.one_hot(state, options.size)

def reset(key, options):
    return 0, observe(0, options)

def step(state, action, key, options):
    state = jnp.clip(state + 2 * action - 1, 0, options.size - 1)
    goal = state == options.size - 1
    return state, observe(state, options), {"goal": goal, "cost": -options.cost}, goal

def legal(state):
    return jnp.stack([state > 0, True])

def render(state, options):
    return "." * int(state) + "@" + "." * (options.size - 1 - int(state))
"""


@pytest.fixture(autouse=True)
def empty_folder(tmp_path, monkeypatch):
    """A current folder and a list of trusted files of the test's own."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setattr(trust, "_allowed", [])
    return tmp_path


def write(text, name="game.py"):
    with open(name, "w") as file:
        file.write(text)


def load_env(env_id, my=None, **settings):
    options = {f"env.my.{name}": value for name, value in (my or {}).items()}
    return hmx.make_env(env_id, options | {f"env.{name}": value for name, value in settings.items()})


def refused(text, **settings):
    """The error of a file with this text, without the hint."""
    write(text)
    with pytest.raises(HmxError) as found:
        load_env("./game.py", **settings)
    assert found.value.exit_code == ExitCode.USAGE and found.value.hint
    return found.value.message


def test_functions_of_a_file_become_an_environment_that_passes_the_contract():
    write(GAME)
    env = load_env("./game.py", my={"size": "5"})
    walk = check_env(env)
    steps = walk.timestep_tp1
    assert (env.spec.obs_shape, env.spec.action_names, env.spec.max_steps) == ((5,), ("left", "right"), 9)
    assert set(steps.terms) == {"goal", "cost"} and steps.truncated.any() and steps.terminated.any()
    assert env.spec.render(env.reset(jax.random.split(jax.random.key(0), 1))[0]) == "@...."
    assert load_env("./game.py", max_steps=3).spec.max_steps == 3


def test_only_environments_without_any_limit_get_a_warning():
    unlimited = EnvConfig(id="./game.py", max_steps=0)
    write(GAME)
    assert known_sizes(unlimited) is None and known_sizes(EnvConfig(id="gymnax/Never-built-v0", max_steps=0)) is None
    session = prepare(load(sets=["env.id=./game.py", "env.max_steps=0"]).config)
    sizes = sizes_of(session.env)
    assert sizes.max_steps == 9 and "no_limit" not in {p.code for p in warnings(session.cfg, sizes)}
    write(GAME.replace("MAX_STEPS = 9", ""))
    session = prepare(load(sets=["env.id=./game.py", "env.max_steps=0"]).config)
    sizes = sizes_of(session.env)
    assert sizes.max_steps == 0 and "no_limit" in {p.code for p in warnings(session.cfg, sizes)}


def test_file_can_return_an_env_or_a_gymnax_like_object(monkeypatch):
    write("from hmx.envs.small.corridor import make_corridor\ndef make():\n    return make_corridor(7, 0.5)\n")
    assert load_env("game.py").spec.id == "game.py" and load_env("game.py").spec.max_steps == 7
    write(GYMNAX, "package.py")
    env = load_env("package:make")
    check_env(env)
    assert (env.spec.num_actions, env.spec.obs_shape, env.spec.max_steps) == (3, (2,), 6)
    monkeypatch.delitem(sys.modules, "package")


GYMNAX = """
import jax.numpy as jnp
from types import SimpleNamespace
class Walk:
    default_params = SimpleNamespace(max_steps_in_episode=6)
    def action_space(self, params): return SimpleNamespace(n=3)
    def reset_env(self, key, params): return jnp.zeros(2), jnp.int32(0)
    def step_env(self, key, state, action, params):
        return jnp.ones(2) * state, state + action - 1, jnp.float32(action), state > 3, {}
make = Walk
"""


PARTS = """
import jax.numpy as jnp
ACTIONS = 2
MAX_STEPS = 3
def shown(t):
    return {"critic": jnp.full(3, t), "speed": jnp.float32(7), "policy": jnp.array([[1, 2]]), "angle": jnp.ones(1)}
def reset(key):
    return jnp.int32(5), shown(5)
def step(state, action, key):
    return state + 1, shown(state + 1), 1.0, False
"""


def test_named_parts_of_an_observation_are_joined_and_say_who_reads_them():
    write(PARTS)
    env = load_env("./game.py")
    walk = check_env(env)
    assert (env.spec.obs_shape, env.spec.policy_only, env.spec.value_only) == ((7,), 2, 3)
    assert walk.first.obs[0, 0].tolist() == [1, 2, 1, 7, 5, 5, 5]
    names = [number.name for number in env.spec.obs_quantities]
    assert names == ["policy[0]", "policy[1]", "angle[0]", "speed[0]", "critic[0]", "critic[1]", "critic[2]"]
    assert "another structure" in refused(PARTS.replace("shown(state + 1)", "{'policy': jnp.zeros(7)}"))
    assert "the policy reads none of them" in refused(PARTS.replace("return {", "return {} and {"))
    write(PARTS.replace('"critic"', '"battery"'))
    no_critic = load_env("./game.py").spec
    assert (no_critic.policy_only, no_critic.value_only) == (0, 0)


def test_an_image_keeps_its_form():
    write(PARTS.replace("return {", "return jnp.zeros((4, 5, 2), jnp.uint8) + 3\n    return {"))
    env = load_env("./game.py")
    walk = check_env(env)
    assert (env.spec.obs_shape, walk.first.obs.dtype, walk.first.obs.shape[2:]) == ((4, 5, 2), np.uint8, (4, 5, 2))
    assert sizes_of(env).image and not sizes_of(env).value_only
    assert _suited(env.spec) == {"net.kind": "cnn"}


def test_own_options_are_typed_checked_and_stored():
    write(GAME)
    assert "env.my.size = big: must be a whole number; try env.my.size=4" in refused(GAME, my={"size": "big"})
    assert "env.my.sise" in refused(GAME, my={"sise": 3})
    cfg = load(sets=["env.id=./game.py", "env.my.size=6"]).config
    assert codec.from_dict(codec.to_dict(cfg)) == cfg and "[env.my]" in codec.to_toml(cfg)
    assert codec.shape_digest(cfg) != codec.shape_digest(load(sets=["env.id=./game.py", "env.my.size=7"]).config)
    with pytest.raises(HmxError, match=r"corridor declares no options"):
        load(sets=["env.id=corridor", "env.my.size=6"])
    assert sizes_of(load_env("./game.py", my={"size": 6})).features == 6


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (("    return 0, obs", "    return nothing, obs"), "game.py:16, in reset: return nothing"),
        (("def step(", "def stop("), "game.py has no step"),
        (("ACTIONS =", "ACTS ="), "does not say what actions it takes"),
        (
            ("    return state, observe(state, options), {", "    return observe(state, options), {"),
            "step returns 3 val",
        ),
        (('"goal": goal', '"goal": jnp.ones(2)'), "step returns goal of shape (2,); expected one number"),
        (
            ("    return state, obs", "    return state * 0.5, obs"),
            "the state is int32 [] after reset and float32",
        ),
        (("[state > 0, True]", "[state > 0, False]"), "no action is legal in a first position"),
        (
            ("[state > 0, True]", "[0.0, -jnp.inf]"),
            "what legal returns has the number -inf; expected bools, or 0 and 1",
        ),
        (("[state > 0, True]", "[jnp.nan, 1.0]"), "what legal returns has the number nan"),
        (("[state > 0, True]", "[(state > 0) * 1, 2]"), "what legal returns has the number 2"),
        (("[state > 0, True]", "[1j, 0]"), "what legal returns has the type complex64; expected bool"),
        (("[state > 0, True]", "[True]"), "legal returns shape (1,); expected (2,)"),
        (("size: int = 4", "size: list = 4"), "Options.size must be a bool, int, float or str with a default"),
    ],
)
def test_bad_files_get_one_clear_error(change, words):
    assert change[0] in GAME
    text = GAME.replace(*change)
    message = refused(text)
    assert words in message and "hmx/envs" not in message, message


def test_numbers_0_and_1_are_truth_values_of_masks_and_ends():
    write(GAME)
    bools = load_env("./game.py")
    write(
        GAME.replace("[state > 0, True]", "[(state > 0) * 1.0, 1.0]").replace(", goal\n", ", goal.astype(int)\n"),
        "b.py",
    )
    numbers = load_env("./b.py")
    for env in (bools, numbers):
        advance = jax.jit(env.step)
        state, first = env.reset(jax.random.split(jax.random.key(0), 2))
        assert first.legal.tolist() == [[[False, True]]] * 2
        for seed in range(3):
            state, step = advance(state, jnp.ones((2, 1), jnp.int32), jax.random.split(jax.random.key(seed), 2))
        assert step.terminated.tolist() == [True, True]


def test_a_number_that_turns_strange_later_is_not_true():
    late = Single(
        lambda key: (0, jnp.zeros(1)),
        lambda state, action, key: (state + 1, jnp.zeros(1), 0.0, jnp.where(state > 30, jnp.nan, 0.0)),
        actions=2,
        legal=lambda state: jnp.where(state > 30, jnp.array([-jnp.inf, 1.0]), 1.0),
    )
    assert strange_truths(late, 2) == ""
    env = from_single("late", late, 100)
    advance = jax.jit(env.step)
    state, step = env.reset(jax.random.split(jax.random.key(0), 1))
    for seed in range(33):
        state, step = advance(state, jnp.ones((1, 1), jnp.int32), jax.random.split(jax.random.key(seed), 1))
    assert step.legal.tolist() == [[[False, True]]] and not step.terminated.any()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ((", goal\n", ", goal * 0.5\n"), "terminated, which step returns, has the number 0.5"),
        ((", goal\n", ", jnp.where(goal, jnp.nan, 0.0)\n"), "terminated, which step returns, has the number nan"),
        (("[state > 0, True]", "[state, 1]"), "what legal returns has the number 2"),  # after some steps
        (("-options.cost}, goal", "1j}, goal"), "step returns cost complex64; expected real numbers"),
    ],
)
def test_numbers_beside_0_and_1_as_truth_values_are_refused_before_training(change, words):
    assert change[0] in GAME
    assert words in refused(GAME.replace(*change))


def test_a_missing_attribute_gets_the_nearest_name():
    write(GAME)
    with pytest.raises(HmxError, match=r"game.py has no reseet") as found:
        load_env("./game.py:reseet")
    assert found.value.hint == "did you mean ./game.py:reset?"


def test_packages_register_environments_and_clashes_are_refused(monkeypatch):
    write(GYMNAX, "walks.py")
    points = [EntryPoint("walk", "walks:make", user_code.GROUPS["env.id"])]
    monkeypatch.setattr("importlib.metadata.entry_points", lambda group: points)
    assert make_env(EnvConfig(id="walk"), RewardWeights()).spec.num_actions == 3  # installed, so trusted
    points.append(EntryPoint("walk", "other:make", user_code.GROUPS["env.id"]))
    with pytest.raises(HmxError, match=r"several owners: walks:make .*other:make"):
        make_env(EnvConfig(id="walk"), RewardWeights())
    monkeypatch.delitem(sys.modules, "walks")
