"""The options with which report commands write files, and the writing of all formats."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from hmx.cli.boundary import check_reports, print_json, say, write_report
from hmx.cli.options import Json, ask
from hmx.config.option import OUTPUT_PANEL
from hmx.errors import HmxError

if TYPE_CHECKING:
    from hmx.records.plain import JsonValue
    from hmx.render.blocks import Document, Plot, Table

STDOUT = Path("-")

Html = Annotated[Path | None, ask("--html", "FILE", "Write the report as an HTML page; - prints it.", OUTPUT_PANEL)]
Markdown = Annotated[Path | None, ask("--md", "FILE", "Write the report as Markdown; - prints it.", OUTPUT_PANEL)]
Csv = Annotated[Path | None, ask("--csv", "FILE", "Write the values as CSV; - prints them.", OUTPUT_PANEL)]
Figure = Annotated[
    Path | None,
    ask(
        "--figure",
        "FILE",
        "Draw the learning curves for a paper: a name that ends in .pdf, .png or .svg (extra figures).",
        OUTPUT_PANEL,
    ),
]


@dataclass(frozen=True)
class Outputs:
    """The outputs of a report: a parameter of this type gives a command `--html`, `--md`, `--csv` and `--json`.

    `Path("-")` is standard output. `check` before long work; `write_outputs` after it.
    """

    html: Html = None
    md: Markdown = None
    csv: Csv = None
    json: Json = False

    @property
    def files(self) -> list[Path]:
        """Return the files to write, without standard output."""
        return [file for file in (self.html, self.md, self.csv) if file not in (None, STDOUT)]

    @property
    def printed(self) -> list[str]:
        """Return the options that print to standard output."""
        files = (("--html -", self.html), ("--md -", self.md), ("--csv -", self.csv))
        return [*(["--json"] if self.json else []), *(option for option, file in files if file == STDOUT)]

    def check(self) -> None:
        """Refuse outputs that cannot be written."""
        if len(self.printed) > 1:
            message = f"cannot print {' and '.join(self.printed)} at the same time"
            raise HmxError(message, "write all but one of them to files")
        check_reports(*self.files)


@dataclass(frozen=True)
class FigureOutputs(Outputs):
    """The outputs of a report that has a figure for papers: `--figure` too."""

    figure: Figure = None

    @property
    def files(self) -> list[Path]:
        """Return the files to write, without standard output."""
        return [*super().files, *([] if self.figure is None else [self.figure])]

    def check(self) -> None:
        """Refuse outputs that cannot be written, and a figure that cannot be drawn."""
        if self.figure is not None:
            from hmx.render.figures import check

            check(self.figure)
        super().check()

    def draw(self, plots: Sequence[Plot]) -> None:
        """Draw plots in the figure, if there is one: up to three side by side."""
        if self.figure is not None:
            from hmx.render.figures import image

            write_report(self.figure, image(plots, self.figure, min(len(plots), 3)))
            say("wrote", str(self.figure))


def write_outputs(
    findings: object, document: Document, table: Table | None, formats: Outputs, warnings: Iterable[str] = ()
) -> None:
    """Write a report in every format that was asked for, or print it to the console if there is none.

    Names of written files go to stderr, and so do `warnings`, which the report contains, if it is not printed to the
    console.
    """
    shown = not formats.printed and not formats.files
    for warning in () if shown else warnings:
        say("warning", warning)
    for file, text in _texts(document, table, formats):
        if file == STDOUT:
            sys.stdout.write(text)
        else:
            write_report(file, text)
            say("wrote", str(file))
    if formats.json:
        from hmx.records.plain import plain_object

        print_json(plain_object(findings))
    if shown:
        from hmx.render.terminal import print_document

        print_document(document)


def write_result(body: Mapping[str, JsonValue], document: Document, json: bool) -> None:
    """Print the result of a command, as one JSON object or as a document."""
    if json:
        print_json(body)
    else:
        from hmx.render.terminal import print_document

        print_document(document)


def _texts(document: Document, table: Table | None, formats: Outputs) -> Iterator[tuple[Path, str]]:
    """Yield files and their contents; renderers are imported only where they are used."""
    if formats.html is not None:
        from hmx.render.html import page

        yield formats.html, page(document)
    if formats.md is not None:
        from hmx.render.markdown import markdown

        yield formats.md, markdown(document)
    if formats.csv is not None and table is not None:
        from hmx.render.csv import csv_text

        yield formats.csv, csv_text(table)
