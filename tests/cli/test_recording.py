"""`hmx watch --save`: every format holds every frame, and nothing is overwritten."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

from hmx.cli import recording
from hmx.errors import HmxError
from hmx.jobs.frames import Frame

POSITION = {"player": {"row": 0, "col": 0}, "stage": 2}
FRAMES = [
    Frame(step=0, episode=0, position=POSITION, legal=(0, 3), probs=(0.75, 0, 0, 0.25), value=1.5),
    Frame(step=1, episode=0, position=POSITION, legal=(), action=3, reward=-0.5, terms={"kills<": -0.5}, outcome="died",
          episode_return=-0.5),
]  # fmt: skip


def save(path: Path, capsys: pytest.CaptureFixture[str]) -> str:
    recording.check_target(path, force=False)
    recording.save(lambda: FRAMES, path, title="a <run>", delay=0.5, json=False)
    out = capsys.readouterr().out
    assert "episode 1: died after step 1, stage 2, return -0.50" in out and f"saved {path} (2 frames" in out
    return path.read_text() if path.suffix != ".gif" else ""


def test_an_svg_shows_each_frame_for_its_time(tmp_path, capsys):
    text = save(tmp_path / "a.svg", capsys)
    assert ElementTree.fromstring(text).tag.endswith("svg")
    assert len(re.findall(r'class="f f', text)) == 2 and "20.000%" in text and "animation-duration:2.50s" in text
    assert "a &lt;run&gt;" in text and "DIED" in text and "75%" in text and "http" not in text.partition(">")[2]


def test_a_cast_has_an_event_per_frame(tmp_path, capsys):
    header, *events = map(json.loads, save(tmp_path / "a.cast", capsys).splitlines())
    assert header["version"] == 2 and [event[0] for event in events] == [0.0, 0.5, 2.5]
    assert "EXIT" in events[0][2] and "DIED" in events[1][2]
    assert max(map(len, re.sub(r"\x1b\[[\d;]*[mHJ]", "", events[0][2]).split("\r\n"))) <= header["width"]


def test_a_page_plays_every_frame(tmp_path, capsys):
    text = save(tmp_path / "a.html", capsys)
    assert (
        text.count('"facts"') == 2 and '["outcome","died"]' in text and "a &lt;run&gt;" in text and "kills<" not in text
    )


def test_a_gif_has_an_image_per_frame(tmp_path, capsys):
    image = pytest.importorskip("PIL.Image")
    save(tmp_path / "a.gif", capsys)
    with image.open(tmp_path / "a.gif") as gif:
        assert gif.n_frames == 2 and gif.size == (1120, 684)


@pytest.mark.parametrize(
    ("name", "words"),
    [("a.mp4", "expected a name that ends in"), ("there.svg", "the file exists"), ("no/a.svg", "does not exist")],
)
def test_a_file_that_cannot_be_written_is_refused_at_once(tmp_path, name, words):
    (tmp_path / "there.svg").touch()
    with pytest.raises(HmxError, match=words) as refused:
        recording.check_target(tmp_path / name, force=False)
    assert refused.value.hint and refused.value.exit_code == 2
    recording.check_target(tmp_path / "there.svg", force=True)


def test_a_gif_without_pillow_names_the_package(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "PIL.ImageFont", None)
    with pytest.raises(HmxError, match="needs Pillow") as refused:
        recording.check_target(tmp_path / "a.gif", force=False)
    assert "pip install pillow" in refused.value.hint
