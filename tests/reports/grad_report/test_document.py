"""Gradient reports as documents: what each format shows, from made-up gradients.

`golden/*.md` is the whole report in Markdown; RENEW_GOLDEN=1 accepts a change.
"""

from __future__ import annotations

import csv
import dataclasses
import io
import os
import re
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
from made_findings import TD, checkpoint, episode_report, episodes_of, findings, replay_report
from rich.console import Console

from hmx.algos.gradients.measures import Sums
from hmx.render.blocks import Aside, Paragraph, Plot, Table
from hmx.render.csv import csv_text
from hmx.render.html import page
from hmx.render.markdown import markdown
from hmx.render.terminal import print_document
from hmx.reports.grad_report.document import document, values
from hmx.reports.grad_report.figures import by_bucket, slopes
from hmx.reports.grad_report.findings import GradFindings, NormRatios

GOLDEN = Path(__file__).parent / "golden"
RATIOS = NormRatios(other="other", norm_ratio={"all": {"task": 0.5, "kl": None}})
KINDS = {
    "ppo": findings(episode_report(seed=1), episode_report(seed=2), episode_report(keys="both", crossfit=True)),
    "td": findings(episode_report(TD), compare=RATIOS),
    "replay": findings(replay_report(seed=1), replay_report()),
}


def terminal(found: GradFindings, width: int) -> str:
    console = Console(file=io.StringIO(), width=width, legacy_windows=False)
    print_document(document(found), console)
    return console.file.getvalue()  # type: ignore[attr-defined]


@pytest.mark.parametrize("kind", KINDS)
def test_markdown_is_as_committed(kind: str) -> None:
    text, golden = markdown(document(KINDS[kind])), GOLDEN / f"{kind}.md"
    if os.environ.get("RENEW_GOLDEN"):
        golden.write_text(text)
    assert text == golden.read_text(), golden


@pytest.mark.parametrize("width", [60, 80, 200])
@pytest.mark.parametrize("kind", KINDS)
def test_terminal_keeps_norms_and_shares_at_every_width(kind: str, width: int) -> None:
    lines = terminal(KINDS[kind], width).splitlines()
    assert max(map(len, lines)) <= width
    assert not any("…" in line for line in lines)
    header = next(line for line in lines if line.startswith("bucket"))
    main = "td" if kind != "ppo" else "task"
    assert {main, "share"} <= set(header.split())


def test_document_starts_with_the_verdict() -> None:
    for found in KINDS.values():
        first = document(found).blocks[0]
        assert first == Paragraph(found.reports[-1].verdict, "strong")


def test_warnings_are_in_the_document() -> None:
    found = findings(episode_report(), warnings=("checkpoint 4 is left out",))
    blocks = document(found).blocks
    assert Paragraph("Warning: checkpoint 4 is left out.", "warning") in blocks
    assert Paragraph("Warning: 2 of 32 groups have returns without variance.", "warning") in blocks


def plots(found: GradFindings) -> list[Plot]:
    """Return all plots of a document."""
    blocks = [inner for b in document(found).blocks for inner in (b.blocks if isinstance(b, Aside) else (b,))]
    return [block for block in blocks if isinstance(block, Plot)]


def test_hollow_dots_are_explained_only_if_drawn() -> None:
    for crossfit in (False, True):
        plot = slopes(episode_report(crossfit=crossfit))
        hollow = [series for series in plot.series if series.kind == "dots" and series.dashed]
        assert bool(hollow) == ("Hollow" in plot.caption) == crossfit


def test_bar_of_more_than_100_percent_lies_inside_its_axis() -> None:
    """Task and value oppose each other: shares of 137% and -37% in all buckets."""
    grads = np.zeros((32, 4, 5))
    grads[:, 0, 0], grads[:, 3, 0] = 1.0, -0.54
    report = episode_report(sums=Sums(np.ones((32, 4)), grads, np.ones(32), np.full(32, 4.0)))
    assert report.whole.components["task"].share == pytest.approx(1.37, abs=0.01)
    (plot,) = (plot for plot in by_bucket(report) if plot.title == "Components by bucket")
    for place in range(len(report.buckets)):
        heights = [series.y[place] for series in plot.series if series.kind == "bars"]
        assert max(heights) > 1.0 and min(heights) < 0.0 and sum(heights) == pytest.approx(1.0)
    assert plot.y.low is None and plot.y.high is None  # the axis shows all of them
    text = page(document(findings(report)))
    assert "shares add up to 100%, and one below 0% works against the update" in text


@pytest.mark.parametrize(("kind", "trend", "in_all"), [("ppo", 4, 7), ("td", 0, 3), ("replay", 2, 5)])
def test_page_holds_the_data_of_all_plots(kind: str, trend: int, in_all: int) -> None:
    found = KINDS[kind]
    text = page(document(found))
    drawn = re.findall(r"<figure.*?</figure>", text)
    assert len(drawn) == len(plots(found)) == in_all
    assert len(plots(dataclasses.replace(found, reports=found.reports[-1:]))) == in_all - trend
    for figure in drawn:
        ElementTree.fromstring(figure)
        assert '<script type="application/json">' in figure and "<table>" in figure
    assert not re.search("nan|https?:", "".join(drawn))


def test_page_explains_bucket_share_and_noise_scale() -> None:
    text = page(document(KINDS["td"]))
    for words in (
        "A bucket holds start states",
        "Share: projection on the whole update",
        "Noise scale: number of groups",
    ):
        assert words in text


def test_report_without_gradient_is_still_a_page() -> None:
    empty = Sums(np.zeros((32, 4)), np.zeros((32, 4, 5)), np.ones(32), np.full(32, 4.0))
    flat = episodes_of(np.ones((32, 4)))
    text = page(document(findings(episode_report(sums=empty, episodes=flat))))
    assert "Not drawn: no bucket has both" in text and "The gradient is zero." in text


def test_kl_without_weight_is_shown_as_raw_norm() -> None:
    sums = episode_report().request and Sums(np.ones((32, 4)), np.ones((32, 4, 5)), np.ones(32), np.full(32, 4.0))
    assert "kl, raw" not in terminal(findings(episode_report()), 200)
    assert "kl, raw" in terminal(findings(episode_report(sums=sums)), 200)
    weighted = {"task": 1.0, "entropy": 0.01, "kl": 0.2, "value": 0.5}
    assert "kl, raw" not in terminal(findings(episode_report(weighted, sums)), 200)


def test_value_that_ranks_groups_has_a_column() -> None:
    report = episode_report(by="return")
    assert report.rank == "return"
    (table,) = (
        b for b in document(findings(report)).blocks if isinstance(b, Table) and b.title.startswith("Gradient n")
    )
    assert [column.name for column in table.columns][3] == "return"
    assert table.rows[0].cells[3].value == report.buckets[0].score.mean  # type: ignore[union-attr]


def test_names_cannot_inject_html() -> None:
    assert "<b>" not in page(document(dataclasses.replace(KINDS["td"], path=Path("<b>bold</b>"))))


def rows(found: GradFindings) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(csv_text(values(found)))))


def test_csv_has_a_row_per_checkpoint_bucket_and_component() -> None:
    found, last = KINDS["ppo"], KINDS["ppo"].reports[-1]
    table = rows(found)
    assert len(table) == 5 * sum(len(report.buckets) + 1 for report in found.reports)
    row = next(r for r in table if r["update"] == str(last.update) and r["bucket"] == "all")
    part = last.whole.components["task"]
    assert part.interval is not None
    assert (row["component"], float(row["norm"]), float(row["low"])) == ("task", part.norm, part.interval.low)
    assert float(row["loss"]) == part.loss and row["draws"] == ""
    total = next(r for r in table if r["component"] == "total")
    assert total["raw"] == "" and total["component_share"] == ""


def test_csv_of_stored_transitions_has_draws_and_no_returns() -> None:
    row, bucket = rows(KINDS["replay"])[0], KINDS["replay"].reports[0].buckets[0]
    assert row["reward_std_mean"] == row["return_mean"] == ""
    assert float(row["score_mean"]) == bucket.score.mean and float(row["draws"]) == bucket.draws
    assert float(row["replay_share"]) == bucket.replayed_share and float(row["replay_norm"]) == bucket.replayed_norm


def test_newest_checkpoint_is_shown_in_full() -> None:
    found = findings(episode_report(seed=1), episode_report())
    newest = dataclasses.replace(found, reports=(checkpoint(episode_report(), 40),))
    tables = [b for b in document(found).blocks if isinstance(b, Table)]
    assert tables[0].title == "All checkpoints" and [row.cells[0] for row in tables[0].rows] == ["20", "40"]
    assert tables[1:] == [b for b in document(newest).blocks if isinstance(b, Table)]
