"""The options of a run on several hosts, and how a process of it joins and leaves the others."""

from __future__ import annotations

import contextlib
import math
import os
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, NamedTuple

from hmx.cli.options import ask, switch
from hmx.config.textfile import printable
from hmx.errors import HmxError

if TYPE_CHECKING:
    from hmx.runs.cluster.group import Group
    from hmx.runs.cluster.rendezvous import Wanted

PANEL = "Several hosts"
JOIN_TIMEOUT = 300.0

Distributed = Annotated[
    bool, switch("--distributed", "Run as one of several processes, on all devices of each.", PANEL)
]
Coordinator = Annotated[
    str | None,
    ask(
        "--coordinator",
        "HOST:PORT",
        "Where process 0 can be reached; by default what SLURM, Open MPI or Kubernetes tell JAX.",
        PANEL,
    ),
]
NumProcesses = Annotated[
    int | None, ask("--num-processes", "N", "How many processes there are; by default likewise.", PANEL)
]
ProcessId = Annotated[
    int | None, ask("--process-id", "I", "Which of them this is, from 0; by default likewise.", PANEL)
]
JoinTimeout = Annotated[
    float | None,
    ask("--join-timeout", "SECONDS", f"How long to wait for the others to come (default {JOIN_TIMEOUT:g}).", PANEL),
]


class Hosts(NamedTuple):
    """What the options say of the processes of a run."""

    distributed: bool = False
    coordinator: str | None = None
    num_processes: int | None = None
    process_id: int | None = None
    join_timeout: float | None = None

    def check(self, devices: str | None) -> None:
        """Refuses options that cannot go together.

        Args:
            devices: what --devices was given.

        Raises:
            HmxError: one of them.
        """
        if not self.distributed:
            for field, value in zip(self._fields[1:], self[1:], strict=True):
                if value is not None:
                    option = "--" + field.replace("_", "-")
                    raise HmxError(f"{option} is for a run of several processes", f"--distributed {option} {value}")
            return
        if devices not in (None, "all", "0"):
            message = f"--devices {devices} cannot go with --distributed, which takes all devices of every process"
            raise HmxError(message, "leave --devices out")
        if self.join_timeout is not None and not (0 < self.join_timeout < math.inf):
            raise HmxError(f"--join-timeout {self.join_timeout:g}: must be seconds above 0", "--join-timeout 300")

    def devices(self, devices: str | None) -> str | None:
        """The text of run.devices."""
        return "0" if self.distributed or devices == "all" else devices

    @property
    def wanted(self) -> Wanted:
        """As `hmx.runs.cluster.rendezvous` takes it."""
        from hmx.runs.cluster.rendezvous import Wanted

        timeout = JOIN_TIMEOUT if self.join_timeout is None else self.join_timeout
        return Wanted(coordinator=self.coordinator, count=self.num_processes, index=self.process_id, timeout=timeout)


@contextlib.contextmanager
def joined(hosts: Hosts) -> Iterator[Group]:
    """The processes of the run, for as long as it lasts; one that is alone joins nobody.

    Raises:
        HmxError: see `hmx.runs.cluster.rendezvous.join`.
    """
    if not hosts.distributed:
        from hmx.runs.cluster.group import ALONE

        yield ALONE
        return
    from hmx.runs.cluster.rendezvous import join

    with join(hosts.wanted, on_lost=_end) as group, _clean_stdout() if group.count > 1 else contextlib.nullcontext():
        yield group


@contextlib.contextmanager
def _clean_stdout() -> Iterator[None]:
    """The library that connects processors writes on stdout, which is for data: that goes to stderr meanwhile."""
    sys.stdout.flush()
    try:
        kept = os.dup(1)
    except OSError:  # there is none
        yield
        return
    own, sys.stdout = sys.stdout, os.fdopen(kept, "w", encoding="utf-8", buffering=1)
    os.dup2(2, 1)
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            sys.stdout.flush()
        os.dup2(kept, 1)
        sys.stdout.close()
        sys.stdout = own


def _end(problem: HmxError) -> None:
    """Process 0 is gone: what there is to say must be said before JAX ends this process, so it is said plainly."""
    text = f"error: {printable(problem.message)}\n\nhint: {printable(problem.hint)}\n"
    with contextlib.suppress(OSError):
        os.write(2, text.encode(errors="replace"))
    os._exit(int(problem.exit_code))
