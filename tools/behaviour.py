"""Record what commands do as text files, and show what differs between two recordings.

    python tools/behaviour.py record FOLDER [--only help,refusals,plans,reports,archives/resume] [--checkout FOLDER]
    python tools/behaviour.py diff FOLDER FOLDER

`tools/behaviour/commands.txt` lists the command lines. A recording shows the exit code of each, what it prints and
which files it adds or removes. Placeholders replace times, ids and paths: one commit gives the same bytes on one
machine. Only the command line is used, so that a recording can be made of any commit.
"""

from __future__ import annotations

import argparse
import difflib
import hashlib
import importlib
import json
import multiprocessing
import os
import re
import runpy
import shlex
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[1]
GIVEN = ROOT / "tools" / "behaviour"
PRELOADED = ("pydantic", "typer.rich_utils", "rich.progress", "jax", "flax.linen", "optax", "orbax.checkpoint")
"""Imported once. The process of each command is forked from here, so it only has to import hmx."""

ENVIRON = {
    "COLUMNS": "100", "LINES": "40", "TERM": "dumb", "NO_COLOR": "1", "WANDB_MODE": "disabled",
    "OPENBLAS_NUM_THREADS": "1", "JAX_PLATFORMS": "cpu", "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
    # Two devices, and programs that compile quickly: see tests/conftest.py.
    "XLA_FLAGS": "--xla_force_host_platform_device_count=2 --xla_backend_optimization_level=0"
    " --xla_cpu_use_fusion_emitters=false --xla_cpu_parallel_codegen_split_count=1",
}  # fmt: skip
TAKEN_FROM_THE_SHELL = re.compile(
    "HMX_|_HMX_|WANDB_|JAX_|XLA_|FORCE_COLOR|CLICOLOR_FORCE|GITHUB_ACTIONS|TERMINAL_WIDTH"
)
VARYING = re.compile(
    r"(.*[/_])?(seconds|minutes|elapsed|wall_time|per_sec|per_cpu_sec|per_second|created|updated|age|run_id|git_\w+"
    r"|startup)"
)
"""Keys of JSON whose values differ from run to run."""

VARYING_TEXT = re.compile(r"(?<=hmx-crash-)\w+|\b[\d.]+k? (?=s\b|per second)")

EXACT = "reports/"
"""Cases that measure no time; nothing is replaced there."""

FORK = multiprocessing.get_context("fork")


class Case(NamedTuple):
    """Command lines that run one after the other in a folder of their own."""

    name: str
    lines: tuple[str, ...]


class Done(NamedTuple):
    """What a command line did."""

    code: int
    out: str
    err: str


def read_cases(template: Path) -> Iterator[Case]:
    """Yield the cases of the list, with one for each command, preset or environment where the list asks for that."""
    names = {"command": listed_commands(template)}
    presets = json.loads(run("presets --json", template).out)["presets"]
    names["preset"] = [preset["name"] for preset in presets]
    environments = json.loads(run("envs --json", template).out)["environments"]
    names["env"] = [environment["id"] for environment in environments if environment["origin"] == "built in"]
    for section in re.split(r"^(?=\[\w+/.+\]$)", (GIVEN / "commands.txt").read_text(), flags=re.MULTILINE)[1:]:
        title, *lines = section.splitlines()
        case = Case(title[1:-1], tuple(line for line in lines if line))
        variables = re.findall(r"{(\w+)}", case.name)
        if not variables:
            yield case
        for variable in variables:
            for name in names[variable]:
                values = {variable: name}
                yield Case(case.name.format(**values), tuple(line.format(**values) for line in case.lines))


def listed_commands(folder: Path, group: str = "") -> list[str]:
    """Return the names of all commands, as the help texts list them."""
    commands = run(f"{group} --help", folder).out.partition(" Commands ")[2]
    names = [f"{group} {name}".strip() for name in re.findall(r"^│ ([a-z-]+) ", commands, re.MULTILINE)]
    return names if group else names + listed_commands(folder, "runs")


def run(line: str, folder: Path) -> Done:
    """Run a command line in a folder, in a process of its own."""
    with tempfile.TemporaryDirectory() as outputs:
        streams = (Path(outputs, "out"), Path(outputs, "err"))
        process = FORK.Process(target=become, args=(line, folder, *streams))
        process.start()
        process.join()
        out, err = (stream.read_text() for stream in streams)
    assert process.exitcode is not None
    return Done(process.exitcode, out, err)


def become(line: str, folder: Path, out: Path, err: Path) -> None:
    """Turn this process into the one of a command line, as `python -m hmx` starts it."""
    for stream, path in ((sys.stdout, out), (sys.stderr, err)):
        stream.flush()
        os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT), stream.fileno())
    os.chdir(folder)
    words = shlex.split(line)
    while words and re.match(r"\w+=", words[0]):
        name, _, value = words.pop(0).partition("=")
        os.environ[name] = value
    if words[:1] == ["!"]:
        subprocess.run(line.removeprefix("!"), shell=True, check=True)
    elif words[:1] == ["arrays"]:
        print_arrays(Path(words[1]))
    else:
        tempfile.tempdir = None  # read TMPDIR again
        sys.path.insert(0, str(folder))
        sys.argv = ["hmx", *words]
        runpy.run_module("hmx", run_name="__main__", alter_sys=True)


def print_arrays(folder: Path) -> None:
    """Print a hash of each array in the checkpoints and files of arrays below a folder."""
    import numpy as np
    import tensorstore

    for path in sorted(folder.rglob("arrays")):
        store = {"driver": "ocdbt", "base": f"file://{path.absolute()}"}
        keys = tensorstore.KvStore.open(store).result().list().result()
        for name in sorted(key.decode().removesuffix("/.zarray") for key in keys if key.endswith(b"/.zarray")):
            spec = {"driver": "zarr", "kvstore": {**store, "path": f"{name}/"}}
            array = np.asarray(tensorstore.open(spec).result().read().result())
            print(path / name, array.dtype, array.shape, short_hash(array.tobytes()))
    for path in sorted(folder.rglob("*.npz")):
        with zipfile.ZipFile(path) as archive:
            for name in sorted(name for name in archive.namelist() if name.endswith(".npy")):
                print(path / name, short_hash(archive.read(name)))
    for path in sorted(folder.rglob("*.safetensors")):
        data = path.read_bytes()
        start = 8 + int.from_bytes(data[:8], "little")
        header = json.dumps(json.loads(data[8:start]), sort_keys=True)  # its order is random
        print(path, short_hash(header.encode() + data[start:]))


def short_hash(data: bytes) -> str:
    """Return the first half of a SHA-256."""
    return hashlib.sha256(data).hexdigest()[:32]


def fill(folder: Path, checkout: Path) -> None:
    """Copy into a folder what the command lines use: archived runs, examples, and the files next to the list."""
    for file in (*GIVEN.iterdir(), *(checkout / "examples").glob("*.py")):
        if file.is_file():
            shutil.copy(file, folder)
    data = ROOT / "tests" / "data"
    for archive in (*data.glob("run-schema-*.tar.gz"), *data.glob("0.1.0/*.tar.gz")):
        with tarfile.open(archive) as file:
            file.extractall(folder / archive.name.removesuffix(".tar.gz"), filter="data")
    (folder / "runs").mkdir()
    for finished in folder.glob("*/finished/*"):
        shutil.move(finished, folder / "runs")


def record_case(case: Case, template: Path, checkout: Path, recording: Path) -> None:
    """Run the command lines of a case in a copy of the template, and write what they did."""
    with tempfile.TemporaryDirectory(prefix="behaviour-") as scratch:
        folder = Path(scratch, "work")
        shutil.copytree(template, folder)
        os.environ.update(TMPDIR=scratch, HOME=scratch, XDG_STATE_HOME=scratch, XDG_CACHE_HOME=scratch)
        is_exact = case.name.startswith(EXACT)
        text = "\n".join(transcript(line, folder, is_exact) for line in case.lines)
        places = {folder: "(work)", scratch: "(scratch)", sys.prefix: "(python)", checkout: "(checkout)"}
        for place, name in places.items():
            text = text.replace(str(place), name)
    path = recording / f"{case.name.replace(' ', '-')}.txt"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def transcript(line: str, folder: Path, is_exact: bool) -> str:
    """Run a command line and return what it did as text."""
    before = files(folder)
    done = run(line, folder)
    after = files(folder)
    text = f"$ {line}\nexit code {done.code}\n"
    for title, output in (("stdout", done.out), ("stderr", done.err)):
        if output:
            text += f"--- {title}\n{shown(output, is_exact)}"
    text += "".join(f"--- new file {name}\n" for name in sorted(after - before))
    text += "".join(f"--- removed file {name}\n" for name in sorted(before - after))
    return text


def files(folder: Path) -> set[str]:
    """Return the files below a folder, without those whose names are random (of stored arrays)."""
    names = (str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())
    return {name for name in names if "/arrays/" not in name and "__pycache__" not in name}


def shown(output: str, is_exact: bool) -> str:
    """Return output with JSON on several lines and, unless it must be exact, placeholders for what varies."""
    text = ""
    for line in output.splitlines():
        if line.startswith("{"):
            value = json.loads(line)
            line = json.dumps(value if is_exact else steady(value), indent=1, ensure_ascii=False)
        text += f"{line.rstrip()}\n"
    return text if is_exact else VARYING_TEXT.sub("(varies)", text)


def steady(value: Any) -> Any:
    """Return a JSON value with placeholders for what varies."""
    if isinstance(value, list):
        return [steady(item) for item in value]
    if isinstance(value, dict):
        return {key: "(varies)" if VARYING.fullmatch(key) else steady(item) for key, item in value.items()}
    return value


def record(folder: Path, only: list[str], checkout: Path) -> None:
    """Write the transcripts of some parts and cases, or of all, into a folder."""
    for name in [name for name in os.environ if TAKEN_FROM_THE_SHELL.match(name)]:
        del os.environ[name]
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "hmx-behaviour")
    os.environ.update(ENVIRON, JAX_COMPILATION_CACHE_DIR=str(cache), PYTHONPATH=str(checkout))
    sys.path[0] = str(checkout)  # instead of the folder of this script
    for module in PRELOADED:
        importlib.import_module(module)
    with tempfile.TemporaryDirectory() as scratch, ProcessPoolExecutor(os.cpu_count(), mp_context=FORK) as pool:
        template = Path(scratch)
        fill(template, checkout)
        cases = [case for case in read_cases(template) if is_wanted(case.name, only)]
        if not cases:
            sys.exit(f"error: {GIVEN}/commands.txt has no case {' or '.join(only)}")
        for name in only or {case.name.partition("/")[0] for case in cases}:
            shutil.rmtree(folder / name, ignore_errors=True)
        jobs = {case.name: pool.submit(record_case, case, template, checkout, folder) for case in cases}
        for name, job in jobs.items():
            job.result()
            print(name, flush=True)


def is_wanted(name: str, only: list[str]) -> bool:
    """Return whether a case is one of the parts or cases that were asked for."""
    return not only or any(name == wanted or name.startswith(f"{wanted}/") for wanted in only)


def diff(old: Path, new: Path) -> int:
    """Print how the files of a recording differ from another, and return 1 if they do.

    The newer one may hold fewer parts.
    """
    different = False
    for path in sorted(new.rglob("*.txt")):
        before = old / path.relative_to(new)
        lines = (file.read_text().splitlines() if file.exists() else [] for file in (before, path))
        for line in difflib.unified_diff(*lines, str(before), str(path), lineterm=""):
            print(line)
            different = True
    return int(different)


def main() -> int:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    recorder = commands.add_parser("record")
    recorder.add_argument("folder", type=Path, help="folder to write")
    recorder.add_argument("--only", default="", metavar="PART,...", help="parts or cases to record (default: all)")
    recorder.add_argument("--checkout", type=Path, default=ROOT, help="source tree to record (default: this one)")
    differ = commands.add_parser("diff")
    differ.add_argument("old", type=Path)
    differ.add_argument("new", type=Path)
    given = parser.parse_args()
    if given.command == "diff":
        return diff(given.old, given.new)
    record(given.folder.resolve(), [name for name in given.only.split(",") if name], given.checkout.resolve())
    return 0


if __name__ == "__main__":
    sys.exit(main())
