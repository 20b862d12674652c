"""The options of a run on several hosts, and how a process of it joins and leaves the others."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

from hmx.cli.options import Typed
from hmx.config.coerce import show
from hmx.config.fields import fields_of
from hmx.config.textfile import printable
from hmx.errors import HmxError
from hmx.runs.cluster.hosts import Hosts

if TYPE_CHECKING:
    from hmx.runs.cluster.group import Group


def with_devices(typed: Typed, hosts: Hosts) -> Typed:
    """Return what was typed of the configuration, with all devices for several processes; refuse what contradicts."""
    if not hosts.distributed:
        for flag, field in fields_of(Hosts).items():
            if (value := getattr(hosts, field.name)) != field.default:
                raise HmxError(f"{flag} is for a run of several processes", f"--distributed {flag} {show(value)}")
        return typed
    devices = typed.get("run.devices")
    if devices not in (None, "all", "0"):
        message = f"--devices {devices} cannot be combined with --distributed, which uses all devices"
        raise HmxError(message, "leave --devices out")
    return {**typed, "run.devices": "all"}


@contextlib.contextmanager
def joined(hosts: Hosts) -> Iterator[Group]:
    """Join the processes of the run until it ends; a single process joins none."""
    if not hosts.distributed:
        from hmx.runs.cluster.group import ALONE

        yield ALONE
        return
    from hmx.runs.cluster.rendezvous import join

    with join(hosts, on_lost=_end) as group, _clean_stdout() if group.count > 1 else contextlib.nullcontext():
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
