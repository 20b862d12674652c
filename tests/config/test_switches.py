"""Switches that contradict each other are named with what works; and what a configuration means is told in words."""

import pytest

from hmx.config import derive, presets
from hmx.config.codec import shape_digest
from hmx.config.fields import FIELDS, replace
from hmx.config.load import load
from hmx.config.meaning import ROWS, meaning, row_of
from hmx.config.schema import Config
from hmx.config.switches import BUGS, value_weight
from hmx.sizing.batch import derive_batch, inputs_of

BASE = {"env.id": "pendulum", "algo.bptt_horizon": 16, "algo.num_minibatches": 4}


def config(**values):
    return replace(Config(), BASE | {key.replace("__", "."): value for key, value in values.items()})


@pytest.mark.parametrize(
    ("changes", "code", "works"),
    [
        ({"algo__advantage": "vtrace", "algo__episode_end": "mask"}, "vtrace_plain", {"algo.advantage": "gae"}),
        ({"algo__advantage": "vtrace", "algo__gae_axis": "batch"}, "vtrace_plain", {"algo.advantage": "gae"}),
        ({"algo__row_end": "mask", "algo__advantage": "brax"}, "row_end_plain", {"algo.row_end": "bootstrap"}),
        ({"algo__row_end": "zero", "algo__episode_end": "leak"}, "row_end_plain", {"algo.row_end": "bootstrap"}),
        ({"algo__advantage_when": "minibatch"}, "shift_cut", {"algo.value_forward": "both"}),
        (
            {"algo__advantage_when": "minibatch", "algo__episode_end": "leak"},
            "shift_cut",
            {"algo.value_forward": "both"},
        ),
        (
            {"algo__advantage_when": "minibatch", "algo__value_forward": "both", "net__rnn": "gru"},
            "both_memory",
            {"algo.advantage_when": "rollout"},
        ),
        ({"algo__grad_clip": "per_network"}, "clip_shared", {"net.shared_torso": False}),
        ({"algo__vf_half": False, "algo__value_target": "two_hot"}, "half_two_hot", {"algo.vf_half": True}),
        ({"algo__obs_norm": "network", "env__id": "hackmatrix"}, "norm_packed", {"env.obs": "flat"}),
    ],
)
def test_what_contradicts_itself_is_refused_with_what_works(changes, code, works):
    cfg = config(**changes)
    assert [problem.code for problem in derive.problems(cfg)] == [code]
    assert derive.problems(replace(cfg, works)) == []


@pytest.mark.parametrize(
    "changes",
    [
        {"algo__advantage_when": "minibatch", "algo__episode_end": "mask"},
        {"algo__advantage_when": "minibatch", "algo__episode_end": "terminal", "net__rnn": "lstm"},
        {"algo__advantage": "brax", "algo__episode_end": "timeout_reward"},
        {"algo__obs_norm": "env", "env__id": "hackmatrix", "env__obs": "flat"},
    ],
)
def test_what_goes_together(changes):
    assert derive.problems(config(**changes)) == []


@pytest.mark.parametrize(("key", "value"), [(key, value) for key, (value, _) in BUGS.items()])
def test_a_bug_is_reproduced_only_with_a_warning(key, value):
    cfg = replace(config(), {key: value})
    (warning,) = [w for w in derive.warnings(cfg) if w.code == "known_bug"]
    assert warning.keys == (key,)
    good = replace(cfg, {key: warning.suggestion.partition("=")[2]})
    assert not [w for w in derive.warnings(good) if w.code == "known_bug"]
    assert [row.id for row in meaning(cfg) if row.bug] == [row_of(key)]
    assert "known bug" in dict((row.id, row.meaning) for row in meaning(cfg))[row_of(key)]


def test_a_value_torso_that_is_not_there_is_a_warning():
    codes = [w.code for w in derive.warnings(config(net__value_hidden=(8,)))]
    assert "value_hidden" in codes
    assert "value_hidden" not in [
        w.code for w in derive.warnings(config(net__value_hidden=(8,), net__shared_torso=False))
    ]


def test_there_are_thirteen_rows_of_keys_that_exist_once():
    assert list(ROWS) == [*(f"1.{n}" for n in range(1, 10)), *(f"2.{n}" for n in range(1, 5))]
    keys = [key for _, row_keys, _ in ROWS.values() for key in row_keys]
    assert len(keys) == len(set(keys)) and set(keys) <= set(FIELDS)
    assert row_of("algo.vf_half") == "1.3" and row_of("run.seed") is None


CHANGES = {
    "1.1": {"algo__advantage": "brax"},
    "1.2": {"algo__episode_end": "terminal"},
    "1.3": {"algo__vf_half": False},
    "1.4": {"net__std": "exp"},
    "1.5": {"algo__entropy": "gaussian"},
    "1.6": {"net__init": "lecun_uniform"},
    "1.7": {"net__layer_norm": True},
    "1.8": {"algo__grad_clip": "elementwise"},
    "1.9": {"env__full_reset_every": 2},
    "2.1": {"algo__value_forward": "both"},
    "2.4": {"algo__obs_norm": "network"},
}


@pytest.mark.parametrize("number", CHANGES)
def test_a_switch_changes_the_words_of_its_own_row_only(number):
    before, after = meaning(config()), meaning(config(**CHANGES[number]))
    assert [a.id for b, a in zip(before, after, strict=True) if a.meaning != b.meaning] == [number]


def test_every_choice_of_every_row_has_words_of_its_own():
    for number, (_, keys, words) in ROWS.items():
        for key in keys:
            field = FIELDS[key]
            if not field.choices or key in ("algo.value_target", "run.budget"):
                continue
            base = config(net__layer_norm=True, algo__obs_norm="network", algo__max_grad_norm=1.0)
            told = {words(replace(base, {key: choice})) for choice in field.choices}
            assert len(told) == len(field.choices), (number, key)


@pytest.mark.parametrize(
    ("preset", "row", "words"),
    [
        ("default", "1.3", "0.25 x mean squared error"),
        ("brax", "1.3", "0.25 x mean squared error of identity targets, not clipped; rewards x 10"),
        ("scs", "1.3", "0.5 x mean squared error of identity targets, not clipped; rewards x 10; Adam cancels"),
        ("brax", "1.1", "GAE without its first lambda, along time, anew per minibatch; rows of 30 steps"),
        ("brax", "1.9", "88,473,600 steps run of 60,000,000 asked (1.47 x)"),
        ("brax", "2.1", "31 value passes per row of 30 steps"),
        ("scs", "2.1", "60 value passes per row of 30 steps"),
        ("scs-doc", "1.1", "along the batch (known bug"),
        ("scs-doc", "1.2", "counts as a termination"),
        ("sound", "1.2", "true last observation"),
        ("scs", "1.4", "1.000 where raw is 0, no floor"),
        ("brax", "1.4", "0.694 where raw is 0, never under 0.001"),
        ("default", "1.4", "discrete"),
    ],
)
def test_what_presets_mean(preset, row, words):
    cfg = load(preset=preset, environ={}).config
    assert words in dict((r.id, r.meaning) for r in meaning(cfg))[row]


def test_presets_of_two_descriptions_of_one_program_differ_in_what_is_described():
    one, other = (presets.values(name) for name in ("scs", "scs-doc"))
    assert {key for key in one if one[key] != other[key]} == {"algo.episode_end", "algo.gae_axis"}
    assert set(one) == set(other)


def test_the_weight_of_the_value_loss():
    assert value_weight(config(algo__vf_coef=0.4).algo) == 0.4
    assert value_weight(config(algo__vf_coef=0.4, algo__vf_half=False).algo) == 0.8


def test_budgets():
    """1,000 steps in updates of 100: 10, or 3 epochs of ceil(1000 / 300) = 4."""
    cfg = config(env__num_envs=10, algo__num_steps=10, algo__bptt_horizon=1, run__total_steps=1000)
    assert derive.derive(cfg).num_updates == 10
    brax = replace(cfg, {"run.budget": "brax", "run.budget_epochs": 3})
    assert derive.derive(brax).num_updates == 12
    assert derive_batch(inputs_of(brax))["total_epochs_ceil"] == 12
    (warning,) = [w for w in derive.warnings(brax) if w.code == "rounded_up"]
    for text in warning.suggestion.split(" or "):
        key, _, value = text.partition("=")
        mended = replace(brax, {key: int(value) if value.isdigit() else value})
        assert not [w for w in derive.warnings(mended) if w.code == "rounded_up"]


def test_a_young_key_at_its_default_leaves_the_shape_as_it_was():
    cfg = config()
    assert shape_digest(replace(cfg, {"algo.vf_half": False})) == shape_digest(cfg)
    assert shape_digest(replace(cfg, {"algo.obs_norm": "network"})) != shape_digest(cfg)
    assert shape_digest(replace(cfg, {"net.std": "exp"})) != shape_digest(cfg)
