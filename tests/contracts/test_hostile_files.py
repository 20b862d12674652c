"""Files from strangers: each is read, or refused with words; none runs code, fills the memory or leaves its folder."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import fuzz_inputs
import fuzz_readers
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hmx.errors import ExitCode, HmxError
from hmx.records import artefact, checkpoints

ROOT = Path(__file__).parents[2]
NAMES = (
    "config", "scenario", "manifest", "metrics", "meta", "lock", "buffer", "scores", "settings", "trial", "rung",
    "promotion", "confirmation", "gate", "attempt", "verdict", "adoption", "score", "episodes", "game", "panel",
    "monitor", "program",
)  # fmt: skip
LENIENT = ("metrics", "lock", "score", "program")
"""A torn line, a lock that names no process and a broken cache are left out; a damaged score is a difference."""
DIGITS = "9" * 5000
EXAMPLES = 30  # benchmarks/fuzz_readers.py makes 40,000


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where hostile files are put."""
    return tmp_path_factory.mktemp("hostile")


@pytest.fixture(scope="module")
def readers(place: Path) -> dict[str, fuzz_readers.Reader]:
    """Every reader, with good files."""
    found = fuzz_readers.make_readers(place)
    assert tuple(found) == NAMES
    for name in found:
        (place / name / "3").mkdir(parents=True)
    return found


def answer(readers: dict[str, fuzz_readers.Reader], place: Path, name: str, data: bytes) -> str | None:
    """What is wrong with the way a reader took a file: None for a refusal with words, "" for a value."""
    return fuzz_readers.judge(readers[name], place / name / "3" / readers[name].name, data)


@pytest.mark.parametrize("name", NAMES)
def test_valid_files_are_read(readers, place, name):
    for data in readers[name].corpus:
        folder = place / "good" / "3" if name == "manifest" else place / name / "3"
        assert fuzz_readers.judge(readers[name], folder / readers[name].name, data) == ""


def test_unexpected_error_of_a_reader_is_detected(readers, place):
    def crash(path: Path) -> Any:
        raise ZeroDivisionError("oops")

    def wrong_code(path: Path) -> Any:
        raise HmxError("no", exit_code=ExitCode.UNEXPECTED)

    def endless(path: Path) -> Any:
        raise HmxError("x" * 20_000)

    found = []
    for read in (crash, wrong_code, endless):
        found.append(fuzz_readers.judge(readers["config"]._replace(read=read), place / "x", b""))
    assert found == ["ZeroDivisionError: oops", "exit code 1", "a message of 10,038 characters"]


def nested(depth: int, inside: Any = 1) -> Any:
    for _ in range(depth):
        inside = [inside]
    return inside


ANYWHERE = {
    "nothing": b"",
    "byte order mark": b"\xef\xbb\xbf",
    "zero bytes": b"\0" * 100,
    "UTF-16": '{"a": 1}'.encode("utf-16"),
    "no text": b"\xff\xfe\x80",
    "half a surrogate pair": '"\ud800"'.encode("utf-8", "surrogatepass"),
    "5,000 digits": DIGITS.encode(),
    "5,000 digits in an object": f'{{"schema": {DIGITS}, "player": {DIGITS}, "update": {DIGITS}}}'.encode(),
    "nan": b'{"schema": NaN, "update": Infinity, "player": -Infinity}',
    "huge exponent": b'{"schema": 1e999999, "update": -1e999999}',
    "keys twice": b'{"schema": 1, "schema": 2, "player": {"row": 0, "row": 9, "col": 0}}',
    "deep": b"[" * 100_000,
    "deep and closed": b"[" * 300 + b"]" * 300,
    "as deep as can be": b'{"player": ' * 990 + b"1" + b"}" * 990,
    "a list": b"[1, 2]",
    "a text": b'"abc"',
    "a number": b"3",
    "a truth": b"true",
    "null": b"null",
}


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("data", ANYWHERE.values(), ids=ANYWHERE)
def test_files_of_another_kind_are_refused(readers, place, name, data):
    lenient = name in LENIENT
    empty = name == "config" and data in (ANYWHERE["nothing"], ANYWHERE["byte order mark"])  # all defaults
    assert answer(readers, place, name, data) in ((None, "") if lenient else ("",) if empty else (None,))


POSITIONS: dict[str, Any] = {
    "many enemies": {"player": {"row": 0, "col": 0}, "enemies": [{}] * 100_000},
    "many fields": {f"field{n}": 1 for n in range(20_000)},
    "long field": {"x" * 200_000: 1},
    "nested value": {"player": {"row": nested(400), "col": {"a": nested(400)}}},
    "huge number": {"player": {"row": 10**4000, "col": -(10**4000)}},
    "fraction": {"player": {"row": 0.5, "col": 0}},
    "escape codes": {"\x1b[2J": 1, "\ud800": 2, "a\n\nhint: b": 3},
    "list for an object": {"player": [], "enemies": [[]], "blocks": [None], "exit": "x", "resources": {}},
    "kind of a kind": {"player": {"row": 0, "col": 0}, "enemies": [{"row": 1, "col": 1, "hp": 1, "type": ["virus"]}]},
}


@pytest.mark.parametrize("position", POSITIONS.values(), ids=POSITIONS)
def test_impossible_positions_are_refused_with_a_short_message(readers, place, position):
    assert answer(readers, place, "scenario", json.dumps(position).encode()) is None


@pytest.mark.parametrize("fields", [{"state": "x" * 70_000}, {"schema": 10**4000}, {"x" * 70_000: 1}])
def test_unusual_meta_data_are_refused_with_a_short_message(readers, place, fields):
    good = readers["meta"].parse(readers["meta"].corpus[0])
    assert answer(readers, place, "meta", readers["meta"].rebuild({**good, **fields})) is None


def manifest_with(folder: Path, **fields: Any) -> Path:
    """A checkpoint whose manifest is sealed, and says these things."""
    checkpoint = folder / "3"
    checkpoint.mkdir()
    checkpoints.write_manifest(checkpoint, 3, leaves=[checkpoints.Leaf("w", (3,), "float32")])
    data = json.loads((checkpoint / "manifest.json").read_text())
    del data[artefact.SEAL]
    text = artefact.sealed({**data, **fields})
    (checkpoint / "manifest.json").write_bytes(text.encode("utf-8", "surrogatepass"))
    return checkpoint


def shape(*sizes: Any) -> dict[str, Any]:
    return {"leaves": [{"path": "w", "shape": list(sizes), "dtype": "float32"}]}


def file(path: Any, size: Any = 1) -> dict[str, Any]:
    return {"files": [{"path": path, "size": size, "sha256": "00"}]}


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        (shape(10**12), "more than"),
        (shape(10**6, 10**6), "more than"),
        (shape(0, 10**30), "more than"),
        (shape(*[10**4000] * 500), "500 dimensions"),
        (shape(*[1] * 10_000), "10,000 dimensions"),
        (shape(-1), "not a manifest"),
        (shape(1e12), "not a manifest"),
        (shape(True), "not a manifest"),
        (file("/etc/passwd"), "'/etc/passwd', which is not a file of the checkpoint"),
        (file("../../../etc/passwd"), "which is not a file of the checkpoint"),
        (file("a/../../b"), "which is not a file of the checkpoint"),
        (file("..\\b"), "which is not a file of the checkpoint"),
        (file(""), "which is not a file of the checkpoint"),
        (file("a\0b"), "which is not a file of the checkpoint"),
        (file("\ud800"), "which is not a file of the checkpoint"),
        (file("x" * 100_000), "which is not a file of the checkpoint"),
        (file("x", -1), "not a manifest"),
        (file(["x"]), "not a manifest"),
        ({"score": 10**400}, "not a manifest"),
        ({"score": float("nan")}, "not a manifest"),
        ({"score": "1"}, "not a manifest"),
        ({"update": 3.0}, "not a manifest"),
        ({"schema": 99}, "newer hmx"),
        ({"leaves": nested(500)}, "not a manifest"),
    ],
)
def test_oversized_manifests_and_outside_paths_are_refused(tmp_path, fields, words):
    checkpoint = manifest_with(tmp_path, **fields)
    with pytest.raises(HmxError) as refusal:
        checkpoints.read_manifest(checkpoint)
    assert refusal.value.exit_code == ExitCode.ARTEFACT
    assert words in refusal.value.message and len(refusal.value.message) < 500
    assert checkpoints.complete(tmp_path) == []


def test_same_manifest_with_valid_values_is_read(tmp_path):
    manifest = checkpoints.read_manifest(manifest_with(tmp_path, **shape(10**9), score=1))
    assert manifest.leaves[0].shape == (10**9,) and manifest.score == 1.0


def test_checkpoint_file_that_links_outside_is_not_read(tmp_path):
    (tmp_path / "secret").write_bytes(b"s")
    checkpoint = manifest_with(tmp_path, **file("inside"))
    (checkpoint / "inside").symlink_to(tmp_path / "secret")
    assert checkpoints.faults(checkpoint) == ["inside: inside is a link"]


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=EXAMPLES)
@given(seed=st.integers(0, 2**48))
def test_any_file_is_read_or_refused(readers, place, name, seed):
    reader = readers[name]
    data = fuzz_inputs.make_input(random.Random(seed), reader.corpus, reader.parse, reader.rebuild)
    assert not answer(readers, place, name, data)


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=EXAMPLES)
@given(data=st.binary(max_size=200))
def test_any_bytes_are_read_or_refused(readers, place, name, data):
    assert not answer(readers, place, name, data)


DANGERS = (
    "import pickle",
    "import pickle as p",
    "from pickle import loads",
    "def f():\n    import marshal",
    "from shelve import open as load",
    "import cloudpickle.cloudpickle",
    "x = eval(text)",
    "exec(text)",
    "import importlib\nimportlib.import_module(name)",
    "import numpy as np\nnp.load(path)",
    "from numpy import load",
    "import subprocess\nsubprocess.run(text, shell=True)",
    "import os\nos.system(text)",
)


@pytest.mark.parametrize("source", DANGERS)
def test_ruff_rejects_code_that_could_execute_a_file(source):
    """`make lint` runs these rules on all modules of hmx."""
    options = ("--output-format", "concise", "--select", "S,TID251", "--stdin-filename", "hmx/x.py", "-")
    command = [sys.executable, "-m", "ruff", "check", *options]
    found = subprocess.run(command, input=source + "\n", capture_output=True, text=True, cwd=ROOT)
    assert found.returncode == 1
    assert ": S" in found.stdout or ": TID251" in found.stdout


def test_no_module_imports_by_name():
    """Ruff has no rule against `__import__`."""
    assert not [path for path in (ROOT / "hmx").rglob("*.py") if "__import__" in path.read_text()]
