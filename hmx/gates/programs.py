"""What a gate compares: configurations with their code, copies of hmx, and commands of other trainers.

Code is copied when it is tried, so that a baseline stays as it was when its file changes.
"""

from __future__ import annotations

import functools
import hashlib
import os
import re
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import hmx.errors
from hmx.config import codec
from hmx.config.coerce import show
from hmx.config.files import read_plain, sha256_of, words
from hmx.config.references import FUNCTION, is_reference, parse
from hmx.errors import ExitCode, HmxError
from hmx.gates.records import ATTEMPT, CODE, CONFIG, RESULT, SOURCE, Attempt, GateProgram
from hmx.records import meta
from hmx.records.atomic import writing
from hmx.registry.load import Loaded, bind, load
from hmx.registry.user_code import (
    HASHES,
    allow,
    allow_file,
    check_allowed,
    check_code,
    code_file,
    open_module,
    reference_of,
)
from hmx.reports.compare.notices import is_of_task
from hmx.reports.compare.request import EVALUATION
from hmx.runs.programs import OF_THE_HOST

_HERE = Path(hmx.errors.__file__).parents[1]  # the folder of this hmx
_NO_PART = {*OF_THE_HOST, *HASHES.values()} - {"run.init_from"}  # keys that change no result
_NAMES = re.compile(r"@[\w.$-]+")  # of the functions in a lowered program
_OPAQUE = "callback"  # part of the name of a call whose program is not in the text
Files = Mapping[str, bytes]
Values = Mapping[str, Any]  # of a configuration, by dotted key
NO_CHANGES: Mapping[str, object] = MappingProxyType({})


def load_changed(attempt: Attempt, sets: Sequence[str] = (), flags: Mapping[str, object] = NO_CHANGES) -> Loaded:
    """Load the configuration of an attempt with changes; code that the changes do not name is the attempt's copy.

    Raises:
        HmxError: a change is not valid (exit code 2), or the configuration is damaged (3).
    """
    loaded = load(file=attempt.folder / CONFIG, environ={}, sets=sets, flags=flags, check=False)
    kept = {key: text for key, text in copied(attempt).items() if loaded.origins[key].startswith(CONFIG)}
    return loaded.changed({**kept, **dict.fromkeys(HASHES.values(), "")})


def copied(attempt: Attempt) -> dict[str, str]:
    """Return the references to the copies of an attempt's code, by key."""
    values = load(file=attempt.folder / CONFIG, environ={}, check=False).values
    folder = attempt.folder.resolve() / CODE
    return {key: f"{folder / name}:{parse(values[key]).function}" for key, name in attempt.program.code.items()}


def trust(attempt: Attempt) -> None:
    """Trust an attempt that the user has made, the copies of its code, and of the modules that this imports."""
    allow_file(attempt.folder.resolve() / ATTEMPT)
    for key, text in copied(attempt).items() if not attempt.program.command else ():
        allow(text, key)
        open_module(text, key, "")


def check_trusted(attempt: Attempt) -> None:
    """Refuse (exit code 2) to run what another user's attempt names: its command, its code, its copy of hmx."""
    if attempt.program.command or attempt.program.source:
        place = attempt.folder.resolve() / ATTEMPT
        check_allowed(place, sha256_of(place))
    if not attempt.program.command:
        check_code_of(load_changed(attempt).values)


def check_code_of(values: Values) -> None:
    """Refuse (exit code 2) a configuration that names code which the user does not trust; nothing is imported."""
    for key in HASHES:
        if reference := reference_of(values[key], key):
            check_code(reference, key, "")


def of_config(loaded: Loaded, source: Path | None) -> tuple[GateProgram, dict[str, Files]]:
    """Return the program of a configuration, and the files to copy, by folder.

    Args:
        loaded: the configuration.
        source: a checkout of hmx that trains it; None for this hmx.

    Raises:
        HmxError: a file cannot be read, or `source` is not a checkout (exit code 2).
    """
    values = bind(loaded).values
    check_code_of(values)
    references = {key: values[key] for key in HASHES if is_reference(str(values[key]))}
    code, files, named = dict[str, str](), dict[str, bytes](), dict[str, str]()
    for key, text in references.items():
        place = code_file(text, key)
        beside = _beside(text, key, place)
        if parse(text).target.endswith(".py"):
            code[key] = place.name
            files |= beside
        else:
            named |= {str(path): hashlib.sha256(data).hexdigest() for path, data in _by_path(place, beside).items()}
    other = {key: text for key in HASHES if key not in references and (text := reference_of(values[key], key))}
    named |= {str(code_file(text, key)): values[HASHES[key]] for key, text in other.items()}
    kept = {key: value for key, value in values.items() if key not in _NO_PART}
    kept |= {key: parse(text).function or FUNCTION for key, text in references.items()}
    tree = _tree(source) if source else {}
    shown = sorted((key, show(value)) for key, value in kept.items())
    made_by = codec.sha256(_hashes(tree)) if source else _this_hmx()
    digest = codec.sha256([shown, _hashes(files), named, made_by])
    program = GateProgram(text="", digest=digest, files=named, code=code, source=made_by if source else "")
    return program, {CODE: files, SOURCE: tree}


@functools.cache
def _this_hmx() -> str:
    """Return the SHA-256 of the files of this hmx."""
    return codec.sha256(_hashes(_tree(_HERE)))


def versions() -> dict[str, str]:
    """List the facts that results depend on beside the programs: versions of packages, and the code of this hmx."""
    return {**meta.versions(), "the code of hmx": _this_hmx()[:12]}


def _beside(text: str, key: str, place: Path) -> dict[str, bytes]:
    """Return the contents of a file of code and of the modules in its folder that it imports, by relative path."""
    open_module(text, key, "")
    folder = place.parent
    loaded = (getattr(module, "__file__", None) for module in list(sys.modules.values()))
    modules = {Path(file).resolve() for file in loaded if file and file.endswith(".py")}
    found = {place, *(file for file in modules if file.is_relative_to(folder) and file.is_file())}
    return {str(file.relative_to(folder)): read_plain(file) for file in sorted(found)}


def _by_path(place: Path, beside: Files) -> dict[Path, bytes]:
    return {place.parent / name: data for name, data in beside.items()}


def _tree(checkout: Path) -> dict[str, bytes]:
    """Return the files of a checkout of hmx by relative path."""
    root = checkout if (checkout / "hmx" / "__init__.py").is_file() else checkout / "src"
    if not (root / "hmx" / "__init__.py").is_file():
        raise HmxError(f"{checkout} is not a checkout of hmx: it has no hmx/__init__.py", "--source FOLDER")
    paths = (path for path in sorted((root / "hmx").rglob("*")) if path.is_file() and "__pycache__" not in path.parts)
    try:
        return {str(path.relative_to(root)): path.read_bytes() for path in paths}
    except OSError as problem:
        raise HmxError(f"cannot read {checkout}: {words(problem)}", "check its permissions") from None


def _hashes(files: Files) -> dict[str, str]:
    return {name: hashlib.sha256(data).hexdigest() for name, data in files.items()}


def of_command(command: Sequence[str]) -> GateProgram:
    """Return the program of another trainer: its words, and the content of each file that they name.

    Raises:
        HmxError: it cannot be found, or lacks a place for the seed or the file (exit code 2).
    """
    text = " ".join(command)
    missing = [mark for mark in ("{seed}", "{file}") if mark not in text]
    if missing:
        hint = "for example: -- python train.py --seed {seed} --out {file}"
        raise HmxError(f"the command has no {' and no '.join(missing)}: {text}", hint)
    if shutil.which(command[0]) is None:
        raise HmxError(f"there is no command {command[0]}", "give the path of a program")
    files = {word: sha256_of(Path(word).resolve()) for word in command if Path(word).is_file()}
    digest = codec.sha256([list(command), files])
    return GateProgram(text=text, digest=digest, command=tuple(command), place=os.getcwd(), files=files)


def check_task(before: Values, after: Values, metric: str) -> None:
    """Refuse (exit code 2) a candidate whose metric does not mean the same as the baseline's."""
    fixed = ["run.seed", "run.num_seeds", "run.total_steps"] + ["run.eval_episodes"] * (metric == EVALUATION)
    changed = [key for key in after if after[key] != before.get(key)]
    other = [key for key in changed if key in fixed or is_of_task(key, after["env.id"])]
    env = before["env.id"], after["env.id"]
    if env[0] != env[1] and not (is_reference(env[0]) and is_reference(env[1])):
        other.append("env.id")
    if other:
        listed = ", ".join(f"{key}={show(after[key])} instead of {show(before.get(key))}" for key in other)
        message = f"cannot compare with the baseline: {listed} changes what is measured"
        raise HmxError(message, "leave it out, or make another gate with it: hmx gate new")


def changes(before: Values, after: Values) -> dict[str, str]:
    """Return the values of a candidate that are not the baseline's, by key, as text."""
    other = [key for key in after if key not in _NO_PART and after[key] != before.get(key)]
    return {key: show(after[key]) for key in other}


def changed_options(before: Values, after: Values) -> dict[str, str]:
    """Return `changes` apart from the places of code."""
    found = changes(before, after)
    both = {key: before[key] for key in HASHES.keys() & found.keys()}
    moved = {key for key, text in both.items() if is_reference(text) and is_reference(found[key])
             and parse(text).function == parse(found[key]).function}  # fmt: skip
    return {key: text for key, text in found.items() if key not in moved}


def write_files(folder: Path, files: Mapping[str, Files]) -> None:
    """Write copies of code; a command that was killed in between writes them again."""
    with writing("the attempt", folder, ExitCode.ARTEFACT):
        for name, contents in files.items():
            shutil.rmtree(folder / name, ignore_errors=True)
            for relative, data in contents.items():
                path = folder / name / relative
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(data)


def check_files(attempt: Attempt) -> None:
    """Refuse to train a program that is not trusted (exit code 2), or not what it was when it was tried (3)."""
    check_trusted(attempt)
    program = attempt.program
    if program.source and codec.sha256(_hashes(_tree(attempt.folder / SOURCE))) != program.source:
        message = f"{attempt.folder / SOURCE} is not what it was when attempt {attempt.number} was tried"
        raise HmxError(message, "restore it from a copy", ExitCode.ARTEFACT)
    changed = [file for file, digest in program.files.items() if _sha256(Path(program.place, file)) != digest]
    if changed:
        message = f"{changed[0]} is not what it was when attempt {attempt.number} was tried"
        raise HmxError(message, "restore it; keep each version in a file of its own", ExitCode.ARTEFACT)


def _sha256(path: Path) -> str:
    return sha256_of(path.resolve()) if path.is_file() else ""


def lowered_digest(task: Loaded) -> str:
    """Return the SHA-256 of the lowered programs of a configuration; "" if they do not show all that it does.

    Names of functions do not count. Programs with callbacks run code that is not in their text.

    Raises:
        HmxError: it cannot run.
    """
    from hmx.runs.chunk import trace_chunk
    from hmx.runs.loop import init_function, train_keys
    from hmx.runs.session import open_task

    session = open_task(task)
    if session.env.spec.simulator is not None:
        return ""
    run = session.cfg.run
    keys = train_keys(run.seed, run.num_seeds)
    _, chunk = trace_chunk(
        session.algorithm, session.abstract, session.sizes.updates_per_chunk, run.num_seeds, run.on_nonfinite
    )
    texts = [init_function(session.algorithm, run.num_seeds).lower(keys).as_text(), chunk.lower().as_text()]
    if any(_OPAQUE in text for text in texts):
        return ""
    return codec.sha256([_renamed(text) for text in texts])


def _renamed(program: str) -> str:
    """Return a program whose functions are numbered in the order in which they appear."""
    numbers: dict[str, str] = {}
    return _NAMES.sub(lambda match: numbers.setdefault(match[0], f"@{len(numbers)}"), program)


def command_of(attempt: Attempt, seed: int, folder: Path) -> list[str]:
    """Return the command of another trainer for a seed."""
    file = str((folder / RESULT).resolve())
    return [word.replace("{seed}", str(seed)).replace("{file}", file) for word in attempt.program.command]
