import dataclasses
import hashlib
import json
import math
import tomllib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hmx.config import codec
from hmx.config.fields import FIELDS, SECTIONS, get, replace
from hmx.config.schema import AlgoConfig, Config, RewardWeights
from hmx.envs.suites.entries import SCENARIOS
from hmx.errors import ExitCode, HmxError
from hmx.registry.check import known_warnings
from hmx.registry.load import load_stored

TEXT = st.text(st.characters(exclude_categories=("Cs",)), max_size=20)
KINDS = {
    "int": st.integers(-(10**12), 10**12),
    "float": st.floats(allow_nan=False, allow_infinity=False),
    "bool": st.booleans(),
    "str": TEXT,
    "tuple[int, ...]": st.lists(st.integers(0, 10**6), max_size=4).map(tuple),
}


def values_of(field):
    return st.sampled_from(field.choices) if field.choices else KINDS[field.kind]


CONFIGS = st.fixed_dictionaries({key: values_of(field) for key, field in FIELDS.items()}).map(
    lambda values: replace(Config(), values)
)


@settings(max_examples=60)
@given(CONFIGS)
def test_toml_round_trip(cfg):
    text = codec.to_toml(cfg)
    assert codec.from_dict(tomllib.loads(text)) == cfg
    assert codec.to_toml(codec.from_dict(tomllib.loads(text))) == text


@settings(max_examples=30)
@given(CONFIGS)
def test_json_round_trip_and_digests(cfg):
    again = codec.from_dict(json.loads(json.dumps(codec.to_dict(cfg))))
    assert again == cfg
    assert codec.digest(again) == codec.digest(cfg)
    assert codec.shape_digest(again) == codec.shape_digest(cfg)


def test_written_file_loads_with_the_line_of_each_value(tmp_path):
    cfg = replace(Config(), {"algo.gamma": 0.5, "net.hidden": (8, 9), "run.name": 'a"b\\c\n'})
    file = tmp_path / "run.toml"
    file.write_text(codec.to_toml(cfg), encoding="utf-8")
    loaded = load_stored(file)
    assert loaded.config == cfg
    lines = file.read_text(encoding="utf-8").splitlines()
    for key, origin in loaded.origins.items():
        name, _, line = origin.partition(":")
        assert name == "run.toml"
        assert lines[int(line) - 1].startswith(f"{FIELDS[key].name} = ")


def test_written_file_documents_every_key():
    lines = codec.to_toml(Config()).splitlines()
    assert lines[0] == f"schema = {codec.SCHEMA}"
    for field in FIELDS.values():
        at = next(i for i, text in enumerate(lines) if text == f"[{field.section}]")
        at = next(i for i in range(at, len(lines)) if lines[i].startswith(f"{field.name} = "))
        assert lines[at - 1].startswith(f"# {field.doc}")
        assert not field.unit or f"[{field.unit}]" in lines[at - 1]


def test_int_for_a_float_option_has_the_same_digest():
    one = Config(algo=AlgoConfig(gamma=1))
    assert codec.digest(one) == codec.digest(Config(algo=AlgoConfig(gamma=1.0)))
    assert tomllib.loads(codec.to_toml(one))["algo"]["gamma"] == 1.0


def test_digest_is_sha256_of_sorted_compact_json():
    # Known answers: were they to change, old runs would no longer recognise their own configuration.
    assert (
        codec.sha256({"b": [1, 2.5], "a": None}) == "e57f5d37865437a82e1108bafb4e5213dfe7e9085f5c253341ebbab30cac5faf"
    )
    text = json.dumps(codec.to_dict(Config()), sort_keys=True, separators=(",", ":"))
    assert codec.digest(Config()) == hashlib.sha256(text.encode()).hexdigest()


@pytest.mark.parametrize("key", [key for key, field in FIELDS.items() if len(field.choices) != 1])
def test_shape_digest_follows_the_shape_keys_and_no_other(key):
    field = FIELDS[key]
    other = {"int": 77, "float": 0.123, "bool": not field.default, "str": "other", "tuple[int, ...]": (3, 4, 5)}
    value = next((c for c in field.choices if c != field.default), other[field.kind])
    cfg = replace(Config(), {key: value})
    assert codec.digest(cfg) != codec.digest(Config())
    changed = codec.shape_digest(cfg) != codec.shape_digest(Config())
    assert changed == (bool(field.shape) and field.applies != ("dqn",))
    assert codec.diff(Config(), cfg) == {key: (field.default, value)}


def test_every_network_option_but_initial_weights_and_digest_is_a_shape_key():
    others = {"net.init", "net.gain_hidden", "net.gain_policy", "net.gain_value", "net.sha256"}
    assert {key for key in FIELDS if key.startswith("net.") and not FIELDS[key].shape} == others
    assert {"run.num_seeds", "env.id", "env.num_envs", "env.undo_depth"} < set(codec.shape_keys(Config()))


def test_shape_keys_of_checkpoints_of_schema_1_lack_agents_and_recurrence():
    added = {"env.num_agents", "net.rnn", "net.rnn_hidden"}
    assert set(codec.shape_keys(Config())) - set(codec.shape_keys(Config(), schema=1)) == added


def test_from_dict_names_every_problem_at_once():
    data = {"algo": {"gama": 0.9, "num_steps": 2.5}, "evn": {"id": "corridor"}, "net": {"rnn": "gur"}, "seed": 3}
    with pytest.raises(HmxError) as caught:
        codec.from_dict(data)
    lines = caught.value.message.splitlines()
    assert lines[0].startswith("5 problems")
    assert "algo.gama = 0.9: unknown key; did you mean algo.gamma=0.9?" in lines[1]
    assert "algo.num_steps = 2.5: must be a whole number" in lines[2]
    assert "evn.id = corridor: unknown section evn; did you mean env.id=corridor?" in lines[3]
    assert "net.rnn = gur: is not one of none, gru, lstm; try net.rnn=gru" in lines[4]
    assert "seed = 3: unknown key; did you mean run.seed=3?" in lines[5]


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_files_never_contain_non_finite_numbers(bad):
    with pytest.raises(ValueError, match="finite"):
        codec.to_toml(Config(reward=RewardWeights(kills=bad)))
    with pytest.raises(ValueError, match="JSON compliant"):
        codec.digest(Config(reward=RewardWeights(kills=bad)))


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("[algo]\ngamma = \n", 2),
        ("[algo\n", 1),
        ("schema = 1\n\n[algo]\ngamma = 0.9\ngamma = 0.8\n", 5),
        ("[algo]\nname = 'ppo\n", 2),
        ("x = [1,\n\n", 1),
    ],
)
def test_syntax_errors_name_file_and_line(text, line):
    with pytest.raises(HmxError) as caught:
        codec.parse_toml(text, "my.toml")
    assert caught.value.message.startswith(f"my.toml:{line}: not valid TOML: ")
    assert caught.value.hint
    assert caught.value.exit_code is ExitCode.USAGE


def test_malformed_files_raise_readable_errors():
    with pytest.raises(HmxError, match=r"nested too deeply|not valid TOML"):
        codec.parse_toml("x = " + "[" * 100_000, "my.toml")
    with pytest.raises(HmxError, match="not valid TOML"):
        codec.parse_toml("[run]\nseed = " + "9" * 5000 + "\n", "my.toml")


def test_newer_schema_is_refused():
    newer = codec.SCHEMA + 1
    words = f"schema {newer}, written by a newer hmx; this one reads schema {codec.SCHEMA}"
    with pytest.raises(HmxError, match=words) as caught:
        codec.parse_toml(f"schema = {newer}\n[new]\nthing = 1\n", "my.toml")
    assert "upgrade" in caught.value.hint


@pytest.mark.parametrize(
    ("text", "rules"),
    [
        ("", "designed"),
        ("schema = 3\n", "designed"),
        ("schema = 2\n", "original"),
        ("schema = 1\n[env]\nid = 'hackmatrix'\n", "original"),
        ("schema = 2\n[env]\nloopholes = true\n", "original"),
        ("schema = 2\n[env]\nloopholes = false\n", "closed"),
        ("[env]\nloopholes = false\n", "closed"),
        ("schema = 2\n[env]\nrules = 'designed'\n", "designed"),
    ],
)
def test_files_of_earlier_schemas_keep_their_rules(text, rules):
    values, _ = codec.parse_toml(text, "my.toml")
    assert values.get("env.rules", FIELDS["env.rules"].default) == rules
    assert "env.loopholes" not in values


@pytest.mark.parametrize("schema", [1, 2, 3])
def test_default_rules_of_an_earlier_schema_cause_no_warning_in_another_environment(schema):
    values, _ = codec.parse_toml(f"schema = {schema}\n[env]\nid = 'corridor'\n", "my.toml")
    assert "not_read_by_env" not in [warning.code for warning in known_warnings(codec.from_dict(values))]


@pytest.mark.parametrize(("schema", "sees"), [("", "player"), ("schema = 4", "player"), ("schema = 3", "everything")])
def test_search_of_earlier_schemas_sees_everything(schema, sees):
    values, _ = codec.parse_toml(f"{schema}\n[gumbel]\nnum_simulations = 4\n", "my.toml")
    assert values.get("gumbel.sees", FIELDS["gumbel.sees"].default) == sees


@pytest.mark.parametrize("schema", ['"1"', "true", "0", "1.5"])
def test_schema_that_is_not_a_number_is_refused(schema):
    with pytest.raises(HmxError, match="schema must be a whole number"):
        codec.parse_toml(f"schema = {schema}\n", "my.toml")


def test_lines_are_found_in_dotted_and_spaced_files():
    values, lines = codec.parse_toml('env.id = "corridor"\n\n [ algo ] # the rest\n  gamma=0.5\n"seed" = 1\n', "x.toml")
    assert lines == {"env.id": 1, "algo.gamma": 4, "algo.seed": 5}
    assert values == {"env.id": "corridor", "algo.gamma": 0.5, "algo.seed": 1}


def test_an_option_knows_the_environments_that_declare_it():
    readers = {key: field.envs for key, field in FIELDS.items() if field.envs}
    assert readers["env.slip"] == ("corridor",) and readers["env.obs"] == readers["starts.share"] == ("hackmatrix",)
    assert readers["env.world_state"] == tuple(f"smax/{name}" for name in SCENARIOS)
    assert FIELDS["env.slip"].applies_to("ppo", "corridor") and not FIELDS["env.slip"].applies_to("ppo", "recall")
    assert {key for key in FIELDS if key.startswith("reward.")} < readers.keys() and "env.max_steps" not in readers


def test_the_field_table_is_the_schema():
    keys = [f"{s.name}.{f.name}" for s in dataclasses.fields(Config) for f in dataclasses.fields(s.default_factory)]
    keys = [key for key in keys if not (key.endswith(".my") or key == "env.sha256")]  # see `own_values`
    # In a section, the options that environments declare come last.
    assert list(FIELDS) == sorted(keys, key=lambda key: (SECTIONS.index(key.partition(".")[0]), bool(FIELDS[key].envs)))
    assert tuple(s.name for s in dataclasses.fields(Config)) == SECTIONS
    for key, field in FIELDS.items():
        assert field.doc, key
        assert field.default == get(Config(), key)
        assert not field.choices or field.default in field.choices
        assert field.kind in KINDS, f"{key}: the kinds of value that files and flags can hold"
