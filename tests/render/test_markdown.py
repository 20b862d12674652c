"""Documents as Markdown."""

from __future__ import annotations

import re

import pytest

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
    Row,
    Series,
    Table,
)
from hmx.render.markdown import markdown


def written(*blocks: Block, title: str = "") -> str:
    return markdown(Document(title, blocks))


def test_a_document_becomes_markdown():
    table = Table(
        (Column("", "left"), Column("steps (k)"), Column("share")),
        (
            Row(("part one",)),
            Row(("low", "12", Cell("50%", tone="bad"))),
            Row(("all", "", Cell("1", bar=0.5)), "strong"),
        ),
        "Norms",
        "Before clipping.",
    )
    plot = Plot("Curve", Axis("x"), Axis("y"), (Series("a", (0.0, 1.0), (1.0, 2.0)),), "Means.")
    found = written(
        Paragraph("A is better.", "good"), Paragraph("Plain."), Heading("Part"), Heading("Below", 2), table, plot,
        Picture("board", "+-+\n|@|"), Aside((Paragraph("only on the page"),)), title="Report",
    )  # fmt: skip
    assert found == (
        "# Report\n\n**A is better.**\n\nPlain.\n\n## Part\n\n### Below\n\n"
        "**Norms**\n\n"
        "|  | steps (k) | share |\n| --- | ---: | ---: |\n| **part one** |  |  |\n| low | 12 | **50%** |\n"
        "| **all** |  | **1** ██████ |\n\nBefore clipping.\n\n"
        "**Curve**\n\n|  |  | last | range |\n| --- | --- | ---: | --- |\n| a | ▁█ | 2 | 1 to 2 |\n\n"
        "x: 0 to 1. Means.\n\n"
        "```text\n+-+\n|@|\n```\n"
    )


@pytest.mark.parametrize(
    "evil", ["a|b", "<b>x</b>", "*x* _y_ `z`", "[l](http://x)", "&lt;", "~~x~~", "$x$", "a\nb", "\\|"]
)
def test_hostile_text_is_escaped_and_keeps_the_shape_of_tables(evil):
    table = Table((Column(evil), Column("b")), (Row((evil, Cell(evil))), Row((evil,))), evil, evil)
    found = written(Heading(evil), Paragraph(evil), table, title=evil)
    shown = re.sub(r"\\(.)", "", found.replace("**", ""))
    assert not set("<>[]*_`~$&") & set(shown)
    rows = [line for line in found.splitlines() if line.startswith("|")]
    assert {len(re.findall(r"(?<!\\)(?:\\\\)*\|", row)) for row in rows} == {3} and len(rows) == 4


@pytest.mark.parametrize(
    ("text", "expected"),
    [("- x", "\\- x"), ("+ x", "\\+ x"), ("1. x", "1\\. x"), ("12) x", "12\\) x"), ("1.5 x", "1.5 x")],
)
def test_paragraphs_do_not_start_lists(text, expected):
    assert written(Paragraph(text)) == f"{expected}\n"


def test_pictures_cannot_close_their_fence():
    assert written(Picture("", "```\n# x")) == "````text\n```\n# x\n````\n"


def test_control_characters_are_written_out():
    assert "\x1b" not in written(Paragraph("\x1b[2J"), Picture("", "\x1b[2J"), title="\x1b[2J")


def test_empty_documents_and_tables_are_empty():
    assert written() == "\n" and written(Table((Column("a"),), ())) == "\n"
