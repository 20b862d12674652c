"""Make a new run folder, and find an existing one."""

from __future__ import annotations

import contextlib
import os
import shutil
from pathlib import Path

from hmx.config.files import make_folder, names_in, words
from hmx.config.names import clean_run_name, is_run_name
from hmx.config.references import name_of
from hmx.errors import ExitCode, HmxError, nearest
from hmx.records import meta
from hmx.records.atomic import sync_folder, writing
from hmx.records.lock import RunLock, check_free
from hmx.records.paths import CONFIG, DEFAULT_ROOT, META, RunPaths, is_folder_name, name_error

_TRIES = 1000
_REMOVED = ".removed-"  # in the name of a run that is being deleted


def new_run(root: str | Path, name: str, stem: str, force: bool = False) -> RunPaths:
    """Make the folder of a new run, with its subfolders; the folder must be new or empty.

    Without a name it is `stem` with the next free number. `force` deletes an existing run of that name first, but only
    files that a run writes.

    Raises:
        HmxError: the name is taken or invalid, or the folder cannot be written (exit code 2).
    """
    root = Path(root)
    if not name:
        return _numbered(root, stem)
    if not is_run_name(name):
        raise name_error(name)
    paths = RunPaths(root, name)
    with writing("the run folder", paths.folder):
        if paths.folder.exists() and any(paths.folder.iterdir()):
            if not force or not paths.exists():
                raise _exists(paths)
            with RunLock(paths):
                _delete_contents(paths)
        paths.folder.mkdir(parents=True, exist_ok=True)
        _subfolders(paths)
    return paths


def check_new_name(root: str | Path, name: str) -> None:
    """Refuse (exit code 2) the name of a new run that is invalid or taken; without a name, `new_run` finds one."""
    if not name:
        return
    if not is_run_name(name):
        raise name_error(name)
    folder = RunPaths(Path(root), name).folder
    if os.path.lexists(folder):
        raise HmxError(f"{folder} already exists", f"use another name: --name {name}-2")


def planned_name(root: str | Path, name: str, stem: str) -> str:
    """Return the name that `new_run` would choose now, without making it."""
    return name or f"{stem}-{_next_number(Path(root), stem):03d}"


def stem_of(env_id: str, algo: str, seed: int) -> str:
    """Return the start of a default run name, such as `hackmatrix-ppo-s0`."""
    return f"{clean_run_name(name_of(env_id))}-{clean_run_name(name_of(algo))}-s{seed}"


def find_run(run: str | Path, root: str | Path = DEFAULT_ROOT) -> RunPaths:
    """Find a run by its path (its folder, or a file in it) or by its name in `root`.

    Raises:
        HmxError: there is no such run, or the folder is not a run (exit code 3).
    """
    text, root = str(run), Path(root)
    try:
        candidates = _candidates(text, root)
        for folder in candidates:
            named = folder if is_folder_name(folder.name) else folder.resolve()  # of `.` and `..`
            if is_folder_name(named.name) and (paths := RunPaths(named.parent, named.name)).exists():
                return paths
        is_folder = any(folder.is_dir() for folder in candidates)
    except OSError as problem:
        message = f"cannot read {text[:100]}: {words(problem)}"
        raise HmxError(message, "check the path and its permissions", ExitCode.ARTEFACT) from None
    if is_folder:
        message = f"{text} is not a run folder: it has no {CONFIG}"
    else:
        message = f"there is no run {text}" + (f" in {root}" if is_folder_name(text) else "")
    known = list_runs(root)
    near = nearest(text, known)
    hint = "start a run with `hmx train`"
    if known:
        more = f" and {len(known) - 5} more" if len(known) > 5 else ""
        hint = f"did you mean {near}?" if near else f"runs in {root}: {', '.join(known[-5:])}{more}"
    raise HmxError(message, hint, ExitCode.ARTEFACT)


def find_policy(run: str | Path, root: str | Path = DEFAULT_ROOT) -> RunPaths:
    """Find a run to play as `find_run` does; if no run has that name, it is that of an agent installed with hmx."""
    try:
        return find_run(run, root)
    except HmxError:
        agents = Path(__file__).parent.parent / "agents"
        if is_folder_name(str(run)) and RunPaths(agents, str(run)).exists():
            return RunPaths(agents, str(run))
        raise


def _candidates(text: str, root: Path) -> list[Path]:
    try:
        given = Path(text).expanduser()
    except RuntimeError:  # ~ of an unknown user
        given = Path(text)
    return [*([root / text] if is_folder_name(text) else []), given.parent if given.is_file() else given]


def find_by_id(root: Path, name: str, run_id: str) -> RunPaths | None:
    """Return the run with an id in a folder of runs, by its usual name or by any other; None if it is not there."""
    for candidate in (name, *list_runs(root)) if run_id else ():
        if is_folder_name(candidate):
            paths = RunPaths(root, candidate)
            known = meta.find(paths.meta)
            if known is not None and known.run_id == run_id:
                return paths
    return None


def list_runs(root: str | Path = DEFAULT_ROOT) -> list[str]:
    """Return the sorted names of the runs in `root`; none if there is no such folder."""
    try:
        names = [p.name for p in Path(root).iterdir() if is_folder_name(p.name)]
        return sorted(n for n in names if RunPaths(Path(root), n).exists())
    except OSError:
        return []


def _numbered(root: Path, stem: str) -> RunPaths:
    with writing("the run folder", root):
        root.mkdir(parents=True, exist_ok=True)
        number = _next_number(root, stem)
        for i in range(number, number + _TRIES):
            paths = RunPaths(root, f"{stem}-{i:03d}")
            try:
                paths.folder.mkdir()
            except FileExistsError:  # another process was faster
                continue
            _subfolders(paths)
            return paths
    raise HmxError(f"no free number for {stem} in {root}", "give the run a name: --name my-run")


def _next_number(root: Path, stem: str) -> int:
    """Return one more than the highest number in use, so that numbers of deleted runs are not reused."""
    numbers = [0]
    if root.is_dir():
        tails = (p.name.removeprefix(f"{stem}-") for p in root.iterdir() if p.name.startswith(f"{stem}-"))
        numbers += [int(tail) for tail in tails if tail.isascii() and tail.isdigit()]
    return max(numbers) + 1


def _exists(paths: RunPaths) -> HmxError:
    if not paths.exists():
        hint = f"choose another name: --name {paths.name}-2"
        return HmxError(f"{paths.folder} already exists and is not a run", hint)
    other = f"--name {paths.name}-2"
    found = meta.find(paths.meta)
    way = f"resume it: hmx resume {paths.argument}"
    if found is not None and found.state == "finished":
        steps = found.env_steps
        way = f"extend it: hmx resume {paths.argument} --steps {2 * steps}"
    hint = f"{way}; or use another name: {other}; or delete it: --force"
    return HmxError(f"run {paths.folder} already exists", hint)


def renew_run(paths: RunPaths) -> None:
    """Make the folder of a run ready to start it again, without what an earlier start has written.

    The caller holds the lock of the run. Only files that a run writes are deleted.

    Raises:
        HmxError: the folder cannot be written (exit code 2).
    """
    with writing("the run folder", paths.folder):
        _delete_contents(paths)
        _subfolders(paths)


def _delete_contents(paths: RunPaths) -> None:
    for folder in (paths.checkpoints, paths.reports, paths.diagnosis, paths.events):
        _delete(folder)
    # Last the files that make it a run, so that an interrupted deletion can be repeated.
    for file in (paths.environment, paths.reference, paths.metrics, paths.meta, paths.config):
        _delete(aside(file))
        _delete(file)


def rename_run(paths: RunPaths, name: str) -> RunPaths:
    """Rename the folder of a run.

    Raises:
        HmxError: the name is invalid or taken, or a process trains the run (exit code 2).
    """
    if not is_run_name(name):
        raise HmxError(name_error(name).message, f"hmx runs rename {paths.argument} {clean_run_name(name)}")
    new = RunPaths(paths.root, name)
    if os.path.lexists(new.folder):
        raise HmxError(f"cannot rename {paths.folder}: {new.folder} already exists", "choose another name")
    with RunLock(paths) as lock, writing("the run folder", paths.folder):
        paths.folder.rename(new.folder)
        lock.moved(new)
    return new


def check_removable(paths: RunPaths, given: Path) -> None:
    """Refuse (exit code 2) to remove a run that is training, or that is not named by its own folder."""
    if paths.folder.is_symlink():
        raise HmxError(
            f"cannot remove {paths.folder}: it is a link", f"give the folder itself: {paths.folder.resolve()}"
        )
    if given.is_file():
        raise HmxError(f"cannot remove {given}: it is a file of a run", f"give the run: {paths.folder}")
    check_free(paths)


def remove_run(paths: RunPaths) -> None:
    """Delete a run folder with everything in it; links are deleted, not followed; errors as of `check_removable`.

    The folder is renamed first, so that no half-deleted run is left if the process is killed. What a killed deletion
    has left in the root is deleted too.
    """
    check_removable(paths, paths.folder)
    removed = paths.root / f".{paths.name}{_REMOVED}{os.getpid()}"
    with RunLock(paths), writing("the run folder", paths.folder):
        paths.folder.rename(removed)
        try:
            # Last the files that make it a run, so that a deletion that fails can be repeated.
            for path in sorted(removed.iterdir(), key=lambda path: path.name in (META, CONFIG)):
                _delete(path)
            removed.rmdir()
        except OSError:
            with contextlib.suppress(OSError):
                removed.rename(paths.folder)
            raise
    for path in paths.root.glob(f".*{_REMOVED}[0-9]*"):
        with contextlib.suppress(OSError):
            _delete(path)


def aside(path: Path) -> Path:
    """Return the path to which a damaged file or folder of a run is renamed."""
    return path.with_name(f"{path.name}.damaged")


def check_own(folder: Path, option: str) -> None:
    """Refuse (exit code 3) to write to a folder of a run that is a link or a file; `option` names another place."""
    try:
        names_in(folder)
    except FileNotFoundError:
        pass
    except OSError as problem:
        raise HmxError(
            f"cannot write in {folder}: {words(problem)}", f"name another place: {option}", ExitCode.ARTEFACT
        ) from None


def set_aside(path: Path) -> Path:
    """Rename a damaged file or folder; one that was set aside earlier is deleted."""
    target = aside(path)
    _delete(target)
    path.rename(target)
    return target


def copy_aside(path: Path) -> Path:
    """Copy a damaged file to where `set_aside` would rename it."""
    target = aside(path)
    _delete(target)
    return shutil.copyfile(path, target, follow_symlinks=False)


def _delete(path: Path) -> None:
    """Delete a file, a link (not its target) or a folder with its content."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _subfolders(paths: RunPaths) -> None:
    make_folder(paths.checkpoints)
    make_folder(paths.reports)
    # Otherwise a loss of power may take the whole run. The parent may not be readable.
    sync_folder(paths.root)
    with contextlib.suppress(OSError):
        sync_folder(paths.root.resolve().parent)
