import json
import shutil

import pytest

from hmx.errors import ExitCode, HmxError
from hmx.records import checkpoints
from hmx.records.checkpoints import Leaf, complete, faults, leaf_differences, listing, newest_intact, surplus

LEAVES = (Leaf("params/head/kernel", (3, 4), "float32"), Leaf("key", (), "key<fry>"))


def make(folder, update, manifest=True):
    path = folder / str(update)
    (path / "arrays" / "d").mkdir(parents=True)
    (path / "arrays" / "d" / "data").write_bytes(b"x" * 1000 + str(update).encode())
    (path / "leaves.json").write_text("{}")
    if manifest:
        checkpoints.write_manifest(path, update, update * 10, "shape", "config", LEAVES)
    return path


def test_a_manifest_holds_everything(tmp_path):
    path = make(tmp_path, 5)
    manifest = checkpoints.read_manifest(path)
    assert (manifest.update, manifest.env_steps, manifest.schema) == (5, 50, 1)
    assert (manifest.shape_digest, manifest.config_digest) == ("shape", "config")
    assert manifest.leaves == LEAVES
    assert [(f.path, f.size) for f in manifest.files] == [("arrays/d/data", 1001), ("leaves.json", 2)]
    # sha256 of "{}"
    assert manifest.files[1].sha256 == "44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a"
    assert faults(path) == []


def test_listing_is_by_number_and_passes_over_the_rest(tmp_path):
    for update in (100, 20, 3):
        make(tmp_path, update)
    make(tmp_path, 7, manifest=False)
    for other in (".tmp-4-1", "5.orbax-checkpoint-tmp", "latest", "-6", "²"):
        (tmp_path / other).mkdir()
    (tmp_path / "8").write_text("a file")
    assert [p.name for p in listing(tmp_path)] == ["3", "7", "20", "100"]
    assert [p.name for p in complete(tmp_path)] == ["3", "20", "100"]
    assert listing(tmp_path / "none") == complete(tmp_path / "8") == []


def damage_missing(path):
    (path / "leaves.json").unlink()


def damage_short(path):
    with (path / "arrays" / "d" / "data").open("r+b") as file:
        file.truncate(10)


def damage_bit(path):
    with (path / "arrays" / "d" / "data").open("r+b") as file:
        file.write(b"y")


def damage_folder(path):
    shutil.rmtree(path / "arrays")


def damage_manifest(path):
    (path / "manifest.json").write_text("{")


def damage_no_manifest(path):
    (path / "manifest.json").unlink()


def damage_number(path):
    data = json.loads((path / "manifest.json").read_text())
    (path / "manifest.json").write_text(json.dumps({**data, "update": 1}))


@pytest.mark.parametrize(
    ("damage", "words", "seen_by_size"),
    [
        (damage_missing, "leaves.json: no such file or directory", True),
        (damage_short, "arrays/d/data: 10 bytes instead of 1,002", True),
        (damage_bit, "arrays/d/data: the content has changed", False),
        (damage_folder, "arrays/d/data: no such file or directory", True),
        (damage_manifest, "cannot be read", True),
        (damage_no_manifest, "is not complete: no manifest.json", True),
        (damage_number, "the manifest is of update 1", True),
    ],
)
def test_damage_to_the_newest_leads_to_the_one_before(tmp_path, damage, words, seen_by_size):
    older, newest = make(tmp_path, 9), make(tmp_path, 10)
    assert newest_intact(tmp_path) == (newest, {})
    damage(newest)
    found, broken = newest_intact(tmp_path)
    assert found == older
    assert list(broken) == [newest]
    assert words in broken[newest][0]
    assert complete(tmp_path) == ([older] if seen_by_size else [older, newest])


def test_nothing_intact(tmp_path):
    assert newest_intact(tmp_path) == (None, {})
    path = make(tmp_path, 1, manifest=False)
    found, broken = newest_intact(tmp_path)
    assert found is None
    assert "is not complete" in broken[path][0]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"schema": 2}, "schema 2, written by a newer hmx; this one reads schema 1"),
        ({"files": 3}, "damaged: not a manifest"),
        ({"files": [{"path": "x"}]}, "damaged: not a manifest"),
        ({"leaves": [{"path": "x", "shape": "no", "dtype": "f"}]}, "damaged: not a manifest"),
        ({"update": None}, "damaged: not a manifest"),
    ],
)
def test_manifests_that_cannot_be_used(tmp_path, change, words):
    path = make(tmp_path, 1)
    data = json.loads((path / "manifest.json").read_text())
    (path / "manifest.json").write_text(json.dumps({**data, **change}))
    with pytest.raises(HmxError, match=words) as caught:
        checkpoints.read_manifest(path)
    assert caught.value.exit_code is ExitCode.ARTEFACT
    assert caught.value.hint
    assert words in faults(path)[0]


@pytest.mark.parametrize("text", ["[]", "3", "null", "{}", "\udcff"])
def test_a_manifest_that_is_something_else(tmp_path, text):
    path = make(tmp_path, 1)
    (path / "manifest.json").write_bytes(text.encode("utf-8", "surrogateescape"))
    with pytest.raises(HmxError, match=r"damaged|cannot be read"):
        checkpoints.read_manifest(path)


def test_leaves_that_differ_are_each_named():
    wanted = (Leaf("params/head/kernel", (3, 5), "float32"), Leaf("new", (2,), "int32"))
    assert leaf_differences(LEAVES, wanted) == [
        "key: saved, but not part of the state",
        "new: part of the state, but not saved",
        "params/head/kernel: saved as float32[3, 4], needed as float32[3, 5]",
    ]
    assert leaf_differences(LEAVES, LEAVES[::-1]) == []


def test_surplus_keeps_the_newest_whole_ones(tmp_path):
    for update in (1, 2, 4, 5):
        make(tmp_path, update)
    make(tmp_path, 3, manifest=False)
    make(tmp_path, 6, manifest=False)
    assert [p.name for p in surplus(tmp_path, 2)] == ["1", "2", "3"]
    assert [p.name for p in surplus(tmp_path, 1)] == ["1", "2", "3", "4"]
    assert [p.name for p in surplus(tmp_path, 9)] == ["3"]
    with pytest.raises(ValueError, match="at least one"):
        surplus(tmp_path, 0)


def test_without_a_whole_checkpoint_nothing_is_surplus(tmp_path):
    for update in (1, 2):
        make(tmp_path, update, manifest=False)
    assert surplus(tmp_path, 1) == []
