"""The options of a run of several processes; imports nothing heavy, since the command line is built from them."""

from __future__ import annotations

import dataclasses
import os

from hmx.config.option import opt

PANEL = "Several hosts"

_INDEX = ("OMPI_COMM_WORLD_RANK", "SLURM_PROCID", "JOB_COMPLETION_INDEX")
"""Where Open MPI, SLURM and Kubernetes tell a process its index; JAX reads them too."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Hosts:
    """How a process finds the others of its run; values of None are detected from the cluster."""

    distributed: bool = opt(False, "run as one of several processes, using all devices of each", panel=PANEL)
    coordinator: str | None = opt(
        None, "address of process 0; SLURM, Open MPI and Kubernetes are detected", metavar="HOST:PORT", panel=PANEL
    )
    num_processes: int | None = opt(None, "number of processes; detected by default", ge=1, panel=PANEL)
    process_id: int | None = opt(None, "index of this process, from 0; detected by default", ge=0, panel=PANEL)
    join_timeout: float = opt(
        300.0, "time to wait for the other processes to join", "seconds", gt=0, metavar="SECONDS", panel=PANEL
    )

    @property
    def writes(self) -> bool:
        """Whether this process writes messages for all, as far as that is known without JAX: process 0 does."""
        if not self.distributed:
            return True
        if self.process_id is not None:
            return self.process_id == 0
        return all(os.environ.get(name, "0") == "0" for name in _INDEX)
