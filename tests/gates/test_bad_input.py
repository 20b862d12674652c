"""Baselines, candidates, disks, signals and ledgers that fail: one clear error each, and a ledger that continues."""

from __future__ import annotations

import errno
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from hmx.cli.app import app
from hmx.config import files
from hmx.errors import HmxError
from hmx.gates.campaign import Change, new_gate, try_change
from hmx.gates.programs import write_attempt
from hmx.gates.records import Attempt, GateRequest, Ledger, adopt, read_gate
from hmx.gates.report import gate_status
from hmx.gates.verify import verify_gate
from hmx.records import owner
from hmx.records.artefact import sealed
from hmx.registry.user_code import allow_file
from tests.gates.conftest import REQUEST, TRAINER, trainer_of
from tests.jobs.faults import Disk, spread

pytestmark = pytest.mark.usefixtures("quick_trainer")
Try = Callable[[Ledger, str], tuple[Ledger, Attempt]]
PYTHON = (sys.executable, "-S", "-c")


def hmx(*words: str) -> Result:
    """Run `hmx gate WORDS`."""
    return CliRunner().invoke(app, ["gate", *words], prog_name="hmx", env={"COLUMNS": "200"})


def messages_of(text: str) -> list[str]:
    """Return the lines with an error and a hint."""
    return [line for line in text.splitlines() if line.startswith(("error:", "hint:"))]


def candidate(gate: Ledger, code: str) -> tuple[Ledger, Attempt]:
    """Try a program that has the seed and the file as its arguments."""
    head = "import json, os, sys, time; seed, file = int(sys.argv[1]), sys.argv[2]\n"
    return try_change(gate, Change(command=(*PYTHON, head + code, "{seed}", "{file}")))


def check_usable(gate: Ledger, attempt: Try) -> None:
    """The next commands work."""
    gate = read_gate(gate.folder)
    count = len(gate.attempts)
    assert hmx("status", str(gate.folder)).exit_code == 0
    assert hmx("verify", str(gate.folder)).exit_code == 0
    gate, kept = attempt(gate, "9")
    assert kept.verdict is not None and (kept.number, kept.verdict.outcome) == (count, "keep")
    assert verify_gate(gate).differences == ()


@pytest.mark.parametrize("code, reason", [
    ("pass", "it wrote no result that can be read: no such file or directory"),
    ("sys.exit(7)", "exit code 7: it said nothing"),
    ("os.kill(os.getpid(), 9)", "signal 9: it said nothing"),
    ("print('x' * 50_000_000, flush=True); sys.exit('\\x1b[2Jgone')", r"exit code 1: \x1b[2Jgone"),
    ("os.write(1, b'y' * 300_000); sys.exit(1)", f"exit code 1: {'y' * 297}..."),
])  # fmt: skip
def test_a_candidate_that_gives_no_number_fails_with_the_reason(gate: Ledger, code: str, reason: str) -> None:
    gate, failed = candidate(gate, code)
    assert failed.verdict is not None and failed.verdict.outcome == "failed"
    assert failed.verdict.reason.startswith(reason)
    assert (gate.left, gate.levels[0]) == (0.4, 0.2)
    assert verify_gate(gate).differences == ()


def test_a_program_that_cannot_start_fails(gate: Ledger, attempt: Try, tmp_path: Path) -> None:
    (tmp_path / "broken").write_text("#!/no/such/interpreter\n")
    (tmp_path / "broken").chmod(0o755)
    gate, failed = try_change(gate, Change(command=("./broken", "{seed}", "{file}")))
    assert failed.verdict is not None
    assert failed.verdict.reason == "cannot run ./broken: no such file or directory"
    check_usable(gate, attempt)


def test_too_few_pairs_to_keep_a_change_are_refused(tmp_path: Path, trainer: Callable[[str], tuple[str, ...]]) -> None:
    """A won pair less than doubles the evidence: 8 give 199, and the first level asks for 220."""
    with pytest.raises(HmxError, match=r"needs an e-value of 220, and 8 won pairs give 199 at most") as caught:
        new_gate(tmp_path / "g", GateRequest(metric="score", max_seeds=8), command=trainer("0"))
    assert caught.value.hint.startswith("--max-seeds 9,") and not (tmp_path / "g").exists()
    new_gate(tmp_path / "g", GateRequest(metric="score", max_seeds=9), command=trainer("0"))


def test_a_program_that_finds_the_disk_full_has_not_failed(gate: Ledger, tmp_path: Path) -> None:
    code = "if not os.path.exists('free'): raise OSError(28, os.strerror(28))\njson.dump({'score': 9}, open(file, 'w'))"
    with pytest.raises(HmxError, match=r"exit code 1: OSError: \[Errno 28\] No space left on device") as caught:
        candidate(gate, code)
    assert caught.value.exit_code == 3 and caught.value.hint.endswith("; free some space, then continue")
    (tmp_path / "free").touch()
    assert hmx("try", "g").exit_code == 0


@pytest.mark.parametrize("code, error, hint", [
    ("if not os.path.exists('data'): sys.exit('no data')", "exit code 1: no data", "its output is in "),
    ("if not os.path.exists('data'): score = {'scores': 0}", "no number score; it has scores", "did you mean scores?"),
])  # fmt: skip
def test_a_baseline_that_cannot_run_is_an_error_and_continues_once_it_can(
    tmp_path: Path, trainer: Callable[[str], tuple[str, ...]], code: str, error: str, hint: str
) -> None:
    head = "import json, os, sys; score = {'score': int(sys.argv[1]) % 3}\n"
    program = (*PYTHON, f"{head}{code}\njson.dump(score, open(sys.argv[2], 'w'))", "{seed}", "{file}")
    gate = new_gate(tmp_path / "gates" / "g", REQUEST, command=program)
    result = hmx("try", "g", "--", *trainer("9"))
    assert result.exit_code == 4
    errors = messages_of(result.stderr)
    assert len(errors) == 2
    assert "cannot judge attempt 1: the baseline fails: " in errors[0] and error in errors[0]
    assert hint in errors[1]
    assert hmx("status", "g").exit_code == hmx("verify", "g").exit_code == 0
    (tmp_path / "data").touch()
    assert hmx("try", "g").exit_code == 0
    assert verify_gate(read_gate(gate.folder)).differences == ()


def test_a_full_disk_leaves_a_ledger_that_continues(
    gate: Ledger, trainer: Callable[[str], tuple[str, ...]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Calls that write below the gate fail, a few of all, each in a copy of the gate."""
    monkeypatch.setattr(files, "_RETRY_SECONDS", 0.0)
    first, *copies = (gate.folder.with_name(f"copy{number}") for number in range(13))
    for copy in (first, *copies):
        shutil.copytree(gate.folder, copy)
        allow_file(copy.resolve() / "attempts" / "0000" / "attempt.json")

    def tried(folder: Path) -> Attempt:
        return try_change(read_gate(folder), Change(command=trainer("9")))[1]

    with Disk(first.resolve()) as disk:
        expected = tried(first).verdict
    writing = [number for number, call in enumerate(disk.calls) if call.name in ("write", "mkdir", "fsync")]
    failed = set()
    for copy, at in zip(copies, spread(len(writing), len(copies)), strict=True):
        with Disk(copy.resolve(), writing[at], errno.ENOSPC) as disk:
            try:
                tried(copy)
            except HmxError as problem:
                assert disk.failed is not None
                failed.add(os.path.basename(disk.failed.path).partition(".tmp-")[0])
                assert problem.exit_code == 3, problem.message
                assert "no space left on device" in problem.message and problem.hint
        gate_status(read_gate(copy))
        assert verify_gate(read_gate(copy)).differences == ()
        assert tried(copy).verdict == expected
        assert verify_gate(read_gate(copy)).differences == ()
    assert len(failed) > 3, failed


SLOW = """
import json, os, signal, sys, time
seed, file, react = int(sys.argv[1]), sys.argv[2], sys.argv[3]
if react == "ends": signal.signal(signal.SIGINT, lambda *_: sys.exit(0))
leader = os.getpid()
if react == "leaves" and seed == 1 and not os.path.exists("go"):
    if os.fork(): sys.exit(os.wait()[1])
    os.setsid()
if react == "ignores": signal.signal(signal.SIGINT, signal.SIG_IGN)
if seed == 1 and not os.path.exists("go"):
    open("begun.tmp", "w").write(f"{leader} {os.getpid()}")
    os.rename("begun.tmp", "begun")
    time.sleep(600)
json.dump({"score": 9}, open(file, "w"))
"""


@pytest.fixture
def slow(gate: Ledger, tmp_path: Path) -> Iterator[Callable[[str], tuple[subprocess.Popen[str], int, int]]]:
    """Starts `hmx gate try` with a trainer that waits in its second seed.

    It returns, once it waits, the process, the id of the trainer and that of the process in which it waits.
    """
    started: list[subprocess.Popen[str]] = []
    (tmp_path / "slow.py").write_text(SLOW)

    def start(react: str) -> tuple[subprocess.Popen[str], int, int]:
        command = [sys.executable, "-m", "hmx", "gate", "try", "g", "--", sys.executable, "-S", "slow.py"]
        started.append(subprocess.Popen([*command, "{seed}", "{file}", react], stderr=subprocess.PIPE, text=True))
        while not (tmp_path / "begun").exists():
            assert started[0].poll() is None, started[0].communicate()
            time.sleep(0.05)
        leader, child = map(int, (tmp_path / "begun").read_text().split())
        return started[0], leader, child

    yield start
    for process in started:
        process.kill()
        process.wait()


def check_continues(gate: Ledger, child: int) -> None:
    """The trainer has ended, and the attempt continues from its first pair."""
    while owner.started(child):
        time.sleep(0.05)
    assert [one.number for one in read_gate(gate.folder).attempts if one.verdict is None] == [0, 1]
    assert hmx("status", "g").exit_code == hmx("verify", "g").exit_code == 0
    Path("go").touch()
    assert hmx("try", "g").exit_code == 0
    gate = read_gate(gate.folder)
    assert gate.attempts[1].verdict is not None
    assert [pair.candidate for pair in gate.attempts[1].verdict.pairs] == [9.0] * 3
    assert verify_gate(gate).differences == ()


@pytest.mark.parametrize("signals, react", [
    ([signal.SIGINT], "ends"), ([signal.SIGINT, signal.SIGTERM], "ignores"),
])  # fmt: skip
def test_a_signal_in_the_middle_of_a_pair_stops_both_and_the_attempt_continues(
    gate: Ledger, slow: Callable[[str], tuple[subprocess.Popen[str], int, int]], signals: list[int], react: str
) -> None:
    process, child, _ = slow(react)
    for signum in signals:
        time.sleep(0.3)
        process.send_signal(signum)
    _, messages = process.communicate()
    assert process.returncode == 128 + signals[-1], messages
    assert messages_of(messages) == ["error: interrupted", "hint: continue with: hmx gate try g"]
    check_continues(gate, child)


def test_one_process_tries_at_a_time_and_a_killed_one_is_replaced(
    gate: Ledger,
    slow: Callable[[str], tuple[subprocess.Popen[str], int, int]],
    trainer: Callable[[str], tuple[str, ...]],
) -> None:
    """The trainer ends with a killed `hmx gate try`; no other begins beside one that left its group."""
    process, leader, child = slow("leaves")
    same = ("try", "g", "--", sys.executable, "-S", "slow.py", "{seed}", "{file}", "leaves")
    for words in (
        same,
        ("try", "g"),
        ("try", "g", "--", *trainer("9")),
        ("try", "g", "--abandon"),
        ("adopt", "g", "1"),
    ):
        result = hmx(*words)
        assert result.exit_code == 2
        assert "another process tries a change: " in result.stderr and "hint: wait until it ends" in result.stderr
    assert hmx("status", "g").exit_code == 0
    process.kill()
    process.communicate()
    while owner.started(leader):
        time.sleep(0.05)
    assert owner.started(child)
    result = hmx("try", "g")
    assert result.exit_code == 2 and "another process tries a change: " in result.stderr
    os.kill(child, signal.SIGKILL)
    check_continues(gate, child)


def rewrite(file: Path, edit: Callable[[dict[str, Any]], object]) -> None:
    """Change a sealed file as a forger does."""
    data = json.loads(file.read_text())
    del data["sha256"]
    edit(data)
    file.write_text(sealed(data))


def contents(folder: Path) -> dict[Path, bytes]:
    """Return the files below a folder; the lock of a process that has ended does not count."""
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file() and path.name != "lock"}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a gate that has kept attempt 1."""
    folder = tmp_path_factory.mktemp("made")
    (folder / "train.py").write_text(TRAINER)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        gate = new_gate(folder / "gates" / "g", REQUEST, command=trainer_of("0"))
        try_change(gate, Change(command=trainer_of("9")))
    return folder


@pytest.fixture
def kept(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Ledger:
    """A copy of a gate that has kept attempt 1, below the current folder."""
    shutil.copytree(made, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    return read_gate(tmp_path / "gates" / "g")


COMMANDS = (("status", "g"), ("report", "g"), ("verify", "g"), ("try", "g"), ("adopt", "g", "1"))


@pytest.mark.parametrize("name, key, values", [
    ("gate.json", "max_seeds", [0, -1, 10**400, 1001, "9", None]),
    ("gate.json", "error", [0, 0.6, -1, 1e308, 5e-324, "0.1"]),
    ("gate.json", "attempts", [0, 10**400]),
    ("gate.json", "seeds", [0, -1, 10**400, "1"]),
    ("gate.json", "objective", [
        3, {"metric": 3}, {"measure": "auc"}, {"measure": "steps_to", "threshold": 1.0},
    ]),
    ("attempts/0001/attempt.json", "number", [0, 2, 10**400]),
    ("attempts/0001/attempt.json", "baseline", [1, 2, 10**9]),
    ("attempts/0001/attempt.json", "first_seed", [2**31, 10**400, -1, 1.5]),
    ("attempts/0001/attempt.json", "level", [0, -1, 2, 1e308]),
    ("attempts/0001/attempt.json", "program", [{}, 3, {"text": "", "digest": "", "code": {"algo.name": "../x.py"}}]),
    ("attempts/0001/verdict.json", "pairs", [
        [{"seed": 5, "baseline": 0, "candidate": 1}], [{"seed": 0, "baseline": 0}], [{}],
        [{"seed": seed, "baseline": 0, "candidate": 1} for seed in range(11)],
    ]),
    ("attempts/0001/verdict.json", "e_value", [-1, -1e300]),
    ("attempts/0001/verdict.json", "outcome", ["good", 1]),
    ("attempts/0001/adopted.json", "order", [10**400, 7]),
])  # fmt: skip
def test_a_ledger_edited_by_hand_is_one_error_and_intact_once_it_is_restored(
    kept: Ledger, name: str, key: str, values: list[object]
) -> None:
    adopt(kept, 1)
    file = kept.folder / name
    good, before = file.read_bytes(), contents(kept.folder)
    for value in values:
        rewrite(file, lambda data, value=value: data.update({key: value}))  # type: ignore[misc]
        for words in COMMANDS if value == values[-1] else COMMANDS[:1]:
            result = hmx(*words)
            assert result.exit_code == 3, (value, words, result.output)
            errors = messages_of(result.stderr)
            assert len(errors) == 2 and f"gates/g/{name}" in errors[0], errors
            assert len(result.stderr) < 1000
        file.write_bytes(good)
    assert contents(kept.folder) == before


@pytest.mark.parametrize("name", ["gate.json", "attempts/0001/attempt.json", "attempts/0001/verdict.json",
                                  "attempts/0000", "attempts/0001", "attempts"])  # fmt: skip
@pytest.mark.parametrize("kind", ["link", "pipe", "missing", "folder", "bytes"])
def test_a_link_or_a_pipe_in_a_ledger_is_not_followed(kept: Ledger, name: str, kind: str) -> None:
    before = contents(kept.folder)
    place, aside = kept.folder / name, kept.folder.parent / "aside"
    place.rename(aside)
    if kind == "link":
        place.symlink_to(aside)
    elif kind == "pipe":
        os.mkfifo(place)
    elif kind == "folder":
        place.mkdir()
    elif kind == "bytes":
        place.write_bytes(b"\x80{")
    optional = kind == "missing" and name in ("attempts/0001/verdict.json", "attempts/0001")
    for words in COMMANDS[:1] if optional else COMMANDS:
        result = hmx(*words)
        found = messages_of(result.stderr)
        if not optional and not (name == "attempts/0001" and kind == "folder"):
            assert (result.exit_code, len(found)) == (3, 2), (words, result.output)
    if place.is_dir() and not place.is_symlink():
        place.rmdir()
    elif os.path.lexists(place):
        place.unlink()
    aside.rename(place)
    assert contents(kept.folder) == before


@pytest.mark.parametrize("name", ["runs", "runs/0000"])
def test_training_does_not_leave_the_ledger_by_a_link(gate: Ledger, attempt: Try, tmp_path: Path, name: str) -> None:
    (tmp_path / "mine" / "0000").mkdir(parents=True)
    (tmp_path / "mine" / "0000" / "file").touch()
    link = gate.attempts[0].folder / name
    link.parent.mkdir(exist_ok=True)
    link.symlink_to(tmp_path / "mine" / ("0000" if name != "runs" else ""))
    with pytest.raises(HmxError, match=r"a link instead of a folder|symbolic link") as caught:
        attempt(gate, "9")
    assert caught.value.exit_code == 3
    assert [path.name for path in (tmp_path / "mine").rglob("*")] == ["0000", "file"]


def test_code_is_not_copied_through_a_link(gate: Ledger, tmp_path: Path) -> None:
    gate.attempts[0].folder.joinpath("code").symlink_to(tmp_path)
    with pytest.raises(HmxError, match="symbolic link"):
        write_attempt(gate.attempts[0], {"code/train.py": b"another"})
    assert (tmp_path / "train.py").read_text() == TRAINER


def test_a_forged_keep_without_pairs_is_found(gate: Ledger, attempt: Try) -> None:
    gate, lost = attempt(gate, "-9")
    rewrite(lost.folder / "verdict.json", lambda data: data.update(outcome="keep", pairs=[], e_value=1.0))
    found = verify_gate(read_gate(gate.folder)).differences
    assert found == (("attempt 1", "its pairs do not decide, but its verdict is keep"),)


def test_seeds_that_a_verdict_has_seen_are_found(gate: Ledger, attempt: Try) -> None:
    gate, _ = attempt(gate, "-9")
    gate, kept = attempt(gate, "9")
    assert kept.verdict is not None
    shutil.rmtree(kept.folder / "runs")
    shutil.rmtree(gate.attempts[0].folder / "runs")
    rewrite(kept.folder / "attempt.json", lambda data: data.update(first_seed=0))
    (kept.folder / "verdict.json").unlink()
    allow_file(kept.folder.resolve() / "attempt.json")
    try_change(read_gate(gate.folder), Change())
    found = verify_gate(read_gate(gate.folder)).differences
    assert ("attempt 2", "earlier verdicts have seen its seeds") in found
