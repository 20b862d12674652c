"""Ctrl-C ends a command with one line and exit code 130, wherever it arrives."""

from __future__ import annotations

import subprocess
import sys
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
