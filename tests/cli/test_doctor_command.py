"""`hmx doctor` on runs that were made long ago, and on damaged ones."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from hmx.records import meta as metas


@pytest.fixture
def metrics(unpack: Any, tmp_path: Path) -> Any:
    """The metrics of an interrupted run, `corridor`, below `runs/`."""
    return unpack(2, tmp_path / "runs").metrics


def spoil(metrics: Path) -> None:
    """Make all importance ratios wrong from update 2 on."""
    records = [json.loads(line) for line in metrics.read_text().splitlines()]
    for record in records[1:]:
        record["train/first_ratio_error"] = 0.5
    metrics.write_text("".join(json.dumps(record) + "\n" for record in records))


def test_healthy_run_passes_every_rule(hmx, metrics):
    done = hmx("doctor", "corridor", "--fail-on", "any", "--fail-on", "first-ratio")
    assert done.exit_code == 0 and "No problem and 1 note found" in done.stdout and "4 of 8 updates" in done.stdout


def test_a_broken_rule_is_reported_in_every_format_and_fails_the_check(hmx, metrics):
    spoil(metrics)
    done = hmx("doctor", "corridor", "--fail-on", "first-ratio", "--html", "page.html", "--csv", "values.csv")
    assert done.exit_code == 4 and "breaks first-ratio" in done.stderr
    assert done.stdout == "" and done.stderr.startswith("wrote: page.html\nwrote: values.csv\n")
    printed = hmx("doctor", "corridor").stdout
    assert "The policy that acts differs" in printed and "Since step 16" in printed and "Try:" in printed
    assert "The policy that acts differs" in Path("page.html").read_text()
    assert Path("values.csv").read_text().splitlines()[1].startswith("first-ratio,warning,16,48")
    found = json.loads(hmx("doctor", "corridor", "--json", "--fail-on", "large-updates").stdout)
    assert [finding["rule"] for finding in found["findings"]] == ["first-ratio", "few-updates"]
    assert found["failed"] == []
    assert {"rule": "first-ratio", "status": "found", "missing": ""} in found["rules"]


def test_the_error_that_ended_a_run_comes_first(hmx, metrics):
    """Rules see metrics only, so a run that failed had no problem."""
    assert json.loads(hmx("doctor", "corridor", "--json").stdout)["error"] == ""
    place = metrics.with_name("meta.json")
    meta = dataclasses.replace(metas.read(place), state="failed", message="worker 0 ended", hint="hmx check-env ./a.py")
    metas.write(place, meta)
    first, second, *rest = hmx("doctor", "corridor").stdout.splitlines()[2:]
    assert (first, second) == ("The run failed: worker 0 ended.", "Try: hmx check-env ./a.py.")
    assert rest[0].startswith("No problem and 1 note found")
    found = json.loads(hmx("doctor", "corridor", "--json").stdout)
    assert (found["error"], found["remedy"]) == ("the run failed: worker 0 ended", "hmx check-env ./a.py")
    metas.write(place, dataclasses.replace(meta, state="running", message="", hint=""))  # and no process holds it
    assert "The run crashed.\nTry: hmx resume corridor.\n" in hmx("doctor", "corridor").stdout


def test_damaged_lines_are_skipped_and_counted(hmx, metrics):
    lines = metrics.read_text().splitlines(keepends=True)
    metrics.write_text("".join([lines[0], "{\n", *lines[1:], '{"update": 9']))
    done = hmx("doctor", "corridor")
    assert done.exit_code == 0 and "skipped 1 damaged line" in done.stdout and "4 of 8 updates" in done.stdout


def test_run_without_metrics_is_reported(hmx, metrics):
    metrics.unlink()
    done = hmx("doctor", "corridor")
    assert done.exit_code == 0 and "The run has no metrics yet." in done.stdout


def test_doctor_does_not_import_jax(loaded, metrics):
    assert "jax" not in loaded("doctor", "corridor")
