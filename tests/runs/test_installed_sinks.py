"""Sinks of installed packages: by name, never fatal, and only if the package is installed."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from hmx.errors import HmxError
from hmx.jobs.resume import resume
from hmx.jobs.train import train
from hmx.registry.load import load
from hmx.runs.installed_sinks import installed_sinks
from hmx.runs.sinks import SinkGroup

CODE = """
from pathlib import Path

from hmx.runs.sinks import Sink


class Log(Sink):
    required = True  # hmx does not let it stop a run

    def start(self, info):
        print("opened")
        self.write("start", info.run_id, info.first_update)

    def record(self, record):
        self.write("record", record["update"])

    def close(self, state):
        self.write("close", state)

    def write(self, *words):
        with Path("log.txt").open("a") as file:
            print(*words, file=file)


class Failing(Log):
    def record(self, record):
        raise ConnectionError("no network")


def other():
    return 3


def broken():
    raise OSError("no licence")
"""
NAMES = ("log = my_sinks:Log", "failing = my_sinks:Failing", "other = my_sinks:other", "broken = my_sinks:broken")


def install(folder: Path) -> None:
    info = folder / "my_sinks-1.0.dist-info"
    info.mkdir(parents=True)
    (folder / "my_sinks.py").write_text(CODE)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: my_sinks\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("\n".join(("[hmx.sinks]", *NAMES)))


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package on the path of Python; its folder is not the current one."""
    install(tmp_path / "site")
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    monkeypatch.syspath_prepend(tmp_path / "site")
    monkeypatch.delitem(sys.modules, "my_sinks", raising=False)
    return tmp_path / "work"


def trained(sink: str, steps: int = 512) -> list[str]:
    values = {"run.total_steps": steps, "run.eval_episodes": 0, "run.name": "r", "run.sink": sink, "run.keep": 3}
    task = load(preset="tiny", environ={}).changed(values)
    return list(train(task).warnings)


@pytest.mark.usefixtures("compiled_once")
def test_a_sink_gets_the_records_and_a_resume_continues_it(package: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert trained("log") == []
    resume("runs/r", changes={"run.total_steps": 768})
    (first, run_id, at), *more = [line.split() for line in (package / "log.txt").read_text().splitlines()]
    assert (first, at, len(run_id) > 7) == ("start", "0", True)
    assert more == [
        ["record", "1"], ["record", "2"], ["close", "finished"],
        ["start", run_id, "2"], ["record", "3"], ["close", "finished"],
    ]  # fmt: skip
    out, err = capsys.readouterr()
    assert not out and err.count("opened") == 2  # stdout may be JSON


@pytest.mark.usefixtures("compiled_once")
def test_a_failing_sink_is_dropped_and_the_others_go_to_the_end(package: Path) -> None:
    assert trained("failing, log") == ["failing failed and gets no more records: no network"]
    assert "record 2" in (package / "log.txt").read_text()
    assert len((package / "runs" / "r" / "metrics.jsonl").read_text().splitlines()) == 2


@pytest.mark.parametrize(
    ("name", "message", "hint"),
    [
        ("lgo", "no installed package adds it; installed: broken, failing, log, other", "did you mean --sink log?"),
        ("./my_sinks.py:Log", "no installed package adds it", "did you mean --sink log?"),
        ("mlflow", "no installed package adds it", "entry points of hmx.sinks; --sink '' uses none"),
        ("other", "it builds int", "must return an hmx.runs.sinks.Sink"),
        ("broken", "cannot build sink broken: OSError: no licence", "my_sinks.py"),
    ],
)
@pytest.mark.usefixtures("package")
def test_a_sink_that_cannot_be_used_is_refused_before_anything_is_written(name: str, message: str, hint: str) -> None:
    with pytest.raises(HmxError) as error:
        trained(name)
    assert message in error.value.message and hint in error.value.hint and not Path("runs").exists()


def test_a_package_that_only_the_current_folder_has_needs_trust(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)  # as in a notebook
    monkeypatch.delitem(sys.modules, "my_sinks", raising=False)
    with pytest.raises(HmxError, match="my_sinks") as error:
        installed_sinks("log")
    assert "--trust-env" in error.value.hint and "my_sinks" not in sys.modules


@pytest.mark.usefixtures("package")
def test_an_empty_name_gives_no_sink() -> None:
    assert installed_sinks("") == [] and [type(sink).__name__ for sink in installed_sinks("log,log")] == ["Log"]
    assert not any(sink.required for sink in SinkGroup(installed_sinks("log,failing")).sinks)
