"""Documents as pages of HTML."""

from __future__ import annotations

import itertools
import math
import re
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


def heights(found: Outline) -> list[tuple[float, float]]:
    """Return top and bottom of every bar, in pixels."""
    bars = [rect for rect in found.all("rect") if rect["fill"].startswith("var(--c") and float(rect["width"]) != 10]
    return [(float(bar["y"]), float(bar["y"]) + float(bar["height"])) for bar in bars]


def points(line: dict[str, str]) -> list[tuple[float, float]]:
    return [tuple(map(float, pair.split(","))) for pair in line["points"].split()]  # type: ignore[misc]


def lines(found: Outline, ink: str) -> list[list[tuple[float, float]]]:
    """Return the corners of the lines of a colour, without the edges of bands."""
    return [points(line) for line in found.all("polyline") if line["stroke"] == ink and line["stroke-width"] == "2"]


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
    drawn = page(Document("", EVERYTHING)).partition("<main>")[2]
    used = set(re.findall(r'(?:fill|stroke)="([^"]+)"', drawn)) - {"none", "transparent", "#000000"}
    assert used and all(re.fullmatch(r"var\(--\w+\)", colour) and colour[4:-1] in names[0] for colour in used)


def test_every_drawing_has_an_alternative_text():
    found = outline(*EVERYTHING)
    drawings = [svg for svg in found.all("svg") if "viewbox" in svg and "x" not in svg]
    assert [svg["aria-label"] for svg in drawings] == [
        "Returns: return over steps; up, down",
        "Returns: return over steps; ",
        "the board",
    ]
    assert all(svg["role"] == "img" for svg in drawings)
    assert found.all("pre") == [{"role": "img", "aria-label": "the board"}]


def test_every_mark_shows_its_values_to_a_pointer():
    band = Series("up", (0.0, 1e6), (0.0, 0.5), "dots", low=(-0.1, 0.4), high=(0.1, 0.75))
    dots = Series("d", (5e5,), (0.2,), "dots", colour=1, labels=("my label",))
    assert outline(plot(band, dots)).inside("title")[1:] == [
        "up: 0 [-0.1, 0.1] at steps 0", "up: 0.5 [0.4, 0.75] at steps 1,000,000", "my label",
    ]  # fmt: skip
    bars = Series("", (0.0, 1.0), (0.25, -1.0), "bars")
    found = outline(plot(bars, categories=("low", "high"), y=Axis("share", format="percent")))
    assert found.inside("title")[1:] == ["25% at low", "-100% at high"]


def test_legends_appear_only_with_several_series():
    assert not outline(plot(UP)).all("li")
    again = Series("up", (0.0,), (0.3,), "dots")
    assert outline(plot(UP, again, Series("down", (0.0,), (1.0,)))).inside("li") == ["up", "down"]


def test_steps_hold_their_value_until_the_next():
    steps = Series("", (0.0, 1.0, 2.0), (1.0, 0.5, 0.5), "steps")
    (path,) = lines(outline(plot(steps)), "var(--c0)")
    flat, vertical = path[1], path[2]
    assert path[0][1] == flat[1] and flat[0] == vertical[0] and vertical[1] > flat[1]
    assert len(path) == 5


def test_unknown_values_break_a_line():
    holes = Series("", tuple(map(float, range(6))), (0.0, 1.0, None, 1.0, math.nan, 0.5))
    found = outline(plot(holes))
    assert [len(path) for path in lines(found, "var(--c0)")] == [2]
    assert len([dot for dot in found.all("circle") if dot["fill"] == "var(--c0)"]) == 2  # single values


def test_bands_are_thin_and_have_edges():
    bands = [
        Series(name, (0.0, 1.0), (0.5, 0.5), low=(0.0, None), high=(1.0, 1.0), colour=i) for i, name in enumerate("ab")
    ]
    whole = Series("c", (0.0, 1.0), (0.5, 0.5), low=(0.0, 0.1), high=(1.0, 0.9), colour=2)
    found = outline(plot(*bands, whole))
    assert all(float(area["fill-opacity"]) < 0.2 for area in found.all("polygon"))
    edges = [line for line in found.all("polyline") if line["stroke"] == "var(--c2)" and line["stroke-width"] == "0.7"]
    assert len(edges) == 2


def test_stacked_bars_lie_on_top_of_each_other_inside_the_axis():
    shares = [
        Series(name, (0.0,), (share,), "bars", colour=i)
        for i, (name, share) in enumerate((("a", 0.7), ("b", 0.5), ("c", -0.2)))
    ]
    (a, b, c) = heights(outline(plot(*shares, categories=("all",), y=Axis("share", format="percent"))))
    assert b[1] == pytest.approx(a[0], abs=0.11) and c[0] == pytest.approx(a[1], abs=0.11)
    assert b[0] > 14.0 and c[1] < 246.0


def test_grouped_bars_stand_side_by_side():
    bars = [Series(name, (0.0, 1.0), (0.5, 1.0), "bars", colour=i) for i, name in enumerate("ab")]
    found = outline(plot(*bars, categories=("x", "y"), grouped=True))
    drawn = sorted((float(r["x"]), float(r["width"])) for r in found.all("rect") if float(r["width"]) != 10)
    assert len(drawn) == 4
    assert all(x + width <= after + 0.11 for (x, width), (after, _) in itertools.pairwise(drawn))
    assert len({bottom for _, bottom in heights(found)}) == 1


def test_bars_and_dots_have_error_bars():
    for kind in ("bars", "dots"):
        with_errors = Series("", (0.0,), (0.5,), kind, low=(0.25,), high=(1.0,))  # type: ignore[arg-type]
        drawn = [points(line) for line in outline(plot(with_errors)).all("polyline") if line["stroke-width"] == "1.2"]
        assert len(drawn) == 3 and drawn[0][0][0] == drawn[0][1][0] and drawn[0][0][1] > drawn[0][1][1]


def test_logarithmic_axes_omit_values_that_are_not_positive():
    values = Series("", (0.0, 0.01, 0.1, 1.0), (1.0, 0.001, -1.0, 0.1), "dots")
    found = outline(plot(values, x=Axis("error", "log"), y=Axis("norm", "log")))
    assert len(found.all("circle")) == 2
    assert {"0.01", "0.1", "1", "0.001"} <= set(found.inside("text"))


def test_reference_lines_have_labels_and_stay_inside():
    refs = (Reference("y", 0.5, "goal"), Reference("x", 1e6, "end"), Reference("diagonal", label="equal"))
    found = outline(plot(UP, references=(*refs, Reference("y", 7.0, "far")), y=Axis("return", high=1.0)))
    assert {"goal", "end", "equal"} <= set(found.inside("text")) and "far" not in found.inside("text")


def test_labels_of_close_reference_lines_are_stacked():
    refs = tuple(Reference("y", at, f"level {at}") for at in (0.5, 0.51, 0.52))
    labels = [text for text in outline(plot(UP, references=refs)).all("text") if "stroke" in text]
    heights = [float(label["y"]) for label in labels]
    assert len(heights) == 3 and heights == sorted(heights)
    assert all(below - above >= 12 for above, below in itertools.pairwise(heights))
    apart = (Reference("y", 0.2, "low"), Reference("y", 0.9, "high"))
    first, second = (text for text in outline(plot(UP, references=apart)).all("text") if "stroke" in text)
    lines = [
        points(line)[0][1] for line in outline(plot(UP, references=apart)).all("polyline") if "5 4" in line.values()
    ]
    assert [float(first["y"]) - 11, float(second["y"]) - 11] == pytest.approx(sorted(lines))


def test_tags_are_drawn_next_to_values():
    dots = Series("", (0.0, 1.0), (0.0, 1.0), "dots", tags=("first", "last"))
    assert {"first", "last"} <= set(outline(plot(dots)).inside("text"))


@pytest.mark.parametrize(
    ("axis", "values", "labels"),
    [
        (Axis("steps", format="count"), (0.0, 2e6), ["0", "500k", "1M", "1.5M", "2M"]),
        (Axis("share", format="percent"), (0.0, 0.01), ["0.0%", "0.2%", "0.4%", "0.6%", "0.8%", "1.0%"]),
        (Axis("time", format="duration"), (0.0, 7200.0), ["0 s", "30 min", "1 h", "1.5 h", "2 h"]),
        (Axis("value"), (0.9991, 0.9993), ["0.99910", "0.99915", "0.99920", "0.99925", "0.99930"]),
        (Axis("value"), (1e-12, 3e-12), ["1e-12", "1.5e-12", "2e-12", "2.5e-12", "3e-12"]),
        (Axis("value", "log"), (1e-9, 1e9), ["1e-9", "1e-6", "0.001", "1", "1,000", "1,000,000", "1e9"]),
        (Axis("value", "log"), (3.1, 4.4), ["3", "4", "5"]),
    ],
)
def test_ticks_are_round_and_distinct(axis, values, labels):
    found = outline(plot(Series("", values, (0.0, 1.0)), x=axis, y=Axis("y", low=0.0, high=1.0)))
    texts = found.inside("text")
    assert texts[6:-2] == labels  # after the ticks of y, before the names of the axes


def test_the_last_tick_text_ends_inside_the_drawing():
    dots = Series("", (20.0, 460.0), (0.0, 1.0), "dots")
    found = outline(plot(dots, x=Axis("CPU time", "log", "duration")))
    last = dict(zip(found.inside("text"), found.all("text"), strict=True))["8.3 min"]
    width = float(found.all("svg")[0]["width"])
    assert float(last["x"]) + 6.6 * len("8.3 min") / 2 <= width


def test_one_value_and_equal_values_are_drawn():
    for series in (
        Series("", (3.0,), (5.0,)),
        Series("", (1.0, 2.0), (0.0, 0.0), "bars"),
        Series("", (2.0,), (2.0,), "dots"),
    ):
        for scale in ("linear", "log"):
            found = outline(plot(series, x=Axis("x", scale), y=Axis("y", scale)))  # type: ignore[arg-type]
            assert "nan" not in str(found.elements) and "inf" not in str(found.elements).replace("information", "")


def test_plot_without_values_shows_only_its_caption():
    for series in ((), (Series("a", (0.0,), (None,)),), (Series("a", (0.0,), (math.inf,)),)):
        found = outline(plot(*series))
        assert not found.all("svg") and "Means over seeds." in found.inside("p")


def test_long_category_names_are_rotated_and_thinned():
    names = tuple(f"category number {i}" for i in range(60))
    bars = Series("", tuple(map(float, range(60))), (1.0,) * 60, "bars")
    texts = [t for t in outline(plot(bars, categories=names)).inside("text") if t.startswith("category")]
    assert 5 < len(texts) < 30


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
    assert not found.all("script") and len(found.all("style")) == 1 and len(found.inside("h1")) == 1
    assert not {"\x1b", "\x00", "\u202e"} & set(text)
    clean = Outline(page(Document("t", (Paragraph("x"),))))
    assert [tag for tag, _ in found.elements][:7] == [tag for tag, _ in clean.elements][:7]


def test_an_empty_document_is_a_page():
    assert outline(title="Nothing").inside("h1") == ["Nothing"]
