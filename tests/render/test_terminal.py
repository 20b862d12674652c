"""Documents as text for a terminal."""

from __future__ import annotations

import io
import math

import pytest
from rich.console import Console

from hmx.render.blocks import (
    Aside,
    Axis,
    Block,
    Cell,
    Column,
    Document,
    Heading,
    Paragraph,
    Picture,
    Plot,
    Reference,
    Row,
    Series,
    Table,
    facts,
)
from hmx.render.html import page
from hmx.render.markdown import markdown
from hmx.render.terminal import print_document

LABEL = Column("", "left")
BUCKETS = Table(
    (
        Column("bucket", "left"),
        Column("training steps", rank=2),
        Column("norm"),
        Column("share", rank=1),
        Column("", "left", rank=3),
    ),
    (
        Row(("low", "12,345", "0.51", "31%", Cell("", bar=0.31))),
        Row(("with rewards",)),
        Row(("high", "7", "1.5", "69%", Cell("", bar=1.0)), "strong"),
    ),
    "Norms by bucket",
    "Before clipping.",
)
SIDES = Table(
    (LABEL, Column("A ppo"), Column("B dqn"), Column("C ppo with dropout")),
    (
        Row(("seeds", "5", "5", "3, 1 without a value")),
        Row(("final, IQM", "0.812 [0.800, 0.823]", "0.71 [0.60, 0.82]", "0.80 [0.62, 0.91]")),
    ),
)


def printed(*blocks: Block, width: int = 80, title: str = "", encoding: str = "utf-8", terminal: bool = False) -> str:
    """Return what is printed on a console of this width."""
    raw = io.BytesIO()
    file = io.TextIOWrapper(raw, encoding=encoding, newline="\n")
    print_document(Document(title, blocks), Console(file=file, width=width, force_terminal=terminal, color_system=None))
    file.flush()
    return raw.getvalue().decode(encoding)


def test_a_wide_table_has_all_columns():
    assert printed(BUCKETS, width=200) == (
        "Norms by bucket\n"
        "bucket  training steps  norm  share\n"
        "─────────────────────────────────────────────────────\n"
        "low             12,345  0.51    31%  █████\n"
        "with rewards\n"
        "high                 7   1.5    69%  ████████████████\n"
        "Before clipping.\n"
    )


def test_a_narrow_table_drops_columns_of_the_highest_rank():
    shown = {width: printed(BUCKETS, width=width) for width in (50, 45, 30, 22, 16)}
    heads = {width: text.partition("──")[0].split()[3:] for width, text in shown.items()}
    assert heads[50] == heads[30] == ["training", "bucket", "steps", "norm", "share"]  # two lines
    assert heads[45] == ["bucket", "training", "steps", "norm", "share"]
    assert heads[22] == ["bucket", "norm", "share"]
    assert heads[16] == ["bucket", "norm"]
    assert [width for width, text in shown.items() if "█" in text] == [50]


def test_a_table_that_does_not_fit_is_a_list_with_the_columns_in_order():
    assert printed(SIDES, width=40) == (
        "seeds\n"
        "  A ppo             5\n"
        "  B dqn             5\n"
        "  C ppo with        3, 1 without a value\n"
        "  dropout\n"
        "final, IQM\n"
        "  A ppo             0.812 [0.800, 0.823]\n"
        "  B dqn             0.71 [0.60, 0.82]\n"
        "  C ppo with        0.80 [0.62, 0.91]\n"
        "  dropout\n"
    )


def test_three_sides_stay_in_one_table_at_80_columns():
    lines = printed(SIDES, width=80).splitlines()
    assert lines[0].split() == ["A", "ppo", "B", "dqn", "C", "ppo", "with", "dropout"]
    assert lines[-1].split("  ")[0] == "final, IQM" and "0.80 [0.62, 0.91]" in lines[-1]


@pytest.mark.parametrize("width", [10, 20, 40, 80, 200])
@pytest.mark.parametrize("encoding", ["utf-8", "ascii"])
def test_no_line_is_wider_than_the_console_or_ends_in_a_space(width, encoding):
    text = printed(
        Heading("What is compared"), facts((("environment", "a long name of an environment"), ("seeds", "5"))),
        BUCKETS, SIDES, plot("line"), plot("bars"), Picture("a board", "+" * 300),
        width=width, encoding=encoding, title="A title of more than a few letters",
    )  # fmt: skip
    lines = text.splitlines()
    assert max(map(len, lines)) <= width
    assert not [line for line in lines if line != line.rstrip()]
    assert text.isascii() or encoding == "utf-8"


@pytest.mark.parametrize("width", range(16, 60))
def test_headers_are_broken_between_words_only(width):
    table = Table((Column("first training", "left"), Column("largest gradient")), (Row(("a", "1")),))
    words = set(printed(table, width=width).replace("─", " ").split())
    assert words <= {"first", "training", "largest", "gradient", "a", "1"}


def test_long_text_in_cells_wraps_beside_the_other_columns():
    table = Table((LABEL, Column("doc", "left")), (Row(("algo.lr", "learning rate of Adam at the start of it all")),))
    assert printed(table, width=34).splitlines()[2:] == [
        "algo.lr  learning rate of Adam at",
        "         the start of it all",
    ]


def test_a_table_without_column_names_has_no_header():
    assert printed(facts((("seeds", "5"), ("state", "finished")))) == "seeds  5\nstate  finished\n"


def test_headings_and_paragraphs_are_separated_by_blank_lines():
    text = printed(Paragraph("One."), Paragraph("Two."), Heading("Part"), facts((("a", "1"),)), title="Report")
    assert text == "Report\n\nOne.\nTwo.\n\nPart\na  1\n"


def test_terminal_shows_tones_as_colours():
    raw = io.StringIO()
    console = Console(file=raw, width=60, force_terminal=True, color_system="standard", no_color=False)
    blocks = (Paragraph("better", "good"), Paragraph("careful", "warning"), facts((("name", "5"),)))
    print_document(Document("", blocks), console)
    text = raw.getvalue()
    assert "\x1b[32mbetter\x1b[0m" in text and "\x1b[33mcareful\x1b[0m" in text and "\x1b[2mname" in text


def test_ascii_consoles_get_ascii_symbols_and_bars():
    table = Table((Column("Größe → ×"), Column("")), (Row(("0.5 ± 0.1…", Cell("3", bar=0.5))),))
    assert printed(table, encoding="ascii") == (
        "    Gr??e -> x\n"
        "----------------------------------\n"
        "0.5 +/- 0.1...  3 ########\n"
    )  # fmt: skip


def plot(kind: str, **more: object) -> Plot:
    """Return a plot of two series."""
    ups = Series("up", (0.0, 1.0, 2.0), (0.0, 0.5, 1.0), kind, **more)  # type: ignore[arg-type]
    downs = Series("down", (0.0, 1.0, 2.0), (1.0, None, -0.5), kind, colour=1)  # type: ignore[arg-type]
    return Plot("Returns", Axis("steps", format="count"), Axis("return"), (ups, downs), "Means.")


@pytest.mark.parametrize("kind", ["line", "steps", "dots"])
def test_curves_are_sparklines_with_last_value_and_range(kind):
    assert printed(plot(kind)) == (
        "Returns\n"
        "           last  range\n"
        "──────────────────────────\n"
        "up    ▁▅█     1  0 to 1\n"
        "down  █▁   -0.5  -0.5 to 1\n"
        "steps: 0 to 2. Means.\n"
    )


def test_bars_are_a_list_of_bars():
    assert printed(plot("bars")) == (
        "Returns\n"
        "steps        return\n"
        "──────────────────────────────────\n"
        "0      up       0\n"
        "       down     1 ████████████████\n"
        "1      up     0.5 ████████\n"
        "       down     -\n"
        "2      up       1 ████████████████\n"
        "       down  -0.5\n"
        "Means.\n"
    )


def test_bars_of_categories_have_their_names():
    bars = Series("", (0.0, 1.0), (2.0, 1.0), "bars")
    found = Plot("", Axis("bin"), Axis("count", format="count"), (bars,), categories=("zero", "0.1 to 0.2"))
    assert [line.split("  ")[0] for line in printed(found).splitlines()[2:]] == ["zero", "0.1 to 0.2"]


def test_guide_lines_and_references_are_omitted():
    guide = Series("slope 1", (0.0, 1.0), (0.0, 1.0), colour=-1, dashed=True)
    found = Plot("", Axis("x"), Axis("y"), (guide,), references=(Reference("y", 0.5, "threshold"),))
    assert "slope" not in printed(found) and "threshold" not in printed(found)


def test_plot_without_values_prints_the_reason():
    nothing = Series("a", (0.0, 1.0), (None, math.nan))
    for series in ((), (nothing,)):
        found = Plot("Scores", Axis("x"), Axis("y"), series, "All scores are equal.")
        assert printed(found) == "Scores\nAll scores are equal.\n"


def test_pictures_become_text_and_asides_are_omitted():
    assert printed(Picture("board", "+-+\n|@|"), Aside((Paragraph("only on the page"),))) == "+-+\n|@|\n"


def test_empty_documents_and_tables_are_printed_correctly():
    assert printed() == ""
    assert printed(Table((Column("a"),), ())) == ""
    assert printed(Table((LABEL,), (Row(("one cell",)),))) == "one cell\n"


def test_hostile_text_cannot_control_the_terminal():
    evil = "\x1b[2J[bold red]x\u202e\r"
    cells = Table((Column(evil),), (Row((evil + "\nnext",)),), evil, evil)
    text = printed(Heading(evil), Paragraph(evil), cells, Picture(evil, evil), plot("line"), title=evil, width=200)
    assert not {"\x1b", "\u202e", "\r"} & set(text)
    assert "\\x1b[2J[bold red]x\\u202e" in text


COMMAND = (
    "hmx study best studies/a_long_name_of_a_study --config <best>_of_the_study.toml --force --json --md summary.md"
)


def test_a_command_is_one_line_to_copy_in_every_format():
    blocks = (Paragraph("Use it."), Paragraph(COMMAND, "command"))
    for terminal in (False, True):
        assert f"\n    {COMMAND}\n" in printed(*blocks, width=60, terminal=terminal)
    assert f"\n    {COMMAND}\n" in markdown(Document("", blocks))
    assert f"<pre>{COMMAND.replace('<', '&lt;').replace('>', '&gt;')}</pre>" in page(Document("", blocks))
