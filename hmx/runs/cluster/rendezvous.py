"""How the processes of one run find each other, and agree that they are one: before JAX hears of it.

JAX ends a process that waits in vain. So the processes meet at the coordinator's address first, where what is wrong
can be told in words; then number 0 opens JAX's own service on a port that is free, and all join that.
"""

from __future__ import annotations

import contextlib
import dataclasses
import socket
import time
import warnings
from collections.abc import Iterator
from typing import Any

import jax

from hmx.config.textfile import quoted
from hmx.errors import ExitCode, HmxError
from hmx.records import meta as metas
from hmx.runs.cluster.group import ALONE, Group, Lost
from hmx.runs.cluster.transport import Farewell, Line, read_hello, send_hello
from hmx.runs.signals import interruptible, watching

_LOOK_UP = 0.2  # seconds
_ALL_THREE = "--coordinator HOST:PORT --num-processes N --process-id I"
_MUST_AGREE = ("hmx", "jax", "jaxlib")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Wanted:
    """What a process was told of the run it belongs to; what is None is looked for in the cluster around it."""

    coordinator: str | None = None  # HOST:PORT of process 0
    count: int | None = None  # processes
    index: int | None = None  # of this process, from 0
    timeout: float  # seconds to wait for the others


@dataclasses.dataclass(frozen=True, kw_only=True)
class Place:
    """Where a process stands in its run."""

    host: str  # of process 0
    port: int
    count: int
    index: int
    local_devices: tuple[int, ...] | None  # the only devices it may use; None for all of its machine


@contextlib.contextmanager
def join(wanted: Wanted, on_lost: Lost | None = None) -> Iterator[Group]:
    """Joins the processes of a run; leaves them, told how it ended, with the block.

    JAX must not have been asked for its devices before. After an error the process should end by `os._exit`: programs
    may still wait for a process that is gone.

    Args:
        wanted: who this process is.
        on_lost: see `Group`.

    Raises:
        HmxError: the numbers do not fit, or the others were not found (exit code 2); one was lost (1).
    """
    place = locate(wanted)
    if place is None:
        yield ALONE
        return
    group = Group(place.index, place.count, on_lost)
    try:
        address = _lead(place, group, wanted.timeout) if group.leads else _follow(place, group, wanted.timeout)
        with watching(group.check):
            _start_jax(place, group, address)
            yield group
    except BaseException as error:
        group.leave(error)
        raise
    group.leave()
    interruptible(jax.distributed.shutdown)
    group.close()


def locate(wanted: Wanted) -> Place | None:
    """Which process this is, from the options or from what JAX sees of a cluster; None for one that is alone.

    Raises:
        HmxError: something is missing, or the numbers do not fit each other.
    """
    if wanted.count == 1 and not wanted.index:
        return None
    coordinator, count, index, local = _detect(wanted)
    parts = {"--coordinator": coordinator, "--num-processes": count, "--process-id": index}
    if missing := [option for option, value in parts.items() if value is None]:
        message = f"--distributed: JAX sees no cluster here, so that {_listed(missing)} must be given"
        raise HmxError(message, _ALL_THREE)
    assert coordinator is not None and count is not None and index is not None
    if count < 1:
        raise HmxError(f"--num-processes {count}: there is at least one", "--num-processes 2")
    if not 0 <= index < count:
        message = f"--process-id {index}: with --num-processes {count} they are numbered from 0 to {count - 1}"
        raise HmxError(message, "give each process a number of its own")
    if count == 1:
        return None
    host, port = parse_address(coordinator)
    return Place(host=host, port=port, count=count, index=index, local_devices=local)


def _listed(words: list[str]) -> str:
    return " and ".join(filter(None, [", ".join(words[:-1]), words[-1]]))


def parse_address(text: str) -> tuple[str, int]:
    """Host and port of `HOST:PORT`, where a host with colons stands in brackets.

    Raises:
        HmxError: it is no such text.
    """
    host, _, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    number = int(port) if port.isascii() and port.isdigit() and len(port) <= 5 else 0
    if host.split() != [host] or not 0 < number < 1 << 16:
        raise HmxError(f"--coordinator {quoted(text)}: must be HOST:PORT", "--coordinator node001:29400")
    return host, number


def _detect(wanted: Wanted) -> tuple[str | None, int | None, int | None, tuple[int, ...] | None]:
    """What JAX itself would find. Its function has no public name; tests/runs/test_joining.py holds on to it."""
    from jax._src.clusters import ClusterEnv

    found: Any
    try:
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            found = ClusterEnv.auto_detect_unset_distributed_params(
                wanted.coordinator, wanted.count, wanted.index, None, None, int(wanted.timeout)
            )
    except Exception as error:  # each kind of cluster has its own
        if None not in (wanted.coordinator, wanted.count, wanted.index):
            return wanted.coordinator, wanted.count, wanted.index, None
        text = " ".join(str(error).split())[:300]
        raise HmxError(f"the cluster does not tell which process this is: {text}", f"give {_ALL_THREE}") from error
    if said and None in found[:3]:
        text = " ".join(str(said[0].message).split())[:300]
        raise HmxError(f"the cluster does not tell which process this is: {text}", f"give {_ALL_THREE}")
    coordinator, count, index, local = found
    return coordinator, count, index, tuple(local) if local is not None else None


def _lead(place: Place, group: Group, timeout: float) -> str:
    """Waits for all others, and tells them where JAX's service will be."""
    versions, end = _versions(), time.monotonic() + timeout
    with _listen(place) as server:
        server.settimeout(_LOOK_UP)
        left = set(range(1, place.count))
        while left:
            group.check()
            if time.monotonic() > end:
                raise _missing(place, left, timeout)
            try:
                connection, _ = server.accept()
            except TimeoutError:
                continue
            hello = read_hello(connection)
            if hello is None:
                connection.close()
                continue
            if problem := _misfit(place, hello, versions, left):
                with connection:
                    Line(connection).say_farewell(Farewell(problem.message, problem.hint, int(problem.exit_code)))
                raise problem
            index = int(str(hello["index"]))
            left.remove(index)
            group.add(index, quoted(str(hello.get("host")), 100), connection)
    address = f"{_bracketed(place.host)}:{_free_port(place)}"
    names = "\n".join([address, *group.names])
    group.share(names.encode())
    return address


def _follow(place: Place, group: Group, timeout: float) -> str:
    connection = _reach(place, timeout)
    hello = {"index": place.index, "count": place.count, "host": socket.gethostname(), "versions": _versions()}
    try:
        send_hello(connection, hello)
    except OSError as error:
        raise _unreachable(place, timeout, error) from error
    group.add(0, place.host, connection)
    address, *names = bytes(group.share()).decode().split("\n")
    group.names = names
    return address


def _listen(place: Place) -> socket.socket:
    """A port that the others can reach: on all addresses of the machine, or on the loopback that was named."""
    try:
        if _is_loopback(place.host):
            family = socket.AF_INET6 if ":" in place.host else socket.AF_INET
            return socket.create_server((place.host, place.port), family=family, backlog=place.count)
        if socket.has_dualstack_ipv6():
            return socket.create_server(
                ("", place.port), family=socket.AF_INET6, backlog=place.count, dualstack_ipv6=True
            )
        return socket.create_server(("", place.port), backlog=place.count)
    except OSError as error:
        message = f"process 0 cannot listen on port {place.port}: {error.strerror or error}"
        raise HmxError(message, f"another port for all processes: --coordinator {place.host}:PORT") from error


def _is_loopback(host: str) -> bool:
    return host in ("localhost", "::1") or host.startswith("127.")


def _free_port(place: Place) -> int:
    with socket.socket(socket.AF_INET6 if ":" in place.host else socket.AF_INET) as probe:
        probe.bind((place.host if _is_loopback(place.host) else "", 0))
        return int(probe.getsockname()[1])


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def _reach(place: Place, timeout: float) -> socket.socket:
    end = time.monotonic() + timeout
    while True:
        try:
            return socket.create_connection((place.host, place.port), timeout=5.0)
        except OSError as error:  # names of a cluster, too, may need a while to be known
            if time.monotonic() > end:
                raise _unreachable(place, timeout, error) from error
        time.sleep(_LOOK_UP)


def _unreachable(place: Place, timeout: float, error: OSError) -> HmxError:
    where = f"{_bracketed(place.host)}:{place.port}"
    message = f"process 0 was not reached at {where} within {timeout:g} seconds: {error.strerror or error}"
    return HmxError(message, "start process 0 as well, and give all processes its --coordinator HOST:PORT")


def _missing(place: Place, left: set[int], timeout: float) -> HmxError:
    numbers = ", ".join(str(index) for index in sorted(left)[:8]) + (", ..." if len(left) > 8 else "")
    which = f"process {numbers} has" if len(left) == 1 else f"processes {numbers} have"
    where = f"--coordinator {_bracketed(place.host)}:{place.port} --num-processes {place.count}"
    message = f"{which} not come within {timeout:g} seconds"
    return HmxError(message, f"start with {where} --process-id {min(left)}; --join-timeout waits longer")


def _misfit(place: Place, hello: dict[str, object], versions: dict[str, str], left: set[int]) -> HmxError | None:
    """Why a process that has come cannot be part of this run."""
    index, count, theirs = hello.get("index"), hello.get("count"), hello.get("versions")
    who = f"process {quoted(str(index))} on {quoted(str(hello.get('host')), 100)}"
    if count != place.count:
        message = (
            f"{who} says that there are {quoted(str(count))} processes, and process 0 that there are {place.count}"
        )
        return HmxError(message, f"--num-processes {place.count} for every process")
    if type(index) is not int or index not in left:
        return HmxError(f"{who} has come, and that number is taken", "give each process a --process-id of its own")
    there = theirs if isinstance(theirs, dict) else {}
    unlike = [
        f"{name} {quoted(str(there.get(name)))} there and {mine} here"
        for name, mine in versions.items()
        if there.get(name) != mine
    ]
    if unlike:
        message = f"{who} has other versions than process 0: {', '.join(unlike)}"
        return HmxError(message, "install the same on all machines")
    return None


def _versions() -> dict[str, str]:
    return {name: version for name, version in metas.versions().items() if name in _MUST_AGREE}


def _start_jax(place: Place, group: Group, address: str) -> None:
    # It would catch SIGTERM itself; the loop saves and stops, wherever the signal arrives.
    jax.config.update("jax_enable_preemption_service", False)
    bind = address if _is_loopback(place.host) else None

    def start() -> None:
        jax.distributed.initialize(
            address,
            place.count,
            place.index,
            local_device_ids=place.local_devices,
            cluster_detection_method="deactivate",
            coordinator_bind_address=bind,
            shutdown_timeout_seconds=60,
        )
        jax.devices()  # all must be there for this, too

    try:
        interruptible(start)
    except jax.errors.JaxRuntimeError as error:
        text = " ".join(str(error).split())[:300]
        hint = "the machines must reach each other on all ports above 1023, as JAX needs it"
        raise HmxError(f"JAX did not start on {group.me}: {text}", hint, ExitCode.UNEXPECTED) from error
