import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hmx.algos.ppo.auto_scale import MINIBATCH, auto_scale
from hmx.config.codec import diff
from hmx.config.fields import FIELDS, replace
from hmx.config.schema import Config
from hmx.registry import derive
from hmx.registry.check import known_problems
from hmx.registry.load import Loaded, bind, load

SCALED = ("ppo.num_minibatches", "ppo.update_epochs", "algo.learning_rate")


def config(envs, steps, minibatches=4, epochs=4, rate=2.5e-4):
    keys = ("env.num_envs", "algo.num_steps", *SCALED)
    cfg = replace(Config(), dict(zip(keys, (envs, steps, minibatches, epochs, rate), strict=True)))
    return replace(cfg, {"run.total_steps": 100 * max(1, envs * steps), "ppo.auto_scale": True})


def test_auto_scale_of_the_reference_batch():
    # 2,048 x 128: 4 x 4 gradient steps become 32 x 2 = 64, and the step size a quarter.
    scaled, lines = auto_scale(config(2048, 128))
    assert (scaled.ppo.num_minibatches, scaled.ppo.update_epochs) == (32, 2)
    assert scaled.algo.learning_rate == pytest.approx(6.25e-5)
    assert lines == [
        "ppo.num_minibatches: 4 -> 32, minibatches of 8,192 of 262,144 steps",
        "ppo.update_epochs: 4 -> 2, fewer epochs for more minibatches, at least 2",
        "algo.learning_rate: 0.00025 -> 6.25e-05, 4 times as many gradient steps per update",
    ]


def test_a_task_is_as_given_until_it_is_bound():
    given = load(
        sets=["env.num_envs=2048", "algo.num_steps=128", "ppo.auto_scale=true", "run.total_steps=1000000"], environ={}
    )
    bound = bind(given)
    assert (given.config.ppo.num_minibatches, given.scaled) == (8, ())
    assert (bound.config.ppo.num_minibatches, bound.origins) == (32, given.origins)
    assert [line.partition(":")[0] for line in bound.scaled] == list(SCALED)
    assert bind(bound) == bound


def test_a_bound_task_notes_the_code_of_the_user(tmp_path):
    code = tmp_path / "mine.py"
    code.write_text("def make(): ...")
    task = Loaded(replace(Config(), {"env.id": str(code)}))
    assert bind(task).config.env.sha256 == hashlib.sha256(code.read_bytes()).hexdigest()
    code.write_text("def make(): return 1")
    assert bind(bind(task)).config.env.sha256 == hashlib.sha256(code.read_bytes()).hexdigest()


def test_auto_scale_splits_batches_without_powers_of_two():
    scaled, _ = auto_scale(config(1000, 128))
    assert scaled.ppo.num_minibatches == 16
    assert known_problems(scaled) == []


def test_auto_scale_keeps_minibatches_small_for_any_batch():
    scaled, _ = auto_scale(config(65_536, 128))
    assert derive.derive(scaled).minibatch_size == MINIBATCH


def test_auto_scale_never_raises_epochs():
    assert auto_scale(config(2048, 128, epochs=1))[0].ppo.update_epochs == 1


def test_auto_scale_leaves_small_batches_alone():
    assert auto_scale(Config()) == (Config(), [])
    assert auto_scale(config(8, 8)) == (config(8, 8), [])


@pytest.mark.parametrize("origin", ["my.toml:3", "HMX_X", "--set", "--minibatches"])
@pytest.mark.parametrize("key", SCALED)
def test_auto_scale_keeps_values_that_the_user_set(key, origin):
    cfg = config(2048, 128)
    scaled, lines = auto_scale(cfg, {**dict.fromkeys(FIELDS, "default"), key: origin})
    assert key not in diff(cfg, scaled)
    assert not any(line.startswith(key) for line in lines)
    if key == "ppo.num_minibatches":
        assert scaled == cfg
    else:
        assert scaled.ppo.num_minibatches == 32


def test_auto_scale_learning_rate_accounts_for_explicit_epochs():
    scaled, _ = auto_scale(config(2048, 128), {"ppo.update_epochs": "--update-epochs"})
    assert scaled.algo.learning_rate == pytest.approx(2.5e-4 / 8)


def test_auto_scale_may_change_values_of_presets():
    assert auto_scale(config(2048, 128), dict.fromkeys(FIELDS, "preset big"))[0].ppo.num_minibatches == 32


@given(
    st.integers(-1, 5000),
    st.integers(-1, 300),
    st.integers(-1, 64),
    st.integers(-1, 10),
    st.floats(0, 1),
    st.booleans(),
)
def test_auto_scale_accepts_any_configuration(envs, steps, minibatches, epochs, rate, by_user):
    cfg = config(envs, steps, minibatches, epochs, rate)
    origins = dict.fromkeys(FIELDS, "--set" if by_user else "default")
    scaled, lines = auto_scale(cfg, origins)
    changed = diff(cfg, scaled)
    assert set(changed) <= set(SCALED)
    assert [line.partition(":")[0] for line in lines] == [key for key in SCALED if key in changed]
    assert not (by_user and changed)
    assert scaled.ppo.update_epochs <= cfg.ppo.update_epochs
    assert scaled.algo.learning_rate <= cfg.algo.learning_rate
    assert scaled.ppo.num_minibatches >= cfg.ppo.num_minibatches
    assert auto_scale(scaled, origins) == (scaled, [])
    if changed:
        assert envs * steps % scaled.ppo.num_minibatches == 0
    if not known_problems(cfg):
        assert known_problems(scaled) == []
