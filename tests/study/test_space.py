"""The language of `--space`: the option's own checks decide, and every value lies in its range."""

from __future__ import annotations

import math
import shlex

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hmx.config.fields import FIELDS, get
from hmx.config.schema import Config
from hmx.errors import HmxError
from hmx.registry.load import load
from hmx.study.records import Parameter
from hmx.study.space import OWNED, check_space, example, grid, parse_space, text_of, value_at, with_values

TEXTS = {
    "algo.learning_rate=1e-4..1e-2:log": Parameter(
        key="algo.learning_rate", kind="float", low=1e-4, high=1e-2, log=True
    ),
    "ppo.ent_coef=0..0.05": Parameter(key="ppo.ent_coef", kind="float", low=0.0, high=0.05),
    "algo.gamma=.9...99": Parameter(key="algo.gamma", kind="float", low=0.9, high=0.99),
    "env.num_envs=4..1k:log": Parameter(key="env.num_envs", kind="int", low=4, high=1000, log=True),
    "net.hidden=[64,64]|[256]": Parameter(key="net.hidden", kind="choice", choices=([64, 64], [256])),
    "net.shared_torso=true|false": Parameter(key="net.shared_torso", kind="choice", choices=(True, False)),
    "net.activation= tanh | relu": Parameter(key="net.activation", kind="choice", choices=("tanh", "relu")),
    "env.my.size=3..9": Parameter(key="env.my.size", kind="int", low=3, high=9),
    "env.my.drag=0.0..1": Parameter(key="env.my.drag", kind="float", low=0.0, high=1),
    "env.my.map=a|b": Parameter(key="env.my.map", kind="choice", choices=("a", "b")),
}
REFUSED = {
    "algo.learning_rate": "expected KEY=LOW..HIGH",
    "algo.lerning_rate=1e-4..1e-2": "unknown key; did you mean algo.learning_rate?",
    "algo.gamma=0.5..2": "2 must be from 0 to 1",
    "algo.gamma=0.9..0.5": "the low end must come first",
    "algo.gamma=0..0.5:log": "must begin above 0",
    "algo.gamma=0.1..0.5:exp": "unknown scale exp",
    "algo.gamma=low..high": "must be a number",
    "algo.gamma=0.9": "--set algo.gamma=0.9 sets it in all trials",
    "algo.gamma=0.9|.9": "lists a value twice",
    "net.hidden=32..64": "list its values: net.hidden=A|B",
    "net.activation=tanh|rel": "is not one of relu, tanh",
    "env.num_envs=4.5..8": "must be a whole number",
    "run.num_seeds=1|2": "set by --seeds",
    "run.seed=1|2": "the same in all trials",
}


@pytest.fixture(scope="module")
def control() -> Config:
    return load(preset="control", environ={}).config


@pytest.mark.parametrize("text", TEXTS)
def test_space_is_read_and_written(text: str) -> None:
    (parameter,) = parse_space([text])
    assert parameter == TEXTS[text]
    assert parse_space([f"{parameter.key}={text_of(parameter)}"]) == (parameter,)


@pytest.mark.parametrize("text", REFUSED)
def test_refused_space_says_what_the_option_takes(text: str) -> None:
    with pytest.raises(HmxError) as refused:
        parse_space([text])
    assert REFUSED[text] in refused.value.message
    assert refused.value.hint


def test_all_problems_of_a_space_are_listed() -> None:
    with pytest.raises(HmxError, match=r"2 problems[^+]*algo\.gama[^+]*names it twice"):
        parse_space(["algo.gama=0..1", "ppo.ent_coef=0..1", "ppo.ent_coef=0..2"])


@given(u=st.floats(0, 1, exclude_max=True), text=st.sampled_from([text for text in TEXTS if "my." not in text]))
def test_every_value_is_one_that_the_option_takes(u: float, text: str) -> None:
    (parameter,) = parse_space([text])
    value = value_at(parameter, u)
    if parameter.kind == "choice":
        assert value in parameter.choices
    else:
        assert parameter.low <= value <= parameter.high
        assert isinstance(value, int if parameter.kind == "int" else float)
    cfg = with_values({"base": Config()}, {parameter.key: value})
    assert get(cfg, parameter.key) == (tuple(value) if isinstance(value, list) else value)


def test_logarithmic_range_has_equal_ratios() -> None:
    (parameter,) = parse_space(["algo.learning_rate=1e-4..1e-2:log"])
    assert math.isclose(value_at(parameter, 0.5), 1e-3)
    assert math.isclose(value_at(parameter, 0.25), 10**-3.5, rel_tol=1e-4)


def test_whole_numbers_of_a_range_are_equally_likely() -> None:
    (parameter,) = parse_space(["ppo.update_epochs=1..4"])
    values = [value_at(parameter, (i + 0.5) / 400) for i in range(400)]
    assert [values.count(value) for value in (1, 2, 3, 4)] == [100, 100, 100, 100]


def test_grid_has_every_combination_once() -> None:
    space = parse_space(["algo.gamma=0.9|0.99", "net.activation=tanh|relu"])
    assert list(grid(space)) == [
        {"algo.gamma": gamma, "net.activation": name} for gamma in (0.9, 0.99) for name in ("tanh", "relu")
    ]


def test_value_that_no_trial_could_have_is_refused_before_a_study_exists(control: Config) -> None:
    with pytest.raises(HmxError, match=r"ppo\.num_minibatches = 7 \(--space\)"):
        check_space(parse_space(["ppo.num_minibatches=7|8"]), {"base": control})


def test_schedule_that_would_rise_is_refused_before_a_study_exists(control: Config) -> None:
    exponential = with_values({"base": control}, {"algo.lr_schedule": "exponential"})
    with pytest.raises(HmxError, match="an exponential schedule only falls"):
        check_space(parse_space(["algo.lr_end=0..2"]), {"base": exponential})


def test_rule_between_two_varied_options_is_left_to_the_trials(control: Config) -> None:
    check_space(parse_space(["ppo.num_minibatches=7|8", "algo.num_steps=56|64"]), {"base": control})


@pytest.mark.parametrize(
    ("wrong", "hint"),
    [
        ("algo.gamma=0.99..0.9", "--space algo.gamma=0.9..0.99"),
        ("algo.gama=0.9..0.99", "--space algo.gamma=0.9..0.99"),
        ("algo.learnin_rate=1e-4..1e-2:log", "--space algo.learning_rate=1e-4..1e-2:log"),
        ("algo.learning_rate=1e-2..1e-4:log", "--space algo.learning_rate=1e-4..1e-2:log"),
        ("algo.gamma=0.9..1.5", "--space algo.gamma=0.9..1"),
        ("algo.learning_rate=-1..1e-2:log", "--space algo.learning_rate=0..0.01"),
        ("ppo.ent_coef=0..0.05:log", "--space ppo.ent_coef=0..0.05"),
        ("ppo.update_epochs=1..x", "--space ppo.update_epochs="),
        ("ppo.update_epochs", "--space ppo.update_epochs="),
        ("net.activation=tanh", "--space 'net.activation="),  # a shell would read the bar of choices
        ("algo.gama=0.9|0.99", "--space 'algo.gamma=0.9|0.99'"),
        ("run.seed=1..5", "--space "),
    ],
)
def test_hint_shows_the_option_that_was_meant_with_values_that_it_takes(wrong: str, hint: str) -> None:
    with pytest.raises(HmxError) as refused:
        parse_space([wrong])
    assert refused.value.hint.startswith(hint)
    (parameter,) = parse_space(shlex.split(refused.value.hint)[1:])
    check_space([parameter], {"base": Config()})


@pytest.mark.parametrize("key", sorted(FIELDS.keys() - OWNED.keys()))
def test_example_of_every_option_is_read(key: str) -> None:
    assert example(key).endswith("A|B|C'") or parse_space(shlex.split(example(key))[1:])
