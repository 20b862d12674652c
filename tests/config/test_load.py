import re
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hmx.config import codec, derive, presets
from hmx.config.coerce import BadValue, coerce, show
from hmx.config.fields import FIELDS, get, replace
from hmx.config.load import Flag, load
from hmx.config.schema import Config
from hmx.errors import ExitCode, HmxError


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


def test_without_layers_it_is_the_schema():
    loaded = load(environ={})
    assert loaded.config == Config()
    assert set(loaded.origins.values()) == {"default"}
    assert load("default", environ={}) == loaded


def test_layers_win_in_order_and_leave_their_name(tmp_path):
    file = tmp_path / "my.toml"
    file.write_text("[run]\nseed = 1\nnum_seeds = 2\n[env]\nnum_envs = 32\n\nmax_steps = 7\n[algo]\nent_coef = 0.5\n")
    loaded = load(
        preset="tiny",
        file=file,
        environ={"HMX_RUN_NUM_SEEDS": "3", "HMX_ENV_NUM_ENVS": "64", "HMX_ENV_MAX_STEPS": "8", "PATH": "/bin"},
        sets=["env.num_envs = 128", "env.max_steps=9"],
        flags={"env.max_steps": 10, "run.total_steps": Flag(1_000_000, "--steps"), "run.root": None},
    )
    wanted = {
        "net.kind": ("auto", "default"),
        "env.id": ("corridor", "preset tiny"),
        "run.seed": (1, "my.toml:2"),
        "algo.ent_coef": (0.5, "my.toml:9"),
        "run.num_seeds": (3, "HMX_RUN_NUM_SEEDS"),
        "env.num_envs": (128, "--set"),
        "env.max_steps": (10, "--max-steps"),
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
        ("algo.gamma", "1", 1.0),
        ("algo.adam_eps", "1e-8", 1e-8),
        ("reward.death_penalty", "-2", -2.0),
        ("net.hidden", "256,256", (256, 256)),
        ("net.hidden", "[64, 32]", (64, 32)),
        ("net.hidden", "(64,)", (64,)),
        ("net.hidden", "64", (64,)),
        ("net.hidden", "", ()),
        ("env.loopholes", "off", False),
        ("env.loopholes", "No", False),
        ("env.loopholes", "TRUE", True),
        ("env.loopholes", "1", True),
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
        ("env.num_envs", "4M"),
        ("algo.gamma", "nan"),
        ("algo.gamma", "-inf"),
        ("algo.gamma", "1e999"),
        ("algo.gamma", "true"),
        ("net.hidden", "256,x"),
        ("net.hidden", "256,2.5"),
        ("env.loopholes", "maybe"),
        ("env.loopholes", "2"),
        ("net.kind", "mpl"),
        ("run.name", "\udcff"),
    ],
)
def test_text_that_does_not_fit_is_refused_with_a_value_that_does(key, text):
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
        ("env.loopholes", 1),
        ("env.loopholes", "true"),
        ("run.name", 3),
    ],
)
def test_values_of_files_must_have_the_type_themselves(key, value):
    with pytest.raises(BadValue) as caught:
        coerce(FIELDS[key], value)
    name, _, works = caught.value.suggestion.partition("=")
    assert name == key
    coerce(FIELDS[key], works, text=True)


def test_whole_floats_of_files_are_whole_numbers(tmp_path):
    file = tmp_path / "a.toml"
    file.write_text("[run]\ntotal_steps = 1e6\n")
    total = load(file=file, environ={}).config.run.total_steps
    assert (total, type(total)) == (1_000_000, int)


def test_all_problems_of_all_layers_come_at_once(tmp_path):
    file = tmp_path / "my.toml"
    file.write_text("[algo]\nlearnin_rate = 0.1\nnum_steps = 'x'\n\n[env]\nid = 'hackmatirx'\n")
    lines = failure(
        file=file,
        environ={"HMX_ALGO_LERNING_RATE": "1", "HMX_ENV_MAX_STEPS": "-1"},
        sets=["lr=3", "gamma", "algo.clip_eps=0"],
        flags={"run.num_seeds": Flag(0, "--seeds"), "algo.lr_schedule": Flag("linaer", "--schedule")},
    )
    assert lines == [
        "algo.learnin_rate = 0.1 (my.toml:2): unknown key; did you mean algo.learning_rate=0.1?",
        "algo.num_steps = x (my.toml:3): must be a whole number; try algo.num_steps=64",
        "HMX_ALGO_LERNING_RATE = 1 (environment): no option has this name; did you mean HMX_ALGO_LEARNING_RATE=1?",
        "lr = 3 (--set): unknown key; did you mean algo.learning_rate=3?",
        "--set gamma: must read section.key=value; try algo.gamma=0.99",
        "algo.lr_schedule = linaer (--schedule): is not one of constant, linear, cosine, logarithmic, exponential; "
        "try algo.lr_schedule=linear",
        "run.num_seeds = 0 (--seeds): must be 1 or more; try run.num_seeds=1",
        "env.max_steps = -1 (HMX_ENV_MAX_STEPS): must be 0 or more; try env.max_steps=0",
        "algo.clip_eps = 0.0 (--set): must be above 0; try algo.clip_eps=1.0",
        "env.id = hackmatirx (my.toml:6): no such environment; known are hackmatrix, counting, corridor, frozenlake, "
        "frozenlake-slippery, recall, rendezvous, pendulum, cartpole, cartpole-discrete, and with optional extras "
        "gymnax/NAME, brax/NAME, playground/NAME, smax/NAME; try env.id=hackmatrix",
    ]


@pytest.mark.parametrize(
    ("layers", "hint"),
    [
        ({"sets": ["algo.gamma=2"]}, "--set algo.gamma=1.0"),
        ({"flags": {"run.num_seeds": Flag(0, "--seeds")}}, "--seeds 1"),
        ({"environ": {"HMX_ALGO_GAMMA": "x"}}, "HMX_ALGO_GAMMA=0.99"),
        ({"environ": {"HMX_ALGO_GAMA": "0.9"}}, "HMX_ALGO_GAMMA=0.9"),
        ({"sets": ["algo.gama=0.9"]}, "--set algo.gamma=0.9"),
    ],
)
def test_the_hint_of_a_single_problem_mends_it(layers, hint):
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
        ("learning_rate", "algo.learning_rate"),
        ("env.learning_rate", "algo.learning_rate"),
        ("agol.gamma", "algo.gamma"),
        ("n_envs", "env.num_envs"),
        ("env.nmu_envs", "env.num_envs"),
        ("minibatches", "algo.num_minibatches"),
        ("reward.kils", "reward.kills"),
        ("net.hiden", "net.hidden"),
    ],
)
def test_unknown_keys_find_the_one_that_was_meant(typed, meant):
    (line,) = failure(sets=[f"{typed}={show(FIELDS[meant].default)}"])
    assert f"did you mean {meant}=" in line


def test_an_unknown_key_far_from_all_says_what_there_is():
    (line,) = failure(sets=["zzzz=1"])
    assert line == "zzzz = 1 (--set): unknown key; sections are run, env, reward, net, algo, dqn, replay, score"


def test_the_suggestion_for_an_unknown_key_holds_a_value_that_works():
    (line,) = failure(sets=["algo.gama=high"])
    assert line.endswith("did you mean algo.gamma=0.99?")


def test_other_programs_variables_are_left_alone():
    environ = {"HMX_": "1", "HMX_DEBUG": "1", "HMX_CACHE_DIR": "/x", "_HMX_COMPLETE": "bash", "HMXALGO": "2"}
    assert load(environ=environ) == load(environ={})


@pytest.mark.parametrize("name", ["HMX_AGLO_GAMMA", "HMX_ALGO_GAMA", "HMX_ALGO_XYZZY", "HMX_ALGOGAMMA"])
def test_slips_in_variables_are_not_left_alone(name):
    (line,) = failure(environ={name: "0.5"})
    assert line.startswith(f"{name} = 0.5 (environment): no option has this name")


@pytest.mark.parametrize("text", ["gamma", "", "algo.gamma"])
def test_a_set_without_equals_is_told_its_form(text):
    (line,) = failure(sets=[text])
    assert "must read section.key=value; try algo." in line
    load(environ={}, sets=[line.rpartition("; try ")[2]])


def test_a_new_run_does_not_take_the_name_of_the_one_it_is_modelled_on(tmp_path, monkeypatch):
    (folder := tmp_path / "mine").mkdir()
    cfg = replace(Config(), {"run.name": "mine", "run.seed": 7})
    (folder / "run.toml").write_text(codec.to_toml(cfg))
    monkeypatch.chdir(folder)
    for file in (folder, folder / "run.toml", "run.toml", "."):
        assert load(file=file, environ={}).config == cfg
        loaded = load(file=file, environ={}, new_run=True)
        assert loaded.config == replace(cfg, {"run.name": ""})
        assert loaded.origins["run.name"] == "default"
    (tmp_path / "copy.toml").write_text(codec.to_toml(cfg))
    assert load(file=tmp_path / "copy.toml", environ={}, new_run=True).config == cfg
    assert load(file=folder, environ={}, sets=["run.name=mine"], new_run=True).config == cfg


def test_files_that_cannot_be_read(tmp_path):
    (tmp_path / "mine.toml").write_text("")
    assert failure(file=tmp_path / "mien.toml") == [f"there is no configuration file {tmp_path}/mien.toml"]
    with pytest.raises(HmxError) as caught:
        load(file=tmp_path / "mien.toml", environ={})
    assert caught.value.hint == f"did you mean {tmp_path}/mine.toml?"
    (empty := tmp_path / "empty").mkdir()
    assert failure(file=empty) == [f"there is no configuration file {empty}/run.toml"]
    (binary := tmp_path / "binary.toml").write_bytes(b"\xff\xfe\x00")
    assert failure(file=binary) == [f"{binary} is not a text file in UTF-8"]
    assert failure(file=tmp_path / "mine.toml" / "x")[0].startswith("cannot read ")
    assert failure(file=tmp_path / ("a" * 300))[0].startswith("cannot read ")


def test_a_file_from_another_system_is_read(tmp_path):
    file = tmp_path / "dos.toml"
    file.write_bytes(b"\xef\xbb\xbf[algo]\r\ngamma = 0.5\r\n")
    loaded = load(file=file, environ={})
    assert (loaded.config.algo.gamma, loaded.origins["algo.gamma"]) == (0.5, "dos.toml:2")


def test_a_problem_of_type_does_not_hide_one_of_size():
    lines = failure(sets=["algo.num_minibatches=7", "algo.gamma=x"])
    assert [re.split(r"[ =]", line)[0] for line in lines] == ["algo.gamma", "algo.num_minibatches"]


def test_auto_scale_is_judged_by_its_outcome():
    sets = ["env.num_envs=1000", "algo.num_steps=128", "algo.auto_scale=true"]
    loaded = load(environ={}, sets=sets)
    assert loaded.config.algo.num_minibatches == Config().algo.num_minibatches
    (line,) = failure(sets=[*sets, "algo.num_minibatches=12"])
    assert "do not split into 12 equal minibatches" in line


def test_auto_scale_may_mend_what_would_not_split():
    odd = ["env.num_envs=33333", "algo.num_steps=3"]
    assert "do not split into 8 equal minibatches" in failure(sets=odd)[0]
    assert load(environ={}, sets=[*odd, "algo.auto_scale=true"]).config.algo.auto_scale


def test_unchecked_loading_still_judges_types():
    assert load(environ={}, sets=["algo.gamma=2"], check=False).config.algo.gamma == 2
    with pytest.raises(HmxError):
        load(environ={}, sets=["algo.gamma=x"], check=False)


@given(st.dictionaries(st.text(max_size=12), st.text(max_size=12), max_size=3))
def test_no_text_ends_in_anything_but_words(pairs):
    sets = [f"{key}={value}" for key, value in pairs.items()]
    sets += [f"{key}={value}" for key, value in zip(FIELDS, pairs.values(), strict=False)]
    try:
        loaded = load(environ={}, sets=sets)
    except HmxError as error:
        assert error.hint
    else:
        assert derive.problems(loaded.config) == []


@pytest.mark.parametrize("name", presets.names())
def test_every_preset_runs(name):
    loaded = load(name, environ={})
    assert derive.problems(loaded.config) == []
    meant = {"brax": ["rounded_up"], "scs-doc": ["known_bug"]}
    assert [w.code for w in derive.warnings(loaded.config)] == meant.get(name, []) or name == presets.DEFAULT
    assert presets.summary(name)
    assert codec.resolve(presets.values(name))[1] == []
    changed = {key for key, origin in loaded.origins.items() if origin not in ("default", "env.id")}
    assert changed == set(presets.values(name))


def test_presets_are_for_what_their_names_say():
    assert presets.names() == (
        "default", "brax", "dqn", "lake", "metta", "pole", "quick", "scs", "scs-doc", "smax",
        "smax-vdn", "sound", "tiny",
    )  # fmt: skip
    assert load("tiny", environ={}).config.env.id == "corridor"
    assert load("quick", environ={}).config.env.id == "hackmatrix"
    assert load("lake", environ={}).config.env.id == "frozenlake"
    for battle in ("smax", "smax-vdn"):
        assert load(battle, environ={}, flags={"env.id": "smax/8m"}).config.env.num_agents == 8
    assert load("dqn", environ={}).config.algo.name == load("lake", environ={}).config.algo.name == "dqn"


@pytest.mark.parametrize(("name", "hint"), [("quik", "did you mean --preset quick?"), ("x/../y", "presets are ")])
def test_an_unknown_preset(name, hint):
    with pytest.raises(HmxError, match=f"there is no preset {name}") as caught:
        load(name, environ={})
    assert caught.value.hint.startswith(hint)


def test_loading_needs_nothing_but_python():
    code = (
        "import sys; before = set(sys.modules); import hmx.config.load, hmx.config.codec, hmx.records.layout;"
        "hmx.config.load.load('tiny', environ={}); import hmx.records.meta, hmx.records.checkpoints;"
        "import hmx.records.jsonl, hmx.records.metrics_table;"
        "new = {name.partition('.')[0] for name in set(sys.modules) - before};"
        "print(*sorted(new - set(sys.stdlib_module_names)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["hmx"]
