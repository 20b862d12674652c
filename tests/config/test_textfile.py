"""Text that somebody else wrote: read up to a limit, and shown so that it can do nothing to a terminal."""

import os
import threading

import pytest

from hmx.config.coerce import show
from hmx.config.textfile import MAX_BYTES, printable, quoted, read_text


def test_byte_order_mark_is_removed(tmp_path):
    (tmp_path / "a").write_bytes(b"\xef\xbb\xbfabc")
    assert read_text(tmp_path / "a") == "abc"


def test_long_file_is_not_read_to_its_end(tmp_path):
    (tmp_path / "just").write_bytes(b"x" * MAX_BYTES)
    assert len(read_text(tmp_path / "just")) == MAX_BYTES
    (tmp_path / "over").write_bytes(b"x" * (MAX_BYTES + 1))
    with pytest.raises(OSError, match="1,048,576"):
        read_text(tmp_path / "over")


def test_a_pipe_is_read_until_it_ends(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    writer = threading.Thread(target=lambda: (tmp_path / "pipe").write_bytes(b"abc" * 50_000))
    writer.start()
    assert read_text(tmp_path / "pipe") == "abc" * 50_000
    writer.join()


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain, naïve, 日本", "plain, naïve, 日本"),
        ("a\x1b[2Jb\x07", "a\\x1b[2Jb\\x07"),
        ("\u202eabc", "\\u202eabc"),
        ("\ud800", "\\ud800"),
        ('it\'s \\ "quoted"\0', 'it\'s \\ "quoted"\\x00'),
        ("two\nlines\t|", "two\nlines\t|"),
    ],
)
def test_printable(text, shown):
    assert printable(text) == shown


def test_quoted_is_one_short_line():
    assert quoted("a\n\nhint: b") == "a\\n\\nhint: b"
    assert quoted("x" * 80) == "x" * 80
    assert quoted("x" * 81) == "x" * 77 + "..."
    assert len(quoted("\0" * 10**6)) == 80


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ([1, 2], "1,2"),
        ([1, [2]], "1,[...]"),
        ([{"a": 1}], "[...]"),
        ({"a": 1}, "{...}"),
        (16**5000, "a number of 20,001 bits"),
    ],
    ids=["list", "nested list", "table in a list", "table", "huge"],
)
def test_nested_and_huge_values_are_abbreviated(value, shown):
    assert show(value) == shown
