"""The paths of a run folder."""

from __future__ import annotations

import dataclasses
import shlex
from pathlib import Path

from hmx.config.names import clean_run_name
from hmx.errors import HmxError

CONFIG = "run.toml"
META = "meta.json"
METRICS = "metrics.jsonl"
CHECKPOINTS = "checkpoints"
REPORTS = "reports"
DIAGNOSIS = "diagnosis"
EVALUATION = "evaluation.json"  # in REPORTS
LOCK = "lock"
DEFAULT_ROOT = "runs"


def is_folder_name(name: str) -> bool:
    """Return whether `name` can be the name of an existing run folder."""
    return name.isprintable() and name not in ("", ".", "..") and "/" not in name and not name.startswith((".", "-"))


def name_error(name: str) -> HmxError:
    """Return the error for a name that cannot be given to a run."""
    message = f"{name!r} cannot be the name of a run: use letters, digits, dots, dashes and underscores"
    return HmxError(message, f"--name {clean_run_name(name)}")


@dataclasses.dataclass(frozen=True)
class RunPaths:
    """The paths of a run; none of them need exist.

    The folder of an existing run may have any name, such as one with spaces; `new_run` is stricter.

    Raises:
        HmxError: the name is not the name of a folder in the root.
    """

    root: Path
    name: str

    def __post_init__(self) -> None:
        object.__setattr__(self, "root", Path(self.root))
        if not is_folder_name(self.name):
            raise name_error(self.name)

    @property
    def folder(self) -> Path:
        """Return the run folder."""
        return self.root / self.name

    @property
    def config(self) -> Path:
        """Return the file of the resolved configuration."""
        return self.folder / CONFIG

    @property
    def meta(self) -> Path:
        """Return the file of versions, device, command lines and state."""
        return self.folder / META

    @property
    def metrics(self) -> Path:
        """Return the file of metrics."""
        return self.folder / METRICS

    @property
    def checkpoints(self) -> Path:
        """Return the folder of checkpoints, each named after its update."""
        return self.folder / CHECKPOINTS

    @property
    def lock(self) -> Path:
        """Return the lock file, which exists while a process trains."""
        return self.folder / LOCK

    @property
    def reports(self) -> Path:
        """Return the folder of evaluations and reports."""
        return self.folder / REPORTS

    @property
    def diagnosis(self) -> Path:
        """Return the folder of states before updates that were not finite."""
        return self.folder / DIAGNOSIS

    def checkpoint(self, update: int) -> Path:
        """Return the folder of one checkpoint."""
        return self.checkpoints / str(update)

    @property
    def argument(self) -> str:
        """Return the argument of `hmx resume` for this run: its name in the default root, otherwise its path."""
        return shlex.quote(self.name if self.root == Path(DEFAULT_ROOT) else str(self.folder))

    def exists(self) -> bool:
        """Return whether there is a run: a folder with a `run.toml` or a `meta.json`."""
        return self.config.is_file() or self.meta.is_file()
