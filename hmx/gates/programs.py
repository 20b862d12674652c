"""What a gate compares: configurations with their code, copies of hmx, and commands of other trainers.

Code is copied when it is tried, so that a baseline stays as it was when its file changes.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

from hmx.config import codec
from hmx.config.coerce import show
from hmx.config.files import read_plain, sha256_of, words
from hmx.config.references import is_reference, parse
from hmx.errors import ExitCode, HmxError
from hmx.gates.records import ATTEMPT, CODE, CONFIG, SOURCE, Attempt, GateProgram
from hmx.records import atomic, meta
from hmx.records.atomic import writing
from hmx.registry import user_code
from hmx.registry.load import Loaded, bind, load_stored
from hmx.registry.trust import check_allowed
from hmx.registry.user_code import HASHES
from hmx.reports.compare.notices import is_of_task
from hmx.reports.compare.request import EVALUATION
from hmx.runs.lowered import code_digest
from hmx.runs.programs import OF_THE_HOST
from hmx.study.records import write_once

NO_PART = {*OF_THE_HOST, *HASHES.values()} - {"run.init_from"}  # keys that change no result
_NAMES = re.compile(r"@[\w.$-]+")  # of the functions in a lowered program
_OPAQUE = "callback"  # part of the name of a call whose program is not in the text
Values = Mapping[str, Any]  # of a configuration, by dotted key
NO_CHANGES: Mapping[str, object] = MappingProxyType({})
Made = tuple[GateProgram, Mapping[str, bytes]]
"""A program, and the files that its attempt keeps of it, by path in its folder."""


def load_changed(attempt: Attempt, sets: Sequence[str] = (), flags: Mapping[str, object] = NO_CHANGES) -> Loaded:
    """Load the configuration of an attempt with changes; code that the changes do not name is the attempt's copy.

    Raises:
        HmxError: a change is not valid (exit code 2), or the configuration is damaged (3).
    """
    loaded = load_stored(attempt.folder / CONFIG, sets, flags)
    folder = attempt.folder.resolve() / CODE
    kept = {key: f"{folder / name}:{parse(loaded.values[key]).function}" for key, name in attempt.program.code.items()
            if loaded.origins[key].startswith(CONFIG)}  # fmt: skip
    return loaded.changed({**kept, **dict.fromkeys(HASHES.values(), "")})


def copied(attempt: Attempt) -> dict[str, str]:
    """Return the references to the copies of an attempt's code, by key."""
    return {key: load_changed(attempt).values[key] for key in attempt.program.code}


def check_trusted(attempt: Attempt) -> None:
    """Refuse (exit code 2) to run what another user's attempt names: its command, its code, its copy of hmx."""
    if attempt.program.command or attempt.program.source:
        place = attempt.folder.resolve() / ATTEMPT
        check_allowed(place, sha256_of(place))
    if not attempt.program.command:
        _references(load_changed(attempt).values)


def _references(values: Values) -> dict[str, str]:
    """Return the references to code by key; refuse (exit code 2) code that the user does not trust."""
    found = {key: text for key in HASHES if (text := user_code.reference_of(values[key], key))}
    for key, text in found.items():
        user_code.check_code(text, key, "")  # imports nothing
    return found


def of_config(loaded: Loaded, text: str, source: Path | None = None) -> Made:
    """Return the program of a configuration, which `text` describes, trained by the checkout `source` or by this hmx.

    Raises:
        HmxError: a file cannot be read, two have the same name, or `source` is not a checkout (exit code 2).
    """
    values = bind(loaded).values
    options = {key: show(value) for key, value in values.items() if key not in NO_PART}
    copies = {CONFIG: codec.to_toml(loaded.config).encode()}
    code, named = dict[str, str](), dict[str, str]()
    for key, reference in _references(values).items():
        place, (target, function) = user_code.code_file(reference, key), parse(reference)
        own = is_reference(reference)
        beside = _beside(reference, key, place) if own else {place.name: read_plain(place)}
        if target.endswith(".py"):
            code[key], files = place.name, {f"{CODE}/{name}": data for name, data in beside.items()}
            if other := [name for name in files if copies.get(name, files[name]) != files[name]]:
                raise HmxError(f"two files of code have the name {Path(other[0]).name}", "rename one of them")
            copies |= files
        else:
            named |= _hashes({str(place.parent / name): data for name, data in beside.items()})
        options |= {key: function} if own else {}
    if source:
        copies |= _tree(source)
    hashes = _hashes(copies)
    parts = [*sorted(options.items()), *sorted(named.items()), "" if source else code_digest()]
    digest = codec.sha256([parts, {name: one for name, one in hashes.items() if name != CONFIG}])
    program = GateProgram(
        text=text, digest=digest, options=codec.sha256(sorted(options.items())), files=named, code=code, copies=hashes,
        source=str(source or ""),
    )  # fmt: skip
    return program, copies


def versions() -> dict[str, str]:
    """List the facts that results depend on beside the programs: package versions, and the code of this hmx."""
    return {**meta.versions(), "the code of hmx": code_digest()[:12]}


def _beside(text: str, key: str, place: Path) -> dict[str, bytes]:
    """Return the contents of a file of code and of the modules in its folder that it imports, by relative path."""
    user_code.open_module(text, key, "")
    folder = place.parent
    loaded = (getattr(module, "__file__", None) for module in list(sys.modules.values()))
    modules = {Path(file).resolve() for file in loaded if file and file.endswith(".py")}
    found = {place, *(file for file in modules if file.is_relative_to(folder) and file.is_file())}
    return {str(file.relative_to(folder)): read_plain(file) for file in sorted(found)}


def _tree(checkout: Path) -> dict[str, bytes]:
    """Return the files of a checkout of hmx by the path of their copy."""
    root = checkout if (checkout / "hmx" / "__init__.py").is_file() else checkout / "src"
    if not (root / "hmx" / "__init__.py").is_file():
        message = f"{checkout} is not a checkout of hmx: it has no file hmx/__init__.py"
        raise HmxError(message, "give the folder of a clone: --source FOLDER")
    paths = (path for path in sorted((root / "hmx").rglob("*")) if path.is_file() and "__pycache__" not in path.parts)
    try:
        return {f"{SOURCE}/{path.relative_to(root)}": path.read_bytes() for path in paths}
    except OSError as problem:
        raise HmxError(f"cannot read {checkout}: {words(problem)}", "check its permissions") from None


def _hashes(files: Mapping[str, bytes]) -> dict[str, str]:
    return {name: hashlib.sha256(data).hexdigest() for name, data in files.items()}


def of_command(command: Sequence[str]) -> Made:
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
    return GateProgram(text=text, digest=digest, command=tuple(command), place=os.getcwd(), files=files), {}


def check_task(before: Values, after: Values, metric: str) -> None:
    """Refuse (exit code 2) a candidate whose metric does not mean the same as the baseline's."""
    fixed = ["run.seed", "run.num_seeds", "run.total_steps"] + ["run.eval_episodes"] * (metric == EVALUATION)
    changed = [key for key in after if after[key] != before.get(key)]
    other = [key for key in changed if key in fixed or is_of_task(key, after["env.id"])]
    if "env.id" in changed and not (is_reference(before["env.id"]) and is_reference(after["env.id"])):
        other.append("env.id")
    if other:
        listed = ", ".join(f"{key}={show(after[key])} instead of {show(before.get(key))}" for key in other)
        message = f"cannot compare with the baseline: {listed} changes what is measured"
        raise HmxError(message, "leave it out, or make another gate with it: hmx gate new")


def write_attempt(attempt: Attempt, copies: Mapping[str, bytes]) -> None:
    """Write an attempt, its own file last, and trust what it names; a command that was killed writes it again."""
    folder = attempt.folder
    with writing("the attempt", folder, ExitCode.ARTEFACT):
        for place in (folder / CODE, folder / SOURCE):
            if os.path.lexists(place):
                shutil.rmtree(place)  # refuses a link
        for relative, data in copies.items():
            path = folder / relative
            path.parent.mkdir(parents=True, exist_ok=True)
            atomic.write_bytes(path, data)
    write_once(folder / ATTEMPT, attempt)
    user_code.allow_file(folder.resolve() / ATTEMPT)
    for key, text in copied(attempt).items():
        user_code.allow(text, key)
        user_code.open_module(text, key, "")  # also allows the modules that it imports


def check_files(attempt: Attempt) -> None:
    """Refuse to train a program that is not trusted (exit code 2), or not what it was when it was tried (3)."""
    check_trusted(attempt)
    program, folder = attempt.program, attempt.folder
    known = [(folder / name, folder / name, digest) for name, digest in program.copies.items()]
    known += [(Path(file), Path(program.place, file).resolve(), digest) for file, digest in program.files.items()]
    changed = [name for name, path, digest in known if not path.is_file() or sha256_of(path) != digest]
    if changed:
        message = f"{changed[0]} is not what it was when attempt {attempt.number} was tried"
        raise HmxError(message, "restore it; keep each version in a file of its own", ExitCode.ARTEFACT)


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
