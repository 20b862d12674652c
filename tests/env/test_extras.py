"""What optional extras mean to those who have none: ids that are taken, sizes left open, and the command to install."""

import sys

import pytest

from hmx.config import derive
from hmx.config.env_facts import extra_of, facts_known
from hmx.config.fields import replace
from hmx.config.schema import Config, EnvConfig, RewardWeights
from hmx.env.registry import EXTRAS, make_env
from hmx.errors import ExitCode, HmxError
from hmx.jobs.batch_source import read_source
from hmx.jobs.compute_config import compute_config
from hmx.records.layout import stem_of

NAME = "gymnax/CartPole-v1"
PACKAGES = {"gymnax": "gymnax", "brax": "brax", "playground": "mujoco_playground"}
"""Extra -> the package it brings."""


@pytest.fixture
def no_extras(monkeypatch):
    missing = (*PACKAGES.values(), "gymnasium")
    for name in [*sys.modules]:
        if name.partition(".")[0] in missing or name.startswith("hmx.env.to_"):
            monkeypatch.delitem(sys.modules, name)
    for name in missing:
        monkeypatch.setitem(sys.modules, name, None)


def test_an_id_is_that_of_an_extra_by_what_stands_before_the_slash():
    assert [extra_of(name) for name in (NAME, "gymnax/", "gymnax", "hackmatrix", "gym/CartPole-v1")] == [
        "gymnax", "", "", "", "",
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
    assert found.value.hint == f"pip install 'hmx[{extra}]'" and found.value.exit_code == ExitCode.USAGE
    assert EXTRAS.keys() == PACKAGES.keys()


@pytest.mark.parametrize(("module", "package"), [("to_gymnax", "gymnax"), ("to_gymnasium", "gymnasium")])
def test_so_does_exporting_without_it(no_extras, module, package):
    with pytest.raises(HmxError, match=f"not installed: {package}") as found:
        __import__(f"hmx.env.{module}")
    assert found.value.hint == "pip install 'hmx[gymnax]'"


def test_a_gymnax_of_the_old_interface_is_refused(monkeypatch):
    class Old:
        class environments:
            class environment:
                class Environment:
                    pass

    monkeypatch.setitem(sys.modules, "gymnax", Old)
    with pytest.raises(HmxError, match="is older than"):
        make_env(EnvConfig(id=NAME), RewardWeights())


def test_a_configuration_may_name_it_without_having_it(no_extras):
    cfg = replace(Config(), {"env.id": NAME})
    assert not derive.problems(cfg)
    (problem,) = derive.problems(replace(cfg, {"env.num_agents": 2}))
    assert problem.code == "num_agents"
    assert [p.code for p in derive.problems(replace(cfg, {"env.id": "gymnax/"}))] == ["unknown_env"]


def test_compute_config_says_that_its_sizes_are_not_known(tmp_path):
    file = tmp_path / "mine.toml"
    file.write_text('[env]\nid = "gymnax/Never-built-v0"\nnum_envs = 64\n')
    found = compute_config(read_source(config=file))
    assert found.valid and found.memory is None and found.derived["num_envs"] == 64
    (note,) = (note for note in found.notes if "memory" in note)
    assert "gymnax/Never-built-v0" in note and "--dry-run" in note
    assert not facts_known(EnvConfig(id="gymnax/Never-built-v0")) and facts_known(EnvConfig())


def test_the_run_of_such_an_environment_is_one_folder():
    assert stem_of(NAME, "ppo", 3) == "gymnax-CartPole-v1-ppo-s3"
    assert stem_of("brax/ant@spring", "ppo", 0) == "brax-ant-spring-ppo-s0"
