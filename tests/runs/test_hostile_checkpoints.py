"""Checkpoints as a stranger may write them: every checksum is right, and what they say is not."""

from __future__ import annotations

import json
import resource
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

from hmx.errors import ExitCode, HmxError
from hmx.records import checkpoints as records
from hmx.records.checkpoints import Leaf, Retention
from hmx.runs import checkpoint

STATE = {"w": jnp.arange(6, dtype=jnp.float32).reshape(2, 3), "n": jnp.int32(1)}
HUGE = 10**12


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    return checkpoint.write(tmp_path, checkpoint.snapshot(STATE), 1, keep=Retention(1))


def kvstore(path: Path) -> Any:
    import tensorstore

    return tensorstore.KvStore.open({"driver": "ocdbt", "base": f"file://{path / checkpoint.ARRAYS}/"}).result()


def change_header(path: Path, **change: Any) -> None:
    """The header of the array `w` says something else, and the manifest has the new checksums."""
    store = kvstore(path)
    header = json.loads(store.read("w/.zarray").result().value)
    store.write("w/.zarray", json.dumps({**header, **change}).encode()).result()
    seal(path, checkpoint.describe(STATE))


def seal(path: Path, leaves: tuple[Leaf, ...]) -> None:
    (path / records.MANIFEST).unlink()
    records.write_manifest(path, 1, leaves=leaves)
    assert records.faults(path) == []


def memory() -> int:
    """The most this process has ever had, in KiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"shape": [HUGE, 3]}, "the array w is float32[1000000000000, 3] instead of float32[2, 3]"),
        ({"shape": [HUGE]}, "the headers of its arrays are damaged"),
        ({"shape": [2, 3], "chunks": [HUGE, 1]}, "the array w"),
        ({"shape": [3, 2]}, "the array w is float32[3, 2] instead of float32[2, 3]"),
        ({"dtype": "<f8"}, "the array w is float64[2, 3] instead of float32[2, 3]"),
        ({"dtype": "|O"}, ""),
        ({"compressor": {"id": "pickle"}}, ""),
        ({"filters": [{"id": "pickle"}]}, ""),
        ({"zarr_format": 9}, ""),
    ],
)
def test_contradicting_header_is_refused_before_allocation(change: dict[str, Any], words: str, saved: Path) -> None:
    change_header(saved, **change)
    before = memory()
    with pytest.raises(HmxError, match="cannot read checkpoint") as caught:
        checkpoint.restore(saved, STATE)
    assert caught.value.exit_code == ExitCode.ARTEFACT
    assert words in caught.value.message
    assert memory() - before < 200_000


def test_missing_array_is_refused(saved: Path) -> None:
    store = kvstore(saved)
    for name in ("w/.zarray", "w/0.0"):
        store.write(name, None).result()
    seal(saved, checkpoint.describe(STATE))
    with pytest.raises(HmxError, match="cannot read checkpoint") as caught:
        checkpoint.restore(saved, STATE)
    assert caught.value.exit_code == ExitCode.ARTEFACT


@pytest.mark.parametrize("data", [b"", b"\0" * 100, np.zeros(10**6, np.uint8).tobytes()])
def test_chunk_that_contradicts_its_header_is_refused(data: bytes, saved: Path) -> None:
    kvstore(saved).write("w/0.0", data).result()
    seal(saved, checkpoint.describe(STATE))
    with pytest.raises(HmxError, match="cannot read checkpoint") as caught:
        checkpoint.restore(saved, STATE)
    assert caught.value.exit_code == ExitCode.ARTEFACT


@pytest.mark.parametrize("shape", [(2**35,), (2**18, 2**18), (2, 3, 4)])
def test_manifest_with_other_shapes_allocates_nothing(shape: tuple[int, ...], saved: Path) -> None:
    """Also where the arrays would agree: what counts is what the configuration needs."""
    seal(saved, (Leaf("n", (), "int32"), Leaf("w", shape, "float32")))
    before = memory()
    with pytest.raises(HmxError, match="needed as float32") as caught:
        checkpoint.restore(saved, STATE)
    assert caught.value.exit_code == ExitCode.ARTEFACT
    assert memory() - before < 200_000


def test_invalid_orbax_metadata_is_refused(saved: Path) -> None:
    file = saved / checkpoint.ARRAYS / "_METADATA"
    changes: tuple[Callable[[str], str], ...] = (
        lambda text: "",
        lambda text: "{}",
        lambda text: "[" * 100_000,
        lambda text: text.replace("np.ndarray", "os.system"),
        lambda text: text.replace('"w"', '"../../w"'),
        lambda text: text.replace('"w"', '"/etc/w"'),
    )
    whole = file.read_text()
    for change in changes:
        file.write_text(change(whole))
        assert file.read_text() != whole
        seal(saved, checkpoint.describe(STATE))
        try:
            back = checkpoint.restore(saved, STATE)
        except HmxError as problem:
            assert problem.exit_code == ExitCode.ARTEFACT
        else:
            assert np.asarray(back["w"]).tolist() == STATE["w"].tolist()
