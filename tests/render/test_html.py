"""Documents as pages of HTML."""

from __future__ import annotations

import json
import math
import re
from dataclasses import replace
from html.parser import HTMLParser
from typing import Any

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
    Reference,
    Row,
    Series,
    Shape,
    Table,
    facts,
)
from hmx.render.html import NO_REQUESTS, page

VOID = {"meta", "br", "hr"}


class Outline(HTMLParser):
    """Collect elements and text; fail where tags do not match."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str]]] = []
        self.open: list[str] = []
        self.texts: list[tuple[str, str]] = []
        self.feed(text)
        self.close()
        assert not self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note an element."""
        self.elements.append((tag, {name: value or "" for name, value in attrs}))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note an element without content."""
        self.elements.append((tag, {name: value or "" for name, value in attrs}))

    def handle_endtag(self, tag: str) -> None:
        """Check that the element was open."""
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        """Note text and the element that it is in."""
        if data.strip():
            self.texts.append((self.open[-1], data.strip()))

    def all(self, tag: str) -> list[dict[str, str]]:
        """Return the attributes of every element of a kind."""
        return [attributes for name, attributes in self.elements if name == tag]

    def inside(self, tag: str) -> list[str]:
        """Return the texts directly in elements of a kind."""
        return [text for name, text in self.texts if name == tag]


def outline(*blocks: Block, title: str = "Report") -> Outline:
    return Outline(page(Document(title, blocks)))


def plot(*series: Series, **more: Any) -> Plot:
    x, y = more.pop("x", Axis("steps", format="count")), more.pop("y", Axis("return"))
    return Plot("Returns", x, y, series, "Means over seeds.", **more)


def charts(*blocks: Block) -> list[dict[str, Any]]:
    """Return what the script of the page draws."""
    return [json.loads(text) for text in outline(*blocks).inside("script") if text.startswith("{")]


UP = Series("up", (0.0, 1e6, 2e6), (0.0, 0.5, 1.0))
EVERYTHING = (
    Paragraph("A is better.", "good"),
    Heading("Part"),
    Table((Column("", "left"), Column("norm")), (Row(("low", Cell("1", bar=0.5))), Row(("part",)))),
    plot(UP, Series("down", (0.0, 1e6), (1.0, 0.0), "dots", colour=1), references=(Reference("y", 0.5, "goal"),)),
    plot(Series("", (0.0, 1.0), (1.0, 2.0), "bars"), categories=("a", "b")),
    Aside((Picture("the board", "@", 20, 20, (Shape("rect", 0, 0, 20, 20, text="wall"),)), Paragraph("beside"))),
    Picture("the board", "+-+\n|@|"),
)


def test_page_is_complete_and_fetches_nothing():
    text = page(Document("Report", EVERYTHING))
    found = Outline(text)
    assert text.startswith("<!doctype html>") and found.all("html")[0] == {"lang": "en"}
    assert {"charset": "utf-8"} in found.all("meta")
    assert {"name": "viewport", "content": "width=device-width, initial-scale=1"} in found.all("meta")
    assert not {"link", "img", "iframe", "object"} & {tag for tag, _ in found.elements}
    policy = {"http-equiv": "Content-Security-Policy", "content": NO_REQUESTS}
    assert policy in found.all("meta") and "default-src 'none'" in NO_REQUESTS
    assert not re.search(
        r"https?:|url\(|@import|src=|href=|\bon\w+=", text.partition("<main>")[2].partition("</main>")[0]
    )
    assert found.inside("h1") == ["Report"] and found.inside("h2") == ["Part"]


def test_the_page_has_colours_for_light_and_dark_screens_and_prints_the_light_ones():
    style = page(Document("Report", ()))
    light, dark = re.findall(r":root \{([^}]*)\}", style)
    assert "@media screen and (prefers-color-scheme: dark) { :root {" + dark in style and style.index(
        light
    ) < style.index(dark)
    assert "@media print" in style and "overflow-x: auto" in style
    names = [set(re.findall(r"(--\w+):", colours)) for colours in (light, dark)]
    assert names[0] == names[1] >= {f"--c{i}" for i in range(8)} | {"--ink", "--page"}
    used = set(re.findall(r'"(--[a-z]+)"', page(Document("", EVERYTHING))))
    assert {"--ink", "--faint", "--grid", "--page"} <= used <= names[0] | {"--mark", "--c"}


def test_every_picture_has_an_alternative_text():
    found = outline(*EVERYTHING)
    drawings = [svg for svg in found.all("svg") if "viewbox" in svg]
    assert [(svg["role"], svg["aria-label"]) for svg in drawings] == [("img", "the board")]
    assert found.all("pre") == [{"role": "img", "aria-label": "the board"}]


def test_a_plot_is_its_data_for_the_script_and_a_table_without_it():
    found = outline(plot(UP, Series("down", (0.0, 1e6), (1.0, 0.0), colour=1)))
    assert {"class": "plot"} in found.all("figure") and found.inside("h3") == ["Returns"]
    assert found.inside("td")[::4] == ["up", "down"] and {"1", "0"} <= set(found.inside("td"))


def test_the_script_gets_series_in_order_with_their_places_and_styles():
    down = Series("down", (2e6, 0.0, 1e6), (0.0, 1.0, None), "dots", colour=9, dashed=True, labels=("c", "a", "b"),
                  tags=("last", "", ""))  # fmt: skip
    thin = Series("up", (0.0, 1e6, 2e6), (0.1, 0.2, 0.3), thin=True)
    (chart,) = charts(plot(UP, thin, down, references=(Reference("y", 0.5, "goal"),)))
    assert chart["grids"] == [{"x": [0.0, 1e6, 2e6], "x2": []}] and not chart["grouped"]
    up, other, dots = chart["series"]
    style = {"kind": "line", "colour": 0, "dashed": False, "grid": 0}
    assert up == {"name": "up", "thin": False, "y": [0.0, 0.5, 1.0], **style}
    assert other == {"name": "up", "thin": True, "y": [0.1, 0.2, 0.3], **style}
    assert dots == {
        "name": "down", "thin": False, "kind": "dots", "colour": 9, "dashed": True, "grid": 0, "y": [1.0, None, 0.0],
        "labels": ["a", "b", "c"], "tags": ["", "", "last"],
    }  # fmt: skip
    assert chart["references"] == [{"axis": "y", "at": 0.5, "label": "goal"}]
    assert chart["x"]["format"] == "count" and chart["y"]["label"] == "return"


def test_dots_above_each_other_keep_their_values_and_their_tags():
    """uPlot keeps one value per place and series."""
    ends = Series("", (1.0, 1.0), (0.0, 1.0), "dots", tags=("low", "high"))
    trials = Series("done", (2.0, 1.0, 2.0, 2.0), (5.0, 6.0, 7.0, 8.0), "dots", low=(4.0,) * 4, high=(9.0,) * 4)
    (chart,) = charts(plot(ends, trials))
    shown = [
        (line["name"], dict(zip(chart["grids"][line["grid"]]["x"], line["y"], strict=True)), line.get("tags"))
        for line in chart["series"]
    ]
    assert shown == [
        ("", {1.0: 0.0}, ["low"]), ("", {1.0: 1.0}, ["high"]),
        ("done", {1.0: 6.0, 2.0: 5.0}, None), ("done", {2.0: 7.0}, None), ("done", {2.0: 8.0}, None),
    ]  # fmt: skip
    assert [len(line["low"]) for line in chart["series"][2:]] == [2, 1, 1]


def test_bands_and_error_bars_have_both_ends_or_none():
    band = Series("", (0.0, 1.0), (0.5, 0.5), low=(0.0, None), high=(1.0, 1.0))
    half = Series("", (0.0, 1.0), (0.5, 0.5), low=(0.0, 0.1))
    for kind in ("line", "bars", "dots"):
        (chart,) = charts(plot(replace(band, kind=kind), half))  # type: ignore[arg-type]
        assert chart["series"][0]["low"] == [0.0, None] and chart["series"][0]["high"] == [1.0, 1.0]
        assert not {"low", "high"} & chart["series"][1].keys()


def test_categories_name_the_places_of_bars():
    bars = [Series(name, (0.0, 1.0), (0.5, 1.0), "bars", colour=i) for i, name in enumerate("ab")]
    (chart,) = charts(plot(*bars, categories=("x", "y"), grouped=True))
    assert chart["categories"] == ["x", "y"] and chart["grouped"]


def test_values_that_cannot_be_drawn_are_null_and_places_that_cannot_are_left_out():
    holes = Series("", tuple(map(float, range(6))), (0.0, 1.0, None, 1.0, math.nan, math.inf))
    (chart,) = charts(plot(holes))
    assert chart["series"][0]["y"] == [0.0, 1.0, None, 1.0, None, None]
    values = Series("", (0.0, -1.0, 0.1, 1.0), (1.0, 2.0, 3.0, 0.1), "dots")
    (chart,) = charts(plot(values, x=Axis("error", "log")))
    assert chart["grids"][0]["x"] == [0.1, 1.0] and chart["series"][0]["y"] == [3.0, 0.1]


def test_plot_without_values_shows_only_its_caption():
    for series in ((), (Series("a", (0.0,), (None,)),), (Series("a", (0.0,), (math.inf,)),)):
        found = outline(plot(*series))
        assert not found.all("script") and not found.all("table") and "Means over seeds." in found.inside("p")


def test_tables_have_headers_headings_bars_and_shades():
    table = Table(
        (Column("bucket", "left"), Column("cosine (1)")),
        (
            Row(("part one",)),
            Row(("low", Cell("+0.50", shade=0.51))),
            Row(("all", Cell("x", tone="bad", bar=2.0)), "strong"),
        ),
        "Angles",
        "Blue opposes.",
    )
    found = outline(table)
    assert found.inside("caption") == ["Angles"] and "Blue opposes." in found.inside("p")
    assert found.inside("th") == ["bucket", "cosine (1)", "part one"]
    assert {"class": "group", "colspan": "2"} in found.all("th")
    shaded = {"class": "right shaded", "style": "background: rgba(214, 69, 65, 0.33)"}
    assert found.all("td")[1] == shaded
    assert found.all("td")[3] == {"class": "right bad"} and {"class": "strong"} in found.all("tr")
    assert {"class": "bar", "style": "width: 6.00em"} in found.all("span")


def test_a_table_without_column_names_has_no_header():
    assert not outline(facts((("seeds", "5"),))).all("thead")


def test_pictures_are_drawn_from_shapes():
    shapes = (
        Shape("rect", 0, 0, 10, 10, "#112233", "wall"),
        Shape("circle", 5, 5, 6, fill="#ff0000", text="agent"),
        Shape("text", 5, 5, text="S"),
    )
    found = outline(Picture("a board", "ignored", 20, 20, shapes))
    assert found.inside("title")[1:] == ["wall", "agent"] and found.inside("text") == ["S"]
    assert found.all("circle")[0]["r"] == "3.0" and "ignored" not in str(found.texts)


@pytest.mark.parametrize("evil", ['"><script>x</script>', "</title>&amp;", "'\x1b\x00\u202e", "</style>"])
def test_hostile_text_is_escaped_everywhere(evil):
    series = [
        Series(evil, (0.0, 1.0), (0.0, 1.0), kind, colour=i, labels=(evil, evil), tags=(evil, evil))  # type: ignore[arg-type]
        for i, kind in enumerate(("line", "bars", "dots"))
    ]
    axis = Axis(evil)
    shapes = tuple(Shape(kind, 0, 0, 9, 9, evil, evil) for kind in ("rect", "circle", "text"))  # type: ignore[arg-type]
    text = page(
        Document(
            evil,
            (
                Heading(evil),
                Paragraph(evil),
                Table(
                    (Column(evil), Column("")),
                    (Row((evil,)), Row((evil, evil))),
                    evil,
                    evil,
                ),
                Plot(
                    evil, axis, axis, (*series, Series("b" + evil, (0.0,), (0.5,))), evil, (Reference("y", 0.5, evil),)
                ),
                Plot(evil, axis, axis, tuple(series), categories=(evil, evil)),
                Picture(evil, evil),
                Picture(evil, evil, 9, 9, shapes),
            ),
        )
    )
    found = Outline(text)
    kinds = [script.get("type", "ours") for script in found.all("script")]
    assert kinds == ["application/json", "application/json", "ours"]
    assert len(found.all("style")) == 1 and len(found.inside("h1")) == 1
    assert not {"\x1b", "\x00", "\u202e"} & set(text)
    clean = Outline(page(Document("t", (Paragraph("x"),))))
    assert [tag for tag, _ in found.elements][:7] == [tag for tag, _ in clean.elements][:7]


def test_an_empty_document_is_a_page():
    assert outline(title="Nothing").inside("h1") == ["Nothing"]
