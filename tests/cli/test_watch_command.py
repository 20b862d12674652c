"""`hmx watch`: what it saves, what it refuses, and how it is left."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator

import pytest
import typer
from typer.testing import CliRunner

from hmx.api.agent import load_agent
from hmx.cli import watch
from hmx.cli.app import app
from hmx.errors import ExitCode, HmxError
from hmx.play.frames import Frame
from hmx.play.watch import COMPILING, show
from hmx.play.watch import watch as frames_of

FRAMES = [
    Frame(step=0, episode=0, position={"player": {"row": 0, "col": 0}, "stage": 2}, legal=(0,)),
    Frame(step=1, episode=0, position={"player": {"row": 0, "col": 0}, "stage": 2}, legal=(), action=0, reward=-0.5,
          outcome="died", episode_return=-0.5),
]  # fmt: skip


def test_a_saved_animation_is_reported_with_its_episodes(tmp_path, capsys):
    watch._save(FRAMES, tmp_path / "a.svg", "a run", 0.5, json=False)
    out, err = capsys.readouterr()
    assert out == "episode 1: died after step 1, stage 2, return -0.50\n"
    assert err.startswith(f"wrote: {tmp_path / 'a.svg'} (2 frames") and (tmp_path / "a.svg").exists()


@pytest.mark.parametrize(
    ("name", "words"),
    [("a.mp4", "expected a name that ends in"), ("there.svg", "the file exists"), ("no/a.svg", "does not exist")],
)
def test_a_file_that_cannot_be_written_is_refused_at_once(tmp_path, name, words):
    (tmp_path / "there.svg").touch()
    with pytest.raises(HmxError, match=words) as refused:
        watch.check_target(tmp_path / name, force=False)
    assert refused.value.hint and refused.value.exit_code == 2
    watch.check_target(tmp_path / "there.svg", force=True)


def test_a_gif_without_pillow_names_the_package(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "PIL.ImageFont", None)
    with pytest.raises(HmxError, match="needs Pillow") as refused:
        watch.check_target(tmp_path / "a.gif", force=False)
    assert "pip install pillow" in refused.value.hint


def test_a_run_without_a_checkpoint_is_refused_before_anything_is_compiled(unpack, tmp_path):
    run, phases = unpack(2, tmp_path).folder, []
    next(frames_of(run, phase=phases.append))
    assert phases == [COMPILING]
    shutil.rmtree(run / "checkpoints")
    with pytest.raises(HmxError, match="checkpoint") as refused:
        frames_of(run, phase=phases.append)
    assert refused.value.exit_code == 3 and phases == [COMPILING]


def test_an_older_checkpoint_is_played_with_a_warning(unpack, tmp_path):
    run, text = unpack(2, tmp_path).folder, "checkpoint 4 is missing; checkpoint 2 is used instead"
    shutil.rmtree(run / "checkpoints" / "4")
    done = CliRunner().invoke(app, ["watch", str(run), "--json"])
    assert done.exit_code == 0 and text not in done.stdout
    *_, compiling, warning = done.stderr.splitlines()
    assert warning == f"warning: {text}" and compiling.startswith("compiling")
    with pytest.warns(UserWarning, match=text):
        load_agent(run)


def test_ctrl_c_quits_watch_quietly(capsys):
    def interrupted() -> Iterator[Frame]:
        yield FRAMES[0]
        raise KeyboardInterrupt

    with pytest.raises(typer.Exit) as left, watch.leaving_by_ctrl_c():
        show(interrupted(), title="nothing", delay=0.0, step=False)
    assert left.value.exit_code == ExitCode.SIGINT
    assert "error" not in capsys.readouterr().err
