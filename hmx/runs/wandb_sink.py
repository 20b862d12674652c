"""Weights & Biases as one more sink: never needed, never in the way."""

from __future__ import annotations

import hashlib
import threading
from typing import Any, Literal

from hmx.config.codec import to_dict
from hmx.errors import HmxError
from hmx.runs.sinks import Record, RunInfo, Sink

_FINISH_SECONDS = 60.0


class WandbSink(Sink):
    """Sends every metric whose name has a `/` under that very name, at the step `env_steps`.

    Several seeds become as many wandb runs in one group. A run that is resumed goes on in the same
    wandb run. Whatever fails (no package, no login, no network) raises here, and the fan-out goes on without.

    Args:
        mode: `online` or `offline`.
        project: the wandb project.
    """

    name = "wandb"

    def __init__(self, mode: Literal["online", "offline"], project: str = "hackmatrix") -> None:
        self._mode = mode
        self._project = project
        self._runs: dict[int, Any] = {}

    def start(self, info: RunInfo) -> None:
        """Opens one wandb run per seed."""
        try:
            import wandb
        except ImportError as error:
            raise HmxError(f"the package wandb cannot be imported ({error}); `pip install wandb` brings it") from error
        if self._mode == "online" and not wandb.login(prompt=False):
            raise HmxError("nobody is logged in to wandb; run `wandb login`, or train with --wandb offline")
        first = info.config.run.seed
        for seed in range(first, first + info.num_seeds):
            self._runs[seed] = wandb.init(
                project=self._project,
                name=info.name if info.num_seeds == 1 else f"{info.name}-seed{seed}",
                group=None if info.num_seeds == 1 else info.name,
                id=_identity(info, seed),
                config={**to_dict(info.config), "seed": seed},
                mode=self._mode,
                dir=str(info.path),
                resume="allow",
                reinit="create_new",
                # wandb would otherwise wait for minutes, print, and take over the output of the process.
                settings=wandb.Settings(silent=True, console="off", init_timeout=30),
            )

    def record(self, record: Record) -> None:
        """Logs the metrics of one update to the run of its seed."""
        metrics = {name: value for name, value in record.items() if "/" in name}
        self._runs[int(record["seed"])].log(metrics, step=int(record["env_steps"]))

    def close(self, state: str) -> None:
        """Ends the wandb runs; what has not been sent within a minute stays in the run folder.

        Raises:
            TimeoutError: something was left unsent.
        """
        if state == "aborted":
            return
        runs, self._runs = list(self._runs.values()), {}
        failures: list[Exception] = []

        def finish() -> None:
            for run in runs:
                try:
                    run.finish(exit_code=1 if state == "failed" else 0)
                except Exception as error:
                    failures.append(error)

        # wandb's own finish_timeout returns before an offline file is complete
        thread = threading.Thread(target=finish, name="hmx-wandb", daemon=True)
        thread.start()
        thread.join(_FINISH_SECONDS)
        if thread.is_alive():
            raise TimeoutError("not everything was sent in time; `wandb sync` sends the rest from the run folder")
        if failures:
            raise failures[0]


def _identity(info: RunInfo, seed: int) -> str:
    """The same for a run and its resumptions, another for a new run in the same folder."""
    return hashlib.sha256(f"{info.name}|{info.created}|{seed}".encode()).hexdigest()[:16]
