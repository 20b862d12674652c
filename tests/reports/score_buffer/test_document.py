"""Reports on consequence scores: what each format shows, from made-up findings.

`golden/report.md` is the whole report in Markdown; RENEW_GOLDEN=1 accepts a change.
"""

from __future__ import annotations

import csv
import dataclasses
import io
import os
import re
from pathlib import Path

import pytest
from rich.console import Console
from scored_findings import SIZE, STATES, UNKNOWN, made

from hmx.envs.pictures import battle, board, picture
from hmx.records.plain import plain_object
from hmx.render.blocks import Paragraph
from hmx.render.csv import csv_text
from hmx.render.html import page
from hmx.render.markdown import markdown
from hmx.render.terminal import print_document
from hmx.reports.score_buffer.document import document, table
from hmx.reports.score_buffer.findings import Noise, ScoreFindings

GOLDEN = Path(__file__).parent / "golden" / "report.md"


def terminal(found: ScoreFindings, width: int = 100) -> str:
    console = Console(file=io.StringIO(), width=width, legacy_windows=False)
    print_document(document(found), console)
    return console.file.getvalue()  # type: ignore[attr-defined]


def test_markdown_is_as_committed() -> None:
    text = markdown(document(made(("one thing to know",))))
    if os.environ.get("RENEW_GOLDEN"):
        GOLDEN.write_text(text)
    assert text == GOLDEN.read_text()


@pytest.mark.parametrize("width", [60, 80, 200])
def test_terminal_fits_every_width_and_starts_with_the_verdict(width: int) -> None:
    lines = terminal(made(), width).splitlines()
    assert max(map(len, lines)) <= width and not any("…" in line for line in lines)
    assert " ".join(lines[2:4]).startswith("The ranking of the positions can be trusted (reliability")


@pytest.mark.parametrize(
    ("reliability", "verdict", "tone"),
    [
        (0.8, "can be trusted", "good"),
        (0.79, "is rough (reliability 0.79, below 0.8)", "warning"),
        (0.49, "cannot be trusted", "warning"),
        (None, "is unknown", "warning"),
    ],
)
def test_only_high_reliability_is_called_trusted(reliability: float | None, verdict: str, tone: str) -> None:
    found = made(noise=Noise(reliability, 0.1, 0.1, 0.05))
    first = document(found).blocks[0]
    assert isinstance(first, Paragraph) and verdict in first.text and first.tone == tone
    assert found.gates[0].passed is (None if reliability is None else reliability >= 0.8)


def test_page_shows_all_plots_and_positions() -> None:
    found = made(("one thing to know",), noise=Noise(0.86, 0.2, 0.1, 5.0))
    text = page(document(found))
    assert text.count('<figure class="plot') == 3
    assert len(re.findall('<svg[^>]* role="img"', text)) == 3  # board, lake and battle
    body = text.partition("<main>")[2].partition("</main>")[0]
    assert not re.search("nan|https?:|<script>", body)
    assert "Warning: one thing to know." in text and "Fails --strict: null" in text
    assert "<right>" not in text and text.count("Taken: &lt;right&gt;.") == 4
    assert " ".join(str(x) for x in (0.5, 1, 0)) in text  # the observation of a game without a drawing


def test_error_is_stated_for_all_positions_and_not_for_one() -> None:
    # Half of the difference of two halves is a standard error with one degree of freedom: +- 1 covers 38 to 50 %.
    found = made()
    text = terminal(found)
    assert "standard error  0.21" in text and "Most consequential" in text and "±" not in text
    assert not any("error" in name and name != "td_error" for name in vars(found.top[0]))


def test_unknown_values_are_shown_as_unknown() -> None:
    text = terminal(made(**UNKNOWN))
    assert "The reliability of the ranking is unknown." in text and "all values are equal, or all scores" in text
    assert "Most consequential" not in text and "TD error now" in text


def test_scores_of_zero_are_reported_without_plots() -> None:
    found = made(scale=0.0, top=())
    assert found.finding == "No action that was tried makes a difference in these positions."
    text = page(document(found))
    assert "100% are 0" in text and text.count("All values are equal.") == 2


def test_csv_has_a_row_per_position() -> None:
    rows = list(csv.DictReader(io.StringIO(csv_text(table(made())))))
    assert len(rows) == SIZE and float(rows[8]["score"]) == 1.0 and rows[3]["slot"] == "3"


def test_json_leaves_out_the_columns() -> None:
    body = plain_object(made())
    assert "columns" not in body and body["schema"] == 3
    assert set(body) == {field.name for field in dataclasses.fields(ScoreFindings)} - {"columns"}


def test_shapes_of_pictures_lie_inside_them() -> None:
    for drawn in map(picture, STATES[:3]):
        assert drawn.shapes and drawn.text
        for shape in drawn.shapes:
            right, low = (shape.x + shape.width, shape.y + shape.height) if shape.kind == "rect" else (shape.x, shape.y)
            assert 0 <= shape.x <= right <= drawn.width and 0 <= shape.y <= low <= drawn.height + 8


def test_battle_is_drawn_to_scale_with_all_units() -> None:
    drawn = battle(STATES[2]["battle"])
    ours, theirs = (shape for shape in drawn.shapes if shape.kind == "circle")
    assert 0 < ours.x < theirs.x < drawn.width and 0 < theirs.y < ours.y < drawn.height
    assert theirs.x - ours.x == pytest.approx(10 / 12 * drawn.width, abs=0.2)
    assert ours.fill != theirs.fill and theirs.text == "enemy 2, stalker, health 12.5"


def test_board_shows_all_its_items() -> None:
    position = {
        "player": {"row": 1, "col": 2, "hp": 2, "credits": 3},
        "enemies": [
            {"row": 4, "col": 0, "type": "cryptog", "hp": 1},
            {"row": 1, "col": 5, "type": "virus", "hp": 2, "stunned": True},
        ],
        "transmissions": [{"row": 0, "col": 0, "turnsRemaining": 2, "enemyType": "virus"}],
        "blocks": [{"row": 2, "col": 2, "type": "data", "points": 7, "spawnCount": 2}],
        "resources": [{"row": 3, "col": 3, "energy": 2}],
        "ownedPrograms": [5],
    }
    drawn = board(position)  # type: ignore[arg-type]
    shown = {shape.text for shape in drawn.shapes if shape.kind == "text"}
    assert {"@", "(c1)", "v2*", "t2", "[7]", "!2", "e2", "EXIT"} <= shown
    assert any("hp 2" in text and "$3" in text for text in shown)
    player = next(shape for shape in drawn.shapes if shape.text == "@")
    exit_ = next(shape for shape in drawn.shapes if shape.text == "EXIT")
    assert player.y > exit_.y and player.x < exit_.x  # row 0 is at the bottom


def test_states_without_a_drawing_are_shown_as_text() -> None:
    assert picture({"observation": [[0.5, 1.0], [0.0, 2.0]]}).text == "0.5 1\n0 2"
