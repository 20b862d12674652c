import json
import math
import os

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hmx.errors import ExitCode, HmxError
from hmx.records import jsonl
from hmx.records.jsonl import MetricsWriter, read, repair, truncate_after

RECORDS = st.lists(
    st.dictionaries(st.text(max_size=8), st.one_of(st.integers(), st.floats(allow_nan=False, allow_infinity=False))),
    max_size=5,
)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "metrics.jsonl"


def fill(path, *updates):
    with MetricsWriter(path) as writer:
        for update in updates:
            writer.write({"update": update, "train/entropy": update / 3})


def updates(path):
    return [record["update"] for record in read(path)]


@settings(max_examples=30)
@given(RECORDS)
def test_round_trip(tmp_path_factory, records):
    path = tmp_path_factory.mktemp("jsonl") / "m.jsonl"
    with MetricsWriter(path) as writer:
        for record in records:
            writer.write(record)
        writer.flush()
    assert list(read(path)) == records
    assert path.read_bytes().count(b"\n") == len(records)


def test_numbers_that_are_not_finite_are_null_and_counted(path):
    with MetricsWriter(path) as writer:
        writer.write({"update": 1, "a": math.nan, "b": math.inf, "c": -math.inf, "d": 2.0})
        writer.write({"update": 2, "a": 1.0})
    first, second = read(path)
    assert first == {"update": 1, "a": None, "b": None, "c": None, "d": 2.0, "nonfinite": 3}
    assert second == {"update": 2, "a": 1.0}
    strict = {"parse_constant": lambda name: pytest.fail(f"{name} is not JSON")}
    assert [json.loads(line, **strict) for line in path.read_text().splitlines()]


def test_one_write_per_line_seen_at_once(path, monkeypatch):
    sizes = []
    write = os.write
    monkeypatch.setattr(jsonl.os, "write", lambda handle, data: sizes.append(len(data)) or write(handle, data))
    with MetricsWriter(path) as writer:
        writer.write({"update": 1})
        assert updates(path) == [1]
        writer.write({"update": 2})
        assert updates(path) == [1, 2]
    assert sizes == [len(line) for line in path.read_bytes().splitlines(keepends=True)]


def test_a_short_write_is_gone_on_with(path, monkeypatch):
    write = os.write
    monkeypatch.setattr(jsonl.os, "write", lambda handle, data: write(handle, data[:3]))
    fill(path, 1, 2)
    assert updates(path) == [1, 2]


def test_writing_goes_on_where_it_ended(path):
    fill(path, 1, 2)
    fill(path, 3)
    assert updates(path) == [1, 2, 3]


def test_a_closed_writer_says_so(path):
    writer = MetricsWriter(path)
    writer.close()
    writer.close()
    writer.flush()
    with pytest.raises(ValueError, match="has been closed"):
        writer.write({"update": 1})


def test_every_way_to_tear_the_last_line(path):
    fill(path, 1, 2)
    whole = path.read_bytes()
    first = whole.index(b"\n") + 1
    for cut in range(first, len(whole)):
        path.write_bytes(whole[:cut])
        lost = cut < len(whole) - 1
        assert updates(path) == ([1] if lost else [1, 2])
        fill(path, 3)
        assert updates(path) == ([1, 3] if lost else [1, 2, 3])


@pytest.mark.parametrize("junk", [b"\0\0\0\0", b"\0\0\n", b"[1]\n", b"\xff\n", b"12", b"{}{}\n"])
def test_a_last_line_of_junk_is_dropped(path, junk):
    fill(path, 1)
    with path.open("ab") as file:
        file.write(junk)
    damaged = path.read_bytes()
    assert updates(path) == [1]
    fill(path, 2)
    assert updates(path) == [1, 2]
    path.write_bytes(damaged)
    assert repair(path) == len(junk)
    assert repair(path) == 0


def test_repair_of_long_short_and_missing_files(path, monkeypatch):
    assert repair(path) == 0
    assert not path.exists()
    path.write_bytes(b"")
    assert repair(path) == 0
    path.write_bytes(b'{"upd')
    assert repair(path) == 5
    assert path.read_bytes() == b""
    monkeypatch.setattr(jsonl, "_TAIL", 4)
    fill(path, *range(50))
    with path.open("ab") as file:
        file.write(b'{"update": 50, "x": "' + b"y" * 100)
    assert repair(path) == 121
    assert updates(path) == list(range(50))


def test_damage_in_the_middle_is_an_error_with_its_line(path):
    fill(path, 1, 2)
    path.write_bytes(b'{"update":0}\n{"upda\n' + path.read_bytes())
    with pytest.raises(HmxError, match=r"metrics.jsonl:2: not a JSON object") as caught:
        updates(path)
    assert caught.value.exit_code is ExitCode.ARTEFACT
    before = path.read_bytes()
    with pytest.raises(HmxError):
        truncate_after(path, 1)
    assert path.read_bytes() == before
    assert os.listdir(path.parent) == [path.name]


def test_no_file(path):
    for call in (lambda: list(read(path)), lambda: truncate_after(path, 3)):
        with pytest.raises(HmxError, match="there is no metrics file") as caught:
            call()
        assert caught.value.exit_code is ExitCode.ARTEFACT
    assert os.listdir(path.parent) == []
    path.mkdir()
    with pytest.raises(HmxError, match="cannot read"):
        list(read(path))


@pytest.mark.parametrize(
    ("update", "left"), [(0, []), (2, [1, 1, 2, 2]), (3, [1, 1, 2, 2, 3, 3]), (9, [1, 1, 2, 2, 3, 3])]
)
def test_truncation_for_a_resume(path, update, left):
    fill(path, 1, 1, 2, 2, 3, 3)
    before = path.read_bytes()
    with path.open("ab") as file:
        file.write(b'{"update":4,"tr')
    assert truncate_after(path, update) == 6 - len(left)
    assert updates(path) == left
    assert before.startswith(path.read_bytes())
    fill(path, update + 1)
    assert updates(path) == [*left, update + 1]


def test_truncation_finds_late_records_wherever_they_are(path):
    fill(path, 1, 2, 3, 2, 3, 4)
    assert truncate_after(path, 2) == 3
    assert updates(path) == [1, 2, 2]


def test_truncation_keeps_the_last_line_without_its_end(path):
    fill(path, 1, 2)
    path.write_bytes(path.read_bytes()[:-1])
    assert truncate_after(path, 2) == 0
    assert updates(path) == [1, 2]
    assert path.read_bytes().endswith(b"\n")


def test_a_failed_truncation_leaves_the_file(path, monkeypatch):
    fill(path, 1, 2)
    before = path.read_bytes()

    def fail(source, target):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(jsonl.os, "replace", fail)
    with pytest.raises(OSError, match="No space left"):
        truncate_after(path, 1)
    assert path.read_bytes() == before
    assert os.listdir(path.parent) == [path.name]
