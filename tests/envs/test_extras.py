"""What optional extras mean to those who have none: ids that are taken, sizes left open, and the command to install."""

import shlex
import sys
from pathlib import Path

import pytest

from hmx.config import extras
from hmx.config.extras import install
from hmx.config.fields import replace
from hmx.config.schema import Config, EnvConfig, RewardWeights
from hmx.envs.export import exported
from hmx.envs.registry import make_env
from hmx.envs.suites.importing import quiet
from hmx.errors import ExitCode, HmxError
from hmx.records.layout import stem_of
from hmx.registry.check import known_problems
from hmx.registry.environments import EXTRAS, extra_of, known_sizes, step_limit
from hmx.registry.environments import EXTRAS as PACKAGE_OF
from hmx.registry.load import load
from hmx.reports.compute_config.job import compute_sizes
from hmx.reports.compute_config.request import SizesRequest
from hmx.reports.compute_config.source import read_source

NAME = "gymnax/CartPole-v1"
BATTLE = "smax/3m"
PACKAGES = {extra: package for extra, package in PACKAGE_OF.items() if extra != "smax"}
"""Extra -> the package it brings; smax has tests of its own."""


@pytest.fixture
def no_extras(monkeypatch):
    missing = (*PACKAGES.values(), "gymnasium")
    for name in [*sys.modules]:
        if name.partition(".")[0] in missing or name.startswith("hmx.envs.to_"):
            monkeypatch.delitem(sys.modules, name)
    for name in missing:
        monkeypatch.setitem(sys.modules, name, None)


def test_prefix_of_an_id_names_its_extra():
    assert [extra_of(name) for name in (NAME, BATTLE, "gymnax/", "gymnax", "hackmatrix", "gym/CartPole-v1")] == [
        "gymnax", "smax", "", "", "", "",
    ]  # fmt: skip
    assert EXTRAS.keys() == {extra_of(f"{extra}/x") for extra in EXTRAS}


def test_an_unknown_backend_of_brax_is_named_before_anything_is_imported(no_extras):
    with pytest.raises(HmxError, match="Brax has no backend warp") as found:
        make_env(EnvConfig(id="brax/ant@warp"), RewardWeights())
    assert found.value.hint == "known: generalized, mjx, positional, spring"


@pytest.mark.parametrize(("extra", "package"), PACKAGES.items())
def test_a_missing_extra_gives_the_command_that_installs_it(no_extras, extra, package):
    with pytest.raises(HmxError, match=rf"{extra}/... needs a package that is not installed: {package}\b") as found:
        make_env(EnvConfig(id=f"{extra}/x"), RewardWeights())
    assert found.value.hint == install(extra) and found.value.exit_code == ExitCode.USAGE
    assert EXTRAS.keys() == {*PACKAGES, "smax"}


def test_the_hint_installs_an_extra_from_the_clone_that_hmx_runs_from(monkeypatch, tmp_path):
    clone = Path(__file__).parents[2]
    command = [sys.executable, "-P", "-m", "pip", "install", "-e", f"{clone}[gymnax]"]
    assert shlex.split(extras.install("gymnax")) == command
    monkeypatch.setattr(extras, "_CLONE", tmp_path)  # as after `pip install .`
    assert extras.install("gymnax") == "in a clone of hmx: pip install -e '.[gymnax]'"


@pytest.mark.parametrize("package", ["jaxmarl", "six"])
def test_missing_jaxmarl_gives_the_command_that_installs_it(monkeypatch, capsys, package):
    """Also where JaxMARL is there and one of the packages it needs is not."""
    brax = "jaxmarl.environments.mabrax"
    for name in [name for name in sys.modules if name.partition(".")[0] == "jaxmarl"]:
        monkeypatch.delitem(sys.modules, name)

    class Found:
        def find_spec(self, name, path, target=None):
            if not name.startswith("jaxmarl"):
                return None
            assert sys.modules[brax] is None  # which would put other streams in the place of sys.stdout
            print("Importing ...")
            raise ModuleNotFoundError(f"No module named {package!r}", name=package)

    monkeypatch.setattr(sys, "meta_path", [Found(), *sys.meta_path])
    with pytest.raises(HmxError, match=f"smax/... needs a package that is not installed: {package}") as found:
        make_env(EnvConfig(id=BATTLE, num_agents=3), RewardWeights())
    assert found.value.hint == install("smax") and found.value.exit_code == ExitCode.USAGE
    assert brax not in sys.modules and capsys.readouterr().out == ""


def test_smax_scenario_is_known_without_jaxmarl():
    """Its sizes follow from who fights whom; how many agents there are is taken from there unless somebody says."""
    cfg = load(environ={}, flags={"env.id": BATTLE}).config
    sizes = known_sizes(cfg.env)
    assert (cfg.env.num_agents, sizes.num_agents) == (3, 3)
    assert (sizes.features, sizes.num_actions, sizes.max_steps) == (75, 8, 100)
    assert step_limit(EnvConfig(id=BATTLE, max_steps=30)) == 30
    (problem,) = known_problems(replace(cfg, {"env.num_agents": 2}))
    assert (problem.code, problem.fixes) == ("num_agents", (("env.num_agents", 3),))
    with pytest.raises(HmxError, match="smax/8m has 8 agents"):
        load(environ={}, flags={"env.id": "smax/8m"}, sets=["env.num_agents=3"])


@pytest.mark.parametrize(("scenario", "near"), [("3M", "3m"), ("2s3", "2s3z"), ("\x1b[31m", "3m")])
def test_unknown_scenario_is_refused_with_the_nearest(scenario, near):
    cfg = replace(Config(), {"env.id": f"smax/{scenario}"})
    (problem,) = known_problems(cfg)
    assert problem.code == "unknown_env" and problem.message.startswith("no such environment")
    assert len(problem.message) < 100
    assert problem.fixes == (("env.id", f"smax/{near}"),)
    with pytest.raises(HmxError, match="smax has no environment") as found:
        make_env(cfg.env, RewardWeights())
    assert "\x1b" not in found.value.message and near in found.value.hint


@pytest.mark.parametrize(("module", "package"), [("to_gymnax", "gymnax"), ("to_gymnasium", "gymnasium")])
def test_export_without_its_package_gives_the_command_that_installs_it(no_extras, module, package):
    with pytest.raises(HmxError, match=f"not installed: {package}") as found:
        __import__(f"hmx.envs.{module}")
    assert found.value.hint == install(package)


def test_gymnax_with_the_old_interface_is_refused(monkeypatch):
    class Old:
        class environments:
            class environment:
                class Environment:
                    pass

    monkeypatch.setitem(sys.modules, "gymnax", Old)
    with pytest.raises(HmxError, match="is older than"):
        make_env(EnvConfig(id=NAME), RewardWeights())


def test_configuration_can_name_an_environment_that_is_not_installed(no_extras):
    cfg = replace(Config(), {"env.id": NAME})
    assert not known_problems(cfg)
    (problem,) = known_problems(replace(cfg, {"env.num_agents": 2}))
    assert problem.code == "num_agents"
    assert [p.code for p in known_problems(replace(cfg, {"env.id": "gymnax/"}))] == ["unknown_env"]


def test_compute_config_reports_unknown_sizes(tmp_path):
    file = tmp_path / "mine.toml"
    file.write_text('[env]\nid = "gymnax/Never-built-v0"\nnum_envs = 64\n')
    found = compute_sizes(read_source(config=file), {}, SizesRequest())
    assert found.valid and found.memory is None and found.derived["num_envs"] == 64
    (note,) = (note for note in found.notes if "memory" in note)
    assert note.startswith("memory is unknown: gymnax/") and "not installed" in note
    assert known_sizes(EnvConfig(id="gymnax/Never-built-v0")) is None and known_sizes(EnvConfig()) is not None


def test_run_of_an_extra_environment_is_one_folder():
    assert stem_of(NAME, "ppo", 3) == "gymnax-CartPole-v1-ppo-s3"
    assert stem_of("brax/ant@spring", "ppo", 0) == "brax-ant-spring-ppo-s0"


def test_prints_of_packages_do_not_reach_the_output_of_a_command(capsys):
    with quiet():
        print("Failed to import warp: No module named 'warp'")
    assert capsys.readouterr().out == ""


def test_short_run_with_the_sizes_of_brax_gets_the_command_of_a_small_start():
    with pytest.raises(HmxError, match=r"983,040; for a small start with Brax, take --preset sound"):
        load(preset="brax", flags={"run.total_steps": "100k"}, environ={})
    assert load(preset="sound", flags={"run.total_steps": "100k"}, environ={}).config.run.total_steps == 100_000


@pytest.mark.parametrize(
    ("env_id", "wrong", "hint"),
    [
        ("corridor", "slipp", "did you mean slip? settings of corridor are num_agents, max_steps, action_repeat, slip"),
        ("pendulum", "sha256", "settings of pendulum are num_agents, max_steps, action_repeat"),
    ],
)
def test_a_wrong_setting_is_refused_with_those_that_a_user_may_set(env_id, wrong, hint):
    with pytest.raises(HmxError, match=f"no setting of an environment: {wrong}") as refused:
        exported(env_id, None, "as_is", {wrong: 1})
    assert refused.value.hint == hint
