"""Code of the user that a configuration names: its file, permission to run it, and its import.

A reference is `./file.py`, `./file.py:function` or `package.module:function`; `make` is the default function. The
module of `gymnasium/package.module:Id`, and a package that only the current folder has, are user code too.

A run folder may come from a stranger, and its run.toml names code. Code runs only if the user named it on this command
line or passed it from Python, gave `--trust-env`, or did any of these before with the same path and content. Modules
that it imports from its own folder or package need the same permission, and get it when the user gives it to the code
that imports them. Functions raise an HmxError where a reference names nothing, its code may not run, or fails.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib
import importlib.machinery
import inspect
import os
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import TYPE_CHECKING, Any

from hmx.config.fields import OWN_SECTIONS, own_key, replace, values_of
from hmx.config.files import read_plain, words
from hmx.config.option import ALGORITHMS
from hmx.config.references import FUNCTION, is_reference, names_code, parse
from hmx.config.schema import ENV_IDS, Config, OwnOptions
from hmx.config.textfile import quoted
from hmx.errors import HmxError, nearest, nearest_file
from hmx.registry import trust
from hmx.registry.own_modules import OwnModules, import_file, is_here, is_installed
from hmx.registry.own_options import Options, declared, pairs, read_options, with_options
from hmx.registry.trust import ACCEPT_FLAG, TRUST_FLAG, Permissions

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

NOTEBOOK = "notebook"
HASHES: Mapping[str, str] = {"env.id": "env.sha256", "net.kind": "net.sha256", "algo.name": "algo.sha256"}
"""Key that may hold a reference -> key with the SHA-256 of its file."""

WHAT = {"env.id": "environment", "net.kind": "network", "algo.name": "algorithm", "run.sink": "sink"}
GROUPS = {"env.id": "hmx.environments", "algo.name": "hmx.algorithms", "run.sink": "hmx.sinks"}
"""Key -> entry-point group by which installed packages add names to it."""

_LONGEST = 400  # characters of a line of the user's traceback


class CodeChanged(HmxError):
    """A file has changed since the run began."""

    def __init__(self, path: Path, before: str, now: str, lines: str = "") -> None:
        words = f"{path} has changed since the run began: SHA-256 {before[:12]} became {now[:12]}{lines}"
        super().__init__(words, f"restore the file, or read it and use it as it is now: {ACCEPT_FLAG} {TRUST_FLAG}")
        self.path, self.before, self.now = path, before, now


def reference_of(name: str, key: str) -> str:
    """Return the reference to the code that a name runs; empty if only hmx and installed packages run.

    Python searches the current folder in a notebook. A package whose entry points are found there is not installed.
    """
    if names_code(name):
        return name
    if key not in GROUPS or "/" in name or name in (*ENV_IDS, *ALGORITHMS):
        return ""
    points = [point for point in registered(key) if point.name == name and point.dist is not None]
    here = [point for point in points if is_here(str(point.dist and point.dist.locate_file("")))]
    return f"{here[0].module}:{here[0].attr}" if here else ""


def code_file(text: str, key: str) -> Path:
    """Return the Python file of a reference, without importing anything."""
    target, what = parse(text).target, f"cannot load {WHAT[key]} {quoted(text)}"
    if target.endswith(".py"):
        path = Path(target).expanduser()
        if path.is_file():
            return path.resolve()
        near = nearest_file(path)
        place = "" if path.is_absolute() else "./"
        hint = f"did you mean {place}{near}?" if near else "give the path of a Python file"
        raise HmxError(f"{what}: there is no file {quoted(target)} in {Path.cwd()}", hint)
    if target == NOTEBOOK:
        hint = "pass the function from Python again, or put it into a file"
        raise HmxError(f"{what}: it was defined in a notebook or at a prompt", hint)
    places, spec = [*sys.path, os.getcwd()], None
    for name in target.split("."):
        # By path: `importlib.util.find_spec` would import the parent packages.
        spec = importlib.machinery.PathFinder.find_spec(name, places)
        if spec is None:
            break
        places = list(spec.submodule_search_locations or ())
    if spec is None or spec.origin is None or not Path(spec.origin).is_file():
        hint = "install it, start in the folder that contains it, or name a file: ./file.py:make"
        raise HmxError(f"{what}: there is no module {quoted(target)}", hint)
    return Path(spec.origin).resolve()


def file_of(thing: object) -> Path:
    """Return the file that a function, or the class of an object, was defined in, as tracebacks name it."""
    code = getattr(thing, "__code__", None)
    file = getattr(sys.modules.get(type(thing).__module__), "__file__", None)
    return Path(code.co_filename if code is not None else file or NOTEBOOK)


def sha256(text: str, key: str) -> str:
    """Compute the SHA-256 of the file of a reference, as 64 hex digits; "" without a readable file."""
    with contextlib.suppress(HmxError, OSError, ValueError):
        reference = reference_of(text, key)
        return _digest(code_file(reference, key)) if reference else ""
    return ""


def _digest(path: Path) -> str:
    return hashlib.sha256(read_plain(path)).hexdigest()


def check_unchanged(text: str, key: str, before: str) -> None:
    """Raise a CodeChanged if the file of a reference has another digest than `before`, if that is known."""
    now = sha256(text, key) if before else ""
    if now not in ("", before) and not Permissions.accept_change:
        raise CodeChanged(code_file(reference_of(text, key), key), before, now)


def hashes_of(values: Mapping[str, Any]) -> dict[str, str]:
    """Return the SHA-256 of every file that the values of a configuration name, as it is now, by key."""
    return {hash_key: sha256(values[key], key) for key, hash_key in HASHES.items()}


# Trust


def allow(text: str, key: str) -> None:
    """Allow the code of a reference to run, since the user named it; it is remembered by path and content."""
    if digest := sha256(text, key):
        trust.remember(code_file(reference_of(text, key), key), digest)


def allow_file(path: Path) -> None:
    """Allow a file that the user has made to run, or to name what runs, as it is now."""
    trust.remember(path, _digest(path))


def permissions(text: str, key: str) -> dict[str, Any]:
    """Return the permissions of this process, for another one that builds the code of a reference."""
    digest = sha256(text, key) if text in _adopted else ""
    return trust.permissions(*([[str(code_file(text, key)), digest]] if digest else []))


# Loading

_modules: dict[tuple[str, str], ModuleType] = {}  # (path, SHA-256) -> the module
_adopted: dict[str, Callable[..., Any]] = {}  # reference -> a function that was passed from Python
_own_modules = OwnModules(trust.check_allowed)


def adopt(function: Callable[..., Any]) -> str:
    """Return a reference to a function at the top of a module of this process, for a configuration.

    One that was defined in a notebook or at a prompt has no file, and can be used in this process only.
    """
    module, name = str(getattr(function, "__module__", "")), str(getattr(function, "__qualname__", ""))
    if not name.isidentifier():
        what = f"cannot use {quoted(name or repr(function))} in a configuration"
        raise HmxError(f"{what}: it is not a function at module level", "define it with `def` at module level")
    file = getattr(sys.modules.get(module), "__file__", None) or ""
    if module == "__main__":
        module = file if file.endswith(".py") else NOTEBOOK
    text = f"{module}:{name}"
    _adopted[text] = function
    return text


def load(text: str, key: str) -> Callable[..., Any]:
    """Import the function that a reference names; arguments as of `load_module`."""
    if text in _adopted:
        return _adopted[text]
    module, function = load_module(text, key), parse(text).function
    found = getattr(module, function, None)
    if callable(found):
        return found  # type: ignore[no-any-return]
    own = [
        name
        for name, value in vars(module).items()
        if inspect.isfunction(value) and value.__module__ == module.__name__
    ]
    near = nearest(function, own) or next(iter(own), FUNCTION)
    hint = f"name one of its functions, as in {parse(text).target}:{near}"
    listed = f"it has {', '.join(own[:8])}" if own else "it defines none"
    raise HmxError(f"cannot load {WHAT[key]} {quoted(text)}: it has no function {quoted(function)}; {listed}", hint)


def open_module(text: str, key: str, before: str) -> tuple[ModuleType | SimpleNamespace, Path]:
    """Import the module of a reference, whose file must have the digest `before` if that is known.

    Returns:
        The module, or the global names around a function that was passed from Python; and the file.

    Raises:
        CodeChanged: the file has another digest.
    """
    check_unchanged(text, key, before)
    if text not in _adopted:
        return load_module(text, key), code_file(text, key)
    function = _adopted[text]
    names = {**getattr(function, "__globals__", {}), parse(text).function: function}
    return SimpleNamespace(**names), file_of(function)


def load_module(text: str, key: str) -> ModuleType:
    """Import the file or module that a reference names, again if the file has changed.

    `key` is that of the configuration, one of `WHAT`. An error has the user's part of the traceback.
    """
    path, digest = _checked(text, key)
    at = (str(path), digest)
    if at not in _modules:
        with explaining(path, f"cannot load {WHAT[key]} {quoted(text)}"), _beside(path, digest, parse(text).target):
            _modules[at] = _import(path, digest, parse(text).target)
    return _modules[at]


def check_code(text: str, key: str, before: str) -> str:
    """Refuse the code of a reference where `load_registering` would, without an import; return its SHA-256."""
    check_unchanged(text, key, before)
    return _checked(text, key)[1]


@contextlib.contextmanager
def load_registering(text: str, key: str, before: str) -> Iterator[None]:
    """Import a module that registers something under names; what these name can be imported inside the block.

    Arguments and errors are those of `open_module`.
    """
    check_unchanged(text, key, before)
    load_module(text, key)
    with _beside(*_checked(text, key), parse(text).target):
        yield


def _checked(text: str, key: str) -> tuple[Path, str]:
    """Return the file of a reference and its digest; refuse a file that may not run."""
    path = code_file(text, key)
    try:
        digest = _digest(path)
    except OSError as problem:
        message = f"cannot load {WHAT[key]} {quoted(text)}: {words(problem)}"
        raise HmxError(message, "give a file of Python code") from None
    trust.check_allowed(path, digest)
    return path, digest


def _beside(path: Path, digest: str, target: str) -> contextlib.AbstractContextManager[None]:
    """Make what lies in the folder or package of a trusted file importable, unless it is installed."""
    named = trust.may_run(path, digest)
    if target.endswith(".py"):
        return _own_modules.beside(path.parent, named)
    packages = target.count(".") + (path.stem == "__init__")
    return contextlib.nullcontext() if is_installed(path) else _own_modules.beside(path.parents[packages], named)


def _import(path: Path, digest: str, target: str) -> ModuleType:
    """Import a trusted file, or the module `target` that it contains."""
    if target.endswith(".py"):
        return import_file(path, f"hmx_user_{digest[:16]}", trust.check_allowed)
    return importlib.import_module(target)  # noqa: TID251 - only of a trusted reference


def build(name: str, key: str, *arguments: Any, my: OwnOptions = ()) -> Any:
    """Call the function that a reference, or the name of an entry point, stands for, with the options it declares."""
    function = find(name, key)
    options = _read(function, name, key, my)
    with explaining(file_of(function), f"cannot build {WHAT[key]} {quoted(name)}"):
        return with_options(function, options)(*arguments)


def complete_options(cfg: Config) -> Config:
    """Return the configuration with every option that the user's network and algorithm declare; runs their files."""
    values = values_of(cfg)
    complete: dict[str, Any] = {}
    for section, key in OWN_SECTIONS.items():
        name = values[key]
        if section == "env" or not (is_reference(name) or (section == "algo" and name not in ALGORITHMS)):
            continue
        check_unchanged(name, key, values[HASHES[key]])
        options = _read(find(name, key), name, key, getattr(cfg, section).my)
        complete |= {own_key(section, option): value for option, value in pairs(options)}
    return replace(cfg, complete)


def _read(function: Callable[..., Any], name: str, key: str, my: OwnOptions) -> Options | None:
    return read_options(declared(function), key.partition(".")[0], name, f"{WHAT[key]} {quoted(name)}", my)


@contextlib.contextmanager
def explaining(path: Path, what: str) -> Iterator[None]:
    """Turn an exception of the user's code into an `HmxError`, with the part of the traceback in their file.

    What the code prints goes to standard error, since standard output may be JSON.
    """
    try:
        with contextlib.redirect_stdout(sys.stderr):
            yield
    except HmxError:
        raise
    except (Exception, SystemExit) as error:
        frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(path)]
        if isinstance(error, SyntaxError) and error.filename == str(path):
            frames.append(traceback.FrameSummary(str(path), error.lineno, "<module>", line=error.text or ""))
        text = error.msg if isinstance(error, SyntaxError) else str(error)
        lines = [f"{what}: {type(error).__name__}: {' '.join(text.split())}"]
        lines += [f"  {f.filename}:{f.lineno}, in {f.name}: {(f.line or '').strip()}" for f in frames[-5:]]
        page = "environments" if WHAT["env.id"] in what else "python"
        hint = f"correct {path.name}" + (f", line {frames[-1].lineno}" if frames else f"; see docs/{page}.md")
        if isinstance(error, ModuleNotFoundError):
            hint = f"install the package that provides {error.name}: {sys.executable} -P -m pip install {error.name}"
        raise HmxError("\n".join(quoted(line, _LONGEST) for line in lines), hint) from error


def registered(key: str) -> list[EntryPoint]:
    """Return the entry points that installed packages add to a key, sorted by name."""
    from importlib.metadata import entry_points  # slow to import

    return sorted(entry_points(group=GROUPS[key]), key=lambda point: point.name)


def owners(points: Iterable[EntryPoint]) -> list[str]:
    """Describe entry points by their functions and packages."""
    return [f"{point.value} of {point.dist.name if point.dist else 'a package'}" for point in points]


def several_owners(name: str, key: str, claims: Iterable[str]) -> HmxError:
    """Return the error of a name that several packages registered."""
    words = f"{WHAT[key]} {quoted(name)} has several owners: {', '.join(claims)}"
    return HmxError(words, "uninstall all packages but one, or write package.module:make")


def find(name: str, key: str) -> Callable[..., Any]:
    """Return the function that a reference names, or that an installed package registered under a name."""
    if reference := reference_of(name, key):
        return load(reference, key)
    points = [point for point in registered(key) if point.name == name]
    if not points:
        raise HmxError(f"there is no {WHAT[key]} {quoted(name)}", f"packages add them as entry points of {GROUPS[key]}")
    point, *others = points
    if others:
        raise several_owners(name, key, owners(points))
    with explaining(Path(point.module), f"cannot load {WHAT[key]} {quoted(name)} of {point.value}"):
        return point.load()  # type: ignore[no-any-return]
