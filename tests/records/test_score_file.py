"""Score files: what is written is read again, and files that no scoring can have written are refused."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from hmx.errors import ExitCode, HmxError
from hmx.records import score_file
from hmx.records.score_file import COLUMNS, ScoreHeader
from hmx.records.sealed_arrays import ArrayForm, StoredArray

HEADER = ScoreHeader(
    request="ab" * 32, size=2, total=3, horizon=20, lengths=(3, 9), seconds=1.5, compile_seconds=2.0
)  # fmt: skip
SIZES = {"2": 2, "K": 3, "A": 1}


def columns() -> dict[str, StoredArray]:
    forms = {name: ArrayForm((2, *(SIZES[axis] for axis in axes)), dtype) for name, (dtype, axes) in COLUMNS.items()}
    return {name: StoredArray(form, bytes(range(form.nbytes))) for name, form in forms.items()}


def refusal(path: Path) -> str:
    with pytest.raises(HmxError) as caught:
        score_file.read(path)
    assert caught.value.exit_code == ExitCode.ARTEFACT and "delete it" in caught.value.hint
    assert len(caught.value.message) < 400
    return caught.value.message


def test_header_and_columns_are_read_as_written(tmp_path):
    path = tmp_path / "s.npz"
    score_file.write(path, HEADER, columns())
    assert score_file.read(path) == (HEADER, columns())
    header, empty = score_file.read(path, whole=False)
    assert header == HEADER and {name: array.form for name, array in empty.items()} == {
        name: array.form for name, array in columns().items()
    }


@pytest.mark.parametrize(
    "changes",
    [
        {"request": 1}, {"size": 4}, {"size": -1}, {"size": 2.0}, {"total": 1}, {"horizon": 0}, {"horizon": 10**400},
        {"lengths": []}, {"lengths": [1.5]}, {"lengths": [-1]}, {"lengths": [10**400]}, {"lengths": "39"},
        {"seconds": -1.0}, {"seconds": 10**400}, {"seconds": "1"}, {"compile_seconds": None}, {"compile_seconds": True},
    ],
    ids=str,
)  # fmt: skip
def test_headers_that_scoring_never_writes_are_refused(tmp_path, changes: dict[str, Any]):
    score_file.write(tmp_path / "s.npz", dataclasses.replace(HEADER, **changes), columns())
    refusal(tmp_path / "s.npz")


@pytest.mark.parametrize("name", COLUMNS)
def test_files_without_one_of_their_columns_are_refused_by_its_name(tmp_path, name):
    found = columns()
    del found[name]
    score_file.write(tmp_path / "s.npz", HEADER, found)
    assert f"the column {name} is missing" in refusal(tmp_path / "s.npz")


@pytest.mark.parametrize(
    ("name", "form"),
    [
        ("score", ArrayForm((3,), "float32")),
        ("score", ArrayForm((2, 1), "float32")),
        ("score", ArrayForm((2,), "float64")),
        ("halves", ArrayForm((2, 3), "float32")),
        ("sd", ArrayForm((2, 4), "float32")),
        ("action", ArrayForm((2, 3), "int32")),
    ],
)
def test_columns_of_another_shape_or_type_are_refused(tmp_path, name, form):
    score_file.write(tmp_path / "s.npz", HEADER, columns() | {name: StoredArray(form, bytes(form.nbytes))})
    assert f"the column {name} is" in refusal(tmp_path / "s.npz")
