"""Simulators of Gymnasium in workers: they replay exactly, and no step between episodes is seen."""

from __future__ import annotations

import numpy as np
import pytest

from hmx.config.schema import EnvConfig, RewardWeights
from hmx.envs.registry import build_env
from hmx.errors import HmxError
from hmx.registry import trust, user_code
from hmx.registry.load import load
from hmx.registry.workers import WorkerPlan
from hmx.simulators.pool import WorkerPool, measure
from hmx.simulators.recipe import Recipe

gymnasium = pytest.importorskip("gymnasium")

PLAN = WorkerPlan(num_workers=1, envs_per_worker=2, num_groups=1)


def gym_recipe(name):
    return Recipe(f"gymnasium/{name}", name=name)


def file_recipe(path, text):
    path.write_text(text)
    user_code.allow(str(path), "env.id")
    return Recipe("own", reference=str(path), attribute="make")


def open_pool(made):
    return WorkerPool(made, measure(made, 300.0), PLAN, seed=1, stream=0, timeout=300.0)


def play(pool, actions):
    seen = []
    pool.reset()
    for row in actions:
        pool.at.action[:] = row
        pool.send(0)
        pool.wait(0)
        seen.append([array.copy() for array in (pool.at.obs, pool.at.terminated, pool.at.truncated, pool.at.steps)])
    return [np.stack(arrays) for arrays in zip(*seen, strict=True)]


def actions_for(pool, steps):
    shape, random = (steps, *pool.at.action.shape), np.random.default_rng(0)
    if pool.facts.action_dim:
        return random.uniform(-1.0, 1.0, shape).astype(np.float32)
    return random.integers(pool.facts.action_parts[0], size=shape)


@pytest.mark.parametrize(
    ("name", "packages"),
    [("CartPole-v1", []), ("LunarLander-v3", ["Box2D"]), ("Hopper-v5", ["mujoco", "imageio"])],
)
def test_episodes_replay_to_the_same_observations(name, packages):
    for package in packages:
        pytest.importorskip(package)
    with open_pool(gym_recipe(name)) as pool:
        actions = actions_for(pool, 60)
        obs, _, _, steps = play(pool, actions)
        number, digest = pool.at.number.copy(), pool.at.digest.copy()
        for env in range(2):
            pool.replay(env, actions[len(actions) - steps[-1, env] :, env])
        assert np.array_equal(pool.at.obs, obs[-1]) and np.array_equal(pool.at.digest, digest)
        assert np.array_equal(pool.at.number, number)


POLE = """
import gymnasium
def make():
    return {made}
"""


def test_a_wrapper_that_resets_by_itself_inserts_no_step(tmp_path):
    plain, wrapped = "gymnasium.make('CartPole-v1')", "gymnasium.wrappers.Autoreset(gymnasium.make('CartPole-v1'))"
    results = []
    for i, made in enumerate((plain, wrapped)):
        with open_pool(file_recipe(tmp_path / f"pole{i}.py", POLE.format(made=made))) as pool:
            results.append(play(pool, actions_for(pool, 80)))
    assert results[0][1].sum() > 4  # episodes ended
    assert all(np.array_equal(one, other) for one, other in zip(*results, strict=True))


@pytest.mark.parametrize("mode", ["NEXT_STEP", "SAME_STEP", "DISABLED"])
def test_a_vector_of_environments_is_refused_in_every_autoreset_mode(tmp_path, mode):
    made = f"""gymnasium.make_vec(
        "CartPole-v1", num_envs=2, vector_kwargs={{"autoreset_mode": gymnasium.vector.AutoresetMode.{mode}}},
        vectorization_mode="sync",
    )"""
    with pytest.raises(HmxError, match="a vector of environments"):
        measure(file_recipe(tmp_path / "vector.py", POLE.format(made=made)), 60.0)


def test_an_unknown_name_is_refused_with_the_nearest():
    with pytest.raises(HmxError, match="Gymnasium has no environment CartPol-v1") as refused:
        measure(gym_recipe("CartPol-v1"), 60.0)
    assert refused.value.hint == "did you mean gymnasium/CartPole-v1?"


def test_an_environment_of_another_package_needs_its_name():
    with pytest.raises(HmxError, match="Namespace ALE not found") as refused:
        measure(gym_recipe("ALE/Never-v5"), 60.0)
    assert "such as gymnasium/ale_py:ALE/Never-v5" in refused.value.hint
    with pytest.raises(HmxError, match="there is no module never_installed"):
        measure(gym_recipe("never_installed:ALE/Never-v5"), 60.0)


WALK = """
import gymnasium
gymnasium.register("Walk-v0", entry_point="pack.inner:make")
"""


def test_a_module_before_an_id_runs_only_where_it_is_trusted(tmp_path, monkeypatch):
    def new_process():
        monkeypatch.setattr(trust, "_allowed", [])

    (tmp_path / "pack").mkdir()
    (tmp_path / "pack" / "__init__.py").write_text("")
    (tmp_path / "pack" / "inner.py").write_text(POLE.format(made="gymnasium.make('CartPole-v1')"))
    (tmp_path / "pack" / "walk.py").write_text(WALK)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    new_process()
    given = EnvConfig(id="gymnasium/pack.walk:Walk-v0")
    with pytest.raises(HmxError, match=r"pack/walk.py: a run or a file names or imports it, but you have not trusted"):
        build_env(given, RewardWeights())
    with pytest.raises(HmxError, match="you have not trusted"):  # also where a worker is asked directly
        measure(gym_recipe("pack.walk:Walk-v0"), 60.0)
    load(sets=[f"env.id={given.id}"], environ={})  # on the command line
    env, cfg = build_env(given, RewardWeights())
    assert env.spec.num_actions == 2 and cfg.sha256 == user_code.sha256("pack.walk:make", "env.id")
    new_process()
    assert build_env(cfg, RewardWeights())[1] == cfg  # remembered, with the modules of its package

    (tmp_path / "pack" / "inner.py").write_text("raise SystemExit")
    with pytest.raises(HmxError, match=r"pack/inner.py: a run or a file names or imports it"):
        build_env(cfg, RewardWeights())
    (tmp_path / "pack" / "walk.py").write_text(f"{WALK}print()")
    with trust.trusting(True), pytest.raises(user_code.CodeChanged):
        build_env(cfg, RewardWeights())


def test_spaces_that_hmx_does_not_read_are_named():
    with pytest.raises(HmxError, match="cannot read observations of the space Tuple"):
        measure(gym_recipe("Blackjack-v1"), 60.0)
