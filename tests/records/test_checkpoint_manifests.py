import errno
import json
import os
import shutil
from pathlib import Path

import pytest

from hmx.config import files
from hmx.config.files import Unreadable
from hmx.errors import ExitCode, HmxError
from hmx.records import checkpoints
from hmx.records.artefact import NewerSchema, sealed
from hmx.records.checkpoints import (
    CheckpointInfo,
    Leaf,
    Retention,
    complete,
    faults,
    leaf_differences,
    listing,
    newest_intact,
    surplus,
)
from hmx.records.jsonl import Mark

LEAVES = (Leaf("params/head/kernel", (3, 4), "float32"), Leaf("key", (), "key<fry>"))


def make(folder, update, manifest=True, **more):
    path = folder / str(update)
    (path / "arrays" / "d").mkdir(parents=True)
    (path / "arrays" / "d" / "data").write_bytes(b"x" * 1000 + str(update).encode())
    (path / "leaves.json").write_text("{}")
    if manifest:
        info = CheckpointInfo(env_steps=update * 10, shape_digest="shape", config_digest="config", **more)
        checkpoints.write_manifest(path, update, LEAVES, info)
    return path


def rewrite(path, **change):
    """A manifest with other content and a right seal, as a stranger may write it."""
    data = json.loads((path / "manifest.json").read_text())
    del data["sha256"]
    (path / "manifest.json").write_text(sealed({**data, **change}))


def test_manifest_round_trip_keeps_all_fields(tmp_path):
    path = make(tmp_path, 5)
    manifest = checkpoints.read_manifest(path)
    assert (manifest.update, manifest.env_steps, manifest.schema) == (5, 50, 3)
    assert (manifest.shape_digest, manifest.config_digest) == ("shape", "config")
    assert manifest.leaves == LEAVES
    assert [(f.path, f.size) for f in manifest.files] == [("arrays/d/data", 1001), ("leaves.json", 2)]
    # sha256 of "{}"
    assert manifest.files[1].sha256 == "44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a"
    assert faults(path) == []


def test_score_and_mark_are_stored(tmp_path):
    path = make(tmp_path, 5, score=1.5, metrics=Mark(7, "abc"))
    manifest = checkpoints.read_manifest(path)
    assert (manifest.score, manifest.metrics) == (1.5, Mark(7, "abc"))
    for score in (None, float("nan"), float("inf")):
        shutil.rmtree(path)
        assert checkpoints.read_manifest(make(tmp_path, 5, score=score)).score is None


def test_manifest_of_schema_1_is_read(tmp_path):
    path = make(tmp_path, 5)
    data = json.loads((path / "manifest.json").read_text())
    for key in ("score", "metrics", "run_id", "sha256"):
        del data[key]
    (path / "manifest.json").write_text(json.dumps({**data, "schema": 1}))
    assert faults(path) == []
    manifest = checkpoints.read_manifest(path)
    assert (manifest.schema, manifest.score, manifest.metrics) == (1, None, None)


def test_every_changed_byte_of_a_manifest_is_detected(tmp_path):
    path = make(tmp_path, 5, score=0.25)
    file = path / "manifest.json"
    data = file.read_bytes()
    for at in range(len(data)):
        file.write_bytes(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])
        assert faults(path, deep=False), at


def test_checkpoints_are_listed_by_number_and_other_files_skipped(tmp_path):
    for update in (100, 20, 3):
        make(tmp_path, update)
    make(tmp_path, 7, manifest=False)
    for other in (".tmp-4-1", "5.orbax-checkpoint-tmp", "latest", "-6", "²"):
        (tmp_path / other).mkdir()
    (tmp_path / "8").write_text("a file")
    (tmp_path / "9").symlink_to(tmp_path / "100")
    assert [p.name for p in listing(tmp_path)] == ["3", "7", "8", "9", "20", "100"]
    assert faults(tmp_path / "8") == ["a file instead of a folder"]
    assert faults(tmp_path / "9") == ["a link instead of a folder"]
    assert [p.name for p in complete(tmp_path)] == ["3", "20", "100"]
    assert listing(tmp_path / "none") == complete(tmp_path / "8") == []


DATA = "arrays/d/data"


def elsewhere(path, name=""):
    """Move a part of a checkpoint away, and leave a link to it."""
    (path / name).rename(path.parent / "elsewhere")
    (path / name).symlink_to(path.parent / "elsewhere")


def seal(path):
    data = (path / "manifest.json").read_text()
    (path / "manifest.json").write_text(data.replace('"update": 10', '"update": 11'))


DAMAGES = {
    "missing": lambda path: (path / "leaves.json").unlink(),
    "short": lambda path: os.truncate(path / DATA, 10),
    "bit": lambda path: (path / DATA).write_bytes(b"y" + (path / DATA).read_bytes()[1:]),
    "folder": lambda path: shutil.rmtree(path / "arrays"),
    "manifest": lambda path: (path / "manifest.json").write_text("{"),
    "no manifest": lambda path: (path / "manifest.json").unlink(),
    "number": lambda path: rewrite(path, update=1),
    "seal": seal,
    "link": lambda path: elsewhere(path, DATA),
    "linked folder": lambda path: elsewhere(path, "arrays"),
    "whole link": elsewhere,
    "other file": lambda path: ((path / "leaves.json").unlink(), (path / "leaves.json").mkdir()),
}


@pytest.mark.parametrize(
    ("damage", "words", "seen_by_size"),
    [
        ("missing", "leaves.json: no such file or directory", True),
        ("short", "arrays/d/data: 10 bytes instead of 1,002", True),
        ("bit", "arrays/d/data: the content has changed", False),
        ("folder", "arrays/d/data: no such file or directory", True),
        ("manifest", "cannot read", True),
        ("no manifest", "is incomplete: it has no manifest.json", True),
        ("number", "the manifest is of update 1", True),
        ("seal", "its content has changed", True),
        ("link", "arrays/d/data: data is a link", True),
        ("linked folder", "arrays/d/data: arrays is a link", True),
        ("whole link", "a link instead of a folder", True),
        ("other file", "leaves.json: not a regular file", True),
    ],
)
def test_damaged_newest_checkpoint_falls_back_to_the_previous_one(tmp_path, damage, words, seen_by_size):
    older, newest = make(tmp_path, 9), make(tmp_path, 10)
    assert newest_intact(tmp_path) == (newest, {})
    DAMAGES[damage](newest)
    found, broken = newest_intact(tmp_path)
    assert found == older
    assert list(broken) == [newest]
    assert words in broken[newest][0]
    assert complete(tmp_path) == ([older] if seen_by_size else [older, newest])


def test_newest_intact_is_none_without_an_intact_checkpoint(tmp_path):
    assert newest_intact(tmp_path) == (None, {})
    path = make(tmp_path, 1, manifest=False)
    found, broken = newest_intact(tmp_path)
    assert found is None
    assert "is incomplete" in broken[path][0]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"schema": 4}, "schema 4, written by a newer hmx; this hmx reads up to schema 3"),
        ({"files": 3}, "damaged: not a manifest"),
        ({"files": [{"path": "x"}]}, "damaged: not a manifest"),
        ({"files": [{"path": "/etc/passwd", "size": 1, "sha256": ""}]}, "which is not a file of the checkpoint"),
        ({"files": [{"path": "a/../../x", "size": 1, "sha256": ""}]}, "which is not a file of the checkpoint"),
        ({"files": [{"path": "..", "size": 1, "sha256": ""}]}, "which is not a file of the checkpoint"),
        ({"files": [{"path": "", "size": 1, "sha256": ""}]}, "which is not a file of the checkpoint"),
        ({"files": [{"path": "a\0b", "size": 1, "sha256": ""}]}, "which is not a file of the checkpoint"),
        ({"files": [{"path": "x", "size": -1, "sha256": ""}]}, "damaged: not a manifest"),
        ({"leaves": [{"path": "x", "shape": "no", "dtype": "f"}]}, "damaged: not a manifest"),
        ({"leaves": [{"path": "x", "shape": [1000000, 10000000], "dtype": "f"}]}, "claims the shape"),
        ({"leaves": [{"path": "x", "shape": [10**400], "dtype": "f"}]}, "claims the shape"),
        ({"leaves": [{"path": "x", "shape": [-3], "dtype": "f"}]}, "damaged: not a manifest"),
        ({"leaves": [{"path": "x", "shape": [True], "dtype": "f"}]}, "damaged: not a manifest"),
        ({"metrics": {"size": "5", "sha256": ""}}, "damaged: not a manifest"),
        ({"update": None}, "damaged: not a manifest"),
        ({"update": 1.0}, "damaged: not a manifest"),
        ({"score": "high"}, "damaged: "),
    ],
)
def test_unusable_manifests_are_refused(tmp_path, change, words):
    path = make(tmp_path, 1)
    rewrite(path, **change)
    with pytest.raises(HmxError, match=words) as caught:
        checkpoints.read_manifest(path)
    assert caught.value.exit_code is ExitCode.ARTEFACT
    assert caught.value.hint
    assert words in faults(path)[0]


def test_checkpoint_of_a_later_hmx_is_neither_skipped_nor_deleted(tmp_path):
    for update in (1, 2, 3, 4, 5):
        make(tmp_path, update)
    rewrite(tmp_path / "2", schema=4)
    assert newest_intact(tmp_path)[0] == tmp_path / "5"
    assert [p.name for p in surplus(tmp_path, Retention(1))] == ["1", "3", "4"]
    rewrite(tmp_path / "5", schema=4)
    with pytest.raises(NewerSchema, match="written by a newer hmx"):
        newest_intact(tmp_path)


@pytest.mark.parametrize("text", ["[]", "3", "null", "{}", "\udcff"])
def test_manifest_of_another_kind_is_refused(tmp_path, text):
    path = make(tmp_path, 1)
    (path / "manifest.json").write_bytes(text.encode("utf-8", "surrogateescape"))
    with pytest.raises(HmxError, match=r"damaged|cannot read"):
        checkpoints.read_manifest(path)


def test_every_differing_leaf_is_named():
    wanted = (Leaf("params/head/kernel", (3, 5), "float32"), Leaf("new", (2,), "int32"))
    assert leaf_differences(LEAVES, wanted) == [
        "key: saved, but not needed",
        "new: needed, but not saved",
        "params/head/kernel: saved as float32[3, 4], needed as float32[3, 5]",
    ]
    assert leaf_differences(LEAVES, LEAVES[::-1]) == []


def test_surplus_keeps_the_newest_intact_checkpoints(tmp_path):
    for update in (1, 2, 4, 5):
        make(tmp_path, update)
    make(tmp_path, 3, manifest=False)
    make(tmp_path, 6, manifest=False)
    assert [p.name for p in surplus(tmp_path, Retention(2))] == ["1", "2", "3"]
    assert [p.name for p in surplus(tmp_path, Retention(1))] == ["1", "2", "3", "4"]
    assert [p.name for p in surplus(tmp_path, Retention(9))] == ["3"]
    with pytest.raises(ValueError, match="at least one"):
        surplus(tmp_path, Retention(0))


@pytest.fixture
def failing(monkeypatch):
    """Make the system fail to open the files of checkpoint 2, `times` times."""

    def start(code, times):
        monkeypatch.setattr(files, "_RETRY_SECONDS", 0.0)
        really, left = os.open, [times]

        def open_or_fail(path, *args, **more):
            if left[0] and Path(path).parent.name == "2":
                left[0] -= 1
                raise OSError(code, os.strerror(code))
            return really(path, *args, **more)

        monkeypatch.setattr(os, "open", open_or_fail)

    return start


@pytest.mark.parametrize("code", [errno.EIO, errno.EMFILE, errno.ENFILE, errno.EACCES, errno.ESTALE])
def test_temporarily_unreadable_checkpoint_is_not_damaged(tmp_path, failing, code):
    for update in (1, 2):
        make(tmp_path, update)
    if code != errno.EACCES:
        failing(code, times=2)
        assert newest_intact(tmp_path) == (tmp_path / "2", {}), "the third try succeeds"
    failing(code, times=1000)
    with pytest.raises(Unreadable, match=r"cannot read .*/2/manifest\.json: ") as caught:
        newest_intact(tmp_path)
    assert caught.value.exit_code is ExitCode.ARTEFACT
    assert "cannot read" in faults(tmp_path / "2")[0]


def test_temporarily_unreadable_checkpoint_is_not_deleted(tmp_path, failing, monkeypatch):
    for update in (1, 2, 3):
        make(tmp_path, update)
    (tmp_path / "1" / "manifest.json").write_text("damaged")
    failing(errno.EMFILE, times=1000)
    assert [p.name for p in surplus(tmp_path, Retention(1))] == ["1"]
    monkeypatch.undo()
    assert [p.name for p in surplus(tmp_path, Retention(1))] == ["1", "2"]
    assert [p.name for p in surplus(tmp_path, Retention(2))] == ["1"], "the failure is not cached"


def test_a_checkpoint_of_another_run_is_faulty(tmp_path):
    make(tmp_path, 1)
    make(tmp_path, 2, run_id="ours")
    make(tmp_path, 3, run_id="theirs")
    assert newest_intact(tmp_path, "ours") == (
        tmp_path / "2", {tmp_path / "3": ["belongs to another run (id theirs instead of ours)"]}
    )  # fmt: skip
    assert newest_intact(tmp_path) == (tmp_path / "3", {})
    assert faults(tmp_path / "1", run_id="ours") == [], "of a schema without an id"


def test_best_checkpoints_are_also_kept(tmp_path):
    for update, score in ((1, 0.5), (2, 3.0), (3, None), (4, 3.0), (5, -1.0), (6, 0.0), (7, 1.0)):
        make(tmp_path, update, score=score)
    assert [p.name for p in surplus(tmp_path, Retention(1))] == ["1", "2", "3", "4", "5", "6"]
    assert [p.name for p in surplus(tmp_path, Retention(1, 1))] == ["1", "2", "3", "5", "6"], (
        "the newer of two equal ones"
    )
    assert [p.name for p in surplus(tmp_path, Retention(1, 2))] == ["1", "3", "5", "6"]
    assert [p.name for p in surplus(tmp_path, Retention(2, 3))] == ["1", "3", "5"], "7 is among the newest and the best"
    assert [p.name for p in surplus(tmp_path, Retention(1, 9))] == ["3"], "one without a score is never among the best"


def test_checkpoints_at_parts_of_the_run_stay_within_their_disk_space(tmp_path):
    def after(update, size):
        make(tmp_path, update)
        for old in surplus(tmp_path, Retention(1, last=40, middle_bytes=size)):
            shutil.rmtree(old)
        return [int(path.name) for path in listing(tmp_path)]

    kept = {update: after(update, 10**6) for update in range(3, 41)}
    assert (kept[6], kept[11], kept[25]) == ([4, 6], [4, 10, 11], [4, 10, 20, 25])
    assert kept[40] == [4, 10, 20, 40], "10, 25 and 50 % of the run, and the newest"
    size = sum(file.size for file in checkpoints.read_manifest(tmp_path / "40").files)
    assert after(41, 2 * size) == [10, 20, 41], "the earliest goes first"
    assert after(42, 2 * size - 1) == [20, 42]
    assert after(43, 0) == [43]


@pytest.mark.parametrize("victim", [4, 5])
@pytest.mark.parametrize("damage", ["bit", "missing", "no manifest", "link", "whole link"])
def test_damaged_checkpoints_do_not_count_as_kept(tmp_path, damage, victim):
    for update in (1, 2, 4, 5):
        make(tmp_path, update, score=float(update))
    assert [p.name for p in surplus(tmp_path, Retention(1, 1))] == ["1", "2", "4"], "judged once already"
    DAMAGES[damage](tmp_path / str(victim))
    gone = {p.name for p in surplus(tmp_path, Retention(1, 1))}
    intact = [p.name for p in listing(tmp_path) if not faults(p)]
    assert set(intact) - gone == {"5" if victim == 4 else "4"}


def test_only_intact_checkpoint_is_never_surplus(tmp_path):
    for update in (1, 2, 3):
        make(tmp_path, update, score=0.0)
    for update in (2, 3):
        DAMAGES["bit"](tmp_path / str(update))
    assert surplus(tmp_path, Retention(1, 1)) == []


def test_deletion_does_not_follow_links(tmp_path):
    for update in (1, 2, 3):
        make(tmp_path / "c", update)
    elsewhere(tmp_path / "c" / "1")
    assert [p.name for p in surplus(tmp_path / "c", Retention(1))] == ["2"]


def test_only_changed_files_are_read_again(tmp_path, monkeypatch):
    for update in (1, 2):
        make(tmp_path, update)
    surplus(tmp_path, Retention(1))
    read = []
    hashed = files.sha256_of
    monkeypatch.setattr(files, "sha256_of", lambda path: read.append(path) or hashed(path))
    assert surplus(tmp_path, Retention(1)) == [tmp_path / "1"]
    assert read == []
    os.utime(tmp_path / "2" / "leaves.json", (1, 1))
    surplus(tmp_path, Retention(1))
    assert {path.relative_to(tmp_path).parts[0] for path in read} == {"2"}


def test_surplus_is_empty_without_an_intact_checkpoint(tmp_path):
    for update in (1, 2):
        make(tmp_path, update, manifest=False)
    assert surplus(tmp_path, Retention(1)) == []
