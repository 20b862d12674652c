import pytest
from hypothesis import given
from hypothesis import strategies as st

from hmx.config import derive, q_rules
from hmx.config.coerce import coerce
from hmx.config.divisors import nearest_ratio, neighbours
from hmx.config.fields import FIELDS, replace
from hmx.config.limits import LIMITS
from hmx.config.primes import all_divisors
from hmx.config.schema import Config, RewardWeights
from hmx.errors import ExitCode, HmxError

SMALL = {"env.num_envs": 8, "algo.num_steps": 4, "algo.num_minibatches": 2, "run.total_steps": 320}


def config(**changes):
    return replace(Config(), {**SMALL, **{key.replace("__", "."): value for key, value in changes.items()}})


def applied(cfg, suggestion):
    key, _, value = suggestion.partition("=")
    return replace(cfg, {key: coerce(FIELDS[key], value, text=True)})


def codes(cfg):
    return [p.code for p in derive.problems(cfg)]


def test_sizes_worked_by_hand():
    cfg = config(
        algo__update_epochs=3, run__updates_per_chunk=4, run__checkpoint_every=2, run__num_seeds=5, run__total_steps=290
    )
    assert derive.derive(cfg) == derive.Derived(
        batch_size=32,
        agent_steps=32,
        horizon=1,
        segments=32,
        minibatch_segments=16,
        minibatch_size=16,
        gradient_steps_per_update=6,
        num_updates=10,
        gradient_steps=60,
        total_env_steps=320,
        updates_per_chunk=4,
        steps_per_chunk=128,
        num_chunks=3,
        num_checkpoints=2,
        all_env_steps=1600,
    )


def test_rows_of_several_agents_worked_by_hand():
    sizes = derive.derive(config(env__id="rendezvous", env__num_agents=3, net__rnn="gru", algo__num_minibatches=6))
    assert (sizes.batch_size, sizes.agent_steps) == (32, 96)
    assert (sizes.horizon, sizes.segments, sizes.minibatch_segments, sizes.minibatch_size) == (4, 24, 4, 16)


@pytest.mark.parametrize(
    ("changes", "code", "suggestion"),
    [
        ({"algo__bptt_horizon": 3}, "row_split", "algo.bptt_horizon=2 or algo.bptt_horizon=4 or algo.num_steps=3 or "),
        ({"algo__bptt_horizon": 4, "algo__num_minibatches": 3}, "batch_split", "algo.num_minibatches=2 or "),
        ({"net__rnn": "lstm", "algo__num_minibatches": 16}, "batch_split", "algo.num_minibatches=8"),
        ({"algo__row_end": "mask"}, "row_end", "algo.row_end=bootstrap or algo.bptt_horizon=4"),
        ({"env__num_agents": 2}, "num_agents", "env.num_agents=1"),
        (
            {"algo__clip_schedule": "exponential", "algo__clip_end": 1.5},
            "schedule_rises",
            "algo.clip_schedule=linear or algo.clip_end=1.0",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_rows_that_do_not_fit_are_refused_with_values_that_do(changes, code, suggestion):
    (problem,) = derive.problems(config(**changes))
    assert problem.code == code
    assert problem.suggestion.startswith(suggestion)
    for pair in problem.suggestion.split(" or "):
        key, _, value = pair.partition("=")
        mended = {**changes, key.replace(".", "__"): coerce(FIELDS[key], value, text=True)}
        assert derive.problems(config(**mended)) == []


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"net__rnn": "gru", "algo__bptt_horizon": 1}, "no_bptt"),
        ({"algo__prio_alpha": 0.5, "algo__num_minibatches": 2}, "prio_coarse"),
        ({"env__id": "recall", "env__max_steps": 8, "env__recall_delay": 8}, "no_question"),
    ],
)
def test_what_runs_but_hardly_as_meant_is_a_warning(changes, code):
    assert derive.problems(config(**changes)) == []
    assert code in [warning.code for warning in derive.warnings(config(**changes))]
    assert code not in [warning.code for warning in derive.warnings(config())]


def test_a_chunk_is_no_longer_than_the_run():
    sizes = derive.derive(config(run__updates_per_chunk=100))
    assert (sizes.updates_per_chunk, sizes.num_chunks, sizes.num_updates) == (10, 1, 10)


def test_numbers_beyond_32_bits_stay_exact():
    cfg = config(run__total_steps=10**18 + 1)
    assert derive.derive(cfg).total_env_steps == 10**18 + 32


@st.composite
def sound(draw):
    """Configurations without problems."""
    envs, steps = draw(st.integers(1, 300)), draw(st.integers(1, 300))
    values = {
        "env.num_envs": envs,
        "algo.num_steps": steps,
        "algo.num_minibatches": draw(st.sampled_from(all_divisors(envs * steps))),
        "algo.update_epochs": draw(st.integers(1, 9)),
        "run.total_steps": draw(st.integers(envs * steps, 10**7)),
        "run.updates_per_chunk": draw(st.integers(1, 50)),
        "run.checkpoint_every": draw(st.integers(1, 20)),
        "run.num_seeds": draw(st.integers(1, 4)),
    }
    return replace(Config(), values)


@given(sound())
def test_equations_hold(cfg):
    assert derive.problems(cfg) == []
    d = derive.derive(cfg)
    assert d.minibatch_size * cfg.algo.num_minibatches == d.batch_size
    assert cfg.run.total_steps <= d.total_env_steps < cfg.run.total_steps + d.batch_size
    assert d.updates_per_chunk * (d.num_chunks - 1) < d.num_updates <= d.updates_per_chunk * d.num_chunks
    assert d.gradient_steps == d.num_updates * cfg.algo.update_epochs * cfg.algo.num_minibatches
    every = cfg.run.checkpoint_every
    assert every * (d.num_checkpoints - 1) < d.num_chunks <= every * d.num_checkpoints
    rounded = [w for w in derive.warnings(cfg) if w.code == "rounded_up"]
    assert bool(rounded) == (d.total_env_steps != cfg.run.total_steps)
    for warning in rounded:
        assert f"{d.total_env_steps:,}" in warning.message
        for suggestion in warning.suggestion.split(" or "):
            other = applied(cfg, suggestion)
            assert not derive.problems(other)
            assert "rounded_up" not in [w.code for w in derive.warnings(other)]


def test_the_defaults_have_no_problems():
    assert derive.problems(Config()) == []
    derive.check(Config())


@pytest.mark.parametrize("key", LIMITS)
def test_every_number_has_a_lower_end(key):
    field, limit = FIELDS[key], LIMITS[key]
    low = int(limit.low) if field.kind != "float" else float(limit.low)
    bad = low if limit.above else low - 1
    wrap = (lambda v: (8, v)) if field.kind.startswith("tuple") else lambda v: v
    base = replace(Config(), {"algo.name": "dqn" if field.section in q_rules.SECTIONS else "ppo"})
    cfg = replace(base, {key: wrap(bad)})
    (problem,) = derive.problems(cfg)
    assert (problem.code, problem.keys) == ("range", (key,))
    assert derive.problems(applied(cfg, problem.suggestion)) == [] or key in ("run.total_steps", "replay.capacity")
    if limit.high is not None:
        cfg = replace(base, {key: type(low)(limit.high) + 1})
        (problem,) = derive.problems(cfg)
        assert (problem.code, problem.keys) == ("range", (key,))
        assert derive.problems(applied(cfg, problem.suggestion)) == []


def test_no_number_is_without_limits():
    rewards = {f"reward.{name}" for name in RewardWeights.__dataclass_fields__}
    numbers = {key for key, field in FIELDS.items() if field.kind not in ("str", "bool")}
    assert set(LIMITS) == numbers - rewards


@pytest.mark.parametrize(
    ("key", "value"), [("algo.learning_rate", 0.0), ("algo.gamma", 0.0), ("algo.gae_lambda", 1.0), ("env.max_steps", 0)]
)
def test_ends_that_are_meant_to_be_allowed(key, value):
    assert derive.problems(replace(Config(), {key: value})) == []


@given(st.integers(1, 200), st.integers(1, 200), st.integers(1, 300), st.integers(1, 50_000))
def test_every_suggestion_works(envs, steps, minibatches, total):
    cfg = config(env__num_envs=envs, algo__num_steps=steps, algo__num_minibatches=minibatches, run__total_steps=total)
    found = derive.problems(cfg)
    assert ("batch_split" in codes(cfg)) == (envs * steps % minibatches != 0)
    assert ("too_short" in codes(cfg)) == (total < envs * steps)
    for problem in found:
        assert problem.suggestion
        for suggestion in problem.suggestion.split(" or "):
            assert set(codes(applied(cfg, suggestion))) <= set(codes(cfg)) - {problem.code}, suggestion


def test_an_indivisible_batch_is_told_the_nearest_divisors():
    (problem,) = derive.problems(
        replace(Config(), {"env.num_envs": 1000, "algo.num_steps": 128, "algo.num_minibatches": 12})
    )
    assert problem.message == "1,000 x 128 = 128,000 steps do not split into 12 equal minibatches"
    assert problem.suggestion == "algo.num_minibatches=10 or algo.num_minibatches=16 or env.num_envs=999"


def test_problems_of_many_kinds_come_together():
    cfg = config(
        env__id="hackmatirx",
        env__max_steps=-1,
        algo__gamma=1.5,
        algo__num_minibatches=3,
        run__total_steps=5,
        net__hidden=(8, 0),
        algo__lr_schedule="cosin",
        run__name="../up",
    )
    found = {p.keys[0]: p for p in derive.problems(cfg)}
    assert {key: p.code for key, p in found.items()} == {
        "algo.lr_schedule": "value",
        "env.max_steps": "range",
        "algo.gamma": "range",
        "net.hidden": "range",
        "env.id": "unknown_env",
        "run.name": "run_name",
        "algo.num_minibatches": "batch_split",
        "run.total_steps": "too_short",
    }
    assert found["net.hidden"].suggestion == "net.hidden=8,1"
    assert found["env.id"].suggestion == "env.id=hackmatrix"
    assert found["run.name"].suggestion == "run.name=up"
    with pytest.raises(HmxError) as caught:
        derive.check(cfg, {"algo.gamma": "--gamma"})
    assert caught.value.exit_code is ExitCode.USAGE
    assert caught.value.message.startswith("8 problems in the configuration\n")
    assert "\n  algo.gamma = 1.5 (--gamma): must be from 0 to 1; try algo.gamma=1.0" in caught.value.message


@pytest.mark.parametrize("value", ["x", None, 2.5, True, (1,)])
def test_wrong_types_in_a_hand_made_configuration_are_problems_not_tracebacks(value):
    (problem,) = derive.problems(config(env__num_envs=value))
    assert (problem.code, problem.keys) == ("value", ("env.num_envs",))


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"net.kind": "cells", "env.id": "corridor"}, "net_kind"),
        ({"net.hidden": ()}, "range"),
        ({"run.root": ""}, "run_root"),
        ({"run.name": "a/b"}, "run_name"),
        ({"run.name": "-x"}, "run_name"),
        ({"run.name": "x" * 101}, "run_name"),
        ({"algo.clip_vf_eps": 0.2, "algo.value_target": "two_hot"}, "clip_two_hot"),
    ],
)
def test_single_problems_and_their_cure(changes, code):
    cfg = replace(Config(), changes)
    (problem,) = derive.problems(cfg)
    assert problem.code == code
    assert derive.problems(applied(cfg, problem.suggestion)) == []


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"env.max_steps": 0}, "no_limit"),
        ({"env.max_steps": 0, "algo.gamma": 1.0, "algo.gae_lambda": 1.0}, "unbounded"),
        ({"algo.num_minibatches": 32}, "norm_one"),
        ({"run.total_steps": 321}, "rounded_up"),
    ],
)
def test_warnings_name_a_cure(changes, code):
    cfg = replace(config(), changes)
    assert derive.problems(cfg) == []
    (warning,) = [w for w in derive.warnings(cfg) if w.code == code]
    for suggestion in warning.suggestion.split(" or "):
        cured = applied(cfg, suggestion)
        assert derive.problems(cured) == []
        assert code not in [w.code for w in derive.warnings(cured)]


def test_a_fitting_run_has_no_warnings():
    assert derive.warnings(config()) == []


@given(st.integers(1, 5000), st.integers(1, 6000))
def test_divisors_and_neighbours(n, wanted):
    true = [d for d in range(1, n + 1) if n % d == 0]
    assert list(all_divisors(n)) == true
    near = neighbours(n, wanted)
    below, above = [d for d in true if d <= wanted], [d for d in true if d >= wanted]
    assert set(near) == {*below[-1:], *above[:1]}
    assert near == sorted(near, key=lambda d: abs(d - wanted))
    ratio = nearest_ratio(n, wanted)
    assert all(max(ratio / wanted, wanted / ratio) <= max(d / wanted, wanted / d) * (1 + 1e-12) for d in true)


def test_divisors_of_absurd_numbers_end():
    big = (10**9 + 7) * (10**9 + 9)
    assert list(all_divisors(big)) == [1, 10**9 + 7, 10**9 + 9, big]
    assert neighbours(big, 10**9 + 8) == [10**9 + 7, 10**9 + 9]
