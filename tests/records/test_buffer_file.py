"""Buffer files: what is written is read again, and damaged or hostile files are refused with a message."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import struct
import tracemalloc
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hmx.config import fields
from hmx.config.schema import Config
from hmx.errors import ExitCode, HmxError
from hmx.records import artefact, buffer_file
from hmx.records.buffer_file import RECORDS, BufferHeader, differences, settings_of
from hmx.records.sealed_arrays import ArrayForm, StoredArray

CFG = fields.replace(Config(), {"env.id": "corridor"})


def small(size: int = 3) -> tuple[BufferHeader, dict[str, np.ndarray]]:
    arrays: dict[str, np.ndarray] = {name: np.arange(size).astype(dtype) for name, dtype in RECORDS.items()}
    arrays |= {
        "items/obs_t": np.arange(size * 8, dtype=np.float32).reshape(size, 1, 8),
        "env_states/core": np.arange(size, dtype=np.int32),
        "env_states/none": np.zeros((size, 0), np.uint8),
    }
    header = BufferHeader(
        env="corridor", settings=settings_of(CFG), num_actions=2, num_agents=1, obs_shape=(8,), obs_dtype="float32",
        capacity=8, size=size, position=size, num_added=size, num_envs=1, td_max=2.5, gamma=0.9, run="r", update=7,
    )  # fmt: skip
    return header, arrays


def stored(arrays: dict[str, np.ndarray]) -> dict[str, StoredArray]:
    return {n: StoredArray(ArrayForm(leaf.shape, leaf.dtype.name), leaf.tobytes()) for n, leaf in arrays.items()}


def written(path: Path, size: int = 3) -> Path:
    header, arrays = small(size)
    buffer_file.write(path, header, stored(arrays))
    return path


@pytest.mark.parametrize("size", [3, 0])
def test_header_and_arrays_are_read_as_written(tmp_path: Path, size: int) -> None:
    header, arrays = small(size)
    path = written(tmp_path / "b.npz", size)
    found, data = buffer_file.read(path)
    assert found == header
    assert {name: bytes(array.data) for name, array in data.items()} == {
        n: leaf.tobytes() for n, leaf in arrays.items()
    }
    assert buffer_file.read_header(path) == header
    assert path.read_bytes() == written(tmp_path / "again.npz", size).read_bytes()
    assert [p.name for p in tmp_path.iterdir() if p.name.startswith(".")] == []


def test_numpy_reads_the_same_arrays(tmp_path: Path) -> None:
    _, arrays = small()
    with np.load(written(tmp_path / "b.npz"), allow_pickle=False) as archive:
        for name, leaf in arrays.items():
            np.testing.assert_array_equal(archive[name], leaf)
            assert archive[name].dtype == leaf.dtype


def refused(path: Path) -> str:
    with pytest.raises(HmxError) as caught:
        buffer_file.read(path)
    assert caught.value.exit_code == ExitCode.ARTEFACT and caught.value.hint
    return caught.value.message


def rebuilt(path: Path, change: Any = None, members: Any = None, seal: bool = True, **zip_options: Any) -> Path:
    """The file again, with another header (sealed anew) or other members."""
    with zipfile.ZipFile(path) as archive:
        data = {name: archive.read(name) for name in archive.namelist()}
    body = json.loads(data["header.json"])
    if change is not None:
        change(body)
        if seal:
            body.pop("sha256")
            body["sha256"] = artefact.digest(body)
        data["header.json"] = json.dumps(body).encode()
    if members is not None:
        members(data)
    with zipfile.ZipFile(path, "w", **zip_options) as archive:
        for name, content in data.items():
            archive.writestr(name, content)
    return path


def at(*keys: Any, value: Any) -> Any:
    def change(body: Any) -> None:
        for key in keys[:-1]:
            body = body[key]
        body[keys[-1]] = value

    return change


HUGE = [10**6, 10**6]
CLAIMS = {
    "a terabyte": (at("arrays", 5, "shape", value=[3, *HUGE]), "more than 68,719,476,736 elements"),
    "digits": (at("arrays", 5, "shape", value=[3, 10**400]), "elements"),
    "more than there is": (at("arrays", 5, "shape", value=[3, 1 << 20]), "does not have the size"),
    "rank": (at("arrays", 5, "shape", value=[3] + [1] * 100), "an array of the shape"),
    "negative": (at("arrays", 5, "shape", value=[-3, 1]), "not that of a saved buffer"),
    "objects": (at("arrays", 5, "dtype", value="object"), "an array of object"),
    "other numbers": (at("arrays", 6, "dtype", value="float32"), "as the header states"),
    "other length": (at("arrays", 5, "shape", value=[4, 1, 6]), "for 3 transitions"),
    "name": (at("arrays", 5, "name", value="items/../../etc/passwd"), "does not have the size"),
    "a record of another kind": (at("arrays", 0, "dtype", value="uint32"), "td_errors is uint32[3]"),
    "too full": (at("ring", "size", value=9), "a ring of 8 slots, 9 filled"),
    "beyond the ring": (at("ring", "position", value=8), "next 8"),
    "not a number": (at("ring", "td_max", value="much"), "not that of a saved buffer"),
    "beyond any float": (at("ring", "td_max", value=10**400), "not that of a saved buffer"),
    "infinite": (at("gamma", value=float("inf")), "not that of a saved buffer"),
    "no environment": (at("env", value=None), "not that of a saved buffer"),
    "nested": (at("env", "settings", value={"env.id": {}}), "not that of a saved buffer"),
    "no arrays": (at("arrays", value=[]), "more than its header names"),
    "format": (at("format", value="thesis"), "not that of a saved buffer"),
    "schema": (at("schema", value=2), "written by a newer hmx"),
}


@pytest.mark.parametrize("claim", CLAIMS)
def test_false_header_values_are_refused_without_allocating_memory(tmp_path: Path, claim: str) -> None:
    change, words = CLAIMS[claim]
    path = rebuilt(written(tmp_path / "b.npz"), change)
    tracemalloc.start()
    assert words in refused(path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 4 << 20


def test_changed_headers_and_arrays_are_refused(tmp_path: Path) -> None:
    path = rebuilt(written(tmp_path / "a.npz"), at("gamma", value=0.5), seal=False)
    assert "its header has changed" in refused(path)

    def flip(data: dict[str, bytes]) -> None:
        data["td_errors.npy"] = data["td_errors.npy"][:-1] + b"\x7f"

    path = rebuilt(written(tmp_path / "b.npz"), members=flip)
    assert "td_errors has changed" in refused(path)
    assert buffer_file.read_header(path).size == 3


def test_arrays_with_other_names_are_refused(tmp_path: Path) -> None:
    for name in ("items/../../etc/passwd", "secrets", "items/a b"):

        def rename(body: Any, name: str = name) -> None:
            body["arrays"][5]["name"] = name

        def move(data: dict[str, bytes], name: str = name) -> None:
            data[f"{name}.npy"] = data.pop("items/obs_t.npy")

        assert "an array of the name" in refused(rebuilt(written(tmp_path / "b.npz"), rename, move))


def test_missing_compressed_and_additional_members_are_refused(tmp_path: Path) -> None:
    path = rebuilt(written(tmp_path / "a.npz"), compression=zipfile.ZIP_DEFLATED)
    assert "compressed" in refused(path)
    path = rebuilt(written(tmp_path / "b.npz"), members=lambda data: data.update({"run.py": b"import os"}))
    assert "more than its header names" in refused(path)
    path = rebuilt(written(tmp_path / "f.npz"), at("arrays", value=[]), lambda data: [data.pop(n) for n in [*data][1:]])
    assert "the array td_errors is missing" in refused(path)
    path = rebuilt(written(tmp_path / "c.npz"), members=lambda data: data.pop("birth.npy"))
    assert "birth does not have the size" in refused(path)
    path = rebuilt(written(tmp_path / "d.npz"), members=lambda data: data.pop("header.json"))
    assert "no header.json" in refused(path)
    np.savez(tmp_path / "e.npz", x=np.arange(3))
    assert "no header.json" in refused(tmp_path / "e.npz")


def test_compressed_bomb_is_refused_without_unpacking(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "bomb.npz", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("header.json", b" " * (64 << 20))
    tracemalloc.start()
    assert "compressed" in refused(tmp_path / "bomb.npz")
    assert tracemalloc.get_traced_memory()[1] < 1 << 20
    tracemalloc.stop()


def test_overlapping_members_are_refused(tmp_path: Path) -> None:
    """One megabyte named a hundred times is not a hundred megabytes."""
    name, payload = b"a", b"x" * (1 << 20)
    local = struct.pack("<4s5H3I2H", b"PK\x03\x04", 20, 0, 0, 0, 0, 0, len(payload), len(payload), 1, 0)
    body = local + name + payload
    central = b"".join(
        struct.pack(
            "<4s6H3I5H2I", b"PK\x01\x02", 20, 20, 0, 0, 0, 0, 0, len(payload), len(payload), 1, 0, 0, 0, 0, 0, 0
        )
        + bytes([97 + i % 26])
        for i in range(26)
    )
    end = struct.pack("<4s4H2IH", b"PK\x05\x06", 0, 0, 26, 26, len(central), len(body), 0)
    (tmp_path / "quine.npz").write_bytes(body + central + end)
    assert "larger than the file" in refused(tmp_path / "quine.npz")


def test_other_files_are_refused(tmp_path: Path) -> None:
    assert "does not exist" in refused(tmp_path / "missing.npz")
    assert "folder instead of a file" in refused(tmp_path)
    (tmp_path / "text").write_text("it went well")
    assert "not a saved buffer, or it is damaged" in refused(tmp_path / "text")
    assert not buffer_file.is_buffer(tmp_path / "text") and not buffer_file.is_buffer(tmp_path)
    path = written(tmp_path / "half.npz")
    assert buffer_file.is_buffer(path)
    path.write_bytes(path.read_bytes()[:-200])
    assert "damaged" in refused(path)


@given(st.data())
def test_every_changed_byte_is_refused_or_changes_nothing(data: Any) -> None:
    header, arrays = small()
    changed = bytearray(IMAGE)
    changed[data.draw(st.integers(0, len(IMAGE) - 1))] = data.draw(st.integers(0, 255))
    PLACE.write_bytes(changed)
    try:
        found, content = buffer_file.read(PLACE)
    except HmxError as problem:
        assert problem.exit_code == ExitCode.ARTEFACT and problem.message.isprintable()
    else:  # a byte that means nothing, such as a date
        assert found == header
        assert {name: bytes(array.data) for name, array in content.items()} == {
            n: a.tobytes() for n, a in arrays.items()
        }


IMAGE = b""
PLACE = Path()


@pytest.fixture(scope="module", autouse=True)
def _image(tmp_path_factory: pytest.TempPathFactory) -> None:
    global IMAGE, PLACE
    PLACE = written(tmp_path_factory.mktemp("image") / "b.npz")
    IMAGE = PLACE.read_bytes()


def test_failed_write_leaves_the_old_file(tmp_path: Path) -> None:
    path = written(tmp_path / "b.npz")
    before = hashlib.sha256(path.read_bytes()).hexdigest()
    header, arrays = small()

    with pytest.raises(HmxError, match="cannot write the saved buffer"):
        buffer_file.write(tmp_path / "no" / "b.npz", header, stored(arrays))
    with pytest.raises(ValueError, match="birth"):
        whole = stored(arrays)
        buffer_file.write(path, header, whole | {"birth": StoredArray(whole["birth"].form, b"")})
    assert hashlib.sha256(path.read_bytes()).hexdigest() == before
    assert [p.name for p in tmp_path.iterdir()] == ["b.npz"]


def test_differing_options_are_named() -> None:
    header, _ = small()
    assert differences(header, settings_of(CFG)) == []
    other = fields.replace(CFG, {"env.num_envs": 3, "reward.kills": 9.0, "algo.gamma": 0.5})
    assert differences(header, settings_of(other)) == []
    slipped = fields.replace(CFG, {"env.slip": 0.3})
    assert differences(header, settings_of(slipped)) == ["env.slip = 0.1 in the buffer, 0.3 here"]
    game = fields.replace(Config(), {"reward.kills": 9.0})
    header = dataclasses.replace(header, settings=settings_of(Config()))
    assert differences(header, settings_of(game)) == ["reward.kills = 0.3 in the buffer, 9.0 here"]
    older = {key: value for key, value in header.settings.items() if key != "reward.kills"}
    assert differences(dataclasses.replace(header, settings=older), settings_of(Config())) == []
    assert len(differences(dataclasses.replace(header, settings=older), settings_of(game))) == 1
    newer = dataclasses.replace(header, settings={**header.settings, "env.wind": 3})
    assert differences(newer, settings_of(Config())) == ["env.wind is set in the buffer, and unknown here"]
