"""The options of a run on several hosts, and how a process of it joins and leaves the others."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

from hmx.cli.options import Typed
from hmx.config.fields import fields_of
from hmx.config.load import read_request
from hmx.config.option import opt
from hmx.config.textfile import printable
from hmx.errors import HmxError

if TYPE_CHECKING:
    from hmx.runs.cluster.group import Group
    from hmx.runs.cluster.rendezvous import JoinOptions

PANEL = "Several hosts"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Hosts:
    """The options of a run of several processes."""

    distributed: bool = opt(False, "run as one of several processes, using all devices of each", panel=PANEL)
    coordinator: str | None = opt(
        None, "address of process 0; SLURM, Open MPI and Kubernetes are detected", metavar="HOST:PORT", panel=PANEL
    )
    num_processes: int | None = opt(None, "number of processes; detected by default", ge=1, panel=PANEL)
    process_id: int | None = opt(None, "index of this process, from 0; detected by default", ge=0, panel=PANEL)
    join_timeout: float = opt(
        300.0, "time to wait for the other processes to join", "seconds", gt=0, metavar="SECONDS", panel=PANEL
    )

    @classmethod
    def of(cls, typed: Typed) -> tuple[Hosts, Typed]:
        """Split what was typed into these options and those of the configuration.

        Raises:
            HmxError: an option has an impossible value, or two cannot be combined.
        """
        own = {flag: typed[flag] for flag in HOST_FIELDS if flag in typed}
        rest = {key: value for key, value in typed.items() if key not in own}
        hosts = read_request(cls, own)
        if not hosts.distributed:
            for flag, value in own.items():
                raise HmxError(f"{flag} is for a run of several processes", f"--distributed {flag} {value}")
            return hosts, rest
        devices = rest.get("run.devices")
        if devices not in (None, "all", "0"):
            message = f"--devices {devices} cannot be combined with --distributed, which uses all devices"
            raise HmxError(message, "leave --devices out")
        return hosts, {**rest, "run.devices": "all"}

    @property
    def join_options(self) -> JoinOptions:
        """As `hmx.runs.cluster.rendezvous` takes it."""
        from hmx.runs.cluster.rendezvous import JoinOptions

        return JoinOptions(
            coordinator=self.coordinator, count=self.num_processes, index=self.process_id, timeout=self.join_timeout
        )


HOST_FIELDS = fields_of(Hosts)


@contextlib.contextmanager
def joined(hosts: Hosts) -> Iterator[Group]:
    """Join the processes of the run until it ends; a single process joins none."""
    if not hosts.distributed:
        from hmx.runs.cluster.group import ALONE

        yield ALONE
        return
    from hmx.runs.cluster.rendezvous import join

    with (
        join(hosts.join_options, on_lost=_end) as group,
        _clean_stdout() if group.count > 1 else contextlib.nullcontext(),
    ):
        yield group


@contextlib.contextmanager
def _clean_stdout() -> Iterator[None]:
    """Send to stderr what the library that connects processes writes on stdout, which is for data."""
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
