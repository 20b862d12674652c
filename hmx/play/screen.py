"""What a terminal shows of a frame, and the rules of HackMatrix on a page of their own."""

from __future__ import annotations

from rich.console import Console
from rich.segment import Segment, Segments
from rich.text import Text

from hmx.envs.hackmatrix.rules.tables import PROGRAMS
from hmx.errors import counted
from hmx.play.boards import BoardView
from hmx.play.frames import Frame
from hmx.play.keys import RESIZED, Keyboard

# One key for each program, always the same: digits first, then letters without another meaning here.
PROGRAM_KEYS = "1234567890ertyuiopfghjk"
PROGRAM_HEAD = "   program cost   effect (a hit takes off as much hp as your attack, and stuns)"
RULES = """\
Goal       Reach the EXIT of 8 stages. Without hit points (hp) the game is lost.

Your turn  Walk one cell, or shoot: if an enemy or transmission is in line, its
           direction hits the first one, however far; a survivor is stunned.
           Blocks stop you and your shots. Then the enemies act. Programs cost
           no turn, except WAIT.

Siphon     Walk over S to pick up data siphons. Space uses one up: from your
           cell and the 4 beside it you get credits ($), energy (e), the points
           of data blocks [n], and the programs that blocks name. Blocks stay.
           A block calls !n transmissions (t): enemies that arrive a turn later.

Enemies    v virus 2 hp, 2 cells a turn   d daemon 3 hp
           g glitch 2 hp, enters blocks   c cryptog 2 hp, hidden unless in line
           Beside you, each takes 1 of your hp a turn. * is stunned for a turn.

Stages     The exit heals 1 hp and leads to the next stage. You keep everything;
           the enemies keep chasing you."""


def view(frame: Frame, title: str) -> BoardView:
    """Return the text of a frame for a terminal."""
    return BoardView(frame, title=f"{title}   episode {frame.episode + 1}   step {frame.step}")


def step_line(frame: Frame) -> str:
    """Return a line about the step that led to a frame."""
    value = "" if frame.value is None else f"  value {frame.value:+.2f}"
    scores = f"reward {frame.reward or 0.0:+.2f}  return {frame.episode_return:+.2f}{value}"
    return f"episode {frame.episode + 1}  step {frame.step:4}  {frame.action_name:<12}  {scores}"


def summary(frame: Frame) -> str:
    """Return a line about an episode, from the latest of its frames."""
    how = f"{frame.outcome} after" if frame.outcome else "left at"
    stage = "" if frame.picture else f", stage {frame.position.get('stage', 1)}"
    return f"episode {frame.episode + 1}: {how} step {frame.step}{stage}, return {frame.episode_return:+.2f}"


def explain(console: Console, keyboard: Keyboard) -> None:
    """Show the rules, then the programs, page by page; any key turns the page."""
    rows = [
        f"{key}  {program.name.upper():7} ${program.credits} e{program.energy}  {program.effect}"
        for key, program in zip(PROGRAM_KEYS, PROGRAMS, strict=True)
    ]
    for page in (RULES.split("\n"), [PROGRAM_HEAD, *rows[:12]], [PROGRAM_HEAD, *rows[12:]]):
        text = Text("\n".join(page), no_wrap=True, overflow="ellipsis")
        draw(console, text, "any key: next page")
        while keyboard.read() == RESIZED:
            draw(console, text, "any key: next page")


def draw(console: Console, view: BoardView | Text, *footer: str) -> None:
    """Draw on a clear screen; where it is too small, leave out the lowest lines and say so."""
    lines = console.render_lines(view, pad=False)
    room = console.height - len(footer) - 1
    console.clear()
    shown = lines if len(lines) <= room else lines[: max(room - 1, 0)]
    console.print(Segments([segment for line in shown for segment in (*line, Segment.line())]), end="")
    if len(shown) < len(lines):
        missing = counted(len(lines) - len(shown), "line")
        console.print(Text(f"terminal too small: {missing} hidden", "yellow", no_wrap=True, overflow="crop"))
    for text, style in zip(footer, ("dim", "yellow"), strict=False):
        console.print(Text(text, style, no_wrap=True, overflow="ellipsis"))
