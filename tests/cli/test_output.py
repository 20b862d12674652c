"""The output options of report commands."""

from __future__ import annotations

import dataclasses
import json
import math
import subprocess
import sys
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from hmx.cli.options import with_options
from hmx.cli.output import STDOUT, Outputs, write_outputs
from hmx.errors import ExitCode, HmxError
from hmx.render import terminal
from hmx.render.blocks import Cell, Column, Document, Paragraph, Row, Table

DOCUMENT = Document("Report", (Paragraph("A is better."),))
TABLE = Table((Column("value"),), (Row((Cell("0.5", value=0.25),)),))


@dataclasses.dataclass(frozen=True)
class Findings:
    verdict: str = "A"
    value: float = math.nan


def write(formats: Outputs) -> str:
    """Return the title of what is printed as a document."""
    printed: list[str] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(terminal, "print_document", lambda document: printed.append(document.title))
        write_outputs(Findings(), DOCUMENT, TABLE, formats, ["too few seeds"])
    return "".join(printed)


def test_a_report_without_options_is_printed_to_the_console(capsys):
    assert write(Outputs()) == "Report"
    assert capsys.readouterr().out == ""


def test_files_are_written_instead_of_the_printed_report_and_named_on_stderr(tmp_path, capsys):
    names = {"html": tmp_path / "r.html", "md": tmp_path / "r.md", "csv": tmp_path / "r.csv"}
    assert write(Outputs(**names)) == ""
    assert names["html"].read_text().startswith("<!doctype html>")
    assert names["md"].read_text() == "# Report\n\nA is better.\n"
    assert names["csv"].read_text() == "value\n0.25\n"
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err == "warning: too few seeds\n" + "".join(f"wrote: {file}\n" for file in names.values())


@pytest.mark.parametrize(
    ("option", "start"), [("html", "<!doctype html>"), ("md", "# Report\n"), ("csv", "value\n0.25\n")]
)
def test_a_dash_prints_instead_of_the_report(option, start, capsys):
    assert write(Outputs(**{option: STDOUT})) == ""
    assert capsys.readouterr().out.startswith(start)


def test_json_is_one_object_of_the_findings(capsys, tmp_path):
    assert write(Outputs(json=True, md=tmp_path / "r.md")) == ""
    assert json.loads(capsys.readouterr().out) == {"verdict": "A", "value": None}
    assert (tmp_path / "r.md").exists()


def test_warnings_go_to_stderr_if_the_report_is_not_printed(capsys):
    write(Outputs())
    assert capsys.readouterr().err == ""
    write(Outputs(json=True))
    assert capsys.readouterr().err == "warning: too few seeds\n"


@pytest.mark.parametrize(
    "formats",
    [Outputs(json=True, md=STDOUT), Outputs(md=STDOUT, csv=STDOUT), Outputs(html=STDOUT, json=True)],
)
def test_two_printed_formats_are_refused(formats):
    with pytest.raises(HmxError, match="at the same time") as refused:
        formats.check()
    assert refused.value.exit_code == ExitCode.USAGE and "--" in refused.value.message


@pytest.mark.parametrize("option", ["html", "md", "csv"])
def test_files_that_cannot_be_written_are_refused_before_work(option, tmp_path):
    for file in (tmp_path, tmp_path / "none" / "r"):
        with pytest.raises(HmxError, match="cannot write the report"):
            Outputs(**{option: file}).check()
    Outputs(**{option: tmp_path / "r"}).check()
    Outputs(**{option: STDOUT}, json=False).check()


def test_the_options_are_read_from_the_command_line(tmp_path):
    app, seen = typer.Typer(), []

    @app.command()
    @with_options()
    def report(run: str, outputs: Outputs) -> None:
        seen.append((run, outputs))

    words = ["one", "--html", "a.html", "--md", "-", "--csv", "c.csv", "--json"]
    assert CliRunner().invoke(app, words).exit_code == 0
    assert CliRunner().invoke(app, ["two"]).exit_code == 0
    assert seen == [("one", Outputs(Path("a.html"), STDOUT, Path("c.csv"), True)), ("two", Outputs())]


def test_the_options_import_no_renderer():
    code = (
        "import sys, hmx.cli.output; "
        "sys.exit(bool({'rich.console', 'hmx.render.html', 'hmx.render.plots', 'jax'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
