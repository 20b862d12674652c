"""Switches that contradict each other are named with what works; and what a configuration means is told in words."""

import pytest

from hmx.algos.ppo.aspects import ASPECTS, aspects, value_weight
from hmx.algos.ppo.checks import BUGS
from hmx.config import presets
from hmx.config.codec import shape_digest
from hmx.config.fields import FIELDS, replace
from hmx.config.schema import Config
from hmx.registry import derive
from hmx.registry.check import known_problems, known_warnings, problems, warnings
from hmx.registry.environments import known_sizes
from hmx.registry.load import load
from hmx.reports.compute_config.derived import derive_batch
from hmx.reports.compute_config.trainer import inputs_of

BASE = {"env.id": "pendulum", "ppo.bptt_horizon": 16, "ppo.num_minibatches": 4}


def config(**values):
    return replace(Config(), BASE | {key.replace("__", "."): value for key, value in values.items()})


@pytest.mark.parametrize(
    ("changes", "code", "works"),
    [
        ({"ppo__advantage": "vtrace", "ppo__episode_end": "mask"}, "vtrace_plain", {"ppo.advantage": "gae"}),
        ({"ppo__row_end": "mask", "ppo__advantage": "brax"}, "row_end_plain", {"ppo.row_end": "bootstrap"}),
        ({"ppo__advantage_when": "minibatch"}, "shift_cut", {"ppo.value_forward": "both"}),
        (
            {"ppo__advantage_when": "minibatch", "ppo__value_forward": "both", "net__rnn": "gru"},
            "both_memory",
            {"ppo.advantage_when": "rollout"},
        ),
        (
            {"ppo__advantage_scale": "symlog", "ppo__advantage": "vtrace"},
            "scale_recomputed",
            {"ppo.advantage_scale": "reward"},
        ),
        (
            {"ppo__advantage_scale": "symlog", "ppo__advantage_when": "minibatch", "ppo__value_forward": "both"},
            "scale_recomputed",
            {"ppo.advantage_scale": "reward"},
        ),
        ({"algo__grad_clip": "per_network"}, "clip_shared", {"net.shared_torso": False}),
        ({"ppo__vf_half": False, "ppo__value_target": "two_hot"}, "half_two_hot", {"ppo.vf_half": True}),
        ({"ppo__obs_norm": "network", "env__id": "hackmatrix"}, "norm_packed", {"env.obs": "flat"}),
        (
            {"algo__name": "gumbel", "gumbel__symmetries": True, "net__rnn": "gru", "env__id": "hackmatrix"},
            "recurrent_symmetries",
            {"gumbel.symmetries": False},
        ),
        ({"starts__share": 0.5}, "starts_env", {"starts.share": 0}),
        (
            {"starts__share": 0.5, "env__id": "hackmatrix", "env__reset_on_done": "first"},
            "starts_reset",
            {"env.reset_on_done": "fresh"},
        ),
    ],
)
def test_contradicting_switches_are_refused_with_fixes_that_work(changes, code, works):
    cfg = config(**changes)
    assert [problem.code for problem in known_problems(cfg)] == [code]
    assert known_problems(replace(cfg, works)) == []


@pytest.mark.parametrize(
    "changes",
    [
        {"ppo__advantage_when": "minibatch", "ppo__episode_end": "mask"},
        {"ppo__advantage_when": "minibatch", "ppo__episode_end": "terminal", "net__rnn": "lstm"},
        {"ppo__advantage": "brax", "ppo__episode_end": "timeout_reward", "ppo__advantage_scale": "symlog"},
        {"ppo__obs_norm": "env", "env__id": "hackmatrix", "env__obs": "flat"},
    ],
)
def test_compatible_switches_are_accepted(changes):
    assert known_problems(config(**changes)) == []


def meaning(cfg):
    return aspects(cfg, known_sizes(cfg.env))


@pytest.mark.parametrize(("key", "value"), [(key, value) for key, (value, _) in BUGS.items()])
def test_reproduced_bugs_are_warnings(key, value):
    cfg = replace(config(), {key: value})
    (warning,) = [w for w in known_warnings(cfg) if w.code == "known_bug"]
    assert warning.keys == (key,)
    good = replace(cfg, dict(warning.fixes))
    assert not [w for w in known_warnings(good) if w.code == "known_bug"]
    (row,) = [row for row in meaning(cfg) if row.bug]
    assert key in row.values and "known bug" in row.meaning


def test_width_of_a_missing_value_torso_is_a_warning():
    codes = [w.code for w in known_warnings(config(net__value_hidden=(8,)))]
    assert "value_hidden" in codes
    assert "value_hidden" not in [
        w.code for w in known_warnings(config(net__value_hidden=(8,), net__shared_torso=False))
    ]


def test_thirteen_aspects_use_each_key_once():
    assert list(ASPECTS) == [*(f"1.{n}" for n in range(1, 10)), *(f"2.{n}" for n in range(1, 5))]
    keys = [key for *_, row_keys in ASPECTS.values() for key in row_keys]
    assert len(keys) == len(set(keys)) and set(keys) <= set(FIELDS)
    assert "ppo.vf_half" in ASPECTS["1.3"][-1] and "run.seed" not in keys


def test_each_aspect_has_the_impact_and_confidence_of_the_published_table():
    assert {row.id: (row.impact, row.confidence) for row in meaning(config())} == {
        "1.1": ("critical", "high"),
        "1.2": ("high", "high"),
        "1.3": ("medium", "high"),
        "1.4": ("medium", "high"),
        "1.5": ("low to medium", "high"),
        "1.6": ("low to medium", "high"),
        "1.7": ("low to medium", "high"),
        "1.8": ("low", "high"),
        "1.9": ("low", "unsure"),
        "2.1": ("medium", "high"),
        "2.2": ("high on several devices, none on one", "high"),
        "2.3": ("none at run time", "medium"),
        "2.4": ("none if it is off", "medium"),
    }


CHANGES = {
    "1.1": {"ppo__advantage": "brax"},
    "1.2": {"ppo__episode_end": "terminal"},
    "1.3": {"ppo__vf_half": False},
    "1.4": {"net__std": "exp"},
    "1.5": {"ppo__entropy": "gaussian"},
    "1.6": {"net__init": "lecun_uniform"},
    "1.7": {"net__layer_norm": True},
    "1.8": {"algo__grad_clip": "elementwise"},
    "1.9": {"env__full_reset_every": 2},
    "2.1": {"ppo__value_forward": "both"},
    "2.4": {"ppo__obs_norm": "network"},
}


@pytest.mark.parametrize("number", CHANGES)
def test_switch_changes_only_the_meaning_of_its_aspect(number):
    before, after = meaning(config()), meaning(config(**CHANGES[number]))
    assert [a.id for b, a in zip(before, after, strict=True) if a.meaning != b.meaning] == [number]


def test_every_choice_of_an_aspect_has_its_own_meaning():
    for row, (number, (*_, keys)) in enumerate(ASPECTS.items()):
        for key in keys:
            field = FIELDS[key]
            if not field.choices or key in ("ppo.value_target", "run.budget"):
                continue
            base = config(net__layer_norm=True, ppo__obs_norm="network", algo__max_grad_norm=1.0)
            told = {aspects(replace(base, {key: choice}), None)[row].meaning for choice in field.choices}
            assert len(told) == len(field.choices), (number, key)


@pytest.mark.parametrize(
    ("preset", "row", "words"),
    [
        ("default", "1.3", "0.25 x mean squared error"),
        ("brax", "1.3", "0.25 x mean squared error of identity targets, not clipped; rewards x 10"),
        ("brax", "1.1", "GAE without its first lambda, along time, recomputed per minibatch; sequences of 30 steps"),
        ("brax", "1.9", "88,473,600 steps for 60,000,000 requested (1.47 x)"),
        ("brax", "2.1", "31 value passes per sequence of 30 steps"),
        ("scs-doc", "1.1", "along the batch (known bug"),
        ("scs-doc", "1.2", "truncation counts as termination"),
        ("sound", "1.2", "bootstraps from its last observation"),
        ("scs", "1.4", "1.000 where raw is 0, no minimum"),
        ("default", "1.4", "discrete"),
    ],
)
def test_presets_have_the_documented_meaning(preset, row, words):
    cfg = load(preset=preset, environ={}).config
    assert words in dict((r.id, r.meaning) for r in meaning(cfg))[row]


def test_scs_presets_differ_only_in_the_described_switches():
    one, other = (presets.values(name) for name in ("scs", "scs-doc"))
    assert {key for key in one if one[key] != other[key]} == {"ppo.episode_end", "ppo.gae_axis"}
    assert set(one) == set(other)


def test_the_weight_of_the_value_loss():
    assert value_weight(config(ppo__vf_coef=0.4).ppo) == 0.4
    assert value_weight(config(ppo__vf_coef=0.4, ppo__vf_half=False).ppo) == 0.8


def test_budgets():
    """1,000 steps in updates of 100: 10, or 3 epochs of ceil(1000 / 300) = 4."""
    cfg = config(env__num_envs=10, algo__num_steps=10, ppo__bptt_horizon=1, run__total_steps=1000)
    assert derive.derive(cfg).num_updates == 10
    brax = replace(cfg, {"run.budget": "brax", "run.budget_epochs": 3})
    assert derive.derive(brax).num_updates == 12
    assert derive_batch(inputs_of(brax))["total_epochs_ceil"] == 12
    (warning,) = [w for w in known_warnings(brax) if w.code == "rounded_up"]
    for fix in warning.fixes:
        fixed = replace(brax, dict([fix]))
        assert not [w for w in known_warnings(fixed) if w.code == "rounded_up"]


def test_budget_of_brax_changes_only_the_steps_of_a_team():
    exact = config(env__id="rendezvous", env__num_agents=3)
    brax = replace(exact, {"run.budget": "brax", "run.budget_epochs": 3})
    before, after = vars(inputs_of(exact)), vars(inputs_of(brax))
    assert {name for name in before if before[name] != after[name]} <= {"total_timesteps"}


def test_newer_shape_key_at_its_default_keeps_the_digest():
    cfg = config()
    assert shape_digest(replace(cfg, {"ppo.vf_half": False})) == shape_digest(cfg)
    assert shape_digest(replace(cfg, {"ppo.obs_norm": "network"})) != shape_digest(cfg)
    assert shape_digest(replace(cfg, {"net.std": "exp"})) != shape_digest(cfg)


def test_networks_that_do_not_fit_the_observations_are_named():
    vector = known_sizes(config().env)
    image, critic = vector._replace(image=True), vector._replace(value_only=3)
    cnn = config(net__kind="cnn")
    assert [p.code for p in problems(cnn, vector)] == ["net_kind"] and not problems(cnn, image)
    assert "flat_image" in [w.code for w in warnings(config(net__kind="mlp"), image)]
    assert "flat_image" not in [w.code for w in (*warnings(cnn, image), *warnings(config(net__kind="mlp"), vector))]
    assert [p.code for p in problems(config(), critic)] == ["critic_shared"]
    assert not problems(config(net__shared_torso=False), critic)
    learns_values = config(algo__name="dqn", env__num_envs=16, replay__capacity=1024, dqn__learn_starts=64)
    assert "no_critic" in [p.code for p in problems(learns_values, critic)]
    assert "no_critic" not in [p.code for p in problems(learns_values, vector)]
