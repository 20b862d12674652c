"""Lowered programs on disk: what a process finds there is what it would have traced."""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from runs.test_programs import config

from hmx.__main__ import main
from hmx.config.fields import replace, values_of
from hmx.envs.registry import build_env
from hmx.errors import Unavailable
from hmx.registry.load import Loaded
from hmx.runs import checkpoint, lowered
from hmx.runs.chunk import Chunk, compile_chunk
from hmx.runs.loop import abstract_state, compile_init, train_keys
from hmx.runs.lowered import SUFFIX, LoweredPrograms, lowered_programs
from hmx.runs.memory import run_memory
from hmx.runs.session import Session, make_session


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder in which hmx keeps programs, empty, in a process that uses it."""
    monkeypatch.setenv(lowered.WANTED, "1")
    before = jax.config.jax_compilation_cache_dir
    jax.config.update("jax_compilation_cache_dir", str(tmp_path))
    yield tmp_path
    jax.config.update("jax_compilation_cache_dir", before)


class Pair(NamedTuple):
    """Results with every kind of node that a state has."""

    numbers: dict[str, jax.Array]
    key: Any
    more: tuple[jax.Array, None, list[jax.Array]]


def pair(key: Any, x: jax.Array, unused: jax.Array) -> Pair:
    other = jax.random.split(key)
    return Pair({"a": x + 1, "b": x > 0}, other[0], (jax.random.uniform(other[1], (2,)), None, [x.astype("bfloat16")]))


def arguments() -> tuple[Any, ...]:
    return jax.random.key(3), np.arange(4, dtype=np.float32), np.int32(5)


def stored(folder: Path, *key: object) -> LoweredPrograms:
    """Add the program of `pair` to a folder, and return its programs."""
    programs = LoweredPrograms(folder, *key)
    assert programs.add("pair", jax.jit(pair), *arguments(), facts={"answer": 42}) is not None
    return programs


def bits(tree: Any) -> list[bytes]:
    return [np.asarray(checkpoint.as_data(leaf)).tobytes() for leaf in jax.tree.leaves(tree)]


@pytest.mark.parametrize("kind", ["pipe", "folder", "link to a device"])
def test_an_entry_that_is_not_a_file_is_not_read(kind: str, tmp_path: Path) -> None:
    stored(tmp_path, "x")
    (entry,) = tmp_path.glob(f"*{SUFFIX}")
    entry.unlink()
    {"pipe": os.mkfifo, "folder": os.mkdir, "link to a device": lambda path: os.symlink("/dev/zero", path)}[kind](entry)
    assert LoweredPrograms(tmp_path, "x").find("pair", *arguments()) is None


def test_a_stored_program_has_the_results_and_facts_of_the_traced_one(tmp_path: Path) -> None:
    stored(tmp_path, "x")
    program = LoweredPrograms(tmp_path, "x").find("pair", *arguments())
    assert program is not None and program.facts == {"answer": 42}
    assert program.results == jax.eval_shape(pair, *arguments())
    direct, found = pair(*arguments()), program.lower(*arguments()).compile()(*arguments())
    assert bits(found) == bits(direct)
    assert jax.tree.structure(found) == jax.tree.structure(direct)
    assert found.key.dtype == direct.key.dtype


def test_a_program_of_another_key_name_or_shape_is_not_found(tmp_path: Path) -> None:
    programs = stored(tmp_path, "x", 1)
    key, x, n = arguments()
    assert programs.find("pair", key, x, n) is not None
    assert LoweredPrograms(tmp_path, "x", 2).find("pair", key, x, n) is None
    assert programs.part(2).find("pair", key, x, n) is None
    assert programs.find("other", key, x, n) is None
    assert programs.find("pair", key, x[:3], n) is None
    assert programs.find("pair", key, x.astype(np.float64), n) is None
    assert programs.find("pair", (key, x), n) is None


def sealed(content: bytes) -> bytes:
    return hashlib.sha256(content).hexdigest().encode() + b"\n" + content


@pytest.mark.parametrize("kind", ["empty", "short", "flipped", "fact", "other", "list", "class", "binary"])
def test_a_damaged_or_foreign_entry_is_ignored(tmp_path: Path, kind: str) -> None:
    programs = stored(tmp_path)
    (path,) = tmp_path.glob(f"*{SUFFIX}")
    whole = path.read_bytes()
    content = whole.partition(b"\n")[2]
    foreign = {"other": (b'"key": "', b'"key": "0'), "class": (b'"Pair"', b'"NoSuchClass"'), "list": (b"{", b"[")}
    damaged = {
        "empty": b"", "short": whole[:-1], "binary": os.urandom(100),
        "flipped": whole[:-1] + bytes([whole[-1] ^ 1]), "fact": whole.replace(b"42", b"43"),
    }  # fmt: skip
    path.write_bytes(damaged[kind] if kind in damaged else sealed(content.replace(*foreign[kind], 1)))
    assert programs.find("pair", *arguments()) is None
    again = programs.reuse("pair", jax.jit(pair))
    assert bits(again(*arguments())) == bits(pair(*arguments()))
    assert programs.find("pair", *arguments()) is not None, "it was replaced"


def test_a_named_tuple_is_never_imported_because_an_entry_names_it(tmp_path: Path) -> None:
    programs = stored(tmp_path)
    (path,) = tmp_path.glob(f"*{SUFFIX}")
    content = path.read_bytes().partition(b"\n")[2]
    for module, name in (("antigravity", "geohash"), ("os", "system"), ("pathlib", "Path")):
        named = content.replace(f'"{__name__}", "Pair"'.encode(), f'"{module}", "{name}"'.encode())
        assert named != content
        path.write_bytes(sealed(named))
        assert programs.find("pair", *arguments()) is None
    assert "antigravity" not in sys.modules


def test_a_program_is_used_where_it_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    programs = LoweredPrograms(tmp_path / "file" / "folder")
    with pytest.warns(Unavailable, match="cannot store a program.*Not a directory"):
        found = programs.reuse("pair", jax.jit(pair))(*arguments())
    assert bits(found) == bits(pair(*arguments()))


def test_results_that_are_not_plain_are_not_stored(tmp_path: Path) -> None:
    class Local(NamedTuple):
        x: jax.Array

    reused = LoweredPrograms(tmp_path).reuse("local", jax.jit(Local))
    assert isinstance(reused(jnp.ones(2)), Local)
    assert not list(tmp_path.iterdir())


def test_reuse_consumes_the_donated_arguments(tmp_path: Path) -> None:
    for _ in range(2):  # traced, then from disk
        reused = LoweredPrograms(tmp_path).reuse("add", jax.jit(lambda x, y: x + y, donate_argnums=1), donate=[1])
        x, y = jnp.ones(3), jnp.full(3, 2.0)
        assert reused(x, y).tolist() == [3, 3, 3]
        assert y.is_deleted() and not x.is_deleted()


def session(name: str) -> Session:
    cfg = config(name)
    return make_session(Loaded(cfg), build_env(cfg.env, cfg.reward)[0])


def end_of(made: Session, chunk: Chunk, programs: LoweredPrograms | None) -> Any:
    """Return the state and the records after the updates of a chunk."""
    keys, length = train_keys(3, 1), chunk.length
    state = compile_init(made.algorithm, keys, 1, programs)(keys)
    hypers = [made.algorithm.hypers(i) for i in range(length)]
    rows = {name: np.array([values[name] for values in hypers], np.float32) for name in hypers[0]}
    return chunk.call(state, rows, np.int32(length))


OTHERS = [pytest.param(name, marks=pytest.mark.thorough) for name in ("gumbel", "dqn")]


@pytest.mark.parametrize("name", ["ppo", *OTHERS])
def test_training_is_equal_to_the_bit_with_stored_programs(folder: Path, name: str) -> None:
    first = session(name)
    assert first.lowered is not None
    length = first.sizes.updates_per_chunk
    direct = compile_chunk(first.algorithm, first.abstract, length)
    assert direct.traces == 1
    memory = run_memory(first)
    compile_chunk(first.algorithm, first.abstract, length, programs=first.lowered)
    compile_init(first.algorithm, train_keys(0, 1), 1, first.lowered)

    second = session(name)
    assert second.abstract == abstract_state(second.algorithm, 0, 1)
    chunk = compile_chunk(second.algorithm, second.abstract, length, programs=second.lowered)
    assert chunk.traces == 0
    assert (chunk.rows, chunk.parameters) == (direct.rows, direct.parameters)
    assert chunk.memory_bytes == direct.memory_bytes
    assert run_memory(second) == memory
    assert bits(end_of(second, chunk, second.lowered)) == bits(end_of(first, direct, None))


def test_a_python_program_may_have_replaced_functions_so_it_traces(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    values = values_of(config("ppo"))
    assert lowered_programs(values, ()) is not None
    monkeypatch.setenv(lowered.WANTED, "0")
    assert lowered_programs(values, ()) is None
    monkeypatch.delenv(lowered.WANTED)
    assert lowered_programs(values, ()) is None
    seen: list[str] = []
    monkeypatch.setattr("hmx.cli.interrupts.install", lambda: None)
    monkeypatch.setattr("hmx.cli.app.app", lambda prog_name: seen.append(os.environ[lowered.WANTED]))
    main()
    assert seen == ["1"]


def test_only_built_in_code_of_one_process_is_stored(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    values = values_of(config("ppo"))
    assert lowered_programs(values, ()) is not None
    for own in ({"env.id": "./game.py"}, {"env.id": "gymnax/CartPole-v1"}, {"net.kind": "x:y"}, {"algo.name": "a.py"}):
        assert lowered_programs(values | own, ()) is None
    with monkeypatch.context() as patch:
        patch.setattr(jax, "process_count", lambda: 2)
        assert lowered_programs(values, ()) is None
    jax.config.update("jax_compilation_cache_dir", None)
    assert lowered_programs(values, ()) is None


def test_entries_depend_on_code_versions_flags_and_settings(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def found() -> bool:
        programs = lowered_programs(values_of(config("ppo")), ("key",))
        assert programs is not None
        return programs.find("pair", *arguments()) is not None

    programs = lowered_programs(values_of(config("ppo")), ("key",))
    assert programs is not None and not found()
    programs.add("pair", jax.jit(pair), *arguments())
    assert found()
    for change in (
        lambda patch: patch.setattr(lowered, "code_digest", lambda: "other"),
        lambda patch: patch.setattr(lowered, "versions", lambda: {"jax": "0"}),
        lambda patch: patch.setenv("XLA_FLAGS", "--other"),
        lambda patch: patch.setattr(jax, "device_count", lambda: 2),
        lambda patch: patch.setattr(lowered.hmx.rl, "__loader__", object()),
    ):
        with monkeypatch.context() as patch:
            change(patch)
            assert not found()
        assert found()
    with jax.default_matmul_precision("float32"):
        assert not found()
    with jax.enable_x64(True):
        assert not found()
    assert found()


def test_the_code_of_hmx_is_hashed_with_its_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    digests = set()
    monkeypatch.setattr(lowered.hmx, "__file__", str(tmp_path / "__init__.py"))
    for name, text in (("a.py", "1"), ("a.py", "2"), ("sub/a.py", "2"), ("b.txt", "2")):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
        digests.add(lowered.code_digest.__wrapped__())
    assert len(digests) == 3, "a text that is not Python does not count"


def test_a_changed_configuration_has_other_programs(folder: Path) -> None:
    first = session("ppo")
    assert first.lowered is not None
    first.lowered.add("pair", jax.jit(pair), *arguments())
    assert (other := session("ppo").lowered) is not None and other.find("pair", *arguments()) is not None
    for changes, same in (({"run.seed": 5}, True), ({"algo.gamma": 0.5}, False), ({"net.hidden": (9,)}, False)):
        cfg = replace(config("ppo"), changes)
        programs = make_session(Loaded(cfg), build_env(cfg.env, cfg.reward)[0]).lowered
        assert programs is not None and (programs.find("pair", *arguments()) is not None) == same
