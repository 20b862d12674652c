"""Scores in a file: what goes in comes out, and what no scoring can have written is refused with words."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from hmx.errors import ExitCode, HmxError
from hmx.records import score_file
from hmx.records.sealed_arrays import ArrayForm

BODY = {
    "request": "ab" * 32, "size": 2, "total": 3, "horizon": 20, "lengths": [3, 9], "seconds": 1.5, "compile_seconds": 2,
}  # fmt: skip
FORM = ArrayForm((2,), "float32")


def written(path: Path, form: ArrayForm = FORM, **changes: Any) -> Path:
    score_file.write(path, BODY | changes, {"scores": (form, bytes(range(form.nbytes)))})
    return path


def test_what_goes_in_comes_out(tmp_path):
    body, forms, data = score_file.read(written(tmp_path / "s.npz"))
    assert (body, forms, data) == (BODY, {"scores": FORM}, {"scores": bytearray(range(8))})
    assert score_file.read(tmp_path / "s.npz", whole=False)[:2] == (BODY, forms)


@pytest.mark.parametrize(
    "changes",
    [
        {"request": 1}, {"size": 4}, {"size": -1}, {"size": 2.0}, {"total": 1}, {"horizon": 0}, {"horizon": 10**400},
        {"lengths": []}, {"lengths": [1.5]}, {"lengths": [-1]}, {"lengths": [10**400]}, {"lengths": "39"},
        {"seconds": -1.0}, {"seconds": 10**400}, {"seconds": "1"}, {"compile_seconds": None}, {"compile_seconds": True},
        {"form": ArrayForm((3,), "float32")},
    ],
    ids=str,
)  # fmt: skip
def test_what_no_scoring_writes_is_refused(tmp_path, changes):
    path = written(tmp_path / "s.npz", **changes)
    with pytest.raises(HmxError) as refusal:
        score_file.read(path)
    assert refusal.value.exit_code == ExitCode.ARTEFACT and "delete it" in refusal.value.hint
    assert len(refusal.value.message) < 400
