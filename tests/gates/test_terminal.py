"""What `hmx gate try` shows: a line for each pair, and in a terminal of 80 columns what runs now."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys
from collections.abc import Callable

import pytest
from typer.testing import CliRunner

from hmx.cli.app import app

LINE = r"pair: {} of 10, seed {}: baseline \S+, candidate \S+; e-value \S+ of 5"


@pytest.mark.usefixtures("gate")
def test_a_pipe_gets_one_line_for_each_pair_and_the_verdict(trainer: Callable[[str], tuple[str, ...]]) -> None:
    done = CliRunner().invoke(app, ["gate", "try", "g", "--", *trainer("9")], prog_name="hmx")
    assert done.exit_code == 0
    lines = done.stderr.splitlines()
    assert len(lines) == 3
    assert all(re.fullmatch(LINE.format(count + 1, count), line) for count, line in enumerate(lines)), lines
    assert done.stdout.startswith("Attempt 1\n\nkeep: the candidate won 3 of 3 pairs.\n")
    assert re.search(r"meaning +the change helps\n", done.stdout)
    assert done.stdout.endswith("Next\nMake attempt 1 the baseline.\n    hmx gate adopt g 1\n")


@pytest.mark.usefixtures("gate")
def test_a_terminal_shows_which_side_trains_and_keeps_the_lines_of_the_pairs(
    trainer: Callable[[str], tuple[str, ...]],
) -> None:
    ours, theirs = pty.openpty()
    environ = {**os.environ, "COLUMNS": "80", "TERM": "xterm"}
    command = [sys.executable, "-m", "hmx", "gate", "try", "g", "--", *trainer("9")]
    process = subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, env=environ)
    os.close(theirs)
    shown = b""
    try:
        while data := os.read(ours, 1 << 16):
            shown += data
    except OSError:  # the terminal is closed
        pass
    assert process.wait() == 0
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", shown.decode())
    for side in ("seed 0 of the first baseline", "seed 0 of attempt 1", "seed 2 of attempt 1"):
        assert side in text
    lines = [line.strip() for line in re.split(r"[\r\n]+", text)]
    assert all(len(line) <= 80 for line in lines)
    assert len([line for line in lines if line.startswith("pair: ")]) == 3
    assert "hmx gate adopt g 1" in lines
