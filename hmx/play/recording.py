"""Save watched episodes as an animation: GIF, SVG or an HTML page."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from io import BytesIO
from pathlib import Path

from hmx.config.files import words
from hmx.config.textfile import quoted
from hmx.envs.pictures import board
from hmx.errors import HmxError, counted
from hmx.play.frames import Frame
from hmx.records.atomic import write_bytes
from hmx.render import svg
from hmx.render.blocks import Animation, AnimationFrame, Document, Picture, Shape
from hmx.render.html import page, shapes_svg
from hmx.render.raster import BACK, HEIGHT, INK, LEFT, lettered, raster

_WIDTH, _MIDDLE = 560.0, 424.0  # pixels; the board is on the left, text around _MIDDLE on the right
_FAINT, _GREEN, _RED = "#9aa0a6", "#56d364", "#ff6b6b"
_LAST = 2.0  # seconds that the last frame of an episode stays
_SCALE = 2  # pixels of a GIF per pixel of the drawing


def save(frames: Sequence[Frame], path: Path, *, title: str, delay: float) -> int:
    """Write frames in the format of the file's name, and return the number of bytes."""
    seconds = [max(delay, _LAST if frame.outcome else 0.02) for frame in frames]
    data = FORMATS[path.suffix](frames, seconds, title)
    try:
        write_bytes(path, data)
    except OSError as problem:
        raise HmxError(f"cannot save {quoted(str(path))}: {words(problem)}", "name a file that you may write") from None
    return len(data)


def scene(frame: Frame, title: str) -> Iterator[Shape]:
    """Draw a frame: the board, and beside it the step that led to it and what the policy thinks."""
    yield Shape("rect", 0, 0, _WIDTH, HEIGHT, BACK)
    yield from _drawing(frame).shapes
    for number, (text, size, colour) in enumerate(_texts(frame, title)):
        yield Shape("text", _MIDDLE, 18 + 19 * number, height=size, fill=colour, text=text)
    for number, (action, share) in enumerate(_likely(frame)):
        y = 190 + 20 * number
        yield Shape("text", 335, y, height=12, fill=INK, text=frame.names[action])
        yield Shape("rect", 370, y - 6, 130 * share + 1, 12, _GREEN)
        yield Shape("text", 530, y, height=12, fill=INK, text=f"{share:.0%}")


def _likely(frame: Frame) -> list[tuple[int, float]]:
    """Return up to seven legal actions with their probabilities, likely ones first."""
    shares = [(action, frame.probs[action]) for action in frame.legal] if frame.probs else []
    return sorted(shares, key=lambda pair: -pair[1])[:7]


def _drawing(frame: Frame) -> Picture:
    """Return the board of HackMatrix, or the text of another environment."""
    return lettered(frame.picture) if frame.picture else board(frame.position)


def _texts(frame: Frame, title: str) -> Iterator[tuple[str, int, str]]:
    yield title[:40], 14, INK
    yield f"episode {frame.episode + 1}, step {frame.step}", 12, _FAINT
    if frame.action_name and frame.reward is not None:
        yield f"{frame.action_name}   reward {frame.reward:+.2f}", 13, INK
    yield f"return {frame.episode_return:+.2f}", 13, INK
    terms = sorted((item for item in frame.terms.items() if item[1]), key=lambda item: -abs(item[1]))
    for name, value in terms[:3]:
        yield f"{name} {value:+.2f}", 11, _FAINT
    if frame.outcome:
        yield frame.outcome.upper(), 16, _GREEN if frame.outcome == "won" else _RED
    elif frame.value is not None:
        yield f"value {frame.value:+.2f}", 13, INK


def _svg(frames: Sequence[Frame], seconds: Sequence[float], title: str) -> bytes:
    """Return an SVG that plays by CSS; shapes that frames share are written once."""
    known: dict[str, int] = {}
    total, begun, groups, styles = sum(seconds), 0.0, [], []
    for i, frame in enumerate(frames):
        drawn = [known.setdefault(text, len(known)) for text in shapes_svg(scene(frame, title))]
        groups.append(f'<g class="f f{i}">{"".join(f"""<use href="#s{number}"/>""" for number in drawn)}</g>')
        a, b = 100 * begun / total, 100 * (begun + seconds[i]) / total
        hidden = "0%{visibility:hidden}" if i else ""
        styles.append(f"@keyframes k{i}{{{hidden}{a:.3f}%{{visibility:visible}}{b:.3f}%,100%{{visibility:hidden}}}}")
        styles.append(f".f{i}{{animation-name:k{i}}}")
        begun += seconds[i]
    rule = f".f{{visibility:hidden;animation-duration:{total:.2f}s;animation-timing-function:step-end;"
    style = f"<style>{rule}animation-iteration-count:infinite}}{''.join(styles)}</style>"
    shapes = "".join(f'<g id="s{number}">{text}</g>' for text, number in known.items())
    text = svg.figure(
        _WIDTH, HEIGHT, [style, f"<defs>{shapes}</defs>", *groups], f"{title}: {counted(len(frames), 'step')}"
    )
    return text.replace("<svg ", '<svg xmlns="http://www.w3.org/2000/svg" ', 1).encode()


def _gif(frames: Sequence[Frame], seconds: Sequence[float], title: str) -> bytes:
    from PIL import Image

    images = []
    for frame in frames:
        image = raster(tuple(scene(frame, title)), _WIDTH, HEIGHT, _SCALE)
        if frame.image is not None:
            drawn = Image.fromarray(frame.image)
            drawn.thumbnail((round(LEFT * _SCALE), image.height))
            image.paste(drawn, (0, 0))
        images.append(image.quantize(256))
    file = BytesIO()
    durations = [round(1000 * duration) for duration in seconds]
    images[0].save(file, "GIF", save_all=True, append_images=images[1:], duration=durations, loop=0, optimize=True)
    return file.getvalue()


def _html(frames: Sequence[Frame], seconds: Sequence[float], title: str) -> bytes:
    """Return a page with a player; it has its own speeds, so `seconds` is not used."""
    del seconds
    shown = []
    for frame in frames:
        facts = [("episode and step", f"{frame.episode + 1}, {frame.step}")]
        if frame.action is not None and frame.reward is not None:
            facts += [("action", frame.names[frame.action]), ("reward", f"{frame.reward:+.2f}")]
            facts += [(name, f"{value:+.2f}") for name, value in frame.terms.items() if value]
        facts += [("return", f"{frame.episode_return:+.2f}")]
        facts += [("value", f"{frame.value:+.2f}")] if frame.value is not None else []
        facts += [("outcome", frame.outcome)] if frame.outcome else []
        bars = tuple((frame.names[action], share) for action, share in _likely(frame))
        shown.append(AnimationFrame(_drawing(frame), tuple(facts), bars))
    return page(Document(title, (Animation("What it played", tuple(shown)),))).encode()


FORMATS: dict[str, Callable[[Sequence[Frame], Sequence[float], str], bytes]] = {
    ".gif": _gif, ".svg": _svg, ".html": _html,
}  # fmt: skip
