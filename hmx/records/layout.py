"""The run folder: where everything lies, making a new one, and finding one again."""

from __future__ import annotations

import dataclasses
import shlex
import shutil
from pathlib import Path

from hmx.config.names import clean_run_name, is_run_name, nearest
from hmx.errors import ExitCode, HmxError
from hmx.records.atomic import writing
from hmx.records.lock import RunLock

CONFIG = "run.toml"
META = "meta.json"
METRICS = "metrics.jsonl"
CHECKPOINTS = "checkpoints"
REPORTS = "reports"
DIAGNOSIS = "diagnosis"
EVALUATION = "evaluation.json"  # in REPORTS
LOCK = "lock"
DEFAULT_ROOT = "runs"

_TRIES = 1000


@dataclasses.dataclass(frozen=True)
class RunPaths:
    """The paths of a run; none of them need exist.

    Raises:
        HmxError: the name could lead out of the root, or cannot be a folder's.
    """

    root: Path
    name: str

    def __post_init__(self) -> None:
        object.__setattr__(self, "root", Path(self.root))
        if not is_run_name(self.name):
            raise HmxError(
                f"{self.name!r} cannot be the name of a run: letters, digits, dots, dashes and underscores can",
                f"--name {clean_run_name(self.name)}",
            )

    @property
    def folder(self) -> Path:
        """The run folder."""
        return self.root / self.name

    @property
    def config(self) -> Path:
        """The resolved configuration, as `hmx train --config` takes it."""
        return self.folder / CONFIG

    @property
    def meta(self) -> Path:
        """What ran it: versions, device, command line, state."""
        return self.folder / META

    @property
    def metrics(self) -> Path:
        """One JSON object a line."""
        return self.folder / METRICS

    @property
    def checkpoints(self) -> Path:
        """The folder of checkpoints, each named by its update."""
        return self.folder / CHECKPOINTS

    @property
    def lock(self) -> Path:
        """Held by the process that trains, and gone when it ends."""
        return self.folder / LOCK

    @property
    def reports(self) -> Path:
        """Evaluations and reports."""
        return self.folder / REPORTS

    @property
    def diagnosis(self) -> Path:
        """States before updates whose numbers were not finite, each a checkpoint with what brought them."""
        return self.folder / DIAGNOSIS

    def checkpoint(self, update: int) -> Path:
        """The folder of one checkpoint."""
        return self.checkpoints / str(update)

    @property
    def argument(self) -> str:
        """What to type for this run after `hmx resume`: its name, or its path where it lies elsewhere."""
        return shlex.quote(self.name if self.root == Path(DEFAULT_ROOT) else str(self.folder))

    def exists(self) -> bool:
        """Whether there is a run here: a folder with a `run.toml` or a `meta.json`."""
        return self.config.is_file() or self.meta.is_file()


def new_run(root: str | Path, name: str, stem: str, force: bool = False) -> RunPaths:
    """Makes the folder of a new run, with its subfolders; never takes one that holds anything.

    Args:
        root: the folder of all runs.
        name: the run's name; empty makes one from `stem` and the next free number.
        stem: see `stem_of`.
        force: whether an existing run of that name is deleted first. Only what a run writes is deleted: a
            folder that is not a run's is refused all the same.

    Raises:
        HmxError: the name is taken or not a name, or the folder cannot be written (exit code 2).
    """
    root = Path(root)
    if not name:
        return _numbered(root, stem)
    paths = RunPaths(root, name)
    with writing("the run folder", paths.folder):
        if _taken(paths.folder):
            if not force:
                raise _exists(paths)
            _clear(paths)
        paths.folder.mkdir(parents=True, exist_ok=True)
        _subfolders(paths)
    return paths


def planned_name(root: str | Path, name: str, stem: str) -> str:
    """The name `new_run` would choose now; makes nothing."""
    return name or f"{stem}-{_next_number(Path(root), stem):03d}"


def stem_of(env_id: str, algo: str, seed: int) -> str:
    """The start of a made-up run name, such as `hackmatrix-ppo-s0`."""
    return f"{clean_run_name(env_id)}-{algo}-s{seed}"


def find_run(run: str | Path, root: str | Path = DEFAULT_ROOT) -> RunPaths:
    """The run meant by a path (its folder, or a file in it) or by a name under `root`.

    Raises:
        HmxError: there is no such run, or the folder holds none (exit code 3).
    """
    text, root = str(run), Path(root)
    try:
        candidates = _candidates(text, root)
        for folder in candidates:
            paths = _at(folder)
            if paths is not None and paths.exists():
                return paths
        is_folder = any(folder.is_dir() for folder in candidates)
    except OSError as problem:
        words = f"cannot read {text[:100]}: {(problem.strerror or str(problem)).lower()}"
        raise HmxError(words, "check the path and its permissions", ExitCode.ARTEFACT) from None
    if is_folder:
        message = f"{text} is not a run folder: it has no {CONFIG}"
    else:
        message = f"there is no run {text}" + (f" in {root}" if is_run_name(text) else "")
    known = list_runs(root)
    near = nearest(text, known) if known else None
    hint = f"did you mean {near}?" if near else f"runs in {root}: {_few(known)}" if known else "`hmx train` makes one"
    raise HmxError(message, hint, ExitCode.ARTEFACT)


def _candidates(text: str, root: Path) -> list[Path]:
    try:
        given = Path(text).expanduser()
    except RuntimeError:  # ~ of somebody whom this machine does not know
        given = Path(text)
    return [*([root / text] if is_run_name(text) else []), given.parent if given.is_file() else given]


def list_runs(root: str | Path = DEFAULT_ROOT) -> list[str]:
    """The names of the runs in `root`, sorted; empty where there is no such folder."""
    try:
        names = [p.name for p in Path(root).iterdir() if is_run_name(p.name)]
        return sorted(n for n in names if RunPaths(Path(root), n).exists())
    except OSError:
        return []


def _at(folder: Path) -> RunPaths | None:
    """The run at a folder, whose own name counts where the path ends in `.` or `..`."""
    if not is_run_name(folder.name):
        folder = folder.resolve()
    return RunPaths(folder.parent, folder.name) if is_run_name(folder.name) else None


def _few(names: list[str]) -> str:
    return ", ".join(names[-5:]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")


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
    """One more than the highest in use, so that a deleted run's name does not come back while later ones exist."""
    numbers = [0]
    if root.is_dir():
        tails = (p.name.removeprefix(f"{stem}-") for p in root.iterdir() if p.name.startswith(f"{stem}-"))
        numbers += [int(tail) for tail in tails if tail.isascii() and tail.isdigit()]
    return max(numbers) + 1


def _taken(folder: Path) -> bool:
    try:
        return any(folder.iterdir())
    except FileNotFoundError:
        return False


def _exists(paths: RunPaths) -> HmxError:
    if not paths.exists():
        hint = f"choose another name: --name {paths.name}-2"
        return HmxError(f"{paths.folder} is there already, and it is not a run", hint)
    other = f"--name {paths.name}-2"
    hint = f"go on with it: hmx resume {paths.argument}; or take another name: {other}; or delete it: --force"
    return HmxError(f"there is a run {paths.folder} already", hint)


def _clear(paths: RunPaths) -> None:
    if not paths.exists():
        raise _exists(paths)
    with RunLock(paths):
        for folder in (paths.checkpoints, paths.reports, paths.diagnosis):
            _delete(folder)
        # Last what makes it a run, so that a deletion cut short can be taken up again.
        for file in (paths.metrics, paths.meta, paths.config):
            _delete(aside(file))
            _delete(file)


def aside(path: Path) -> Path:
    """Where a damaged file or folder of a run is put, out of the way of what is read."""
    return path.with_name(f"{path.name}.damaged")


def set_aside(path: Path) -> Path:
    """Renames what is damaged, in place of what was set aside before under that name.

    Raises:
        OSError: it cannot be renamed.
    """
    target = aside(path)
    _delete(target)
    path.rename(target)
    return target


def _delete(path: Path) -> None:
    """Deletes a file, a link (not what it leads to) or a folder with all it holds."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _subfolders(paths: RunPaths) -> None:
    paths.checkpoints.mkdir(exist_ok=True)
    paths.reports.mkdir(exist_ok=True)
