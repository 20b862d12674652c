import pytest
from hypothesis import given
from hypothesis import strategies as st

from hmx.config.divisors import all_divisors, neighbours
from hmx.config.fields import FIELDS, replace
from hmx.config.schema import Config
from hmx.errors import ExitCode, HmxError
from hmx.registry import derive
from hmx.registry.check import check, known_problems, known_warnings, warnings
from hmx.registry.environments import known_sizes

SMALL = {"env.num_envs": 8, "algo.num_steps": 4, "ppo.num_minibatches": 2, "run.total_steps": 320}


def config(**changes):
    return replace(Config(), {**SMALL, **{key.replace("__", "."): value for key, value in changes.items()}})


def applied(cfg, fix):
    return replace(cfg, dict([fix]))


def codes(cfg):
    return [p.code for p in known_problems(cfg)]


def test_sizes_match_a_hand_calculation():
    cfg = config(
        ppo__update_epochs=3, run__updates_per_chunk=4, run__checkpoint_every=2, run__num_seeds=5, run__total_steps=290
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
    )


def test_sequences_of_several_agents_match_a_hand_calculation():
    sizes = derive.derive(config(env__id="rendezvous", env__num_agents=3, net__rnn="gru", ppo__num_minibatches=6))
    assert (sizes.batch_size, sizes.agent_steps) == (32, 96)
    assert (sizes.horizon, sizes.segments, sizes.minibatch_segments, sizes.minibatch_size) == (4, 24, 4, 16)


@pytest.mark.parametrize(
    ("changes", "code", "fixes"),
    [
        (
            {"ppo__bptt_horizon": 3},
            "row_split",
            [("ppo.bptt_horizon", 2), ("ppo.bptt_horizon", 4), ("algo.num_steps", 3)],
        ),
        ({"ppo__bptt_horizon": 4, "ppo__num_minibatches": 3}, "batch_split", [("ppo.num_minibatches", 2)]),
        ({"net__rnn": "lstm", "ppo__num_minibatches": 16}, "batch_split", [("ppo.num_minibatches", 8)]),
        ({"ppo__row_end": "mask"}, "row_end", [("ppo.row_end", "bootstrap"), ("ppo.bptt_horizon", 4)]),
        ({"env__num_agents": 2}, "num_agents", [("env.num_agents", 1)]),
        (
            {"ppo__clip_schedule": "exponential", "ppo__clip_end": 1.5},
            "schedule_rises",
            [("ppo.clip_schedule", "linear"), ("ppo.clip_end", 1.0)],
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_sequences_that_do_not_fit_are_refused_with_values_that_fit(changes, code, fixes):
    (problem,) = known_problems(config(**changes))
    assert problem.code == code
    assert list(problem.fixes[: len(fixes)]) == fixes
    for fix in problem.fixes:
        assert known_problems(applied(config(**changes), fix)) == []


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"net__rnn": "gru", "ppo__bptt_horizon": 1}, "no_bptt"),
        ({"ppo__prio_alpha": 0.5, "ppo__num_minibatches": 2}, "prio_coarse"),
        ({"env__id": "recall", "env__max_steps": 8, "env__recall_delay": 8}, "no_question"),
    ],
)
def test_probable_mistakes_are_warnings(changes, code):
    assert known_problems(config(**changes)) == []
    assert code in [warning.code for warning in known_warnings(config(**changes))]
    assert code not in [warning.code for warning in known_warnings(config())]


def test_wrappers_with_statistics_are_named_with_the_options_that_replace_them():
    sizes = known_sizes(config().env)
    assert sizes.statistics == () and "statistics" not in [found.code for found in warnings(config(), sizes)]
    normalised = sizes._replace(statistics=("NormalizeReward", "NormalizeObservation"))
    (warning,) = [found.message for found in warnings(config(), normalised) if found.code == "statistics"]
    for words in ("wrappers NormalizeReward and NormalizeObservation", "ppo.obs_norm=network", "ppo.reward_scale"):
        assert words in warning


def test_chunk_is_at_most_as_long_as_the_run():
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
        "ppo.num_minibatches": draw(st.sampled_from(all_divisors(envs * steps))),
        "ppo.update_epochs": draw(st.integers(1, 9)),
        "run.total_steps": draw(st.integers(envs * steps, 10**7)),
        "run.updates_per_chunk": draw(st.integers(1, 50)),
        "run.checkpoint_every": draw(st.integers(1, 20)),
        "run.num_seeds": draw(st.integers(1, 4)),
    }
    return replace(Config(), values)


@given(sound())
def test_equations_hold(cfg):
    assert known_problems(cfg) == []
    d = derive.derive(cfg)
    assert d.minibatch_size * cfg.ppo.num_minibatches == d.batch_size
    assert cfg.run.total_steps <= d.total_env_steps < cfg.run.total_steps + d.batch_size
    assert d.updates_per_chunk * (d.num_chunks - 1) < d.num_updates <= d.updates_per_chunk * d.num_chunks
    assert d.gradient_steps == d.num_updates * cfg.ppo.update_epochs * cfg.ppo.num_minibatches
    every = cfg.run.checkpoint_every
    assert every * (d.num_checkpoints - 1) < d.num_chunks <= every * d.num_checkpoints
    rounded = [w for w in known_warnings(cfg) if w.code == "rounded_up"]
    assert bool(rounded) == (d.total_env_steps != cfg.run.total_steps)
    for warning in rounded:
        assert f"{d.total_env_steps:,}" in warning.message
        for fix in warning.fixes:
            other = applied(cfg, fix)
            assert not known_problems(other)
            assert "rounded_up" not in [w.code for w in known_warnings(other)]


def test_the_defaults_have_no_problems():
    assert known_problems(Config()) == []
    check(Config(), known_sizes(Config().env))


NUMBERS = [key for key, field in FIELDS.items() if field.kind not in ("str", "bool")]
LIMITED = [key for key in NUMBERS if not key.startswith("reward.")]


@pytest.mark.parametrize("key", LIMITED)
def test_number_out_of_range_is_refused_with_the_nearest_value(key):
    field = FIELDS[key]
    number = float if field.kind == "float" else int
    wrap = (lambda v: (8, v)) if field.kind.startswith("tuple") else lambda v: v
    base = replace(Config(), {"algo.name": (field.applies or ("ppo",))[0]})
    outside = [number(field.gt) if field.gt is not None else number(field.ge) - 1]
    if field.le is not None:
        outside.append(number(field.le) + 1)
    for value in outside:
        cfg = replace(base, {key: wrap(value)})
        (problem,) = known_problems(cfg)
        assert (problem.code, problem.keys) == ("range", (key,))
        assert known_problems(applied(cfg, problem.fixes[0])) == [] or key in ("run.total_steps", "replay.capacity")


def test_every_number_but_reward_weights_has_a_range():
    ranged = {key for key in NUMBERS if FIELDS[key].ge is not None or FIELDS[key].gt is not None}
    assert ranged == set(LIMITED)


@pytest.mark.parametrize(
    ("key", "value"), [("algo.learning_rate", 0.0), ("algo.gamma", 0.0), ("ppo.gae_lambda", 1.0), ("env.max_steps", 0)]
)
def test_limits_of_ranges_are_accepted(key, value):
    assert known_problems(replace(Config(), {key: value})) == []


@given(st.integers(1, 200), st.integers(1, 200), st.integers(1, 300), st.integers(1, 50_000))
def test_every_fix_solves_its_problem(envs, steps, minibatches, total):
    cfg = config(env__num_envs=envs, algo__num_steps=steps, ppo__num_minibatches=minibatches, run__total_steps=total)
    found = known_problems(cfg)
    assert ("batch_split" in codes(cfg)) == (envs * steps % minibatches != 0)
    assert ("too_short" in codes(cfg)) == (total < envs * steps)
    for problem in found:
        assert problem.fixes
        for fix in problem.fixes:
            assert set(codes(applied(cfg, fix))) <= set(codes(cfg)) - {problem.code}, fix


def test_fixes_of_an_indivisible_batch_are_the_nearest_divisors():
    (problem,) = known_problems(
        replace(Config(), {"env.num_envs": 1000, "algo.num_steps": 128, "ppo.num_minibatches": 12})
    )
    assert problem.message == "1,000 x 128 = 128,000 steps do not split into 12 equal minibatches"
    assert problem.fixes == (("ppo.num_minibatches", 10), ("ppo.num_minibatches", 16), ("env.num_envs", 999))


def test_problems_of_all_kinds_are_listed_together():
    cfg = config(
        env__id="hackmatirx",
        env__max_steps=-1,
        algo__gamma=1.5,
        ppo__num_minibatches=3,
        run__total_steps=5,
        net__hidden=(8, 0),
        algo__lr_schedule="cosin",
        run__name="../up",
    )
    found = {p.keys[0]: p for p in known_problems(cfg)}
    assert {key: p.code for key, p in found.items()} == {
        "algo.lr_schedule": "value",
        "env.max_steps": "range",
        "algo.gamma": "range",
        "net.hidden": "range",
        "env.id": "unknown_env",
        "run.name": "run_name",
        "ppo.num_minibatches": "batch_split",
        "run.total_steps": "too_short",
    }
    assert found["net.hidden"].fixes == (("net.hidden", (8, 1)),)
    assert found["env.id"].fixes == (("env.id", "hackmatrix"),)
    assert found["run.name"].fixes == (("run.name", "up"),)
    with pytest.raises(HmxError) as caught:
        check(cfg, known_sizes(cfg.env), {"algo.gamma": "--gamma"})
    assert caught.value.exit_code is ExitCode.USAGE
    assert caught.value.message.startswith("8 problems in the configuration\n")
    assert "\n  algo.gamma = 1.5 (--gamma): must be from 0 to 1; try --set algo.gamma=1.0" in caught.value.message


@pytest.mark.parametrize("value", ["x", None, 2.5, True, (1,)])
def test_wrong_types_are_problems_not_tracebacks(value):
    (problem,) = known_problems(config(env__num_envs=value))
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
        ({"ppo.clip_vf_eps": 0.2, "ppo.value_target": "two_hot"}, "clip_two_hot"),
    ],
)
def test_fix_of_a_single_problem_solves_it(changes, code):
    cfg = replace(Config(), changes)
    (problem,) = known_problems(cfg)
    assert problem.code == code
    assert known_problems(applied(cfg, problem.fixes[0])) == []


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"env.max_steps": 0}, "no_limit"),
        ({"env.max_steps": 0, "algo.gamma": 1.0, "ppo.gae_lambda": 1.0}, "unbounded"),
        ({"ppo.num_minibatches": 32}, "norm_one"),
        ({"run.total_steps": 321}, "rounded_up"),
        ({"env.id": "corridor", "env.obs": "counted"}, "not_read_by_env"),
        ({"env.id": "corridor", "reward.kills": 2.0}, "not_read_by_env"),
    ],
)
def test_fixes_of_warnings_solve_them(changes, code):
    cfg = replace(config(), changes)
    assert known_problems(cfg) == []
    (warning,) = [w for w in known_warnings(cfg) if w.code == code]
    for fix in warning.fixes:
        cured = applied(cfg, fix)
        assert known_problems(cured) == []
        assert code not in [w.code for w in known_warnings(cured)]


def test_run_that_fits_has_no_warnings():
    assert known_warnings(config()) == []


@given(st.integers(1, 5000), st.integers(1, 6000))
def test_divisors_and_neighbours(n, wanted):
    true = [d for d in range(1, n + 1) if n % d == 0]
    assert list(all_divisors(n)) == true
    near = neighbours(n, wanted)
    below, above = [d for d in true if d <= wanted], [d for d in true if d >= wanted]
    assert set(near) == {*below[-1:], *above[:1]}
    assert near == sorted(near, key=lambda d: abs(d - wanted))


def test_divisors_of_huge_numbers_are_found_up_to_prime_factors_above_a_million():
    low, high = 10**9 + 7, 10**9 + 9
    assert list(all_divisors(low * high)) == [1, low * high]
    assert list(all_divisors(6 * low)) == [1, 2, 3, 6, low, 2 * low, 3 * low, 6 * low]
    assert neighbours(2 * low, 1000) == [2, low]
