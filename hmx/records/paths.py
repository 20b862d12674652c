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
EVENTS = "tensorboard"
EVALUATION = "evaluation.json"  # in REPORTS
GRADIENTS = "gradients.json"  # in REPORTS: the newest gradient report
SCORES = "scores"  # in REPORTS: the folder of consequence scores; also the suffix of one next to a saved buffer
SCORE_REPORT = "report.json"  # in SCORES
EPISODES = "episodes.npz"  # in a checkpoint: the running episodes of simulators
LOCK = "lock"
WEIGHTS = "policy.safetensors"  # of an exported policy; in the folder of a run without checkpoints
CHAMPION = "champion"  # name of an agent that is installed with hmx: the best under the designed rules
ENVIRONMENT = "environment.py"  # the user's environment as it was when the run started
REFERENCE = "reference.npz"  # the policy that ppo.ref names, as it was when the run started
DEFAULT_ROOT = "runs"
RUN_FILES = (CONFIG, META, METRICS, LOCK, ENVIRONMENT)
"""Files of a run folder that no other output may replace."""

_PARTS = {
    "folder": "", "config": CONFIG, "meta": META, "metrics": METRICS, "checkpoints": CHECKPOINTS, "lock": LOCK,
    "reports": REPORTS, "diagnosis": DIAGNOSIS, "events": EVENTS, "environment": ENVIRONMENT, "reference": REFERENCE,
    "weights": WEIGHTS,
}  # fmt: skip


def is_folder_name(name: str) -> bool:
    """Return whether `name` can be the name of an existing run folder."""
    return name.isprintable() and name not in ("", ".", "..") and "/" not in name and not name.startswith((".", "-"))


def name_error(name: str) -> HmxError:
    """Return the error for a name that cannot be given to a run."""
    message = f"{name!r} cannot be the name of a run: use letters, digits, dots, dashes and underscores"
    return HmxError(message, f"--name {clean_run_name(name)}")


@dataclasses.dataclass(frozen=True)
class RunPaths:
    """The paths of a run, which need not exist.

    The folder of an existing run may have any name, such as one with spaces; `new_run` is stricter.

    Raises:
        HmxError: the name is not the name of a folder in the root.
    """

    root: Path
    name: str
    folder: Path = dataclasses.field(init=False)
    config: Path = dataclasses.field(init=False)  # the resolved configuration
    meta: Path = dataclasses.field(init=False)  # versions, device, command lines and state
    metrics: Path = dataclasses.field(init=False)
    checkpoints: Path = dataclasses.field(init=False)  # a folder of folders, each named after its update
    lock: Path = dataclasses.field(init=False)  # exists while a process trains
    reports: Path = dataclasses.field(init=False)  # folder of evaluations and reports
    diagnosis: Path = dataclasses.field(init=False)  # folder of states before updates that were not finite
    events: Path = dataclasses.field(init=False)  # folder of TensorBoard event files
    environment: Path = dataclasses.field(init=False)  # copy of the user's environment; only compared, never run
    reference: Path = dataclasses.field(init=False)  # the reference policy, if there is one
    weights: Path = dataclasses.field(init=False)  # the policy, in a folder that otherwise contains only a run.toml

    def __post_init__(self) -> None:
        if not is_folder_name(self.name):
            raise name_error(self.name)
        root = Path(self.root)
        vars(self).update({part: root / self.name / name for part, name in _PARTS.items()}, root=root)

    def checkpoint(self, update: int) -> Path:
        """Return the folder of one checkpoint."""
        return self.checkpoints / str(update)

    @property
    def argument(self) -> str:
        """Return the argument of `hmx resume` for this run: its name in the default root, otherwise its path."""
        return shlex.quote(self.name if self.root == Path(DEFAULT_ROOT) else str(self.folder))

    @property
    def start_over(self) -> str:
        """Return the hint for a run without a checkpoint."""
        config, name = shlex.quote(str(self.config)), shlex.quote(self.name)
        return f"start over: hmx train --config {config} --name {name} --force"

    def exists(self) -> bool:
        """Return whether there is a run: a folder with a `run.toml` or a `meta.json`."""
        return self.config.is_file() or self.meta.is_file()
