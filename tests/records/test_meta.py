import dataclasses
import datetime
import importlib.metadata
import json
import os
import subprocess

import pytest

from hmx.errors import ExitCode, HmxError
from hmx.records import atomic, meta

PLAIN = meta.Meta(created="2026-01-01T00:00:00+00:00", updated="2026-01-01T00:00:00+00:00")


def test_round_trip_keeps_all_values(tmp_path):
    path = tmp_path / "meta.json"
    full = meta.collect("2 CPU cores", ["hmx", "train", "--seed", "1"], "c" * 64, "s" * 64)
    full = meta.resumed(full, 12, ["hmx", "resume", "x"])
    full = meta.changed(full, state="failed", message="disk full", env_steps=10**12)
    for value in (PLAIN, full):
        meta.write(path, value)
        assert meta.read(path) == value
    assert json.loads(path.read_text())["schema"] == meta.SCHEMA


def test_meta_data_contains_versions_and_device(monkeypatch):
    monkeypatch.setattr("sys.argv", ["hmx", "train"])
    found = meta.collect("a device")
    assert found.command == ("hmx", "train")
    assert found.state == "running"
    assert found.versions["jax"] == importlib.metadata.version("jax")
    age = datetime.datetime.now(datetime.UTC) - datetime.datetime.fromisoformat(found.created)
    assert datetime.timedelta(0) <= age < datetime.timedelta(minutes=5)


def test_resume_keeps_earlier_meta_data(monkeypatch):
    again = meta.resumed(dataclasses.replace(PLAIN, state="failed", message="no space"), 7, ["hmx", "resume"])
    assert (again.state, again.message, again.update, again.created) == ("running", "", 7, PLAIN.created)
    assert [(r.update, r.command) for r in again.resumes] == [(7, ("hmx", "resume"))]
    assert len(meta.resumed(again, 9, []).resumes) == 2
    assert again.updated > PLAIN.updated


def test_resume_records_its_repairs(tmp_path):
    found = meta.resumed(
        PLAIN, 4, ["hmx"], {"net.hidden": [(8, 8), (4,)]}, {"6": "arrays/d: gone"}, ["a lock was left behind"]
    )
    meta.write(tmp_path / "meta.json", found)
    (entry,) = meta.read(tmp_path / "meta.json").resumes
    assert entry.changes == {"net.hidden": [[8, 8], [4]]}
    assert (entry.damaged, entry.notes) == ({"6": "arrays/d: gone"}, ("a lock was left behind",))


def test_digest_identifies_the_text_of_the_configuration():
    # SHA-256 of "{}"
    expected = "44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a"
    assert meta.collect("", (), config="{}").config_sha256 == meta.sha256("{}") == expected
    assert meta.collect("", ()).config_sha256 == ""


def test_every_changed_byte_is_detected(tmp_path):
    path = tmp_path / "meta.json"
    meta.write(path, dataclasses.replace(PLAIN, message="x"))
    data = path.read_bytes()
    for at in range(len(data)):
        for bit in (1, 16):
            path.write_bytes(data[:at] + bytes([data[at] ^ bit]) + data[at + 1 :])
            with pytest.raises(HmxError):
                meta.read(path)


def test_file_of_schema_1_has_no_seal(tmp_path):
    path = tmp_path / "meta.json"
    meta.write(path, PLAIN)
    data = json.loads(path.read_text())
    del data["config_sha256"], data["sha256"]
    path.write_text(json.dumps({**data, "schema": 1, "resumes": [{"at": "x", "update": 3, "command": []}]}))
    assert meta.read(path) == dataclasses.replace(PLAIN, resumes=(meta.Resume(at="x", update=3, command=()),))


def git(folder, *arguments):
    identity = ("-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false")
    subprocess.run(["git", "-C", str(folder), *identity, *arguments], check=True, capture_output=True)


def test_git_revision_of_a_checkout_is_recorded(tmp_path):
    state, package = meta.git_state.__wrapped__, tmp_path / "pkg"  # without its cache
    package.mkdir()
    (package / "a.py").write_text("")
    assert state(package) == ("", False)
    git(tmp_path, "init", "-q")
    git(tmp_path, "commit", "-q", "--allow-empty", "-m", "x")
    assert state(package) == ("", False), "not tracked: installed inside another project"
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-q", "-m", "x")
    head = subprocess.run(["git", "-C", str(tmp_path), "rev-parse", "HEAD"], capture_output=True, text=True, check=True)
    assert state(package) == (head.stdout.strip(), False)
    (package / "a.py").write_text("x = 1")
    assert state(package) == (head.stdout.strip(), True)


def test_revision_is_empty_without_git(tmp_path, monkeypatch):
    (tmp_path / ".git").mkdir()
    monkeypatch.setenv("PATH", str(tmp_path))
    assert meta.git_state(tmp_path) == ("", False)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "cannot read"),
        ("[]", "damaged"),
        ("{}", "damaged"),
        ('{"schema": 1, "created": "x", "updated": "x", "command": [], "resumes": [1]}', "damaged"),
        ('{"schema": 1, "created": "x", "updated": "x", "command": [], "resumes": [], "surprise": 1}', "damaged"),
        (
            '{"schema": 1, "created": "x", "updated": "x", "command": [], "resumes": [], "state": "odd"}',
            "unknown state",
        ),
        ('{"schema": 5}', "schema 5, written by a newer hmx"),
        ('{"schema": 2}', "its content has changed"),
        ('{"schema": 1, "created": "x", "updated": "x", "command": [], "resumes": [], "update": "5"}', "damaged"),
        ("[" * 100_000, "cannot read"),
        ("\udcff", "cannot read"),
    ],
)
def test_a_damaged_file_is_an_error(tmp_path, text, words):
    path = tmp_path / "meta.json"
    path.write_bytes(text.encode("utf-8", "surrogateescape"))
    with pytest.raises(HmxError, match=words) as caught:
        meta.read(path)
    assert caught.value.exit_code is ExitCode.ARTEFACT
    assert caught.value.hint


def test_missing_file_is_an_error(tmp_path):
    with pytest.raises(HmxError, match=r"meta.json is missing") as caught:
        meta.read(tmp_path / "meta.json")
    assert caught.value.exit_code is ExitCode.ARTEFACT


@pytest.mark.parametrize("step", ["fsync", "replace"])
def test_failed_write_keeps_only_the_old_file(tmp_path, monkeypatch, step):
    path = tmp_path / "meta.json"
    meta.write(path, PLAIN)

    def fail(*arguments):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(atomic.os, step, fail)
    with pytest.raises(OSError, match="No space left"):
        meta.write(path, dataclasses.replace(PLAIN, state="finished"))
    assert meta.read(path) == PLAIN
    assert os.listdir(tmp_path) == ["meta.json"]


def test_data_is_synced_before_the_rename(tmp_path, monkeypatch):
    order = []
    fsync, replace = os.fsync, os.replace
    monkeypatch.setattr(atomic.os, "fsync", lambda handle: order.append("fsync") or fsync(handle))
    monkeypatch.setattr(atomic.os, "replace", lambda a, b: order.append("replace") or replace(a, b))
    atomic.write_text(tmp_path / "x", "text")
    assert order == ["fsync", "replace", "fsync"]


def test_write_errors_have_a_message(tmp_path):
    path = tmp_path / "no" / "x"
    with (
        pytest.raises(HmxError, match=r"cannot write the report .*/x: no such file or directory") as caught,
        atomic.writing("the report", path, ExitCode.ARTEFACT),
    ):
        atomic.write_text(path, "")
    assert caught.value.exit_code is ExitCode.ARTEFACT


def test_too_long_file_is_not_read(tmp_path):
    """Numbers of millions of digits take longer to be read than anybody waits."""
    with (tmp_path / "meta.json").open("wb") as file:
        file.truncate((8 << 20) + 1)
    with pytest.raises(HmxError, match="8,388,609 bytes, more than the maximum of 8,388,608") as caught:
        meta.read(tmp_path / "meta.json")
    assert caught.value.exit_code is ExitCode.ARTEFACT
