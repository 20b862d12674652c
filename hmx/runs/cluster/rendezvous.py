"""Connect the processes of a run, check that they fit together, and start JAX's distributed service.

JAX aborts a process that waits too long for the others. So the processes first connect to the coordinator's address,
where problems can be reported; then process 0 starts JAX's own service on a free port, and all join it.
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
from hmx.errors import ExitCode, HmxError, one_line
from hmx.records import meta as metas
from hmx.runs.cluster.group import ALONE, Group, Lost
from hmx.runs.cluster.hosts import Hosts
from hmx.runs.cluster.transport import Connection, ExitMessage, read_hello, send_hello
from hmx.runs.signals import interruptible, watching

_LOOK_UP = 0.2  # seconds
_ALL_THREE = "--coordinator HOST:PORT --num-processes N --process-id I"
_MUST_AGREE = ("hmx", "jax", "jaxlib")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Slot:
    """The place of a process in its run."""

    host: str  # of process 0
    port: int
    count: int
    index: int
    local_devices: tuple[int, ...] | None  # devices it may use; None for all of its machine


@contextlib.contextmanager
def join(options: Hosts, on_lost: Lost | None = None) -> Iterator[Group]:
    """Join the processes of a run; at the end of the block, send them the outcome of this process.

    JAX must not have been asked for its devices before. After an error the process should end by `os._exit`: compiled
    programs may still wait for a process that is gone.

    Raises:
        HmxError: the options do not fit, or the others were not found (exit code 2); a process was lost (1).
    """
    slot = locate(options)
    if slot is None:
        yield ALONE
        return
    group = Group(slot.index, slot.count, on_lost)
    try:
        address = (_coordinate if group.is_coordinator else _connect)(slot, group, options.join_timeout)
        with group.explaining(), watching(group.check):
            _start_jax(slot, group, address)
            yield group
    except BaseException as error:
        group.leave(error)
        raise
    group.leave()
    interruptible(jax.distributed.shutdown)
    group.close()


def locate(options: Hosts) -> Slot | None:
    """Return the place of this process, from the options or the cluster; None for a run of one process."""
    if options.num_processes == 1 and not options.process_id:
        return None
    coordinator, count, index, local = _detect(options)
    parts = {"--coordinator": coordinator, "--num-processes": count, "--process-id": index}
    if missing := [option for option, value in parts.items() if value is None]:
        raise HmxError(f"--distributed: JAX detects no cluster here, so {_listed(missing)} must be given", _ALL_THREE)
    assert coordinator is not None and count is not None and index is not None
    if index >= count:
        message = f"--process-id {index}: must be 0 to {count - 1} with --num-processes {count}"
        raise HmxError(message, "give each process its own id")
    if count == 1:
        return None
    host, port = parse_address(coordinator)
    return Slot(host=host, port=port, count=count, index=index, local_devices=local)


def _listed(words: list[str]) -> str:
    return " and ".join(filter(None, [", ".join(words[:-1]), words[-1]]))


def parse_address(text: str) -> tuple[str, int]:
    """Split `HOST:PORT`, where a host with colons is in brackets; refuse another form."""
    host, _, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    number = int(port) if port.isascii() and port.isdigit() and len(port) <= 5 else 0
    if host.split() != [host] or not 0 < number < 1 << 16:
        raise HmxError(f"--coordinator {quoted(text)}: must be HOST:PORT", "--coordinator node001:29400")
    return host, number


def _detect(options: Hosts) -> tuple[str | None, int | None, int | None, tuple[int, ...] | None]:
    """Return the cluster that JAX would detect, by a private function; tests/runs/test_joining.py notices a change."""
    given = options.coordinator, options.num_processes, options.process_id
    found: Any
    try:
        from jax._src.clusters import ClusterEnv

        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            found = ClusterEnv.auto_detect_unset_distributed_params(*given, None, None, int(options.join_timeout))
    except Exception as error:  # each kind of cluster raises its own
        if None not in given:
            return *given, None
        raise HmxError(f"cannot detect which process this is: {one_line(error)}", f"give {_ALL_THREE}") from error
    if caught and None in found[:3]:
        text = one_line(caught[0].message)
        raise HmxError(f"cannot detect which process this is: {text}", f"give {_ALL_THREE}")
    coordinator, count, index, local = found
    return coordinator, count, index, tuple(local) if local is not None else None


def _coordinate(slot: Slot, group: Group, timeout: float) -> str:
    """Wait for all workers, and send them the address of JAX's service."""
    versions, end = _versions(), time.monotonic() + timeout
    with _listen(slot) as server:
        server.settimeout(_LOOK_UP)
        left = set(range(1, slot.count))
        while left:
            group.check()
            if time.monotonic() > end:
                raise _missing(slot, left, timeout)
            try:
                connection, _ = server.accept()
            except TimeoutError:
                continue
            hello = read_hello(connection)
            if hello is None:
                connection.close()
                continue
            if problem := _misfit(slot, hello, versions, left):
                with connection:
                    Connection(connection).send_exit(ExitMessage(problem.message, problem.hint, int(problem.exit_code)))
                raise problem
            index = int(str(hello["index"]))
            left.remove(index)
            group.add(index, quoted(str(hello.get("host")), 100), connection)
    address = f"{_bracketed(slot.host)}:{_free_port(slot)}"
    names = "\n".join([address, *group.names])
    group.broadcast(names.encode())
    return address


def _connect(slot: Slot, group: Group, timeout: float) -> str:
    connection = _reach(slot, timeout)
    hello = {"index": slot.index, "count": slot.count, "host": socket.gethostname(), "versions": _versions()}
    try:
        send_hello(connection, hello)
    except OSError as error:
        raise _unreachable(slot, timeout, error) from error
    group.add(0, slot.host, connection)
    address, *names = bytes(group.broadcast()).decode().split("\n")
    group.names = names
    return address


def _listen(slot: Slot) -> socket.socket:
    """Open a port that the others can reach: on all addresses of the machine, or on the given loopback address."""
    named = _is_loopback(slot.host)
    dual = not named and socket.has_dualstack_ipv6()
    family = socket.AF_INET6 if dual or (named and ":" in slot.host) else socket.AF_INET
    address = (slot.host if named else "", slot.port)
    try:
        return socket.create_server(address, family=family, backlog=slot.count, dualstack_ipv6=dual)
    except OSError as error:
        message = f"process 0 cannot listen on port {slot.port}: {error.strerror or error}"
        raise HmxError(message, f"give all processes another port: --coordinator {slot.host}:PORT") from error


def _is_loopback(host: str) -> bool:
    return host in ("localhost", "::1") or host.startswith("127.")


def _free_port(slot: Slot) -> int:
    family = socket.AF_INET6 if ":" in slot.host else socket.AF_INET
    with socket.create_server((slot.host if _is_loopback(slot.host) else "", 0), family=family) as probe:
        return int(probe.getsockname()[1])


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def _reach(slot: Slot, timeout: float) -> socket.socket:
    end = time.monotonic() + timeout
    while True:
        try:
            return socket.create_connection((slot.host, slot.port), timeout=5.0)
        except OSError as error:  # also while the host names of a cluster are not known yet
            if time.monotonic() > end:
                raise _unreachable(slot, timeout, error) from error
        time.sleep(_LOOK_UP)


def _unreachable(slot: Slot, timeout: float, error: OSError) -> HmxError:
    where = f"{_bracketed(slot.host)}:{slot.port}"
    message = f"timed out after {timeout:g} s connecting to process 0 at {where}: {error.strerror or error}"
    return HmxError(message, "start process 0, and give all processes its --coordinator HOST:PORT")


def _missing(slot: Slot, left: set[int], timeout: float) -> HmxError:
    ids = [str(index) for index in sorted(left)[:8]] + (["others"] if len(left) > 8 else [])
    where = f"--coordinator {_bracketed(slot.host)}:{slot.port} --num-processes {slot.count}"
    message = f"timed out after {timeout:g} s waiting for process{'es' * (len(left) > 1)} {_listed(ids)}"
    hint = f"start it with {where} --process-id {min(left)}, or wait longer with --join-timeout SECONDS"
    return HmxError(message, hint)


def _misfit(slot: Slot, hello: dict[str, object], versions: dict[str, str], left: set[int]) -> HmxError | None:
    """Return the reason why a connected process cannot be part of this run; None if it can."""
    index, count, theirs = hello.get("index"), hello.get("count"), hello.get("versions")
    host = quoted(str(hello.get("host")), 100)
    who = f"process {quoted(str(index))} on {host}"
    if count != slot.count:
        message = f"{who} has --num-processes {quoted(str(count))}, process 0 has {slot.count}"
        return HmxError(message, f"give every process --num-processes {slot.count}")
    if type(index) is not int or index not in left:
        message = f"process id {quoted(str(index))} is already in use ({host})"
        return HmxError(message, f"give each process its own --process-id, 0 to {slot.count - 1}")
    there = theirs if isinstance(theirs, dict) else {}
    unlike = [
        f"{name} {quoted(str(there.get(name)))} instead of {mine}"
        for name, mine in versions.items()
        if there.get(name) != mine
    ]
    if unlike:
        message = f"{who} has other versions than process 0: {', '.join(unlike)}"
        return HmxError(message, "install the same versions on all machines")
    return None


def _versions() -> dict[str, str]:
    return {name: version for name, version in metas.versions().items() if name in _MUST_AGREE}


def _start_jax(slot: Slot, group: Group, address: str) -> None:
    # JAX would catch SIGTERM itself; here the training loop saves and stops.
    jax.config.update("jax_enable_preemption_service", False)
    bind = address if _is_loopback(slot.host) else None

    def start() -> None:
        jax.distributed.initialize(
            address,
            slot.count,
            slot.index,
            local_device_ids=slot.local_devices,
            cluster_detection_method="deactivate",
            coordinator_bind_address=bind,
            shutdown_timeout_seconds=60,
        )
        jax.devices()  # also waits for all processes

    try:
        interruptible(start)
    except jax.errors.JaxRuntimeError as error:
        hint = "JAX needs all ports above 1023 to be open between the machines"
        message = f"cannot start JAX on {group.label(slot.index)}: {one_line(error)}"
        raise HmxError(message, hint, ExitCode.UNEXPECTED) from error
