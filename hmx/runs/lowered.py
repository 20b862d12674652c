"""Keep lowered programs on disk, so that another process compiles them without tracing them.

An entry holds the StableHLO of a program, the shapes of its results, and facts for the caller. It is data, not code.
Compiling it takes the machine code from JAX's own cache. A changed file of hmx, another version of a package or another
setting of JAX leads to another entry. An entry that is missing, damaged or of another program is ignored.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import sys
import zlib
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.export

import hmx.rl
from hmx.config import codec
from hmx.config.files import read_plain
from hmx.config.option import ALGORITHMS
from hmx.config.schema import ENV_IDS, NET_KINDS
from hmx.errors import HmxError, optional
from hmx.records import atomic
from hmx.records.meta import versions
from hmx.records.plain import JsonValue
from hmx.types import Array

SUFFIX = ".lowered"
WANTED = "HMX_LOWERED"  # environment variable
_ARITHMETIC = (
    "jax_enable_x64", "jax_default_matmul_precision", "jax_default_prng_impl", "jax_threefry_partitionable",
    "jax_disable_most_optimizations",
)  # fmt: skip
_SETTINGS_OF_CACHES = ("jax_compilation_cache", "jax_persistent_cache", "jax_enable_compilation_cache")
_BUILT_IN = {"algo.name": ALGORITHMS, "env.id": ENV_IDS, "net.kind": NET_KINDS}
_KEY_KINDS = ("threefry2x32", "rbg", "unsafe_rbg")

Facts = Mapping[str, JsonValue]
Tree = Any  # of arrays, or of their shapes
Function = Callable[..., Any]
_MAX_BYTES = 1 << 28  # of an entry; that of HackMatrix has less than 1 MB
_UNREADABLE = (HmxError, OSError, ValueError, TypeError, KeyError, AttributeError, zlib.error, RecursionError)


class LoweredProgram(NamedTuple):
    """A program that can be compiled."""

    code: bytes  # portable StableHLO, as `jax.export` makes it
    kept: tuple[int, ...]  # the arguments that it reads
    results: Any  # tree of `jax.ShapeDtypeStruct`
    facts: Facts

    def lower(self, *args: Tree, donate: Sequence[int] = ()) -> jax.stages.Lowered | None:
        """Lower it for arguments, or their shapes; the program consumes the arguments in `donate`.

        The result is None if this version of JAX cannot: the caller traces the program again.
        """
        structure = jax.tree.structure(self.results)
        with optional("use a stored program"):
            call: Any = self._exported(args).call

            def run(*given: Tree) -> Tree:
                return jax.tree.unflatten(structure, call(*jax.tree.leaves(given)))

            debug_key_reuse: Any = jax.debug_key_reuse
            with debug_key_reuse(False):  # keys were checked when the program was traced
                return jax.jit(run, donate_argnums=tuple(donate)).lower(*args)
        return None

    def _exported(self, args: Tree) -> jax.export.Exported:
        """Return the program as `jax.export` takes it.

        `jax.export` can read only what it wrote itself, which needs the package flatbuffers and knows no named tuples.
        So this exports an empty function of the same arguments, and puts the program into it.
        """
        shapes, leaves = [_shape_of(leaf) for leaf in jax.tree.leaves(args)], jax.tree.leaves(self.results)
        empty = jax.export.export(jax.jit(lambda *given: [0] * len(leaves)))(*shapes)
        avals = tuple(jax.core.ShapedArray(leaf.shape, leaf.dtype) for leaf in leaves)
        return dataclasses.replace(
            empty, out_avals=avals, mlir_module_serialized=self.code, module_kept_var_idx=self.kept
        )


class LoweredPrograms:
    """The lowered programs of a configuration in a folder.

    Args:
        folder: of the entries of all configurations.
        key: what the programs depend on, as text or numbers.
    """

    def __init__(self, folder: Path, *key: object) -> None:
        self._folder, self._key = folder, key

    def part(self, *key: object) -> LoweredPrograms:
        """Return programs that depend on more than these."""
        return LoweredPrograms(self._folder, *self._key, *key)

    def find(self, name: str, *args: Tree) -> LoweredProgram | None:
        """Return the program of that name for arguments, or shapes, like these; None without an intact entry."""
        with optional("look for a stored program"):
            digest = self._digest(name, args)
            try:
                return self._read(self._path(name, digest), digest)
            except _UNREADABLE:
                return None
        return None

    def _read(self, path: Path, digest: str) -> LoweredProgram | None:
        """Return the program of an entry; None, or an error of `_UNREADABLE`, if it is not intact."""
        checksum, _, content = read_plain(path, _MAX_BYTES).partition(b"\n")
        head, _, packed = content.partition(b"\n")
        if checksum.decode() != hashlib.sha256(content).hexdigest():
            return None
        entry = json.loads(head)
        results = _shapes_from(entry["results"])
        code = zlib.decompressobj().decompress(packed, _MAX_BYTES)
        intact = LoweredProgram(code, tuple(entry["kept"]), results, entry["facts"])
        return intact if entry["key"] == digest else None

    def add(self, name: str, jitted: Function, *args: Tree, facts: Facts | None = None) -> LoweredProgram | None:
        """Lower a function of `jax.jit`, and store it for arguments, or shapes, like these.

        The result is that of `find`, also where the entry cannot be written. It is None if the program cannot be
        stored: if it has side effects or uses several devices, or if its results are not plain tuples and dicts.
        """
        program = None
        with optional("store a program"):
            program = _exported(jitted, args, facts or {})
            if program is not None:
                self._write(name, args, program)
        return program

    def _write(self, name: str, args: Tree, program: LoweredProgram) -> None:
        """Write an entry; an OSError if that fails."""
        digest, described = self._digest(name, args), _described(program.results)
        head = json.dumps({"key": digest, "kept": program.kept, "results": described, "facts": program.facts})
        content = head.encode() + b"\n" + zlib.compress(program.code, 1)
        checksum = hashlib.sha256(content).hexdigest().encode()
        atomic.write_bytes(self._path(name, digest), checksum + b"\n" + content)

    def reuse(self, name: str, jitted: Function, donate: Sequence[int] = ()) -> Function:
        """Return a function of `jax.jit` that takes its programs from here; it consumes the arguments in `donate`."""
        compiled: dict[object, Function] = {}

        def call(*args: Tree) -> Tree:
            kind = (jax.tree.structure(args), tuple(map(_form, jax.tree.leaves(args))))
            if kind not in compiled:
                program = self.find(name, *args) or self.add(name, jitted, *args)
                lowered = None if program is None else program.lower(*args, donate=donate)
                compiled[kind] = jitted if lowered is None else lowered.compile()
            return compiled[kind](*args)

        return call

    def _digest(self, name: str, args: Tree) -> str:
        leaves, structure = jax.tree.flatten(args)
        return codec.sha256([repr(self._key), name, str(structure), [_form(leaf) for leaf in leaves]])

    def _path(self, name: str, digest: str) -> Path:
        return self._folder / f"{name}-{digest[:32]}{SUFFIX}"


def lowered_programs(values: Mapping[str, object], key: tuple[object, ...]) -> LoweredPrograms | None:
    """Return the stored programs of a configuration, next to JAX's cache of compiled programs.

    The result is None without such a cache, for a run of several processes, and for a configuration with code of the
    user or of an extra, since the key does not hold that code. It is also None unless the environment variable
    `HMX_LOWERED` is 1, as in the commands: another program may have replaced functions of hmx, which no key shows.

    Args:
        values: of the configuration, by key.
        key: see `hmx.runs.programs.program_key`.
    """
    folder: str | None = getattr(jax.config, "jax_compilation_cache_dir", None)
    own = any(values[name] not in known for name, known in _BUILT_IN.items())
    if os.environ.get(WANTED) != "1" or not folder or own or jax.process_count() > 1:
        return None
    ordered = [sorted(part) if isinstance(part, frozenset) else part for part in key]
    with optional("look for stored programs"):
        return LoweredPrograms(Path(folder), _surroundings(), *ordered)
    return None


def _exported(jitted: Function, args: Tree, facts: Facts) -> LoweredProgram | None:
    """Lower a function of `jax.jit` for arguments, or shapes, like these; None if `add` cannot store it."""
    function: Any = jitted
    shapes: Any = jax.tree.map(_shape_of, args)
    try:
        exported = jax.export.export(function)(*shapes)
    except (ValueError, NotImplementedError):
        return None
    leaves = [jax.ShapeDtypeStruct(aval.shape, aval.dtype) for aval in exported.out_avals]
    structure: Any = exported.out_tree
    results = jax.tree.unflatten(structure, leaves)
    if exported.nr_devices != 1 or exported.ordered_effects or exported.unordered_effects:
        return None
    try:
        same = jax.tree.structure(_shapes_from(_described(results))) == structure
    except (ValueError, TypeError, AttributeError):
        return None
    code, kept = exported.mlir_module_serialized, exported.module_kept_var_idx
    return LoweredProgram(code, kept, results, dict(facts)) if same else None


@cache
def code_digest() -> str:
    """Return the SHA-256 of the text of hmx."""
    digest = hashlib.sha256()
    folder = Path(hmx.__file__).parent
    for path in sorted(folder.rglob("*.py")):
        digest.update(f"{path.relative_to(folder)} {path.stat().st_size}\n".encode() + path.read_bytes())
    return digest.hexdigest()


def arithmetic() -> tuple[object, ...]:
    """List what decides the last bits of results, apart from the machine and the package versions."""
    flags = {name: os.environ.get(name, "") for name in ("XLA_FLAGS", "LIBTPU_INIT_ARGS", "NVIDIA_TF32_OVERRIDE")}
    chosen = [repr(getattr(jax.config, name, jax.config.values.get(name))) for name in _ARITHMETIC]
    return code_digest(), os.cpu_count(), sorted(flags.items()), chosen


def _surroundings() -> tuple[object, ...]:
    """List the facts that every program depends on."""
    device, settings = jax.devices()[0], jax.config.values
    flags = {name: text for name, text in os.environ.items() if name.startswith(("XLA_", "LIBTPU_", "TF_", "NVIDIA_"))}
    # An attribute has the value of the surrounding `with` block.
    now = {name: repr(getattr(jax.config, name, value)) for name, value in settings.items()}
    chosen = {name: text for name, text in now.items() if not name.startswith(_SETTINGS_OF_CACHES)}
    return (
        code_digest(), type(hmx.rl.__loader__), sys.version, versions(), jax.default_backend(), device.device_kind,
        jax.device_count(), device.client.platform_version, sorted(flags.items()), sorted(chosen.items()),
    )  # fmt: skip


def _shape_of(leaf: Array | jax.ShapeDtypeStruct) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype)


def _form(leaf: Array | jax.ShapeDtypeStruct) -> tuple[tuple[int, ...], str]:
    return tuple(leaf.shape), str(leaf.dtype)


def _described(tree: Tree) -> JsonValue:
    """Return a tree of shapes as JSON; a ValueError if it has other nodes than tuples, lists and dicts."""
    match tree:
        case None:
            return None
        case jax.ShapeDtypeStruct():
            return {"shape": list(tree.shape), "dtype": str(tree.dtype)}
        case dict() if all(isinstance(name, str) for name in tree):
            return {"dict": {name: _described(part) for name, part in tree.items()}}
        case tuple() | list():
            kind = type(tree)
            return {"class": [kind.__module__, kind.__qualname__], "items": [_described(part) for part in tree]}
        case _:
            raise ValueError(f"{type(tree)} in the results of a program")


def _shapes_from(data: Any) -> Tree:
    """Invert `_described`; a ValueError or another error of wrong data if that is not possible."""
    if data is None:
        return None
    if "dict" in data:
        return {name: _shapes_from(part) for name, part in data["dict"].items()}
    if "class" not in data:
        return jax.ShapeDtypeStruct(tuple(map(int, data["shape"])), _dtype(data["dtype"]))
    module, name = data["class"]
    items = [_shapes_from(part) for part in data["items"]]
    kind = getattr(sys.modules.get(module), name)  # nothing is imported because a file names it
    if kind in (tuple, list):
        return kind(items)
    if not (isinstance(kind, type) and issubclass(kind, tuple) and hasattr(kind, "_fields")):
        raise ValueError(f"{name} is not a named tuple")
    return kind(*items)


@cache
def _dtype(text: str) -> Any:
    """Return the data type of that name, also that of keys."""
    for kind in _KEY_KINDS if text.startswith("key") else ():
        dtype = jax.eval_shape(lambda kind=kind: jax.random.key(0, impl=kind)).dtype
        if str(dtype) == text:
            return dtype
    return jax.numpy.dtype(text)
