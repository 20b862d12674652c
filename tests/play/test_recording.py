"""`hmx watch --save`: every format holds every frame."""

from __future__ import annotations

import re
from pathlib import Path
from xml.etree import ElementTree

import pytest

from hmx.play import recording
from hmx.play.frames import Frame

POSITION = {"player": {"row": 0, "col": 0}, "stage": 2}
FRAMES = [
    Frame(step=0, episode=0, position=POSITION, legal=(0, 3), probs=(0.75, 0, 0, 0.25), value=1.5),
    Frame(step=1, episode=0, position=POSITION, legal=(), action=3, reward=-0.5, terms={"kills<": -0.5}, outcome="died",
          episode_return=-0.5),
]  # fmt: skip


def save(path: Path) -> str:
    size = recording.save(FRAMES, path, title="a <run>", delay=0.5)
    assert size == path.stat().st_size
    return path.read_text() if path.suffix != ".gif" else ""


def test_an_svg_shows_each_frame_for_its_time(tmp_path):
    text = save(tmp_path / "a.svg")
    assert ElementTree.fromstring(text).tag.endswith("svg")
    assert len(re.findall(r'class="f f', text)) == 2 and "20.000%" in text and "animation-duration:2.50s" in text
    assert "a &lt;run&gt;" in text and "DIED" in text and "75%" in text and "http" not in text.partition(">")[2]


def test_a_page_plays_every_frame(tmp_path):
    text = save(tmp_path / "a.html")
    assert (
        text.count('"facts"') == 2 and '["outcome","died"]' in text and "a &lt;run&gt;" in text and "kills<" not in text
    )


def test_gif_has_the_frames_times_and_colours_of_the_episode(tmp_path):
    image = pytest.importorskip("PIL.Image")
    save(tmp_path / "a.gif")
    shapes = [list(recording.scene(frame, "a <run>")) for frame in FRAMES]
    (bar,) = (shape for shape in shapes[0] if shape.kind == "rect" and shape.width == 130 * 0.75 + 1)
    died = next(shape for shape in shapes[1] if shape.text == "DIED")
    with image.open(tmp_path / "a.gif") as gif:
        assert gif.n_frames == 2 and gif.size == (1120, 684) and gif.info["loop"] == 0
        for number, (seconds, drawn) in enumerate(zip((0.5, 2.0), shapes, strict=True)):
            gif.seek(number)
            assert gif.info["duration"] == 1000 * seconds
            seen = gif.convert("RGB")
            inside = [s for s in drawn if s.kind == "rect" and s.width > 8 and s.height > 8]
            for i, shape in enumerate(inside):  # a corner that no later shape hides
                x, y = shape.x + 3, shape.y + 3
                if not any(s.x <= x <= s.x + s.width and s.y <= y <= s.y + s.height for s in inside[i + 1 :]):
                    assert close(seen.getpixel((2 * x, 2 * y)), shape.fill), (number, shape)
            middle = seen.getpixel((2 * bar.x + 100, 2 * bar.y + 12))
            assert close(middle, bar.fill) == (number == 0)  # the first frame alone has probabilities
            word = seen.crop((2 * died.x - 60, 2 * died.y - 20, 2 * died.x + 60, 2 * died.y + 20))
            assert any(close(colour, died.fill) for _, colour in word.getcolors(1 << 16)) == (number == 1)


def close(colour: tuple[int, int, int], name: str) -> bool:
    """Return whether a colour is that of a #rrggbb, up to what a palette of 256 colours loses."""
    return all(abs(part - wanted) <= 12 for part, wanted in zip(colour, bytes.fromhex(name[1:]), strict=True))


@pytest.mark.parametrize("picture", ["@ . .\n. $ .\n. . D", "..@....D", "x" * 64, "\n".join(["ab"] * 30)])
def test_text_of_an_environment_is_monospaced_and_fills_its_side(picture):
    frame = Frame(step=0, episode=0, position={}, legal=(), picture=picture)
    letters = [shape for shape in recording.scene(frame, "") if shape.kind == "text" and shape.mono]
    assert len(letters) == len("".join(picture.split()))
    size = letters[0].height / 1.5
    lines = picture.split("\n")
    across, down = size * max(map(len, lines)), 1.7 * size * len(lines)
    assert max(across, down) == pytest.approx(300, abs=1) or size == 40.0
    assert all(8 <= s.x <= 308 and 0 <= s.y <= 342 for s in letters)
    ends = [s.y for s in letters]
    assert (min(ends) + max(ends)) / 2 == pytest.approx(171, abs=size)  # in the middle
    assert all('font-family="ui-monospace' in text for text in recording.shapes_svg(letters))
