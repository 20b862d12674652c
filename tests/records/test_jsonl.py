import contextlib
import errno
import json
import math
import os

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hmx.errors import ExitCode, HmxError
from hmx.records import jsonl
from hmx.records.jsonl import Mark, Marker, MetricsWriter, begins_with, cut, read, repair, salvage, scan, survey, tail

KEYS = st.text(max_size=8).filter(lambda key: key != "schema")
NUMBERS = st.one_of(st.integers(), st.floats(allow_nan=False, allow_infinity=False))
RECORDS = st.lists(st.dictionaries(KEYS, NUMBERS, max_size=8), max_size=5)


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
def test_round_trip_keeps_all_values(tmp_path_factory, records):
    path = tmp_path_factory.mktemp("jsonl") / "m.jsonl"
    with MetricsWriter(path) as writer:
        for record in records:
            writer.write(record)
        writer.flush()
    assert list(read(path)) == records
    assert path.read_bytes().count(b"\n") == len(records)


def test_non_finite_numbers_are_null_and_counted(path):
    with MetricsWriter(path) as writer:
        writer.write({"update": 1, "a": math.nan, "b": math.inf, "c": -math.inf, "d": 2.0})
        writer.write({"update": 2, "a": 1.0})
    first, second = read(path)
    assert first == {"update": 1, "a": None, "b": None, "c": None, "d": 2.0, "nonfinite": 3}
    assert second == {"update": 2, "a": 1.0}
    strict = {"parse_constant": lambda name: pytest.fail(f"{name} is not JSON")}
    assert [json.loads(line, **strict) for line in path.read_text().splitlines()]


def test_every_line_is_one_write_and_visible_at_once(path, monkeypatch):
    sizes = []
    write = os.write
    monkeypatch.setattr(jsonl.os, "write", lambda handle, data: sizes.append(len(data)) or write(handle, data))
    with MetricsWriter(path) as writer:
        writer.write({"update": 1})
        assert updates(path) == [1]
        writer.write({"update": 2})
        assert updates(path) == [1, 2]
    assert sizes == [len(line) for line in path.read_bytes().splitlines(keepends=True)]


def test_short_write_is_continued(path, monkeypatch):
    write = os.write
    monkeypatch.setattr(jsonl.os, "write", lambda handle, data: write(handle, data[:3]))
    fill(path, 1, 2)
    assert updates(path) == [1, 2]


@pytest.mark.parametrize("failures, written", [(1, [1, 2]), (2, [1])])
def test_failed_write_is_retried_once(path, monkeypatch, failures, written):
    write, calls = os.write, []

    def fails(handle, data):
        calls.append(data)
        if 1 < len(calls) <= 1 + failures:
            raise OSError(errno.ENOSPC, "No space left on device")
        return write(handle, data)

    monkeypatch.setattr(jsonl, "_RETRY_SECONDS", 0.0)
    monkeypatch.setattr(jsonl.os, "write", fails)
    with contextlib.nullcontext() if failures == 1 else pytest.raises(OSError, match="No space left"):
        fill(path, 1, 2)
    assert updates(path) == written


def test_writing_continues_at_the_end_of_the_file(path):
    fill(path, 1, 2)
    fill(path, 3)
    assert updates(path) == [1, 2, 3]


def test_closed_writer_raises_an_error(path):
    writer = MetricsWriter(path)
    writer.close()
    writer.close()
    writer.flush()
    with pytest.raises(ValueError, match="is closed"):
        writer.write({"update": 1})


def test_torn_last_line_is_repaired_at_every_byte(path):
    fill(path, 1, 2)
    whole = path.read_bytes()
    first = whole.index(b"\n") + 1
    for end in range(first, len(whole)):
        path.write_bytes(whole[:end])
        lost = end < len(whole) - 1
        assert updates(path) == ([1] if lost else [1, 2])
        fill(path, 3)
        assert updates(path) == ([1, 3] if lost else [1, 2, 3])


@pytest.mark.parametrize("junk", [b"\0\0\0\0", b"\0\0\n", b"[1]\n", b"\xff\n", b"12", b"{}{}\n"])
def test_last_line_of_junk_is_dropped(path, junk):
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


def test_long_short_and_missing_files_are_repaired(path, monkeypatch):
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


def test_missing_or_unreadable_metrics_file_is_an_error(path):
    with pytest.raises(HmxError, match="there is no metrics file") as caught:
        list(read(path))
    assert caught.value.exit_code is ExitCode.ARTEFACT
    for call in (lambda: salvage(path, 3), lambda: survey(path), lambda: tail(path), lambda: cut(path, 0)):
        with pytest.raises(FileNotFoundError):
            call()
    assert os.listdir(path.parent) == []
    path.mkdir()
    with pytest.raises(HmxError, match="cannot read"):
        list(read(path))


@pytest.mark.parametrize(
    ("update", "left"), [(0, []), (2, [1, 1, 2, 2]), (3, [1, 1, 2, 2, 3, 3]), (9, [1, 1, 2, 2, 3, 3])]
)
def test_resume_truncates_late_records(path, update, left):
    fill(path, 1, 1, 2, 2, 3, 3)
    before = path.read_bytes()
    with path.open("ab") as file:
        file.write(b'{"update":4,"tr')
    assert salvage(path, update) == []
    assert updates(path) == left
    assert before.startswith(path.read_bytes())
    fill(path, update + 1)
    assert updates(path) == [*left, update + 1]


def test_truncation_finds_late_records_wherever_they_are(path):
    fill(path, 1, 2, 3, 2, 3, 4)
    assert salvage(path, 2) == []
    assert updates(path) == [1, 2, 2]


def test_truncation_keeps_the_last_line_without_its_end(path):
    fill(path, 1, 2)
    path.write_bytes(path.read_bytes()[:-1])
    assert salvage(path, 2) == []
    assert updates(path) == [1, 2]
    assert path.read_bytes().endswith(b"\n")


def test_failed_truncation_keeps_the_file(path, monkeypatch):
    fill(path, 1, 2)
    before = path.read_bytes()

    def fail(source, target):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(jsonl.os, "replace", fail)
    with pytest.raises(OSError, match="No space left"):
        salvage(path, 1)
    assert path.read_bytes() == before
    assert os.listdir(path.parent) == [path.name]


def test_damaged_lines_are_skipped_and_reported(path):
    fill(path, 1, 2, 3, 4)
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([lines[0], b'{"update": "2"}\n', b"\xff\n", b"[]\n", *lines[2:], b'{"upd']))
    assert salvage(path, 3) == [2, 3, 4]
    assert updates(path) == [1, 3]


def test_mark_covers_the_file_and_hashes_only_new_bytes(path, monkeypatch):
    marker = Marker(path)
    # SHA-256 of nothing
    assert marker.mark() == Mark(0, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855")
    marks = []
    for update in range(1, 5):
        fill(path, update)
        marks.append(marker.mark())
        assert marks[-1] == Marker(path).mark()
        assert marks[-1].size == path.stat().st_size
    assert all(begins_with(path, mark) for mark in marks)
    data = bytearray(path.read_bytes())
    data[marks[1].size + 3] ^= 1
    path.write_bytes(bytes(data))
    assert [begins_with(path, mark) for mark in marks] == [True, True, False, False]
    cut(path, marks[1].size)
    assert updates(path) == [1, 2]
    assert [begins_with(path, mark) for mark in marks] == [True, True, False, False]
    assert marker.mark() == marks[1], "a file that became shorter is read anew"
    with pytest.raises(OSError, match="fewer than"):
        cut(path, marks[2].size)


def test_tail_contains_the_lines_that_fit(path):
    fill(path, *range(1, 101))
    assert [record["update"] for record in tail(path)] == list(range(1, 101))
    few = [record["update"] for record in tail(path, 300)]
    assert 2 <= len(few) < 10
    assert few == list(range(101 - len(few), 101))
    with path.open("ab") as file:
        file.write(b'\xff\n{"update":101')
    assert tail(path, 300)[-1]["update"] == 100
    path.write_bytes(b"")
    assert tail(path) == []


@pytest.mark.parametrize(
    ("records", "last", "missing", "repeated"),
    [
        ([], 0, (), ()),
        ([(1, 0), (2, 0), (3, 0)], 3, (), ()),
        ([(1, 0), (1, 1), (2, 0), (2, 1)], 2, (), ()),
        ([(1, 0), (2, 0), (5, 0), (7, 0)], 7, ((3, 4), (6, 6)), ()),
        ([(3, 0)], 3, ((1, 2),), ()),
        ([(1, 0), (2, 0), (2, 0), (3, 0), (1, 0), (1, 0)], 3, (), (2, 1)),
    ],
)
def test_gaps_and_repeated_records_are_reported(path, records, last, missing, repeated):
    with MetricsWriter(path) as writer:
        for update, seed in records:
            writer.write({"update": update, "seed": seed})
    found = survey(path)
    assert (found.records, found.last, found.missing, found.repeated) == (len(records), last, missing, repeated)
    assert (found.damaged, found.torn) == ((), False)


def test_a_torn_line_is_not_damage_but_a_broken_one_is(path):
    fill(path, 1, 2)
    with path.open("ab") as file:
        file.write(b'{"upda')
    assert survey(path)[2:4] == ((), True)
    path.write_bytes(b"{}\n" + path.read_bytes() + b"\n")
    assert survey(path)[2:4] == ((1, 4), False)


def test_endless_line_is_not_read_completely(path, monkeypatch):
    monkeypatch.setattr(jsonl, "MAX_LINE", 100)
    path.write_bytes(b'{"update":1}\n{"x":"' + b"y" * 1000 + b'"}\n')
    with pytest.raises(HmxError, match="jsonl:2: not a JSON object"):
        updates(path)


def test_lines_have_a_schema_that_readers_drop(path):
    fill(path, 1)
    assert path.read_text().startswith('{"schema":2,"update":1,')
    assert set(next(read(path))) == {"update", "train/entropy"}
    path.write_text('{"update":1}\n')
    assert updates(path) == [1], "written before lines had one"


def test_old_names_of_metrics_are_renamed_by_every_reader(path):
    path.write_text('{"schema":1,"update":1,"train/cut_frac":0.5,"train/entropy":1.0}\n')
    renamed = {"update": 1, "train/truncated_frac": 0.5, "train/entropy": 1.0}
    assert list(read(path)) == [renamed]
    assert tail(path) == [{"schema": 1, **renamed}]
    assert [record for _, _, record in scan(path)] == [{"schema": 1, **renamed}]


def test_records_of_another_run_are_salvaged_as_damaged_lines(path):
    path.write_text('{"update":1,"run":"a"}\n{"update":2,"run":"b"}\n{"update":3}\n')
    assert survey(path).runs == ("a", "b")
    assert salvage(path, 9, "a") == [2]
    assert [record["update"] for record in read(path)] == [1, 3]


def test_lines_of_a_newer_schema_are_refused(path):
    path.write_text('{"schema":1,"update":1}\n{"schema":3,"update":2}\n')
    before = path.read_bytes()
    for call in (lambda: updates(path), lambda: salvage(path, 1), lambda: survey(path)):
        with pytest.raises(HmxError, match=r"metrics.jsonl:2 has schema 3, written by a newer hmx") as caught:
            call()
        assert caught.value.exit_code is ExitCode.ARTEFACT
    assert path.read_bytes() == before


def test_only_regular_files_are_read(path):
    fill(path, 1)
    link = path.with_name("link.jsonl")
    link.symlink_to(path)
    os.mkfifo(path.with_name("pipe.jsonl"))
    for other, words in (("link", "a link instead"), ("pipe", "not a regular file")):
        with pytest.raises(HmxError, match=words):
            updates(path.with_name(f"{other}.jsonl"))
        assert not begins_with(path.with_name(f"{other}.jsonl"), Marker(path).mark())


def test_a_check_stops_after_many_damaged_lines(tmp_path):
    path = tmp_path / "metrics.jsonl"
    path.write_bytes(b'{"update": 1}\n' + b"x\n" * 150 + b'{"update": 2}\n')
    found = jsonl.survey(path)
    assert (found.records, len(found.damaged), found.whole) == (1, jsonl.MOST_DAMAGED, False)
    path.write_bytes(b'{"update": 1}\n')
    os.truncate(path, 20 << 30)  # sparse: it takes no space on disk, and would take minutes to read
    found = jsonl.survey(path)
    assert (len(found.damaged), found.whole, found.torn) == (jsonl.MOST_DAMAGED, False, False)


def test_records_are_adopted_up_to_an_update_and_up_to_many_damaged_lines(tmp_path):
    source, target = tmp_path / "metrics.jsonl", tmp_path / "adopted.jsonl"
    line = '{{"schema":2,"run":"{run}","update":{update}}}\n'
    lines = [line.format(run=run, update=update) for run, update in (("a", 1), ("b", 2), ("a", 2), ("a", 3))]
    source.write_text("".join(lines) + "damaged\n" * 300 + lines[0] + "torn")
    assert jsonl.adopt(source, target, 2, "a", "new") == [2, *range(5, 4 + jsonl.MOST_DAMAGED)]
    assert [json.loads(line) for line in target.read_text().splitlines()] == [
        {"schema": 2, "run": "new", "update": update} for update in (1, 2)
    ]
