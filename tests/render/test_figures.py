"""Plots as figures for papers."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from matplotlib.figure import Figure

from hmx.errors import HmxError
from hmx.render.blocks import Axis, Plot, Reference, Series
from hmx.render.figures import draw, save

UP = Series("up", (0.0, 1e6, 2e6), (0.0, None, 1.0), low=(-0.1, 0.4, 0.9), high=(0.1, 0.6, 1.1))


def drawn(*series: Series, x: Axis = Axis("steps", format="count"), y: Axis = Axis("$return"), **more: Any) -> Any:  # noqa: B008
    axes = Figure().add_subplot()
    draw(Plot("Returns", x, y, series, **more), axes)
    axes.figure.canvas.draw()
    return axes


def texts(labels: Any) -> list[str]:
    return [label.get_text() for label in labels]


def test_lines_have_gaps_bands_names_and_axes():
    axes = drawn(
        UP, Series("down", (0.0, 2e6), (1.0, 0.0), "steps", colour=9), references=(Reference("y", 0.5, "goal"),)
    )
    up, down, goal = axes.lines
    assert list(up.get_xdata()) == [0.0, 1e6, 2e6] and str(up.get_ydata()[1]) == "nan"
    assert down.get_drawstyle() == "steps-post" and down.get_linestyle() == "-." and down.get_color() == "#d95f02"
    assert list(goal.get_ydata()) == [0.5, 0.5] and "goal" in texts(axes.texts)[0]
    assert len(axes.collections) == 1 and texts(axes.get_legend().get_texts()) == ["up", "down"]
    assert axes.get_xlabel() == "steps" and axes.get_ylabel() == "\\$return" and axes.get_title() == "Returns"
    assert {"0", "500k", "1M"} <= set(texts(axes.get_xticklabels()))


def test_a_legend_shows_the_mean_not_the_thin_lines_of_its_seeds():
    axes = drawn(replace(UP, thin=True, low=(), high=()), UP, Series("other", (0.0,), (0.0,)))
    first, _ = axes.get_legend().get_lines()
    assert texts(axes.get_legend().get_texts()) == ["up", "other"] and first.get_linewidth() == 1.6


def test_stacked_bars_lie_on_top_of_each_other_and_grouped_ones_side_by_side():
    shares = [Series(name, (0.0,), (share,), "bars", colour=i) for i, (name, share) in enumerate(
        (("a", 0.7), ("b", 0.5), ("c", -0.2)))]  # fmt: skip
    percent = Axis("share", format="percent")
    stacked = drawn(*shares, categories=("all",), y=percent)
    assert [(bar.get_y(), bar.get_height()) for bar in stacked.patches] == [(0.0, 0.7), (0.7, 0.5), (0.0, -0.2)]
    assert texts(stacked.get_xticklabels()) == ["all"] and "40%" in texts(stacked.get_yticklabels())
    grouped = drawn(*shares, categories=("all",), grouped=True)
    a, b, c = grouped.patches
    assert a.get_x() + a.get_width() == pytest.approx(b.get_x()) and b.get_x() + b.get_width() == pytest.approx(
        c.get_x()
    )
    assert {bar.get_y() for bar in grouped.patches} == {0.0}


def test_areas_are_stacked_upwards_and_downwards_from_zero():
    layers = [Series(name, (0.0, 1.0), ys, "area", colour=i) for i, (name, ys) in enumerate(
        (("a", (1.0, 2.0)), ("b", (1.0, 1.0)), ("c", (-1.0, -3.0))))]  # fmt: skip
    spans = [area.get_paths()[0].vertices[:, 1] for area in drawn(*layers).collections]
    assert [(span.min(), span.max()) for span in spans] == [(0.0, 2.0), (1.0, 3.0), (-3.0, 0.0)]


def test_dots_have_error_bars_and_tags_on_logarithmic_axes():
    dots = Series("", (10.0, 1000.0), (0.5, 1.0), "dots", low=(0.25, None), high=(0.75, None), tags=("first", ""))
    axes = drawn(dots, x=Axis("time", "log"))
    (bars,) = axes.collections
    segments = [segment for segment in bars.get_segments() if len(segment)]
    assert [list(segment[:, 1]) for segment in segments] == [[0.25, 0.75]]
    assert axes.get_xscale() == "log" and texts(axes.texts)[0] == "first"


@pytest.mark.parametrize(("suffix", "start"), [(".pdf", b"%PDF"), (".png", b"\x89PNG"), (".svg", b"<?xml")])
def test_files_have_the_format_of_their_name(tmp_path: Path, suffix: str, start: bytes):
    plot = Plot("Returns", Axis("steps"), Axis("return"), (UP,))
    for name in ("a", "b"):
        save([plot, plot], tmp_path / f"{name}{suffix}", columns=2)
    data = (tmp_path / f"a{suffix}").read_bytes()
    assert data.startswith(start)
    assert data == (tmp_path / f"b{suffix}").read_bytes()
    # letters of a PDF are text of a font of type 42, not outlines (type 3)
    assert suffix != ".pdf" or (b"/CIDFontType2" in data and b"/Type3" not in data and b"CreationDate" not in data)


def test_other_names_and_a_missing_library_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    with pytest.raises(HmxError, match="expected a name that ends in") as error:
        save([], tmp_path / "a.gif")
    assert error.value.hint.endswith("a.pdf")
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(HmxError, match="it needs matplotlib") as error:
        save([], tmp_path / "a.pdf")
    assert "[figures]" in error.value.hint and not (tmp_path / "a.pdf").exists()
