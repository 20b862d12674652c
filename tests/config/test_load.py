import dataclasses
import os
import re
import subprocess
import sys
from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hmx.config import codec, presets
from hmx.config.coerce import BadValue, coerce, show
from hmx.config.fields import FIELDS, get, replace
from hmx.config.option import opt
from hmx.config.schema import Config
from hmx.errors import ExitCode, HmxError
from hmx.registry.check import known_problems, known_warnings
from hmx.registry.load import load, load_stored, read_request


def failure(**layers):
    """The lines of the error that these layers end in, a line per problem."""
    layers.setdefault("environ", {})
    with pytest.raises(HmxError) as caught:
        load(**layers)
    assert caught.value.exit_code is ExitCode.USAGE
    assert caught.value.hint
    lines = caught.value.message.splitlines()
    if len(lines) > 1:
        assert lines[0] == f"{len(lines) - 1} problems in the configuration"
        lines = [line.strip() for line in lines[1:]]
    return lines


def test_load_without_layers_returns_the_defaults():
    loaded = load(environ={})
    assert loaded.config == Config()
    assert set(loaded.origins.values()) == {"default"}
    assert load("default", environ={}) == loaded


def test_later_layers_override_earlier_ones_and_are_the_origin(tmp_path):
    file = tmp_path / "my.toml"
    file.write_text("[run]\nseed = 1\nnum_seeds = 2\n[env]\nnum_envs = 32\n\nmax_steps = 7\n[algo]\nent_coef = 0.5\n")
    loaded = load(
        preset="tiny",
        file=file,
        environ={"HMX_RUN_NUM_SEEDS": "3", "HMX_ENV_NUM_ENVS": "64", "HMX_ENV_MAX_STEPS": "8", "PATH": "/bin"},
        sets=["env.num_envs = 128", "env.max_steps=9"],
        flags={"env.max_steps": 10, "run.total_steps": "1M", "run.root": None},
    )
    wanted = {
        "net.kind": ("auto", "default"),
        "env.id": ("corridor", "preset tiny"),
        "run.seed": (1, "my.toml:2"),
        "ppo.ent_coef": (0.5, "my.toml:9"),
        "run.num_seeds": (3, "HMX_RUN_NUM_SEEDS"),
        "env.num_envs": (128, "--set"),
        "env.max_steps": (10, "--set"),
        "run.total_steps": (1_000_000, "--steps"),
        "run.root": ("runs", "default"),
    }
    assert {k: (get(loaded.config, k), loaded.origins[k]) for k in wanted} == wanted


def test_the_process_environment_is_read_by_default(monkeypatch):
    monkeypatch.setenv("HMX_ALGO_LEARNING_RATE", "1e-3")
    loaded = load()
    assert loaded.config.algo.learning_rate == 1e-3
    assert loaded.origins["algo.learning_rate"] == "HMX_ALGO_LEARNING_RATE"


@pytest.mark.parametrize("key", FIELDS)
def test_every_key_can_be_given_as_text_in_every_way(key):
    field = FIELDS[key]
    choices = {"int": 96, "float": 0.25, "bool": not field.default, "str": "other", "tuple[int, ...]": (48, 24)}
    value = field.choices[-1] if field.choices else choices[field.kind]
    text = show(value)
    by_env = load(environ={field.env_var: text}, check=False)
    by_set = load(environ={}, sets=[f"{key}={text}"], check=False)
    by_flag = load(environ={}, flags={key: value}, check=False)
    assert by_env.config == by_set.config == by_flag.config == replace(Config(), {key: value})


@pytest.mark.parametrize(
    ("key", "text", "value"),
    [
        ("env.num_envs", "1e3", 1000),
        ("env.num_envs", "1_000", 1000),
        ("env.num_envs", " 1000 ", 1000),
        ("run.total_steps", "1e10", 10**10),
        ("run.total_steps", "1M", 1_000_000),
        ("run.total_steps", "1.1M", 1_100_000),
        ("env.num_envs", "20k", 20_000),
        ("run.devices", "all", 0),
        ("algo.gamma", "1", 1.0),
        ("algo.adam_eps", "1e-8", 1e-8),
        ("reward.death_penalty", "-2", -2.0),
        ("net.hidden", "256,256", (256, 256)),
        ("net.hidden", "[64, 32]", (64, 32)),
        ("net.hidden", "(64,)", (64,)),
        ("net.hidden", "64", (64,)),
        ("net.hidden", "", ()),
        ("net.layer_norm", "off", False),
        ("net.layer_norm", "No", False),
        ("net.layer_norm", "TRUE", True),
        ("net.layer_norm", "1", True),
        ("run.name", "a=b", "a=b"),
    ],
)
def test_text_is_read_as_the_type_of_its_key(key, text, value):
    read = get(load(environ={}, sets=[f"{key}={text}"], check=False).config, key)
    assert read == value
    assert type(read) is type(value)


@pytest.mark.parametrize(
    ("key", "text"),
    [
        ("env.num_envs", "2.5"),
        ("env.num_envs", "true"),
        ("env.num_envs", "many"),
        ("env.num_envs", "inf"),
        ("env.num_envs", "nan"),
        ("env.num_envs", ""),
        ("env.num_envs", "9" * 5000),
        ("algo.gamma", "nan"),
        ("algo.gamma", "-inf"),
        ("algo.gamma", "1e999"),
        ("algo.gamma", "true"),
        ("net.hidden", "256,x"),
        ("net.hidden", "256,2.5"),
        ("net.layer_norm", "maybe"),
        ("net.layer_norm", "2"),
        ("env.rules", "desgned"),
        ("net.kind", "mpl"),
        ("run.name", "\udcff"),
    ],
)
def test_unreadable_text_is_refused_with_a_value_that_works(key, text):
    (line,) = failure(sets=[f"{key}={text}"])
    assert line.startswith(f"{key} = ")
    assert "(--set): " in line
    suggestion = line.rpartition("; try ")[2]
    load(environ={}, sets=[suggestion])


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("env.num_envs", "512"),
        ("env.num_envs", True),
        ("env.num_envs", 2.5),
        ("env.num_envs", [512]),
        ("algo.gamma", "0.9"),
        ("algo.gamma", False),
        ("algo.gamma", 10**400),
        ("net.hidden", 256),
        ("net.hidden", [256, True]),
        ("net.hidden", "256"),
        ("net.layer_norm", 1),
        ("net.layer_norm", "true"),
        ("run.name", 3),
    ],
)
def test_values_of_files_must_have_the_type_themselves(key, value):
    with pytest.raises(BadValue) as caught:
        coerce(FIELDS[key], value)
    coerce(FIELDS[key], caught.value.works)


def test_replaced_key_is_refused_with_the_key_that_replaced_it(tmp_path):
    (original,) = failure(sets=["env.loopholes=True"])
    assert original == "env.loopholes = True (--set): env.rules has replaced it; did you mean env.rules=original?"
    (closed,) = failure(sets=["env.loopholes=False"])  # closed is gone
    assert closed == "env.loopholes = False (--set): env.rules has replaced it; did you mean env.rules=designed?"
    (unknown,) = failure(sets=["env.loopholes=maybe"])
    assert unknown.endswith("did you mean env.rules=designed?")
    file = tmp_path / "old.toml"
    file.write_text("schema = 2\n[env]\nloopholes = 1\n")
    assert failure(file=file) == ["env.rules = 1 (old.toml:3): must be text in quotes; try env.rules=designed"]


def test_whole_floats_of_files_are_whole_numbers(tmp_path):
    file = tmp_path / "a.toml"
    file.write_text("[run]\ntotal_steps = 1e6\n")
    total = load(file=file, environ={}).config.run.total_steps
    assert (total, type(total)) == (1_000_000, int)


def test_problems_of_all_layers_are_listed_at_once(tmp_path):
    file = tmp_path / "my.toml"
    file.write_text("[algo]\nlearnin_rate = 0.1\nnum_steps = 'x'\n\n[env]\nid = 'hackmatirx'\n")
    lines = failure(
        file=file,
        environ={"HMX_ALGO_LERNING_RATE": "1", "HMX_ENV_MAX_STEPS": "-1"},
        sets=["lr=3", "gamma", "ppo.clip_eps=0"],
        flags={"run.num_seeds": 0, "run.wandb": "onlin"},
    )
    assert lines == [
        "algo.learnin_rate = 0.1 (my.toml:2): unknown key; did you mean algo.learning_rate=0.1?",
        'algo.num_steps = "x" (my.toml:3): must be a whole number; try algo.num_steps=64',
        "HMX_ALGO_LERNING_RATE = 1 (environment): no option has this name; did you mean HMX_ALGO_LEARNING_RATE=1.0?",
        "lr = 3 (--set): unknown key; did you mean algo.learning_rate=3.0?",
        "--set gamma: expected section.key=value; try algo.gamma=0.99",
        "run.wandb = onlin (--wandb): is not one of disabled, offline, online; try --wandb online",
        "run.num_seeds = 0 (--seeds): must be 1 or more; try --seeds 1",
        "env.max_steps = -1 (HMX_ENV_MAX_STEPS): must be 0 or more; try env.max_steps=1000",
        "ppo.clip_eps = 0.0 (--set): must be above 0; try ppo.clip_eps=0.2",
        "env.id = hackmatirx (my.toml:6): no such environment; try env.id=hackmatrix",
    ]


@pytest.mark.parametrize(
    ("layers", "hint"),
    [
        ({"sets": ["algo.gamma=2"]}, "--set algo.gamma=1.0"),
        ({"flags": {"run.num_seeds": 0}}, "--seeds 1"),
        ({"flags": {"env.id": "pendulum", "algo.name": "dqn"}}, "--algo ppo"),
        ({"flags": {"replay.save": True}}, "leave out --save-buffer"),
        ({"flags": {"env.num_envs": 3}, "sets": ["ppo.num_minibatches=7"]}, "--set ppo.num_minibatches=6"),
        ({"environ": {"HMX_ALGO_GAMMA": "x"}}, "HMX_ALGO_GAMMA=0.99"),
        ({"environ": {"HMX_ALGO_GAMA": "0.9"}}, "HMX_ALGO_GAMMA=0.9"),
        ({"sets": ["algo.gama=0.9"]}, "--set algo.gamma=0.9"),
    ],
)
def test_hint_of_a_single_problem_fixes_it(layers, hint):
    with pytest.raises(HmxError) as caught:
        load(**{"environ": {}, **layers})
    assert caught.value.hint == hint


def test_the_hint_names_the_line_of_the_file(tmp_path):
    (tmp_path / "run.toml").write_text("[algo]\ngamma = 3\n")
    with pytest.raises(HmxError) as caught:
        load(file=tmp_path, environ={})
    assert caught.value.hint == "in run.toml:2, section [algo], set gamma to 1.0"


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("algo.learning-rate", "algo.learning_rate"),
        ("ALGO.Learning_Rate", "algo.learning_rate"),
        ("lr", "algo.learning_rate"),
        ("algo.lr", "algo.learning_rate"),
        ("learning_rate", "algo.learning_rate"),
        ("env.learning_rate", "algo.learning_rate"),
        ("agol.gamma", "algo.gamma"),
        ("n_envs", "env.num_envs"),
        ("env.nmu_envs", "env.num_envs"),
        ("minibatches", "ppo.num_minibatches"),
        ("reward.kils", "reward.kills"),
        ("net.hiden", "net.hidden"),
    ],
)
def test_unknown_key_suggests_the_nearest_key(typed, meant):
    (line,) = failure(sets=[f"{typed}={show(FIELDS[meant].default)}"])
    assert f"did you mean {meant}=" in line


def test_unknown_key_without_a_near_key_lists_sections():
    (line,) = failure(sets=["zzzz=1"])
    assert (
        line
        == "zzzz = 1 (--set): unknown key; sections are run, env, reward, starts, net, algo, ppo, gumbel, dqn, replay, "
        "score"
    )


def test_the_message_about_an_unknown_environment_is_short():
    (line,) = failure(sets=["env.id=zzz"])
    assert "hmx envs lists all" in line and len(line) < 160


def test_suggestion_for_an_unknown_key_has_a_valid_value():
    (line,) = failure(sets=["algo.gama=high"])
    assert line.endswith("did you mean algo.gamma=0.99?")


def test_unrelated_environment_variables_are_ignored():
    environ = {"HMX_": "1", "HMX_DEBUG": "1", "HMX_CACHE_DIR": "/x", "_HMX_COMPLETE": "bash", "HMXALGO": "2"}
    assert load(environ=environ) == load(environ={})


@pytest.mark.parametrize("name", ["HMX_AGLO_GAMMA", "HMX_ALGO_GAMA", "HMX_ALGO_XYZZY", "HMX_ALGOGAMMA"])
def test_misspelt_environment_variables_are_refused(name):
    (line,) = failure(environ={name: "0.5"})
    assert line.startswith(f"{name} = 0.5 (environment): no option has this name")


@pytest.mark.parametrize("text", ["gamma", "", "algo.gamma"])
def test_set_without_equals_shows_the_expected_form(text):
    (line,) = failure(sets=[text])
    assert "expected section.key=value; try algo." in line
    load(environ={}, sets=[line.rpartition("; try ")[2]])


def test_new_run_does_not_inherit_the_name_of_its_template(tmp_path, monkeypatch):
    (folder := tmp_path / "mine").mkdir()
    cfg = replace(Config(), {"run.name": "mine", "run.seed": 7})
    (folder / "run.toml").write_text(codec.to_toml(cfg))
    monkeypatch.chdir(folder)
    for file in (folder, folder / "run.toml", "run.toml", "."):
        assert load_stored(file).config == cfg
        loaded = load(file=file, environ={})
        assert loaded.config == replace(cfg, {"run.name": ""})
        assert loaded.origins["run.name"] == "default"
    (tmp_path / "copy.toml").write_text(codec.to_toml(cfg))
    assert load(file=tmp_path / "copy.toml", environ={}).config == cfg
    assert load(file=folder, environ={}, sets=["run.name=mine"]).config == cfg


def test_unreadable_files_are_refused(tmp_path):
    (tmp_path / "mine.toml").write_text("")
    assert failure(file=tmp_path / "mien.toml") == [f"no such configuration file: {tmp_path}/mien.toml"]
    with pytest.raises(HmxError) as caught:
        load(file=tmp_path / "mien.toml", environ={})
    assert caught.value.hint == f"did you mean {tmp_path}/mine.toml?"
    (empty := tmp_path / "empty").mkdir()
    assert failure(file=empty) == [f"no such configuration file: {empty}/run.toml"]
    (binary := tmp_path / "binary.toml").write_bytes(b"\xff\xfe\x00")
    assert failure(file=binary) == [f"{binary} is not a text file in UTF-8"]
    assert failure(file=tmp_path / "mine.toml" / "x")[0].startswith("cannot read ")
    assert failure(file=tmp_path / ("a" * 300))[0].startswith("cannot read ")


def test_the_file_of_a_run_folder_is_a_regular_file(tmp_path):
    """The user may name a pipe; one in a folder, which may come from a stranger, would block."""
    os.mkfifo(tmp_path / "run.toml")
    assert failure(file=tmp_path) == [f"cannot read {tmp_path / 'run.toml'}: not a regular file"]


def test_file_with_byte_order_mark_and_crlf_is_read(tmp_path):
    file = tmp_path / "dos.toml"
    file.write_bytes(b"\xef\xbb\xbf[algo]\r\ngamma = 0.5\r\n")
    loaded = load(file=file, environ={})
    assert (loaded.config.algo.gamma, loaded.origins["algo.gamma"]) == (0.5, "dos.toml:2")


def test_type_problems_do_not_hide_size_problems():
    lines = failure(sets=["ppo.num_minibatches=7", "algo.gamma=x"])
    assert [re.split(r"[ =]", line)[0] for line in lines] == ["algo.gamma", "ppo.num_minibatches"]


def test_unchecked_load_still_checks_types():
    assert load(environ={}, sets=["algo.gamma=2"], check=False).config.algo.gamma == 2
    with pytest.raises(HmxError):
        load(environ={}, sets=["algo.gamma=x"], check=False)


@dataclasses.dataclass(frozen=True)
class Ask:
    """A request with an option of every kind."""

    rollouts: int = opt(16, "continuations", ge=1, le=100)
    horizon: int | None = opt(None, "steps", ge=1, words={"auto": None})
    gamma: float | None = opt(None, "discount", ge=0, le=1)
    metric: Literal["w1", "tv"] = opt("w1", "distance")
    crn: bool = opt(True, "common random numbers", flag="--common")


def test_all_problems_of_a_request_are_named_with_options_that_work():
    with pytest.raises(HmxError) as caught:
        read_request(Ask, {"--rollouts": "0", "--horizon": "long", "--metric": "w2", "--gamma": "2"})
    assert caught.value.message.splitlines() == [
        "4 problems in the options",
        "  --rollouts 0: must be from 1 to 100; try --rollouts 16",
        "  --horizon long: must be a whole number or auto; try --horizon 1",
        "  --metric w2: is not one of w1, tv; try --metric w1",
        "  --gamma 2: must be from 0 to 1; try --gamma 1.0",
    ]
    with pytest.raises(HmxError) as caught:
        read_request(Ask, {"--rollouts": "many"})
    assert caught.value.message == "--rollouts many: must be a whole number; try --rollouts 16"
    assert caught.value.hint == "--rollouts 16"


@given(st.dictionaries(st.text(max_size=12), st.text(max_size=12), max_size=3))
def test_any_text_loads_or_raises_a_readable_error(pairs):
    sets = [f"{key}={value}" for key, value in pairs.items()]
    sets += [f"{key}={value}" for key, value in zip(FIELDS, pairs.values(), strict=False)]
    try:
        loaded = load(environ={}, sets=sets)
    except HmxError as error:
        assert error.hint
    else:
        assert known_problems(loaded.config) == []


@pytest.mark.parametrize("name", presets.names())
def test_every_preset_runs(name):
    loaded = load(name, environ={})
    assert known_problems(loaded.config) == []
    meant = {"brax": ["rounded_up"], "scs-doc": ["known_bug"]}
    assert [w.code for w in known_warnings(loaded.config)] == meant.get(name, []) or name == presets.DEFAULT
    assert presets.summary(name)
    assert codec.resolve(presets.values(name))[1] == []
    changed = {key for key, origin in loaded.origins.items() if origin not in ("default", "env.id")}
    assert changed == set(presets.values(name))


def test_presets_have_the_expected_environments_and_algorithms():
    assert presets.names() == (
        "default", "brax", "consequence", "control", "dqn", "gumbel", "lake", "lander", "metta", "pole", "quick", "scs",
        "scs-doc", "smax", "smax-vdn", "sound", "tiny",
    )  # fmt: skip
    assert load("tiny", environ={}).config.env.id == "corridor"
    assert load("quick", environ={}).config.env.id == "hackmatrix"
    assert load("lake", environ={}).config.env.id == "frozenlake"
    for battle in ("consequence", "smax", "smax-vdn"):
        assert load(battle, environ={}, flags={"env.id": "smax/8m"}).config.env.num_agents == 8
    assert load("dqn", environ={}).config.algo.name == load("lake", environ={}).config.algo.name == "dqn"


@pytest.mark.parametrize(("name", "hint"), [("quik", "did you mean --preset quick?"), ("x/../y", "presets are ")])
def test_unknown_preset_is_refused(name, hint):
    with pytest.raises(HmxError, match=f"there is no preset {name}") as caught:
        load(name, environ={})
    assert caught.value.hint.startswith(hint)


def test_loading_imports_only_the_standard_library():
    code = (
        "import sys; before = set(sys.modules); import hmx.registry.load, hmx.config.codec, hmx.records.layout;"
        "hmx.registry.load.load('tiny', environ={}); import hmx.records.meta, hmx.records.checkpoints;"
        "import hmx.records.jsonl, hmx.records.metrics_table;"
        "new = {name.partition('.')[0] for name in set(sys.modules) - before};"
        "print(*sorted(new - set(sys.stdlib_module_names)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["hmx"]
