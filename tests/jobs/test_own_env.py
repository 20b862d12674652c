"""Runs on an environment of the user's: what their folders keep, and that only trusted code runs."""

from __future__ import annotations

import os
import shutil

import pytest
from new_runs import plan, train

from hmx.cli.new_env import EXAMPLE
from hmx.config.schema import EnvConfig
from hmx.errors import ExitCode, HmxError
from hmx.jobs.evaluate import evaluate
from hmx.jobs.resume import resume
from hmx.jobs.runs import list_runs, verify
from hmx.play.request import WatchRequest
from hmx.play.watch import watch
from hmx.records import meta as metas
from hmx.registry import trust, user_code
from hmx.registry.load import load_stored
from hmx.reports.compare.job import compare
from hmx.reports.compare.request import CompareRequest


@pytest.fixture
def game(tmp_path, monkeypatch):
    """The file that `hmx new-env` writes, in the current folder, named by the user."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setattr(trust, "_allowed", [])
    file = tmp_path / "game.py"
    shutil.copy(EXAMPLE, file)
    user_code.allow("./game.py", "env.id")
    return file


def test_a_run_keeps_its_environment_and_refuses_a_changed_one(game, make_config, monkeypatch):
    cfg = make_config(2, env__id="./game.py", env__max_steps=6)
    assert dict(plan(cfg).config.env.my) == {"size": 5, "step_cost": 0.01}
    with pytest.raises(HmxError, match=r"env.my.size = huge \(--set\)|env.my.size = huge: must be a whole number"):
        plan(make_config(2, env__id="./game.py", **{"env.my.size": "huge"}))
    run = train(cfg).run
    stored, meta = load_stored(run).config.env, metas.read(run / "meta.json")
    assert stored.sha256 == meta.environment["sha256"] and meta.environment["path"] == str(game)
    assert (run / "environment.py").read_bytes() == game.read_bytes() and verify(run).intact
    assert evaluate(run, episodes=4).policies[0].info is not None
    frames = list(watch(run, WatchRequest(greedy=True)))
    assert frames[-1].outcome in ("terminated", "truncated") and "D" in frames[0].picture
    assert frames[0].to_json()["picture"] == frames[0].picture and set(frames[1].terms) == {"coin", "door", "step_cost"}

    game.write_text(game.read_text().replace("step_cost: float = 0.01", "step_cost: float = 0.02"))
    user_code.allow("./game.py", "env.id")
    with pytest.raises(HmxError, match=r"has changed since the run began: SHA-256") as found:
        resume(run, changes={"run.total_steps": "96"})
    assert found.value.exit_code == ExitCode.USAGE and "--accept-env-change" in found.value.hint
    assert (
        "-    step_cost: float = 0.01" in found.value.message and "+    step_cost: float = 0.02" in found.value.message
    )
    for replace in (os.mkfifo, lambda path: (path.touch(), os.truncate(path, 3 << 30))):
        (run / "environment.py").unlink()
        replace(run / "environment.py")
        with pytest.raises(HmxError, match=r"has changed since the run began: SHA-256 \w+ became \w+$"):
            evaluate(run, episodes=4)
    monkeypatch.setattr(trust.Permissions, "accept_change", True)
    resume(run, changes={"run.total_steps": "96"})
    (entry,) = metas.read(run / "meta.json").resumes
    assert entry.changes["env.sha256"][0] == stored.sha256
    assert (run / "environment.py").read_bytes() == game.read_bytes()


def test_listing_verifying_and_comparing_runs_never_imports_their_environment(game, make_config, monkeypatch):
    game.write_text("open('imported', 'w').close()\n" + game.read_text())
    user_code.allow("./game.py", "env.id")
    run = train(make_config(2, env__id="./game.py", env__max_steps=6)).run
    (game.parent / "imported").unlink()  # as for another user, who has never seen the file
    monkeypatch.setattr(trust, "_allowed", [])
    monkeypatch.setattr(user_code, "_modules", {})
    shutil.rmtree(game.parent / "state")
    assert [row.name for row in list_runs(run.parent).runs] == ["r"]
    assert verify(run).intact
    compare(CompareRequest(sides=(str(run), str(run))))
    for command in (evaluate, resume, lambda run: next(watch(run))):
        with pytest.raises(HmxError, match="you have not trusted its code") as found:
            command(run)
        assert "--trust-env" in found.value.hint
    assert not (game.parent / "imported").exists()
    game.unlink()
    assert list_runs(run.parent).runs and verify(run).intact


@pytest.mark.parametrize("env_id", ["frozenlake", "cartpole", "pendulum", "counting"])
def test_watch_shows_every_environment(env_id):
    frames = list(watch(None, WatchRequest(random=True, seed=1), env=EnvConfig(id=env_id, max_steps=3)))
    pictures = {"frozenlake": "@", "cartpole": "[=]", "pendulum": "degrees"}
    shown = [frame.picture for frame in frames]
    assert len(shown) == 4 and all(
        pictures[env_id] in text if env_id in pictures else float(text) >= 0 for text in shown
    )
    assert frames[-1].outcome == "truncated" and frames[-1].action_name
    assert frames == list(watch(None, WatchRequest(random=True, seed=1), env=EnvConfig(id=env_id, max_steps=3)))


def test_watch_shows_the_final_state_of_an_episode_not_the_next_start():
    frames = list(watch(None, WatchRequest(random=True), env=EnvConfig(id="frozenlake")))
    assert frames[-1].outcome == "terminated" and frames[-1].picture[0] != "@"


def test_training_names_a_state_without_a_legal_action(game, make_config):
    one_row = "jnp.full(4, (state.player[0] == 0))"  # the first position passes the check at the start
    game.write_text(game.read_text().replace("((target >= 0) & (target < options.size)).all(-1)", one_row))
    user_code.allow("./game.py", "env.id")
    with pytest.raises(HmxError, match=r"no action was legal in a state of \./game\.py; the state before it") as found:
        train(make_config(2, env__id="./game.py"))
    assert found.value.exit_code == ExitCode.CHECK_FAILED and "hmx check-env ./game.py" in found.value.hint
