"""The options with which commands print or write their results, and the writing of all formats."""

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
    from hmx.render.blocks import Document, Plot, Table

STDOUT = Path("-")

Html = Annotated[Path | None, ask("--html", "FILE", "Write the report as an HTML page; - prints it.", OUTPUT_PANEL)]
Markdown = Annotated[Path | None, ask("--md", "FILE", "Write the result as Markdown; - prints it.", OUTPUT_PANEL)]
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
    """The outputs of a command that prints a document: a parameter of this type gives it `--md` and `--json`.

    `Path("-")` is standard output. Outputs that cannot be written are refused at once, before long work.
    """

    md: Markdown = None
    json: Json = False

    def __post_init__(self) -> None:
        """Refuse outputs that cannot be written."""
        if len(self.printed) > 1:
            message = f"cannot print {' and '.join(self.printed)} at the same time"
            raise HmxError(message, "write all but one of them to files")
        check_reports(*self.files)

    @property
    def asked(self) -> dict[str, Path]:
        """Return the files and standard output by option."""
        return {f"--{name}": file for name, file in vars(self).items() if isinstance(file, Path)}

    @property
    def files(self) -> list[Path]:
        """Return the files to write, without standard output."""
        return [file for file in self.asked.values() if file != STDOUT]

    @property
    def printed(self) -> list[str]:
        """Return the options that print to standard output."""
        printed = [f"{option} -" for option, file in self.asked.items() if file == STDOUT]
        return ["--json", *printed] if self.json else printed

    @property
    def on_console(self) -> bool:
        """Return whether the document is printed to the console, since nothing else was asked for."""
        return not self.files and not self.printed


@dataclass(frozen=True)
class ReportOutputs(Outputs):
    """The outputs of a report: `--html` and `--csv` too."""

    html: Html = None
    csv: Csv = None


@dataclass(frozen=True)
class FigureOutputs(ReportOutputs):
    """The outputs of a report that has a figure for papers: `--figure` too."""

    figure: Figure = None

    def __post_init__(self) -> None:
        """Refuse outputs that cannot be written, and a figure that cannot be drawn."""
        if self.figure is not None:
            from hmx.render.figures import check

            check(self.figure)
        super().__post_init__()

    def draw(self, plots: Sequence[Plot]) -> None:
        """Draw plots in the figure, if there is one: up to three side by side."""
        if self.figure is not None:
            from hmx.render.figures import image

            write_report(self.figure, image(plots, self.figure, min(len(plots), 3)))
            say("wrote", str(self.figure))


def write_outputs(
    found: object, document: Document, outputs: Outputs, table: Table | None = None, warnings: Iterable[str] = ()
) -> None:
    """Write a result in every format that was asked for, or print it to the console if there is none.

    Names of written files go to stderr, and so do `warnings`, which the document contains, if it is not printed to the
    console.
    """
    for warning in () if outputs.on_console else warnings:
        say("warning", warning)
    write_documents(document, outputs, table)
    if outputs.json:
        from hmx.records.plain import plain_object

        print_json(plain_object(found))
    if outputs.on_console:
        from hmx.render.terminal import print_document

        print_document(document)


def write_documents(document: Document, outputs: Outputs, table: Table | None = None) -> None:
    """Write a document in the formats of files, and name the files on stderr."""
    for file, text in _texts(document, table, outputs.asked):
        if file == STDOUT:
            sys.stdout.write(text)
        else:
            write_report(file, text)
            say("wrote", str(file))


def _texts(document: Document, table: Table | None, asked: Mapping[str, Path]) -> Iterator[tuple[Path, str]]:
    """Yield files and their contents; renderers are imported only where they are used."""
    if file := asked.get("--html"):
        from hmx.render.html import page

        yield file, page(document)
    if file := asked.get("--md"):
        from hmx.render.markdown import markdown

        yield file, markdown(document)
    if (file := asked.get("--csv")) and table is not None:
        from hmx.render.csv import csv_text

        yield file, csv_text(table)
