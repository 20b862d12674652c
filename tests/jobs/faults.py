"""Make single calls to the file system fail, and model what a disk holds after a loss of power.

Python's own files are C code that calls the system directly, so `open` is replaced by the one of `_pyio`, which goes
through `os`. What tensorstore does in C++ is not seen; orbax's own calls are.
"""

from __future__ import annotations

import _pyio
import builtins
import contextlib
import errno
import io
import os
import shutil
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

SHORT = 0  # the fault of a write that writes only half

# Function of `os` -> the errors that it fails with, one after the other.
BY_PATH = {
    "open": (errno.EACCES, errno.EIO), "mkdir": (errno.ENOSPC,), "rename": (errno.EIO,), "replace": (errno.EIO,),
    "unlink": (errno.EACCES,), "rmdir": (errno.EIO,), "stat": (errno.EIO,), "lstat": (errno.EIO,),
    "scandir": (errno.EIO,), "listdir": (errno.EIO,), "truncate": (errno.EIO,),
}  # fmt: skip
BY_HANDLE = {
    "write": (errno.ENOSPC, SHORT), "pwrite": (errno.ENOSPC, SHORT), "fsync": (errno.EIO,), "read": (errno.EIO,),
    "pread": (errno.EIO,), "fstat": (errno.EIO,), "ftruncate": (errno.EIO,), "posix_fallocate": (errno.ENOSPC,),
    "lseek": (errno.EIO,),
}  # fmt: skip


class Call(NamedTuple):
    """One call below the root."""

    name: str
    path: str

    @property
    def faults(self) -> tuple[int, ...]:
        """The ways in which it can fail."""
        return (BY_PATH | BY_HANDLE)[self.name]


class Disk:
    """Counts the calls that concern files below `root` while the `with` block runs, and makes one of them fail.

    Args:
        root: calls elsewhere are not counted.
        fail_at: number of the call that fails, from 0; -1 for none.
        fault: its error number, or `SHORT`.
        note: called after every call that succeeded, with its name and path.
    """

    def __init__(
        self, root: Path, fail_at: int = -1, fault: int = errno.EIO, note: Callable[[str, str], None] | None = None
    ) -> None:
        self.root = os.path.realpath(root)
        self.calls: list[Call] = []
        self.failed: Call | None = None
        self._fail_at, self._fault, self._note = fail_at, fault, note
        self._paths: dict[int, str] = {}  # open file -> path
        self._lock = threading.RLock()
        self._undo: list[Callable[[], None]] = []

    def __enter__(self) -> Disk:
        for name in (*BY_PATH, *BY_HANDLE):
            self._patch(os, name, self._counted(name, getattr(os, name)))
        self._patch(os, "close", self._close(os.close))
        self._patch(os, "dup", self._dup(os.dup))
        opener = self._opener(io.open)
        self._patch(io, "open", opener)
        self._patch(builtins, "open", opener)
        return self

    def __exit__(self, *_: object) -> None:
        for undo in reversed(self._undo):
            undo()

    def _patch(self, module: Any, name: str, new: Any) -> None:
        old = getattr(module, name)
        self._undo.append(lambda: setattr(module, name, old))
        setattr(module, name, new)

    def _place(self, given: Any, folder: Any = None) -> str | None:
        """The path of an argument, if it is below the root."""
        if isinstance(given, int):
            return self._paths.get(given)
        if not isinstance(given, str | os.PathLike):
            return None
        base = self._paths.get(folder, "") if folder is not None else ""
        path = os.path.abspath(os.path.join(base, os.fspath(given)))
        return path if path == self.root or path.startswith(f"{self.root}/") else None

    def _counted(self, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*args: Any, **more: Any) -> Any:
            path = self._place(args[0], more.get("dir_fd")) if args else None
            if path is None:
                return call(*args, **more)
            with self._lock:
                number = len(self.calls)
                self.calls.append(Call(name, path))
                if number == self._fail_at:
                    self.failed = self.calls[-1]
                    if self._fault != SHORT:
                        named = (os.fspath(args[0]),) if name in BY_PATH and not isinstance(args[0], int) else ()
                        raise OSError(self._fault, os.strerror(self._fault), *named)
                    args = (args[0], bytes(args[1])[: max(len(args[1]) // 2, 1)], *args[2:])
            result = call(*args, **more)
            if name == "open":
                self._paths[result] = path
            if self._note is not None:
                self._note(name, path)
            return result

        return counted

    def _close(self, call: Callable[[int], None]) -> Callable[[int], None]:
        def close(handle: int) -> None:
            self._paths.pop(handle, None)
            call(handle)

        return close

    def _dup(self, call: Callable[[int], int]) -> Callable[[int], int]:
        def dup(handle: int) -> int:
            copy = call(handle)
            if handle in self._paths:
                self._paths[copy] = self._paths[handle]
            return copy

        return dup

    def _opener(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def opened(file: Any, *args: Any, **more: Any) -> Any:
            return (call if self._place(file) is None else _pyio.open)(file, *args, **more)

        return opened


class Platter:
    """What has reached the disk: the content of files at their last fsync, and the names in folders at theirs."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._content: dict[int, bytes] = {}  # inode -> content
        self._names: dict[int, dict[str, int]] = {}  # inode of a folder -> name -> inode
        self._folders: set[int] = set()
        self._lock = threading.Lock()

    def note(self, name: str, path: str) -> None:
        """Take note of a call."""
        if name != "fsync":
            return
        with self._lock, contextlib.suppress(FileNotFoundError):
            status = os.stat(path)
            if os.path.isdir(path):
                entries = {entry.name: entry.stat(follow_symlinks=False) for entry in os.scandir(path)}
                self._names[status.st_ino] = {name: found.st_ino for name, found in entries.items()}
                self._folders |= {status.st_ino}
                self._folders |= {entry.inode() for entry in os.scandir(path) if entry.is_dir()}
            else:
                self._content[status.st_ino] = Path(path).read_bytes()
                self._folders.discard(status.st_ino)

    def after_power_loss(self, target: Path, names: bool, content: bool) -> None:
        """Write what is left, with or without the names and the content that were not flushed."""
        self._write(self._root, os.stat(self._root).st_ino, target, names, content)

    def _write(self, now: Path | None, inode: int, target: Path, names: bool, content: bool) -> None:
        target.mkdir()
        present = {p.name: p for p in now.iterdir()} if now is not None else {}
        current = {name: path.stat().st_ino for name, path in present.items()}
        found = current if names else self._names.get(inode, {})
        for name, child in found.items():
            path = present.get(name)
            path = path if path is not None and path.stat().st_ino == child else None
            # New files reuse the inode numbers of deleted folders.
            if path.is_dir() if path is not None else child in self._folders:
                self._write(path, child, target / name, names, content)
            elif content and path is not None:
                shutil.copyfile(path, target / name)
            else:
                (target / name).write_bytes(self._content.get(child, b""))


def spread(count: int, most: int) -> Iterator[int]:
    """At most `most` numbers below `count`, evenly spread; all for 0."""
    yield from (i * count // most for i in range(most)) if 0 < most < count else range(count)
