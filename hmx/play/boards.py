"""Draw a position of HackMatrix in a terminal: the board, and the side panel next to it or below it."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

from rich import box
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.table import Table
from rich.text import Text

from hmx.config.textfile import printable
from hmx.envs.hackmatrix.rules.position import Position, ResourcePosition, block_name, visible
from hmx.envs.hackmatrix.rules.tables import ACTION_NAMES, FIRST_PROGRAM
from hmx.play.pixels import half_blocks

if TYPE_CHECKING:
    from hmx.play.frames import Frame

SIZE = 6
ENEMIES = {
    "virus": ("v", "bold red"),
    "daemon": ("d", "bold magenta"),
    "glitch": ("g", "bold yellow"),
    "cryptog": ("c", "bold cyan"),
}
_DATA, _PROGRAM = "on grey23", "on dark_blue"
_WIDE, _NARROW = 7, 5
_WIDEST, _TALLEST = 60, 20  # columns and lines of a picture
_BOARD_WIDTH = 1 + SIZE * _WIDE + SIZE + 2
LEGEND = (
    "@ you  v d g c enemy, its hp (* stunned)  t transmission, its turns  $ credits  "
    "e energy  S siphon  [n] data points  NAME program  !n calls n"
)


@dataclasses.dataclass(frozen=True)
class BoardView:
    """Draw one frame.

    `reveal` also draws the cryptogs that the player cannot see, in parentheses; `keys` maps actions to keys, for a
    person at the keyboard, who may get `advice`.
    """

    frame: Frame
    reveal: bool = True
    keys: Mapping[int, str] | None = None
    title: str = ""
    advice: str = ""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Yield the board and the side panel: next to each other from 76 columns on, otherwise below each other."""
        if self.frame.picture:
            yield from self._picture(options)
            return
        wide = options.max_width >= 76
        roomy = wide and (options.height or console.height) >= 28
        board = draw_board(
            self.frame.position, _WIDE if wide else _NARROW, lines=roomy, footer=wide, reveal=self.reveal
        )
        if self.title:
            yield Text(self.title, "bold", no_wrap=True, overflow="ellipsis")
        if wide:
            side = min(options.max_width - _BOARD_WIDTH - 2, 48)
            grid = Table.grid(padding=(0, 2, 0, 0))
            grid.add_column(width=_BOARD_WIDTH, no_wrap=True)
            grid.add_column(width=side)
            grid.add_row(board, Group(*self._side(options, side, tall=True)))
            yield grid
            yield from self._advice()
            yield Text(LEGEND, "dim")
        else:
            yield board
            yield from self._side(options, options.max_width, tall=False)
            yield from self._advice()

    def _picture(self, options: ConsoleOptions) -> Iterator[RenderableType]:
        """Yield the picture of an environment other than HackMatrix, and the panel next to it or below it."""
        yield Text(self.title, "bold", no_wrap=True, overflow="ellipsis")
        if self.frame.image is None:
            lines = [printable(line) for line in self.frame.picture.split("\n")]
            drawn = Text("\n".join(lines), no_wrap=True, overflow="ellipsis")
        else:
            drawn = half_blocks(self.frame.image, min(options.max_width, _WIDEST), _TALLEST)
        widest = max(map(cell_len, drawn.plain.split("\n")))
        room = options.max_width - widest - 3
        width = min(max(room, 30), 48)
        panel = [
            *_last_step(self.frame, width, tall=True),
            *(_policy(self.frame, width, "#" if options.ascii_only else "━", True) if self.frame.probs else ()),
        ]
        if room < 30:
            yield Group(drawn, *panel)
            return
        grid = Table.grid(padding=(0, 3, 0, 0))
        grid.add_column(width=widest, no_wrap=True)
        grid.add_column(width=width)
        grid.add_row(drawn, Group(*panel))
        yield grid

    def _side(self, options: ConsoleOptions, width: int, tall: bool) -> Iterator[RenderableType]:
        yield from figures(self.frame, tall, options.ascii_only)
        if self.keys is not None:
            yield from _menu(self.frame, self.keys, width)
        yield from _last_step(self.frame, width, tall)
        if self.frame.probs is not None:
            yield from _policy(self.frame, width, "#" if options.ascii_only else "━", tall and not self.advice)

    def _advice(self) -> Iterator[Text]:
        if self.advice:
            yield Text(self.advice, "bold")


def draw_board(position: Position, width: int, *, lines: bool, footer: bool, reveal: bool) -> Table:
    """Draw the 6x6 board with row 5 at the top and two lines per cell."""
    cells = {(row, col): _Cell() for row in range(SIZE) for col in range(SIZE)}
    _fill(cells, position, reveal)
    # `rich` falls back to ASCII lines by itself where the terminal cannot show these.
    table = Table(box=box.SQUARE, show_header=False, show_lines=lines, padding=0, show_footer=footer)
    table.add_column(width=1, style="dim")
    for col in range(SIZE):
        table.add_column(width=width, no_wrap=True, footer=Text(str(col).center(width), "dim"))
    for row in reversed(range(SIZE)):
        table.add_row(str(row), *(cells[row, col].draw(width) for col in range(SIZE)))
    return table


@dataclasses.dataclass
class _Cell:
    """A cell: its entity (first line) and its contents (second line)."""

    player: bool = False
    enemies: list[Text] = dataclasses.field(default_factory=list)
    timer: int | None = None
    block: str = ""
    program: bool = False
    spawns: str = ""
    ground: Text | None = None

    def draw(self, width: int) -> Text:
        """Return two lines of `width` characters."""
        top = Text()
        if self.player:
            top.append("@", "bold green")
        if self.enemies:
            top.append_text(self.enemies[0])
            if len(self.enemies) > 1:
                top.append(f"+{len(self.enemies) - 1}", "red")
        if self.timer is not None:
            top.append(f"t{self.timer}", "red")
        lines, back = (top, self.ground or Text()), ""
        if self.block:
            block = Text(self.block, "bold bright_white" if self.program else "bold")
            lines = (top, block) if top else (block, Text(self.spawns))
            back = _PROGRAM if self.program else _DATA
        return Text("\n").join(_centred(line, width, back) for line in lines)


def _centred(line: Text, width: int, style: str) -> Text:
    line.truncate(width)
    line.pad_left((width - len(line)) // 2)
    line.pad_right(width - len(line))
    line.stylize_before(style)
    return line


def _fill(cells: dict[tuple[int, int], _Cell], position: Position, reveal: bool) -> None:
    for item in position.get("resources", ()):
        cells[item["row"], item["col"]].ground = _resource(item)
    for block in position.get("blocks", ()):
        cell = cells[block["row"], block["col"]]
        cell.program = block["type"] == "program"
        cell.block = block_name(block)
        cell.spawns = (
            "taken" if block.get("siphoned") else f"!{block['spawnCount']}" if block.get("spawnCount") else "free"
        )
    way_out = position.get("exit", {"row": SIZE - 1, "col": SIZE - 1})
    cells[way_out["row"], way_out["col"]].ground = Text("EXIT", "bold black on green")
    player = position["player"]
    for enemy in position.get("enemies", ()):
        letter, style = ENEMIES[enemy["type"]]
        text = f"{letter}{enemy['hp']}{'*' if enemy.get('stunned') else ''}"
        if not visible(enemy, position):
            if not reveal:
                continue
            text, style = f"({text})", "dim cyan"
        cells[enemy["row"], enemy["col"]].enemies.append(Text(text, style))
    for transmission in position.get("transmissions", ()):
        cells[transmission["row"], transmission["col"]].timer = transmission["turnsRemaining"]
    cells[player["row"], player["col"]].player = True


def _resource(item: ResourcePosition) -> Text | None:
    if item.get("dataSiphon"):
        return Text("S", "bold bright_cyan")
    if item.get("credits"):
        return Text(f"${item['credits']}", "yellow")
    return Text(f"e{item['energy']}", "blue") if item.get("energy") else None


def figures(frame: Frame, tall: bool, ascii_only: bool) -> Iterator[Text]:
    """Yield stage, turn, health and possessions."""
    position, player = frame.position, frame.position["player"]
    flags = [name for name, key in (("show", "showActivated"), ("calm", "scheduledTasksDisabled")) if position.get(key)]
    hp = int(player.get("hp", 3))
    full, empty = ("*", ".") if ascii_only else ("♥", "·")
    health = Text.assemble("hp ", (full * hp, "bold red"), (empty * (3 - hp), "dim"))
    where = Text.assemble(
        ("stage ", ""), (f"{position.get('stage', 1)}/8", "bold"), f"  turn {position.get('turn', 0)}"
    )
    for flag in flags:
        where.append(f"  {flag}", "cyan")
    pairs = [
        ("credits", f"${player.get('credits', 0)}", "yellow"),
        ("energy", f"e{player.get('energy', 0)}", "blue"),
        ("siphons", f"S{player.get('dataSiphons', 0)}", "bright_cyan"),
        ("attack", str(player.get("attackDamage", 1)), ""),
        ("score", str(player.get("score", 0)), "bold"),
    ]
    if tall:
        yield where
        yield Text("   ").join([health, _pair(*pairs[3])])
        yield Text("  ").join(_pair(*pair) for pair in pairs[:2])
        yield Text("  ").join(_pair(*pair) for pair in (pairs[2], pairs[4]))
        owned = [ACTION_NAMES[index] for index in position.get("ownedPrograms", ())]
        yield Text.assemble("programs ", (" ".join(owned) or "none", "" if owned else "dim"))
    else:
        yield Text("  ").join([where, health])
        yield Text("  ").join(_pair(name[:2] if name in ("attack", "score") else "", *rest) for name, *rest in pairs)


def _pair(name: str, value: str, style: str) -> Text:
    return Text.assemble(f"{name} " if name else "", (value, style))


def _last_step(frame: Frame, width: int, tall: bool) -> Iterator[Text]:
    if tall:
        yield Text()
    if frame.reward is None:
        yield Text("start of an episode", "dim")
    else:
        figures = f"  reward {frame.reward:+.2f}", f"  return {frame.episode_return:+.2f}"
        name = frame.action_name
        yield Text.assemble(
            (name, "bold"), figures[0], figures[1] if len(name) + len("".join(figures)) <= width else ""
        )
        parts = [
            f"{name} {value:+.2f}" for name, value in sorted(frame.terms.items(), key=lambda kv: -abs(kv[1])) if value
        ]
        yield from (Text(f"  {part}"[:width], "dim") for part in _fold(parts, width, 5 if tall else 1))
    if frame.outcome:
        yield Text(frame.outcome.upper(), {"won": "bold green", "died": "bold red"}.get(frame.outcome, "bold yellow"))


def _fold(parts: Iterable[str], width: int, most: int) -> Iterator[str]:
    """Join parts into as few lines as possible, at most `most`."""
    lines: list[str] = []
    for part in parts:
        if lines and len(lines[-1]) + 2 + len(part) <= width - 2:
            lines[-1] += f"  {part}"
        else:
            lines.append(part)
    yield from lines[:most]


def _policy(frame: Frame, width: int, mark: str, tall: bool) -> Iterator[Text]:
    probs = frame.probs or ()
    if tall:
        yield Text()
    value = "" if frame.value is None else f"  value {frame.value:+.2f}"
    yield Text.assemble(("policy", "bold"), value)
    room = max(width - 14, 4)
    ranked = sorted(frame.legal, key=lambda index: -probs[index])
    for index in ranked[: 7 if tall else 3]:
        share = probs[index]
        yield Text.assemble(f"{frame.names[index]:7}", (mark * round(share * room), "green"), f" {share:4.0%}")


def _menu(frame: Frame, keys: Mapping[int, str], width: int) -> Iterator[Text]:
    usable = [f"{keys[index]} {ACTION_NAMES[index]}" for index in frame.legal if index >= FIRST_PROGRAM]
    yield Text()
    if not usable:
        yield Text("no program can be used now", "dim")
    yield from map(Text, _fold(usable, width, 9))
