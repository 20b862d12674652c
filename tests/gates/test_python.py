"""Gates from Python."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import hmx
from hmx.errors import HmxError

Trainer = Callable[[str], tuple[str, ...]]


def test_a_change_is_tried_and_adopted(trainer: Trainer, capsys: pytest.CaptureFixture[str]) -> None:
    options = {"metric": "score", "max_seeds": 10, "error": 0.4, "attempts": 1}
    assert hmx.new_gate("g", command=trainer("0"), options=options).next_level == 0.2
    kept = hmx.gate("g", command=trainer("9"))
    assert (kept.verdict, kept.attempt, kept.pairs, kept.won) == ("keep", 1, 3, 3)
    lines = capsys.readouterr().err.splitlines()
    assert [line.partition(":")[0] for line in lines] == [f"pair {n} of 10, seed {n - 1}" for n in (1, 2, 3)]
    assert hmx.adopt_attempt("g", 1).baseline == 1
    assert hmx.gate("g", command=trainer("9"), progress=False).verdict == "same"
    assert capsys.readouterr().err == ""
    assert [one.verdict for one in hmx.gate_status("g").attempts] == ["keep", "same"]
    assert hmx.verify_gate("g").differences == ()


@pytest.mark.parametrize("call, message", [
    (lambda command: hmx.new_gate("g", {"env.id": "corridor"}, command=command), "a command has no options of hmx"),
    (lambda command: hmx.new_gate("g", command=command, options={"seeds": 3}), "unknown option seeds"),
    (lambda command: hmx.new_gate("g", command=command, options={"error": 0.7}), "from 1e-06 to 0.5"),
    (lambda command: hmx.gate("g", {"algo.gamma": 0.9}), "there is no gate g"),
])  # fmt: skip
def test_what_cannot_be_done_is_an_error(
    trainer: Trainer, call: Callable[[tuple[str, ...]], object], message: str
) -> None:
    with pytest.raises(HmxError, match=message):
        call(trainer("0"))
    with pytest.raises(HmxError, match="there is no gate g"):
        hmx.gate_status("g")


def test_an_option_of_hmx_is_not_compared_with_a_command(trainer: Trainer) -> None:
    hmx.new_gate("g", command=trainer("0"), options={"metric": "score"})
    with pytest.raises(HmxError, match="the baseline is a command"):
        hmx.gate("g", {"algo.gamma": 0.9})
    with pytest.raises(HmxError, match="a command has no options of hmx"):
        hmx.gate("g", {"algo.gamma": 0.9}, command=trainer("9"))
    with pytest.raises(HmxError, match="abandon=True ends an attempt and tries no change"):
        hmx.gate("g", command=trainer("9"), abandon=True)
    assert hmx.gate_status("g").attempts == ()
