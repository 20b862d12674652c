"""Ways to damage a file. Each function also gets a path outside of the run, to move the file to."""

from __future__ import annotations

import os
from pathlib import Path

import pytest


def truncate(path: Path, outside: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def empty(path: Path, outside: Path) -> None:
    os.truncate(path, 0)


def flip_early(path: Path, outside: Path) -> None:
    _flip(path, 0.1)


def flip_late(path: Path, outside: Path) -> None:
    _flip(path, 0.7)


def _flip(path: Path, where: float) -> None:
    data = bytearray(path.read_bytes())
    data[int(where * len(data))] ^= 1
    path.write_bytes(bytes(data))


def delete(path: Path, outside: Path) -> None:
    path.unlink()


def folder(path: Path, outside: Path) -> None:
    path.unlink()
    path.mkdir()


def link_to_a_copy_outside(path: Path, outside: Path) -> None:
    path.rename(outside)
    path.symlink_to(outside)


def link_to_nothing(path: Path, outside: Path) -> None:
    path.unlink()
    path.symlink_to("nothing")


DAMAGES = (truncate, empty, flip_early, flip_late, delete, folder, link_to_a_copy_outside, link_to_nothing)
WAYS = pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: damage.__name__)
