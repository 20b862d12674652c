"""Hostile files: every reader gets mutated and made-up files, and must answer each with a value or an HmxError.

    python benchmarks/fuzz_readers.py [--inputs 40000] [--seed 0] [--reader config] [--keep FOLDER]

`--inputs` is per reader. Every result other than a value or an HmxError of exit code 2 or 3 is a finding: another
exception, a message that would control or flood a terminal, more than `--seconds` for one input, or memory beyond
`--mebibytes`. The inputs of findings are kept in FOLDER. The exit code is 4 if there are any.

Four ways to make an input, in equal shares: bytes of a good file changed, words of a good file changed for hostile
ones, the tree of a good file changed and written (and sealed) again, and made up.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import random
import resource
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

import fuzz_archives
import fuzz_folders
from fuzz_inputs import make_input

from hmx.config.codec import to_toml
from hmx.config.schema import Config
from hmx.envs.hackmatrix.rules import scenario
from hmx.errors import ExitCode, HmxError
from hmx.play import saved_games
from hmx.play.scenario import read_scenario
from hmx.records import artefact, buffer_file, checkpoints, jsonl, lock, meta, score_file
from hmx.records.logs import read_imported
from hmx.records.owner import this_process
from hmx.records.paths import RunPaths
from hmx.registry.load import load
from hmx.runs import buffers

MAX_MESSAGE = 10_000  # characters


class Reader(NamedTuple):
    """`read` is given a file of one of the `corpus`' making; `name` is what the file is called.

    `rebuild` turns the tree of a file, as `parse` gives it, into a file again.
    """

    name: str
    read: Callable[[Path], Any]
    corpus: list[bytes]
    parse: Callable[[bytes], Any]
    rebuild: Callable[[Any], bytes]


def read_config(path: Path) -> Any:
    """All layers of a configuration with this file in it."""
    return load(file=path, environ={}).config


def read_position(path: Path) -> Any:
    """A scenario, set up."""
    return scenario.from_dict(read_scenario(path))


def read_manifest(path: Path) -> Any:
    """A manifest, and whether the folder holds what it says."""
    checkpoints.faults(path.parent)
    checkpoints.complete(path.parent.parent)
    return checkpoints.read_manifest(path.parent)


def read_metrics(path: Path) -> Any:
    """All that is ever done to a metrics file."""
    jsonl.tail(path)
    jsonl.Marker(path).mark()
    try:
        return list(jsonl.read(path))
    finally:
        jsonl.repair(path)
        jsonl.salvage(path, 3)


def read_lock(path: Path) -> Any:
    """Who holds a run."""
    return lock.holding(RunPaths(path.parent.parent, path.parent.name))


def read_buffer(path: Path) -> Any:
    """A saved buffer as arrays, and how it differs from what a policy plays."""
    if buffer_file.is_buffer(path):
        buffer_file.read_header(path)
    buffer = buffers.load(path)
    return buffers.named(buffer), buffer_file.differences(buffer.header, buffer_file.settings_of(Config()))


def read_scores(path: Path) -> Any:
    """Scores, with their arrays and without."""
    score_file.read(path, whole=False)
    return score_file.read(path)


def sealed(tree: Any) -> bytes:
    """A JSON file, with a right seal where it can have one."""
    if isinstance(tree, dict):
        try:
            tree.pop(artefact.SEAL, None)
            return artefact.sealed(tree).encode("utf-8", "surrogatepass")
        except (ValueError, TypeError, RecursionError):
            pass
    return as_json(tree)


def as_json(tree: Any) -> bytes:
    """JSON, with NaN and the like where there are any."""
    return json.dumps(tree).encode("utf-8", "surrogatepass")


def as_lines(tree: Any) -> bytes:
    """One JSON value a line."""
    return b"".join(as_json(row) + b"\n" for row in (tree if isinstance(tree, list) else [tree]))


def as_toml(tree: Any) -> bytes:
    """Sections of keys, as strange as they may be."""
    lines = []
    for section, body in tree.items() if isinstance(tree, dict) else [("algo", tree)]:
        if isinstance(body, dict):
            lines.append(f"[{_toml_key(section)}]")
            lines += [f"{_toml_key(name)} = {_toml_value(value)}" for name, value in body.items()]
        else:
            lines.insert(0, f"{_toml_key(section)} = {_toml_value(body)}")
    return "\n".join(lines).encode("utf-8", "surrogatepass")


def _toml_key(key: Any) -> str:
    return str(key) if str(key).isidentifier() else json.dumps(str(key))


def _toml_value(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_toml_key(k)} = {_toml_value(v)}" for k, v in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(_toml_value(v) for v in value) + "]"
    if isinstance(value, float):
        return repr(value)
    return json.dumps(value)


def from_toml(data: bytes) -> Any:
    """The tree of a TOML file."""
    import tomllib

    return tomllib.loads(data.decode())


def from_lines(data: bytes) -> Any:
    """The records of a file of lines."""
    return [json.loads(line) for line in data.splitlines()]


def make_readers(folder: Path) -> dict[str, Reader]:
    """Every reader, with good files to begin with."""
    checkpoint = folder / "good" / "3"
    checkpoint.mkdir(parents=True)
    (checkpoint / "arrays.bin").write_bytes(b"arrays")
    leaves = [checkpoints.Leaf("params/w", (3, 4), "float32"), checkpoints.Leaf("key", (), "key<fry>")]
    mark = jsonl.Mark(3, "ab" * 32)
    (checkpoint / "run.toml").write_text("")
    info = checkpoints.CheckpointInfo(env_steps=96, shape_digest="12", config_digest="34", score=1.5, metrics=mark)
    checkpoints.write_manifest(checkpoint, 3, leaves, info)
    about = meta.collect("cpu", ["hmx", "train"], "12", "34", "schema = 1\n")
    about = meta.resumed(about, 3, ["hmx", "resume"], {"run.total_steps": (1, 2)}, {"4": "damaged"}, ["a note"])
    rows = [{"schema": 1, "update": n, "seed": 0, "env_steps": 32 * n, "train/x": 0.5, "y": None} for n in range(6)]
    owner = {"schema": lock.SCHEMA, **vars(this_process())}
    full = {"player": {"row": 0, "col": 5, "hp": 2, "dataSiphons": 1}, "stage": 3, "ownedPrograms": [5, 9]}
    full |= {"enemies": [{"type": "virus", "row": 1, "col": 1, "hp": 2, "stunned": True}], "exit": {"row": 2, "col": 2}}
    full |= {"transmissions": [{"row": 3, "col": 3, "turnsRemaining": 2, "enemyType": "glitch"}], "resources": []}
    full |= {
        "blocks": [
            {"row": 4, "col": 4, "type": "data", "points": 3},
            {"row": 4, "col": 5, "type": "program", "programActionIndex": 7},
        ]
    }
    configs = [to_toml(Config()).encode(), b"schema = 1\n[algo]\ngamma = 0.9\n[net]\nhidden = [8, 8]\n"]
    readers = [
        Reader("run.toml", read_config, configs, from_toml, as_toml),
        Reader(
            "scenario.json",
            read_position,
            [as_json({"player": {"row": 0, "col": 0}}), as_json(full)],
            json.loads,
            as_json,
        ),
        Reader("manifest.json", read_manifest, [(checkpoint / "manifest.json").read_bytes()], json.loads, sealed),
        Reader("metrics.jsonl", read_metrics, [as_lines(rows), as_lines(rows[:1])], from_lines, as_lines),
        Reader("meta.json", meta.read, [meta.to_text(about).encode()], json.loads, sealed),
        Reader("lock.json", read_lock, [sealed(owner)], json.loads, sealed),
        Reader(
            "buffer.npz",
            read_buffer,
            fuzz_archives.good_buffers(folder / "good"),
            fuzz_archives.parse,
            fuzz_archives.rebuild,
        ),
        Reader(
            "scores.npz",
            read_scores,
            fuzz_archives.good_scores(folder / "good"),
            fuzz_archives.parse,
            fuzz_archives.rebuild,
        ),
    ]
    names = ("config", "scenario", "manifest", "metrics", "meta", "lock", "buffer", "scores")
    return dict(zip(names, readers, strict=True)) | make_folder_readers(folder / "good")


def make_folder_readers(folder: Path) -> dict[str, Reader]:
    """Every reader of a file that lies in a folder with others."""
    study, gate = fuzz_folders.make_study(folder / "study"), fuzz_folders.make_gate(folder / "gate")
    found = {}
    places = [(key, study / name, partial(fuzz_folders.use_study, study)) for key, name in
              fuzz_folders.STUDY_FILES.items()]  # fmt: skip
    places += [(key, gate / name, partial(fuzz_folders.use_gate, gate)) for key, name in
               fuzz_folders.GATE_FILES.items()]  # fmt: skip
    for key, place, use in places:
        parse, rebuild = (from_toml, as_toml) if place.suffix == ".toml" else (json.loads, sealed)
        found[key] = Reader(place.name, fuzz_folders.within(place, use), [place.read_bytes()], parse, rebuild)
    program, find = fuzz_folders.stored_program(folder / "programs")
    episodes = [fuzz_folders.good_episodes(folder / "episodes")]
    rows = fuzz_folders.rows_of, fuzz_folders.as_rows
    return {
        **found,
        "episodes": Reader(
            "episodes.npz", fuzz_folders.read_episodes, episodes, fuzz_archives.parse, fuzz_archives.rebuild
        ),
        "game": Reader("game.json", saved_games.read, [as_json(fuzz_folders.GAME)], json.loads, as_json),
        "panel": Reader("panel.csv", read_imported, [fuzz_folders.PANEL], *rows),
        "monitor": Reader("monitor.csv", read_imported, [fuzz_folders.MONITOR], *rows),
        "program": Reader("entry", fuzz_folders.within(program, find), [program.read_bytes()], bytes, bytes_of),
    }


def bytes_of(tree: Any) -> bytes:
    """A file of what was made of its bytes."""
    return tree if isinstance(tree, bytes) else as_json(tree)


class Tally:
    """What came of the inputs of one reader."""

    def __init__(self) -> None:
        self.inputs = self.values = self.refused = 0
        self.different: set[bytes] = set()
        self.slowest = self.seconds = 0.0
        self.longest_message = 0
        self.findings: list[tuple[str, bytes]] = []


class _NoEndError(BaseException):
    """No reader may take this for an error of its own."""


def judge(reader: Reader, path: Path, data: bytes) -> str | None:
    """Reads one input: what is wrong with the way it went, or None. `""` is a value."""
    path.write_bytes(data)
    try:
        reader.read(path)
    except HmxError as refusal:
        said = f"{refusal.message}{refusal.hint}"
        if refusal.exit_code not in (ExitCode.USAGE, ExitCode.ARTEFACT):
            return f"exit code {refusal.exit_code}"
        if not refusal.message or len(said) > MAX_MESSAGE:
            return f"a message of {len(said):,} characters"
        return None
    except Exception as problem:
        return f"{type(problem).__name__}: {str(problem)[:100]}"
    return ""


def run(reader: Reader, folder: Path, inputs: int, seed: int, seconds: float) -> Tally:
    """Feeds a reader."""
    draw = random.Random(f"{seed} {reader.name}")
    tally = Tally()
    path = folder / reader.name
    for _ in range(inputs):
        data = make_input(draw, reader.corpus, reader.parse, reader.rebuild)
        tally.inputs += 1
        tally.different.add(hashlib.blake2b(data, digest_size=8).digest())
        signal.setitimer(signal.ITIMER_REAL, 10 * seconds)
        before = time.process_time()
        try:
            wrong = judge(reader, path, data)
        except _NoEndError:
            wrong = "no end"
        signal.setitimer(signal.ITIMER_REAL, 0)
        took = time.process_time() - before
        tally.seconds += took
        tally.slowest = max(tally.slowest, took)
        if took > seconds:
            wrong = f"{took:.1f} s"
        tally.values += wrong == ""
        tally.refused += wrong is None
        if wrong:
            tally.findings.append((wrong, data))
    return tally


def _give_up(signum: int, frame: FrameType | None) -> None:
    raise _NoEndError


def main() -> int:
    """Fuzz and print a line per reader."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--inputs", type=int, default=40_000, help="per reader")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--reader", help="only this one")
    parser.add_argument("--keep", type=Path, help="folder for the inputs that were findings")
    parser.add_argument("--seconds", type=float, default=2.0, help="of processor time that one input may take")
    parser.add_argument("--mebibytes", type=int, default=2048, help="memory that the readers may add")
    args = parser.parse_args()
    signal.signal(signal.SIGALRM, _give_up)
    count = 0
    with tempfile.TemporaryDirectory(prefix="hmx-fuzz-") as name:
        folder = Path(name)
        readers = make_readers(folder)
        for key, reader in readers.items():
            if args.reader in (None, key):
                judge(reader, folder / reader.name, reader.corpus[0])  # imports and compiles
        used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + (args.mebibytes << 20), resource.RLIM_INFINITY))
        print(
            f"{'reader':10}{'inputs':>9}{'different':>11}{'values':>9}{'refused':>9}{'slowest':>9}{'mean':>9}  findings"
        )
        for key, reader in readers.items():
            if args.reader not in (None, key):
                continue
            (folder / key / "3").mkdir(parents=True)
            tally = run(reader, folder / key / "3", args.inputs, args.seed, args.seconds)
            count += len(tally.findings)
            mean = tally.seconds / max(tally.inputs, 1)
            print(
                f"{key:10}{tally.inputs:9,}{len(tally.different):11,}{tally.values:9,}{tally.refused:9,}"
                f"{1e3 * tally.slowest:6.0f} ms{1e3 * mean:6.2f} ms  {len(tally.findings)}",
                flush=True,
            )
            for number, (wrong, data) in enumerate(tally.findings):
                if number < 20:
                    print(f"    {wrong}: {data[:60]!r}", flush=True)
                if args.keep:
                    args.keep.mkdir(parents=True, exist_ok=True)
                    (args.keep / f"{key}-{number}").write_bytes(data)
        print(f"peak memory {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10:,} MiB")
    return ExitCode.CHECK_FAILED if count else ExitCode.OK


if __name__ == "__main__":
    sys.exit(main())
