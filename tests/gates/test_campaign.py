"""Verdicts, seeds, levels and adoptions of a gate, with trainers of other packages."""

from __future__ import annotations

import dataclasses
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from hmx.errors import HmxError
from hmx.gates.campaign import Change, new_gate, try_change
from hmx.gates.records import (
    Attempt,
    GateProgram,
    GateRequest,
    GateSettings,
    GateVerdict,
    Ledger,
    SeedPair,
    adopt,
    find_gate,
    read_gate,
)
from hmx.gates.report import gate_status, status
from hmx.gates.verify import verify_gate
from hmx.gates.worker import PairTrainer, read_result
from hmx.render.blocks import Paragraph
from hmx.stats.evidence import e_value
from hmx.study.records import Objective, write_once

pytestmark = pytest.mark.usefixtures("quick_trainer")
Try = Callable[[Ledger, str], tuple[Ledger, Attempt]]


def test_a_clear_gain_is_kept_after_few_pairs(gate: Ledger, attempt: Try) -> None:
    gate, kept = attempt(gate, "9")
    assert kept.verdict is not None
    assert (kept.verdict.outcome, kept.level) == ("keep", 0.2)
    gains = [pair.candidate - pair.baseline for pair in kept.verdict.pairs]
    assert kept.verdict.e_value == e_value(gains) >= 5 > e_value(gains[:-1])
    assert [pair.seed for pair in kept.verdict.pairs] == list(range(len(gains)))
    assert verify_gate(gate).differences == ()


def test_a_loss_is_worse_and_a_hopeless_attempt_ends_early(gate: Ledger, attempt: Try) -> None:
    _, lost = attempt(gate, "-9")
    assert lost.verdict is not None
    assert lost.verdict.outcome in ("worse", "not shown")
    assert len(lost.verdict.pairs) < 10
    assert e_value([pair.candidate - pair.baseline for pair in lost.verdict.pairs]) < 1


def test_an_attempt_uses_seeds_and_a_level_that_no_decision_has_seen(gate: Ledger, attempt: Try) -> None:
    gate, lost = attempt(gate, "-9")
    gate, kept = attempt(gate, "9")
    assert lost.verdict is not None and kept.verdict is not None
    assert kept.first_seed == len(lost.verdict.pairs)
    assert kept.level == pytest.approx((0.4 - 0.2 * (1 - lost.verdict.e_value)) / 3)
    gate = adopt(gate, 2)
    gate, next_one = attempt(gate, "9.5")
    assert next_one.baseline == 2
    assert next_one.first_seed == kept.first_seed + len(kept.verdict.pairs)
    assert gate_status(gate).baseline_seeds == len(next_one.verdict.pairs if next_one.verdict else ())


def test_an_equal_proposal_is_answered_from_the_ledger(gate: Ledger, attempt: Try) -> None:
    gate, first = attempt(gate, "9")
    before = sorted(gate.folder.rglob("*"))
    gate, again = attempt(gate, "9")
    assert again == first
    assert sorted(gate.folder.rglob("*")) == before
    gate, same = attempt(gate, "0")
    assert same.verdict is not None and same.verdict.outcome == "same"
    assert not same.verdict.pairs


def test_a_changed_file_is_another_proposal(gate: Ledger, attempt: Try, tmp_path: Path) -> None:
    gate, first = attempt(gate, "9")
    with (tmp_path / "train.py").open("a") as file:
        file.write("# another version\n")
    with pytest.raises(HmxError, match=r"train.py is not what it was when attempt 0 was tried"):
        attempt(gate, "9")
    assert read_gate(gate.folder).attempts[2].program.digest != first.program.digest


def test_a_candidate_that_crashes_costs_nothing(gate: Ledger, attempt: Try) -> None:
    gate, failed = attempt(gate, "x")
    assert failed.verdict is not None
    assert failed.verdict.reason == "exit code 1: ValueError: could not convert string to float: 'x'"
    assert (failed.verdict.outcome, failed.verdict.lost) == ("failed", False)
    assert (gate.left, gate.levels) == (0.4, [0.2])
    _, next_one = attempt(gate, "9")
    assert next_one.first_seed == 0  # its baseline runs serve the next attempt


def test_a_candidate_that_diverges_loses_its_first_pair(gate: Ledger, attempt: Try) -> None:
    """Where it diverges it would have been bad: if that were free, pairs that look good would count alone."""
    gate, failed = attempt(gate, "nan")
    assert failed.verdict is not None
    assert (failed.verdict.outcome, failed.verdict.reason) == ("failed", "it diverged: score is nan")
    assert (failed.verdict.lost, failed.verdict.e_value) == (True, e_value([-1.0]))
    assert gate.left == pytest.approx(0.4 - 0.2 * (1 - e_value([-1.0])))
    gate, next_one = attempt(gate, "9")
    assert next_one.first_seed == 1  # a verdict has seen seed 0
    assert verify_gate(gate).differences == ()


def test_a_candidate_that_fails_later_keeps_its_evidence_and_uses_a_part_of_its_stake(
    gate: Ledger, attempt: Try, tmp_path: Path
) -> None:
    program = gate.attempts[0].program
    stops = "import sys\nif sys.argv[1] == '2': sys.exit('no more')\n"
    (tmp_path / "later.py").write_text(stops + (tmp_path / "train.py").read_text())
    command = (*program.command[:2], "later.py", *program.command[3:-1], "-0.1")
    gate, failed = try_change(gate, Change(command=command))
    assert failed.verdict is not None and failed.verdict.outcome == "failed"
    gains = [pair.candidate - pair.baseline for pair in failed.verdict.pairs]
    assert len(gains) == 2
    evidence = e_value(gains, -1)  # the third pair counts as lost
    assert (failed.verdict.lost, failed.verdict.e_value) == (True, evidence)
    assert evidence < e_value(gains)
    assert gate.left == pytest.approx(0.4 - 0.2 * (1 - min(evidence, 1)))
    assert gate.next_seed == 3
    assert verify_gate(gate).differences == ()


def test_a_baseline_that_fails_is_an_error_and_leaves_the_attempt_open(
    gate: Ledger, attempt: Try, tmp_path: Path
) -> None:
    program = gate.attempts[0].program
    shutil.move(tmp_path / "train.py", tmp_path / "other.py")
    with pytest.raises(HmxError, match=r"train.py is not what it was") as caught:
        try_change(gate, Change(command=(*program.command[:2], "other.py", *program.command[3:-1], "9")))
    assert caught.value.exit_code == 3
    shutil.copy(tmp_path / "other.py", tmp_path / "train.py")
    gate, kept = try_change(read_gate(gate.folder), Change())
    assert kept.verdict is not None and kept.verdict.outcome == "keep"


@pytest.mark.parametrize("most, warns", [(16, True), (32, False)])
def test_a_new_gate_says_which_effects_it_can_keep(
    tmp_path: Path, trainer: Callable[[str], tuple[str, ...]], most: int, warns: bool
) -> None:
    """docs/gate.md: 16 pairs keep 17 to 25 % of effects of one standard deviation, 32 pairs 60 to 66 %."""
    gate = new_gate(tmp_path / "gates" / "g", GateRequest(metric="score", max_seeds=most), command=trainer("0"))
    found = gate_status(gate)
    assert list(found.power) == [0.5, 1.0, 2.0]
    assert found.power[1.0] == pytest.approx(0.21 if warns else 0.63, abs=0.08)
    texts = [block.text for block in status(found).blocks if isinstance(block, Paragraph)]
    warning = "Warning: most changes that help by one standard deviation will not be kept; --max-seeds 32"
    assert any(text.startswith(warning) for text in texts) == warns
    gate, _ = try_change(gate, Change(command=trainer("x")))  # costs nothing, so the next attempt has the same power
    assert gate_status(gate).power == found.power


def test_a_gate_that_can_keep_no_change_any_more_says_so_and_trains_nothing(
    tmp_path: Path, trainer: Callable[[str], tuple[str, ...]]
) -> None:
    """9 won pairs give 396, and keep a change in the first attempts, which need 220 and more."""
    gate = new_gate(tmp_path / "gates" / "g", GateRequest(metric="score", max_seeds=9), command=trainer("0"))
    number = 0
    while gate.levels[-1] * e_value((), 9) >= 1:
        number += 1
        assert gate_status(gate).next.text == "try a change"
        gate, _ = try_change(gate, Change(command=trainer(f"-9{number}")))
    assert number > 1 and gate_status(gate).next.text.startswith("the error budget is used up, and no change")
    with pytest.raises(
        HmxError, match=r"the next attempt needs an e-value of .* and 9 won pairs give 396 at most"
    ) as no:
        try_change(gate, Change(command=trainer("9")))
    assert no.value.hint.endswith("hmx gate new --max-seeds 10")
    assert len(read_gate(gate.folder).attempts) == number + 1
    # Attempts from before, and equal ones, are answered.
    assert try_change(gate, Change(command=trainer("-91")))[1].number == 1


def test_numbers_of_the_budget_have_no_digits_of_rounding(
    tmp_path: Path, trainer: Callable[[str], tuple[str, ...]]
) -> None:
    """The first of ten attempts stakes an eleventh of 0.05, so it needs an e-value of 220."""
    gate = new_gate(tmp_path / "gates" / "g", GateRequest(metric="score"), command=trainer("0"))
    gate, _ = try_change(gate, Change(command=trainer("x")))
    found = gate_status(gate)
    assert (found.budget_left, found.attempts[0].needed) == (0.05, 220.0)


def test_an_open_attempt_continues_or_is_abandoned(gate: Ledger, attempt: Try, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that is killed after the second pair: the next one finds its pairs."""
    run, ran = PairTrainer._run_command, list[tuple[int, int]]()

    def killed(self: PairTrainer, one: Attempt, seed: int) -> None:
        if (one.number, seed) == (1, 2):
            raise KeyboardInterrupt
        ran.append((one.number, seed))
        run(self, one, seed)

    with monkeypatch.context() as patch:
        patch.setattr(PairTrainer, "_run_command", killed)
        with pytest.raises(KeyboardInterrupt):
            attempt(gate, "0.1")
    gate = read_gate(gate.folder)
    assert ran == [(0, 0), (1, 0), (0, 1), (1, 1), (0, 2)]
    with pytest.raises(HmxError, match="attempt 1 has no verdict yet") as caught:
        attempt(gate, "9")
    assert (
        caught.value.hint == f"continue it: hmx gate try {gate.folder}; or end it: hmx gate try {gate.folder} --abandon"
    )
    copied = gate.folder.with_name("copy")
    shutil.copytree(gate.folder, copied)
    _, ended = try_change(read_gate(copied), Change(abandon=True))
    assert ended.verdict is not None
    assert (ended.verdict.outcome, len(ended.verdict.pairs)) == ("undecided", 2)
    gains = [pair.candidate - pair.baseline for pair in ended.verdict.pairs]
    assert ended.verdict.e_value == e_value(gains, -1)  # the pair that had begun is lost
    assert read_gate(copied).next_seed == 3
    assert verify_gate(read_gate(copied)).differences == ()
    gate, done = try_change(gate, Change())
    assert done.verdict is not None and len(done.verdict.pairs) > 2
    undisturbed = find_gate(gate.folder)
    assert undisturbed.attempts[1].verdict == done.verdict


def test_a_gate_that_was_not_completed_is_made_again(gate: Ledger, trainer: Callable[[str], tuple[str, ...]]) -> None:
    """A process that was killed before it wrote gate.json leaves its baseline, and another one has another."""
    (gate.folder / "gate.json").unlink()
    made = new_gate(gate.folder, GateRequest(metric="score"), command=trainer("3"))
    assert made.baseline.program.command == trainer("3")
    with pytest.raises(HmxError, match="there is a gate"):
        new_gate(gate.folder, GateRequest(metric="score"), command=trainer("4"))


def test_only_a_kept_attempt_against_the_baseline_of_now_is_adopted(gate: Ledger, attempt: Try) -> None:
    gate, _ = attempt(gate, "-9")
    gate, _ = attempt(gate, "9")
    gate, _ = attempt(gate, "12")
    for number, message in ((1, "its verdict is"), (7, "there is no attempt 7"), (0, "there is no attempt 0")):
        with pytest.raises(HmxError, match=message):
            adopt(gate, number)
    gate = adopt(gate, 2)
    assert gate.baseline.number == 2
    with pytest.raises(HmxError, match="it was compared with attempt 0"):
        adopt(gate, 3)
    with pytest.raises(HmxError, match="was adopted before"):
        adopt(gate, 2)


@pytest.mark.parametrize("used, lost, first", [(0, 0, 7), (1, 0, 11), (4, 0, 11), (5, 0, 15), (0, 1, 11), (4, 1, 15)])
def test_no_seed_of_a_run_is_used_again(used: int, lost: int, first: int) -> None:
    """Runs of 4 seeds from seed 7 on: all 4 are known when a verdict needs only the first of them."""
    settings = GateSettings(objective=Objective(metric="score"), seeds=4, max_seeds=16)
    program = GateProgram(text="", digest="")
    pairs = tuple(SeedPair(seed=7 + count, baseline=0, candidate=1) for count in range(used))
    verdict = GateVerdict(outcome="undecided", reason="", pairs=pairs, lost=bool(lost))
    ended = Attempt(number=1, program=program, baseline=0, first_seed=7, level=0.01, verdict=verdict)
    first_one = dataclasses.replace(ended, number=0, level=0.0, verdict=None)
    assert Ledger(folder=Path(), settings=settings, attempts=(first_one, ended)).next_seed == first


@pytest.mark.parametrize("forge, says", [
    ({"lost": False}, "it must count the pair after its last one as lost"),
    ({"outcome": "undecided", "pairs": (), "lost": False}, "it must count the pair after its last one as lost"),
    ({"outcome": "same", "pairs": (), "lost": False}, "it has runs, but its verdict is same"),
])  # fmt: skip
def test_verify_finds_a_pair_that_was_left_out(gate: Ledger, attempt: Try, forge: dict[str, object], says: str) -> None:
    gate, failed = attempt(gate, "nan")
    assert failed.verdict is not None
    forged = dataclasses.replace(failed.verdict, **{"e_value": 1.0, "e_worse": 1.0, **forge})  # type: ignore[arg-type]
    os.unlink(failed.folder / "verdict.json")
    write_once(failed.folder / "verdict.json", forged)
    assert ("attempt 1", says) in verify_gate(read_gate(gate.folder)).differences


def test_verify_finds_a_loss_that_is_called_a_failure(gate: Ledger, attempt: Try) -> None:
    gate, lost = attempt(gate, "-9")
    os.unlink(lost.folder / "verdict.json")
    write_once(lost.folder / "verdict.json", GateVerdict(outcome="failed", reason="exit code 1"))
    assert ("attempt 1", "its run of seed 0 has not failed") in verify_gate(read_gate(gate.folder)).differences


@pytest.mark.parametrize("more", [False, True])
def test_verify_finds_the_runs_of_a_deleted_attempt(gate: Ledger, attempt: Try, more: bool) -> None:
    """Runs of the baseline remain, of seeds that no other attempt has used."""
    gate, deleted = attempt(gate, "-9")
    assert deleted.verdict is not None
    shutil.rmtree(deleted.folder)
    if more:
        attempt(read_gate(gate.folder), "nan")
    ((where, what),) = verify_gate(read_gate(gate.folder)).differences
    assert where == "attempt 0"
    assert what == f"no attempt has used its run {int(more):04d}: was an attempt deleted?"


@pytest.mark.parametrize("change", ["value", "level", "verdict"])
def test_verify_finds_a_changed_record(gate: Ledger, attempt: Try, change: str) -> None:
    """Files are sealed, so a forger must seal them again."""
    gate, kept = attempt(gate, "9")
    assert kept.verdict is not None
    if change == "value":
        file = kept.run(1).folder / "score.json"
        text = file.read_text()
        file.unlink()
        from hmx.gates.worker import Score

        assert "value" in text and write_once(file, Score(99.0))
    elif change == "level":
        os.unlink(kept.folder / "attempt.json")
        write_once(kept.folder / "attempt.json", dataclasses.replace(kept, level=0.3))
    else:
        os.unlink(kept.folder / "verdict.json")
        write_once(kept.folder / "verdict.json", dataclasses.replace(kept.verdict, outcome="worse"))
    assert len(verify_gate(read_gate(gate.folder)).differences) == 1


@pytest.mark.parametrize("text, value", [
    ('{"score": 3}', 3.0),
    ("step,score\n" + "".join(f"{i},{i}\n" for i in range(20)), 18.5),  # the last tenth of 20 rows
    ("step,score\n1,4.5\n", 4.5),
])  # fmt: skip
def test_results_of_other_trainers(tmp_path: Path, text: str, value: float) -> None:
    (tmp_path / "result").write_text(text)
    assert read_result(tmp_path / "result", "score") == value


@pytest.mark.parametrize("text, why, hint", [
    (None, "it wrote no result that can be read", "the command must write {file}"),
    ('{"scores": 3}', "its result has no number score; it has scores", "did you mean scores?"),
    ("[1, 2]", "its result has no number score; it has nothing", "--metric NAME of a field that it writes"),
    ("", "its result has no number score; it has nothing", "--metric NAME of a field that it writes"),
    ('{"score": "Infinity"}', "it diverged: score is inf", "see its output"),
    ('{"score": -Infinity}', "it diverged: score is -inf", "see its output"),
    ('{"score": null}', "its result has no number score; it has score", ""),
    ('{"score": [1]}', "its result has no number score; it has score", ""),
    ('{"score": 1' + "0" * 400 + "}", "its result has no number score; it has score", ""),
    ("[" * 9000, "its result has no number score; it has ", ""),
    ("score\n" + "x" * 200_000, "its result has no number score; it has score", ""),
    ('score\n1\n"', "its result has no number score; it has score", ""),
    ("a,score\n1\n", "its result has no number score; it has a, score", ""),
    ('{"\\u001b[2J": 1}', r"its result has no number score; it has \x1b[2J", ""),
    (" " * (9 << 20), "it wrote no result that can be read: 9,437,184 bytes", ""),
])  # fmt: skip
def test_results_that_cannot_be_used(tmp_path: Path, text: str | None, why: str, hint: str) -> None:
    if text is not None:
        (tmp_path / "result").write_text(text)
    with pytest.raises(HmxError) as caught:
        read_result(tmp_path / "result", "score")
    assert caught.value.message.startswith(why)
    assert caught.value.hint == hint or not hint
    assert caught.value.exit_code == 4


@pytest.mark.parametrize("make, why", [
    (Path.mkdir, "a folder instead of a file"),
    (lambda path: path.symlink_to(__file__), "a link instead of a file"),
    (os.mkfifo, "not a regular file"),
    (lambda path: path.write_bytes(bytes(range(256))), "'utf-8' codec"),
])  # fmt: skip
def test_a_result_in_another_kind_of_file_is_not_read(tmp_path: Path, make: Callable[[Path], object], why: str) -> None:
    make(tmp_path / "result")
    with pytest.raises(HmxError, match=f"^it wrote no result that can be read: {why}"):
        read_result(tmp_path / "result", "score")


def test_a_command_of_another_user_is_not_run(gate: Ledger, tmp_path: Path) -> None:
    """A copied gate is that of another user: its attempts name commands that this one has not seen."""
    foreign = gate.folder.with_name("foreign")
    shutil.copytree(gate.folder, foreign)
    mark = tmp_path / "ran"
    (tmp_path / "train.py").write_text(f"open({str(mark)!r}, 'w')\n")
    command = (*gate.attempts[0].program.command[:-1], "9")
    write_once(
        foreign / "attempts" / "0001" / "attempt.json", dataclasses.replace(gate.attempts[0], number=1, level=0.2)
    )
    for change in (Change(command=command), Change()):
        with pytest.raises(HmxError, match="you have not trusted its code") as caught:
            try_change(read_gate(foreign), change)
        assert caught.value.exit_code == 2
    assert not mark.exists()
    assert [one.verdict for one in read_gate(foreign).attempts] == [None, None]
