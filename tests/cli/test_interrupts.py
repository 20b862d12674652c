"""Ctrl-C ends a command with one line and exit code 130, wherever it arrives."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

INTERRUPT = "os.kill(os.getpid(), signal.SIGINT)\n"


def run(code: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run a script after the handlers are installed; `folder` may have modules that it imports."""
    script = f"import sys; sys.path.insert(0, {str(folder)!r})\nfrom hmx.cli import interrupts\ninterrupts.install()\n"
    return subprocess.run([sys.executable, "-c", script + code], capture_output=True, text=True)


@pytest.mark.parametrize("error", ["ImportError", "BaseException"])
def test_interrupt_during_an_import_ends_the_process(tmp_path: Path, error: str) -> None:
    """Even if the importing module catches every error, as extension modules do."""
    (tmp_path / "slow.py").write_text(f"import os, signal\n{INTERRUPT}finished = True\n")
    (tmp_path / "careless.py").write_text(f"try:\n    import slow\nexcept {error}:\n    pass\n")
    ended = run("import careless\nprint('went on')\n", tmp_path)
    assert (ended.returncode, ended.stdout, ended.stderr) == (130, "", "error: interrupted\n")


def test_interrupt_outside_imports_can_be_handled(tmp_path: Path) -> None:
    code = f"""
import os, signal
try:
    {INTERRUPT}    print("went on")
except KeyboardInterrupt:
    print("caught")
"""
    ended = run(code, tmp_path)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "caught\n", "")


def test_interrupt_in_a_callback_of_the_garbage_collector_arrives(tmp_path: Path) -> None:
    """Python prints such an error and goes on."""
    code = """
import gc, os, signal, time
def interrupt(phase, info):
    if not sent:
        sent.append(phase)
        os.kill(os.getpid(), signal.SIGINT)
sent = []
gc.callbacks.append(interrupt)
gc.collect()
try:
    time.sleep(60)
    print("went on")
except KeyboardInterrupt:
    print("caught")
"""
    ended = run(code, tmp_path)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "caught\n", "")


STARTED = """
import os, signal, sys
def interrupt(event, given):
    if event == "import" and given[0] == {name!r}:
        os.kill(os.getpid(), signal.SIGINT)
sys.addaudithook(interrupt)
sys.argv = ["hmx", "runs", "list"]
from hmx.__main__ import main
main()
"""


@pytest.mark.parametrize(
    "name", ["hmx.cli.app", "hmx.errors", "typer", "hmx.config.schema", "hmx.jobs.runs", "rich.console"]
)
def test_interrupt_in_the_first_imports_ends_the_command(tmp_path: Path, name: str) -> None:
    script = STARTED.format(name=name)
    done = subprocess.run([sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "error: interrupted\n")


def test_nothing_is_imported_before_interrupts_are_handled() -> None:
    """What a user can meet earlier is the start of Python."""
    code = "import sys, signal; old = set(sys.modules); import hmx.__main__; print(*sorted({*sys.modules} - old))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout.split() == ["__future__", "hmx", "hmx.__main__", "hmx.cli", "hmx.cli.interrupts"]


BEGUN = """
import os, sys
sys.addaudithook(lambda event, given: event == "import" and given[0] == "hmx.cli.app" and os.write(1, b"begun\\n"))
sys.argv = ["hmx", "runs", "list"]
from hmx.__main__ import main
main()
"""


@pytest.mark.parametrize("delay", [0.0, 0.01, 0.03, 0.1, 0.2])
def test_interrupt_soon_after_the_first_line_shows_no_traceback(tmp_path: Path, delay: float) -> None:
    command = [sys.executable, "-c", BEGUN]
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stderr is not None
        assert process.stdout.readline() == "begun\n"
        time.sleep(delay)
        process.send_signal(signal.SIGINT)
        shown = process.stderr.read()
    if process.returncode != 0:  # otherwise the command was faster
        ending = (-signal.SIGINT, "")  # the command was done, and Python was ending
        assert (process.returncode, shown) in ((130, "error: interrupted\n"), ending)
