"""Pictures of simulators in a terminal."""

from __future__ import annotations

import numpy as np
import pytest
from rich.console import Console
from simulators.conftest import recipe

from hmx.config.schema import EnvConfig
from hmx.own.simulator import simulated
from hmx.play.pixels import can_show, half_blocks
from hmx.play.watch import _open_simulator


def test_a_picture_is_drawn_with_two_pixels_per_character():
    red, green, blue, white = (255, 0, 0), (0, 255, 0), (0, 0, 255), (255, 255, 255)
    image = np.array([[red, green], [blue, white]], np.uint8).repeat(3, 0).repeat(3, 1)
    text = half_blocks(image, columns=2, lines=5)
    assert text.plain == "▀▀"
    colours = [(tuple(span.style.color.triplet), tuple(span.style.bgcolor.triplet)) for span in text.spans]
    assert colours == [(red, blue), (green, white)]


@pytest.mark.parametrize(
    ("columns", "lines", "size"), [(60, 20, (60, 20)), (30, 20, (30, 10)), (90, 5, (15, 5)), (200, 100, (60, 20))]
)
def test_a_picture_keeps_its_proportions_and_is_not_enlarged(columns, lines, size):
    drawn = half_blocks(np.zeros((40, 60, 3), np.uint8), columns, lines).plain.split("\n")
    assert (len(drawn[0]), len(drawn)) == size and len(set(map(len, drawn))) == 1


@pytest.mark.parametrize(
    ("options", "able"),
    [
        ({"color_system": "truecolor"}, True),
        ({"color_system": "256"}, True),
        ({"color_system": "standard"}, False),
        ({"color_system": "truecolor", "no_color": True}, False),
        ({"color_system": "truecolor", "force_terminal": False}, False),
    ],
)
def test_pictures_need_a_terminal_with_colours(options, able, monkeypatch):
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert can_show(Console(**{"force_terminal": True, **options})) == able


@pytest.mark.parametrize(
    ("options", "warning"),
    [
        ({"pictures": "yes"}, ""),
        (
            {"pictures": "broken"},
            "walk draws no pictures: cannot run walk: worker 0, environment 0: OSError: no display",
        ),
        ({}, "walk draws no pictures: its render_mode is not rgb_array"),
    ],
)
def test_a_simulator_without_pictures_is_shown_as_numbers_with_a_warning(options, warning):
    warnings: list[str] = []
    env = EnvConfig(id="walk")
    pool, draw = _open_simulator(simulated(recipe(**options), env).spec, env, 0, True, warnings.append)
    with pool:
        pool.reset()
        assert warnings == ([warning] if warning else [])
        assert (draw is None or draw() is None) == bool(warning)
