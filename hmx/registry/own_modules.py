"""Import modules beside a file of the user's from the bytes that were checked.

Python would run a compiled file in `__pycache__` instead, which may contain another program than the text.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import os
import site
import sys
import sysconfig
from collections.abc import Callable, Iterator, Sequence
from importlib.machinery import (
    EXTENSION_SUFFIXES,
    SOURCE_SUFFIXES,
    ExtensionFileLoader,
    FileFinder,
    ModuleSpec,
    PathFinder,
    SourceFileLoader,
)
from pathlib import Path
from types import CodeType, ModuleType

from hmx.config.files import read_plain, sha256_of

Check = Callable[[Path, str], None]  # of a file and its SHA-256; raises an error if it may not run


class _Source(SourceFileLoader):
    """Compile a file from the bytes that were checked, and read no compiled file."""

    def __init__(self, name: str, path: str, check: Check) -> None:
        super().__init__(name, path)
        self._check = check

    def get_code(self, fullname: str) -> CodeType:
        file = Path(self.path).resolve()
        data = read_plain(file)
        self._check(file, hashlib.sha256(data).hexdigest())
        return self.source_to_code(data, self.path)


class _Extension(ExtensionFileLoader):
    """Load a checked library."""

    def __init__(self, name: str, path: str, check: Check) -> None:
        super().__init__(name, path)
        self._check = check

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        file = Path(self.path).resolve()
        self._check(file, sha256_of(file))
        return super().create_module(spec)


class OwnModules:
    """A finder for `sys.meta_path` of the modules in folders with user code.

    Args:
        check: of a file, its SHA-256, and whether the user named the code that the file lies beside.
    """

    def __init__(self, check: Callable[[Path, str, bool], None]) -> None:
        self._check = check
        self._named: dict[Path, bool] = {}  # folder -> whether the user named the code in it
        self._names: dict[str, Path] = {}  # top-level module -> its folder
        self._places: list[str] = []  # searched after those of `sys.path`

    @contextlib.contextmanager
    def beside(self, folder: Path, named: bool) -> Iterator[None]:
        """Make the modules in a folder importable inside the block; they do not replace installed packages.

        The block imports code in the folder; its modules stay checked after the block.
        """
        self._named[folder] = named
        if self not in sys.meta_path:
            sys.meta_path.insert(sys.meta_path.index(PathFinder), self)
        self._places.append(str(folder))
        try:
            yield
        finally:
            self._places.pop()

    def find_spec(self, name: str, path: Sequence[str] | None = None, target: object = None) -> ModuleSpec | None:
        """Find a module in one of the folders; other modules are left to the finders that follow."""
        top, places = name.partition(".")[0], path
        if path is None:
            found = PathFinder.find_spec(name, [*sys.path, *self._places])
            place = _place(found)
            if place is None or place.resolve() not in self._named:
                return None
            self._names[name] = place.resolve()
            places = [str(place)]
        if top not in self._names:
            return None
        spec = _search(name, places or (), self._checked(self._names[top]))
        if spec is None:  # the finders that follow could find a compiled file
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        return spec

    def _checked(self, folder: Path) -> Check:
        return lambda file, digest: self._check(file, digest, self._named[folder])


def _search(name: str, places: Sequence[str], check: Check) -> ModuleSpec | None:
    """Find a module by its source or as a library."""
    loaders = (
        (lambda name, path: _Extension(name, path, check), EXTENSION_SUFFIXES),
        (lambda name, path: _Source(name, path, check), SOURCE_SUFFIXES),
    )
    portions: list[str] = []
    for place in places:
        spec = FileFinder(place, *loaders).find_spec(name)  # type: ignore[arg-type]
        if spec is not None and spec.loader is not None:
            return spec
        portions += (spec.submodule_search_locations or []) if spec is not None else []
    if not portions:
        return None
    namespace = ModuleSpec(name, None, is_package=True)
    namespace.submodule_search_locations = portions
    return namespace


def _place(spec: ModuleSpec | None) -> Path | None:
    """Return the folder that a top-level module or package lies in."""
    if spec is None:
        return None
    if spec.submodule_search_locations:
        return Path(next(iter(spec.submodule_search_locations))).parent
    return Path(spec.origin).parent if spec.origin and os.path.isabs(spec.origin) else None


def is_installed(file: Path) -> bool:
    """Return whether a file belongs to Python or to an installed package."""
    known = sysconfig.get_paths()
    roots = {known[name] for name in ("stdlib", "platstdlib", "purelib", "platlib")}
    roots |= {*site.getsitepackages(), site.getusersitepackages()}
    return any(file.is_relative_to(Path(root).resolve()) for root in roots)


def is_here(place: str) -> bool:
    """Return whether an entry of a module path is the current folder, in whatever form."""
    with contextlib.suppress(OSError, ValueError):  # the folder was deleted; or no path
        return os.path.realpath(place or os.curdir) == os.path.realpath(os.curdir)
    return not place


def import_file(path: Path, name: str, check: Check) -> ModuleType:
    """Import a file under a name of its own."""
    spec = importlib.util.spec_from_file_location(name, path, loader=_Source(name, str(path), check))
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses look their module up
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module
