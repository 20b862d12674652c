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
from command_tree import leaves
from typer.testing import CliRunner

from hmx.cli.options import with_options
from hmx.cli.output import STDOUT, ReportOutputs, write_outputs
from hmx.errors import ExitCode, HmxError
from hmx.render import terminal
from hmx.render.blocks import Cell, Column, Document, Paragraph, Row, Table

DOCUMENT = Document("Report", (Paragraph("A is better."),))
TABLE = Table((Column("value"),), (Row((Cell("0.5", value=0.25),)),))


@dataclasses.dataclass(frozen=True)
class Findings:
    verdict: str = "A"
    value: float = math.nan


def write(formats: ReportOutputs) -> str:
    """Return the title of what is printed as a document."""
    printed: list[str] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(terminal, "print_document", lambda document: printed.append(document.title))
        write_outputs(Findings(), DOCUMENT, formats, TABLE, ["too few seeds"])
    return "".join(printed)


def test_a_report_without_options_is_printed_to_the_console(capsys):
    assert write(ReportOutputs()) == "Report"
    assert capsys.readouterr().out == ""


def test_files_are_written_instead_of_the_printed_report_and_named_on_stderr(tmp_path, capsys):
    names = {"html": tmp_path / "r.html", "md": tmp_path / "r.md", "csv": tmp_path / "r.csv"}
    assert write(ReportOutputs(**names)) == ""
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
    assert write(ReportOutputs(**{option: STDOUT})) == ""
    assert capsys.readouterr().out.startswith(start)


def test_json_is_one_object_of_the_findings(capsys, tmp_path):
    assert write(ReportOutputs(json=True, md=tmp_path / "r.md")) == ""
    assert json.loads(capsys.readouterr().out) == {"verdict": "A", "value": None}
    assert (tmp_path / "r.md").exists()


def test_warnings_go_to_stderr_if_the_report_is_not_printed(capsys):
    write(ReportOutputs())
    assert capsys.readouterr().err == ""
    write(ReportOutputs(json=True))
    assert capsys.readouterr().err == "warning: too few seeds\n"


@pytest.mark.parametrize(
    "formats",
    [{"json": True, "md": STDOUT}, {"md": STDOUT, "csv": STDOUT}, {"html": STDOUT, "json": True}],
)
def test_two_printed_formats_are_refused(formats):
    with pytest.raises(HmxError, match="at the same time") as refused:
        ReportOutputs(**formats)
    assert refused.value.exit_code == ExitCode.USAGE and "--" in refused.value.message


@pytest.mark.parametrize("option", ["html", "md", "csv"])
def test_files_that_cannot_be_written_are_refused_before_work(option, tmp_path):
    for file in (tmp_path, tmp_path / "none" / "r"):
        with pytest.raises(HmxError, match="cannot write the report"):
            ReportOutputs(**{option: file})
    ReportOutputs(**{option: tmp_path / "r"})
    ReportOutputs(**{option: STDOUT}, json=False)


def test_the_options_are_read_from_the_command_line(tmp_path):
    app, seen = typer.Typer(), []

    @app.command()
    @with_options()
    def report(run: str, outputs: ReportOutputs) -> None:
        seen.append((run, outputs))

    words = ["one", "--html", "a.html", "--md", "m.md", "--csv", "c.csv", "--json"]
    assert CliRunner().invoke(app, words).exit_code == 0
    assert CliRunner().invoke(app, ["two"]).exit_code == 0
    one = ReportOutputs(html=Path("a.html"), md=Path("m.md"), csv=Path("c.csv"), json=True)
    assert seen == [("one", one), ("two", ReportOutputs())]


def test_the_options_import_no_renderer():
    code = (
        "import sys, hmx.cli.output; "
        "sys.exit(bool({'rich.console', 'hmx.render.html', 'hmx.render.plots', 'jax'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


NO_DOCUMENT = {
    "hmx export": "it writes a file",
    "hmx runs export": "it writes a file",
    "hmx runs tail": "it prints records as they come",
    "hmx study work": "it prints steps as they end",
    "hmx watch": "it prints frames as they come",
}
"""Commands with `--json` that print no document, and why."""


def test_every_command_that_prints_a_document_writes_it_as_markdown_too():
    options = {name: {option for param in command.params for option in param.opts} for name, command in leaves()}
    assert {name for name, found in options.items() if "--md" in found} == {
        name for name, found in options.items() if "--json" in found and name not in NO_DOCUMENT
    }
    assert all("--json" in options[name] and "--md" not in options[name] for name in NO_DOCUMENT)


@pytest.mark.parametrize(
    ("line", "part"),
    [
        ("presets", "| **tiny** |"),
        ("presets tiny", 'value_target = "identity"'),
        ("envs corridor", "| **corridor** |"),
        ("runs list --root {runs}", "| corridor |"),
        ("runs show {run}", "# Run corridor"),
        ("runs verify {run}", "corridor: intact"),
        ("evaluate {run} --policy greedy --episodes 4", "| **greedy** |"),
        ("train --preset tiny --dry-run", "## Sizes"),
        ("resume {run} --steps 8192 --dry-run", "| from | update"),
        ("study new lr --preset tiny --space algo.gamma=0.9|0.99", "| algo.gamma |"),
    ],
)
def test_a_result_is_printed_or_written_as_markdown_in_place_of_the_text(hmx, trained, tmp_path, line, part):
    words = line.format(runs=trained, run=trained / "corridor").split(" ")
    refused = hmx(*words, "--json", "--md", "-")
    assert refused.exit_code == ExitCode.USAGE and "cannot print --json and --md - at the same time" in refused.stderr
    written = hmx(*words, "--md", "result.md")
    assert written.exit_code == 0 and written.stdout == "" and "wrote: result.md" in written.stderr
    text = (tmp_path / "result.md").read_text()
    assert part in text
    if words[0] != "study":
        assert hmx(*words, "--md", "-").stdout.startswith(text[:20])
