"""`hmx envs` and `hmx new-env` as a user runs them."""

import importlib.util
import json
from importlib.metadata import EntryPoint

import pytest

from hmx.registry import trust


@pytest.fixture(autouse=True)
def no_memory(tmp_path, monkeypatch):
    """Trust nothing that another test has named."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setattr(trust, "_allowed", [])


def test_envs_lists_built_in_extra_and_registered_environments(hmx, monkeypatch):
    points = [EntryPoint(name, "game:make", "hmx.environments") for name in ("snake", "corridor")]
    monkeypatch.setattr("importlib.metadata.entry_points", lambda group: points)
    rows = {row["id"]: row for row in json.loads(hmx("envs", "--json").stdout)["environments"][::-1]}
    assert (rows["hackmatrix"]["observation"], rows["hackmatrix"]["actions"]) == (1545, 28)
    assert (rows["smax/3m"]["agents"], rows["snake"]["origin"], rows["snake"]["missing"]) == (3, "package", "")
    assert "the name is taken: game:make of a package, hmx itself" in hmx("envs", "--json").stdout
    shown = hmx("envs").stdout
    assert "gymnax/NAME" in shown and "hmx new-env NAME" in shown


@pytest.mark.parametrize(
    ("env_id", "sets", "options", "text"),
    [
        ("corridor", ("--set", "env.slip=0.3"), {"slip": 0.3}, "env.slip=0.3"),
        ("cartpole", (), {}, "none"),
    ],
)
def test_envs_shows_the_options_that_the_entry_of_an_environment_declares(hmx, env_id, sets, options, text):
    row = json.loads(hmx("envs", env_id, *sets, "--json").stdout)["environments"][0]
    assert row["options"] == options
    assert f"options {text}" in " ".join(hmx("envs", env_id, *sets).stdout.split())


def test_new_env_writes_a_working_environment_and_a_passing_test(hmx, tmp_path):
    result = hmx("new-env", "maze")
    assert result.exit_code == 0 and "hmx train --env ./maze.py" in result.stderr
    assert sorted(path.name for path in tmp_path.glob("*.py")) == ["maze.py", "test_maze.py"]
    row = json.loads(hmx("envs", "./maze.py", "--set", "env.my.size=6", "--json").stdout)["environments"][0]
    assert (row["observation"], row["options"]["size"], row["renders"]) == (25, 6, True)
    assert row["action_names"] == ["up", "down", "left", "right"]
    spec = importlib.util.spec_from_file_location("test_maze", tmp_path / "test_maze.py")
    tests = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tests)
    tests.test_the_first_position_allows_two_moves()
    tests.test_a_coin_and_the_door_pay_and_end_the_episode()
    again = hmx("new-env", "maze")
    assert again.exit_code == 2 and "cannot write maze.py and test_maze.py: already there" in again.stderr
    assert hmx("new-env", "maze", "--force").exit_code == 0
