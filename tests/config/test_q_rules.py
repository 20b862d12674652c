"""What Q-learning reads, what it refuses, and what follows from its options."""

import pytest

from hmx.algos.dqn import sizes
from hmx.algos.dqn.sizes import q_values
from hmx.config import codec
from hmx.config.fields import FIELDS, replace
from hmx.config.schema import Config
from hmx.errors import HmxError
from hmx.registry import derive
from hmx.registry.check import known_problems, known_warnings
from hmx.registry.load import load

BASE = replace(
    Config(),
    {
        "algo.name": "dqn", "env.id": "corridor", "env.num_envs": 8, "algo.num_steps": 4, "run.total_steps": 3200,
        "replay.capacity": 256, "dqn.learn_starts": 64, "dqn.batch_size": 16, "dqn.gradient_steps": 2,
    },
)  # fmt: skip
SCORING = {"score.every": 2, "replay.mixing": "additive", "score.transitions": 16, "score.chunk": 16}


def codes(cfg):
    return {p.code: p for p in known_problems(cfg)}


def test_defaults_of_dqn_have_no_problems():
    assert not codes(BASE) and not known_warnings(BASE)
    assert not codes(replace(Config(), {"algo.name": "dqn"}))
    assert not codes(replace(BASE, SCORING))


def ignored(algorithm):
    """The keys that an algorithm does not read."""
    return [key for key, field in FIELDS.items() if not field.read_by(algorithm)]


@pytest.mark.parametrize("key", ignored("dqn"))
def test_dqn_refuses_options_of_ppo(key):
    field = FIELDS[key]
    other = {
        "int": 1 if field.name == "obs_norm_ddof" else 3,
        "float": 0.123,
        "bool": not field.default,
        "tuple[int, ...]": (3,),
        "str": "other",
    }.get(field.kind)
    other = next((c for c in field.choices if c != field.default), other)
    found = codes(replace(BASE, {key: other}))["not_read"]
    assert found.keys == (key,) and "dqn does not read it" in found.message
    assert found.fixes == ((key, field.default),)


def test_ppo_refuses_options_of_dqn():
    with pytest.raises(
        HmxError, match=r"dqn.double = false \(--set\): ppo does not read it; try algo.name=dqn or dqn.double=true"
    ):
        load(environ={}, sets=["dqn.double=false"])
    sections = {FIELDS[key].section for key in ignored("ppo")}
    assert sections == {"gumbel", "dqn", "replay", "score"}


def test_file_with_defaults_of_the_other_algorithm_loads(tmp_path):
    file = tmp_path / "run.toml"
    file.write_text(codec.to_toml(BASE))
    assert load(file=file, environ={}).config == BASE


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"replay.capacity": 250}, "buffer_split"),
        ({"replay.capacity": 24, "dqn.learn_starts": 8}, "buffer_small"),
        ({"replay.capacity": 32, "dqn.n_step": 5, "dqn.learn_starts": 8}, "buffer_small"),
        ({"dqn.learn_starts": 257}, "never_starts"),
        ({"replay.replacement": False, "dqn.batch_size": 65}, "batch_large"),
        ({**SCORING, "score.aggregate": "policy"}, "no_probs"),
        ({**SCORING, "score.actions": "topk"}, "no_probs"),
        ({**SCORING, "score.continuation": "softmax", "score.parameter": 0.0}, "parameter"),
        ({**SCORING, "score.continuation": "epsilon", "score.parameter": 1.5}, "parameter"),
        ({**SCORING, "score.transitions": 512}, "pass_large"),
        ({**SCORING, "score.coverage": 9.0}, "pass_large"),
        ({**SCORING, "env.id": "rendezvous", "env.num_agents": 8}, "joint_actions"),
        ({"run.total_steps": 31}, "too_short"),
    ],
)
def test_impossible_values_are_refused_with_fixes_that_work(changes, code):
    cfg = replace(BASE, changes)
    assert set(codes(cfg)) == {code}
    for fix in codes(cfg)[code].fixes:
        assert code not in codes(replace(cfg, dict([fix])))


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"dqn.learn_starts": 256, "run.total_steps": 224}, "no_learning"),
        ({"dqn.gradient_steps": 1, "dqn.batch_size": 1}, "ratio_low"),
        ({**SCORING, "replay.mixing": "td"}, "scores_unused"),
        ({**SCORING, "score.every": 100}, "coverage_low"),
    ],
)
def test_probable_mistakes_of_dqn_are_warnings(changes, code):
    assert [p.code for p in known_warnings(replace(BASE, changes))] == [code]


def test_sizes():
    derived = derive.derive(BASE)
    assert (derived.batch_size, derived.num_updates, derived.minibatch_size) == (32, 100, 16)
    # the buffer holds 64 after the second update, which is the first to learn
    assert sizes.first_learning_update(BASE.dqn.learn_starts, 32) == 1
    assert (derived.gradient_steps_per_update, derived.gradient_steps) == (2, 2 * 99)
    assert sizes.replay_ratio(BASE) == 1.0


def test_scoring_pass_is_split_into_equal_rounds_or_sized_by_coverage():
    scored = replace(BASE, {**SCORING, "score.transitions": 100, "score.chunk": 30})
    assert sizes.scoring_rounds(scored.score, 32) == (4, 25)
    odd = replace(scored, {"score.transitions": 101})
    assert sizes.scored_per_pass(odd.score, 32) == 4 * 26
    # half a score per transition: 64 transitions come between two passes
    covered = replace(scored, {"score.coverage": 0.5})
    assert sizes.scored_per_pass(covered.score, 32) == 32
    assert sizes.expected_coverage(covered.score, 32) == 0.5


def test_hyperparameters_depend_only_on_the_update():
    cfg = replace(BASE, {**SCORING, "dqn.epsilon_fraction": 0.5, "replay.survey_every": 4, "algo.learning_rate": 1.0})
    first, second, middle, last = (q_values(cfg, update) for update in (0, 1, 50, 99))
    assert first["epsilon"] == 1.0 and middle["epsilon"] == pytest.approx(0.05) == last["epsilon"]
    assert q_values(cfg, 25)["epsilon"] == pytest.approx(0.525)
    assert (first["gradient_steps"], second["gradient_steps"]) == (0.0, 2.0)
    assert (first["is_beta"], middle["is_beta"]) == (0.4, pytest.approx(0.7))
    assert middle["learning_rate"] == pytest.approx(0.5)
    assert [q_values(cfg, u)["score"] for u in range(6)] == [0, 1, 0, 1, 0, 1]
    assert [q_values(cfg, u)["survey"] for u in range(6)] == [0, 0, 0, 1, 0, 0]
    uniform = q_values(replace(BASE, {"replay.mixing": "uniform"}), 3)
    assert "is_beta" not in uniform and "score" not in uniform


def test_shape_digest_of_ppo_ignores_replay_options():
    larger = {"replay.capacity": 512}
    assert codec.shape_digest(Config()) == codec.shape_digest(replace(Config(), larger))
    assert codec.shape_digest(BASE) != codec.shape_digest(replace(BASE, larger))
