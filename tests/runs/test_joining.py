"""How the processes of a run are detected, connect and reject each other. JAX itself is started in tests/cli."""

import contextlib
import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from hmx.errors import HmxError
from hmx.runs.cluster import rendezvous as joining
from hmx.runs.cluster.group import ALONE, Group
from hmx.runs.cluster.hosts import Hosts
from hmx.runs.cluster.rendezvous import Slot, join, locate, parse_address
from hmx.runs.cluster.transport import send_hello

SLURM = {
    "SLURM_JOB_ID": "4097",
    "SLURM_STEP_NODELIST": "node[007-009]",
    "SLURM_NTASKS": "12",
    "SLURM_PROCID": "5",
    "SLURM_LOCALID": "1",
}
OPEN_MPI = {
    "OMPI_MCA_orte_hnp_uri": "1531576320.0;tcp://10.96.0.1,10.148.0.1:34911",
    "OMPI_COMM_WORLD_SIZE": "3",
    "OMPI_COMM_WORLD_RANK": "2",
    "OMPI_COMM_WORLD_LOCAL_RANK": "0",
}


@pytest.fixture(autouse=True)
def no_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (*SLURM, *OPEN_MPI, "KUBERNETES_SERVICE_HOST", "JAX_COORDINATOR_PORT"):
        monkeypatch.delenv(name, raising=False)
    # A failed coordinator waits this long for the others to close, which they do in `meet` only after it has returned.
    monkeypatch.setattr("hmx.runs.cluster.group.LINGER", 0.5)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


def slot(index: int, count: int, port: int) -> Slot:
    return Slot(host="127.0.0.1", port=port, count=count, index=index, local_devices=None)


def test_locate_uses_the_options() -> None:
    found = locate(Hosts(coordinator="[fe80::1]:29400", num_processes=2, process_id=1))
    assert found == Slot(host="fe80::1", port=29400, count=2, index=1, local_devices=None)


def test_single_process_starts_no_service() -> None:
    assert locate(Hosts(num_processes=1)) is None
    assert locate(Hosts(coordinator="node1:29400", num_processes=1, process_id=0)) is None
    with join(Hosts(num_processes=1)) as group:
        assert group is ALONE


def test_locate_detects_slurm(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in SLURM.items():
        monkeypatch.setenv(name, value)
    assert locate(Hosts()) == Slot(host="node007", port=61441, count=12, index=5, local_devices=(1,))
    # an option wins over what is found
    assert locate(Hosts(coordinator="node008:29400")) == Slot(
        host="node008", port=29400, count=12, index=5, local_devices=(1,)
    )


def test_locate_detects_open_mpi(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in OPEN_MPI.items():
        monkeypatch.setenv(name, value)
    found = locate(Hosts())
    assert found is not None
    assert (found.host, found.count, found.index, found.local_devices) == ("10.96.0.1", 3, 2, (0,))


def test_kubernetes_without_its_package_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    monkeypatch.setitem(__import__("sys").modules, "kubernetes", None)
    with pytest.raises(HmxError, match="`kubernetes` package") as caught:
        locate(Hosts())
    assert "--process-id" in caught.value.hint
    assert locate(Hosts(coordinator="hmx-0.hmx:29400", num_processes=2, process_id=0)) is not None


@pytest.mark.parametrize(
    ("options", "message", "hint"),
    [
        (Hosts(), "--coordinator, --num-processes and --process-id must be given", "--coordinator HOST:PORT"),
        (Hosts(coordinator="a:1", num_processes=2), "so --process-id must be given", "--process-id I"),
        (Hosts(num_processes=2, process_id=0), "so --coordinator must be given", "--coordinator HOST:PORT"),
        (Hosts(coordinator="a:1", num_processes=2, process_id=2), "must be 0 to 1", "its own id"),
        (
            Hosts(coordinator="a:1", num_processes=1, process_id=1),
            "must be 0 to 0 with --num-processes 1",
            "its own id",
        ),
    ],
)
def test_missing_and_impossible_options_are_named(options: Hosts, message: str, hint: str) -> None:
    with pytest.raises(HmxError) as caught:
        locate(options)
    assert message in caught.value.message and hint in caught.value.hint


@pytest.mark.parametrize(
    "text",
    ["", ":", "node1", "node1:", ":1", "node1:0", "node1:65536", "node1:x", "node1:" + "9" * 5000, "a b:1", "a:٣"],
)
def test_a_coordinator_must_be_a_host_and_a_port(text: str) -> None:
    with pytest.raises(HmxError, match="must be HOST:PORT") as caught:
        parse_address(text)
    assert "node001:29400" in caught.value.hint


def meet(slots: list[Slot], timeout: float = 60.0) -> list[Any]:
    """Return the address of JAX's service that each process received, or its error."""

    def one(mine: Slot) -> Any:
        group = Group(mine.index, mine.count)
        try:
            address = (joining._coordinate if group.is_coordinator else joining._connect)(mine, group, timeout)
            assert group.names[0] and len(group.names) == mine.count
            return address
        except HmxError as error:
            group.leave(error)
            return error
        finally:
            done.wait()
            group.close()

    done = threading.Barrier(len(slots))
    with ThreadPoolExecutor(len(slots)) as pool:
        return list(pool.map(one, slots))


def test_processes_connect_in_any_order_and_strangers_are_ignored() -> None:
    port = free_port()

    def stranger() -> None:
        for _ in range(1000):
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port)) as connection:
                connection.sendall(b"GET / HTTP/1.1\r\n\r\n")
                return

    threading.Thread(target=stranger, daemon=True).start()
    first, *others = meet([slot(2, 3, port), slot(0, 3, port), slot(1, 3, port)])
    assert first.startswith("127.0.0.1:") and others == [first, first]


def test_missing_processes_are_named_on_every_process() -> None:
    port = free_port()
    coordinator, worker = meet([slot(0, 4, port), slot(2, 4, port)], timeout=1.0)
    assert "timed out after 1 s waiting for processes 1 and 3" in coordinator.message
    assert f"--coordinator 127.0.0.1:{port} --num-processes 4 --process-id 1" in coordinator.hint
    assert "waiting for processes 1 and 3" in worker.message


def test_an_unreachable_coordinator_is_an_error() -> None:
    port = free_port()
    (error,) = meet([slot(1, 2, port)], timeout=0.1)
    assert f"timed out after 0.1 s connecting to process 0 at 127.0.0.1:{port}: Connection refused" in error.message
    assert "--coordinator" in error.hint


def test_a_port_in_use_is_an_error() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        (error,) = meet([slot(0, 2, port)], timeout=1.0)
    assert f"cannot listen on port {port}: Address already in use" in error.message
    assert "--coordinator 127.0.0.1:PORT" in error.hint


def test_different_process_counts_are_an_error_on_both_processes() -> None:
    port = free_port()
    coordinator, worker = meet([slot(0, 2, port), slot(1, 3, port)])
    assert "process 1 on" in coordinator.message and "has --num-processes 3, process 0 has 2" in coordinator.message
    assert "--num-processes 3" in worker.message


def test_a_process_id_can_be_used_once() -> None:
    port = free_port()
    errors = meet([slot(0, 3, port), slot(1, 3, port), slot(1, 3, port)])
    assert all("process id 1 is already in use (" in error.message for error in errors)


@pytest.mark.parametrize("index", [2, 0, -1, "1", [1], None, True])
def test_an_invalid_process_id_is_refused(index: object) -> None:
    hello = {"index": index, "count": 2, "host": "node1", "versions": joining._versions()}
    problem = joining._misfit(slot(0, 2, 1024), hello, joining._versions(), {1})
    assert problem is not None and "already in use" in problem.message
    assert joining._misfit(slot(0, 2, 1024), {**hello, "index": 1}, joining._versions(), {1}) is None


def test_different_versions_are_named() -> None:
    port, group = free_port(), Group(0, 2)

    def odd() -> None:
        connection = joining._reach(slot(1, 2, port), 60.0)
        with connection:
            send_hello(connection, {"index": 1, "count": 2, "host": "\x1b[2Jnode1", "versions": {"jax": "0.0.1"}})
            connection.recv(1)

    coming = threading.Thread(target=odd)
    coming.start()
    with pytest.raises(
        HmxError, match=r"process 1 on \\x1b\[2Jnode1 has other versions than process 0: .*jax 0\.0\.1 instead of"
    ):
        joining._coordinate(slot(0, 2, port), group, 60.0)
    coming.join()


@pytest.mark.parametrize(
    ("hosts", "variables", "writes"),
    [
        (Hosts(), {"SLURM_PROCID": "3"}, True),
        (Hosts(distributed=True), {}, True),
        (Hosts(distributed=True), {"SLURM_PROCID": "0"}, True),
        (Hosts(distributed=True), {"SLURM_PROCID": "3"}, False),
        (Hosts(distributed=True), {"OMPI_COMM_WORLD_RANK": "1"}, False),
        (Hosts(distributed=True), {"JOB_COMPLETION_INDEX": "1"}, False),
        (Hosts(distributed=True, process_id=1), {}, False),
        (Hosts(distributed=True, process_id=0), {"SLURM_PROCID": "3"}, True),
    ],
)
def test_only_process_0_says_that_training_starts(monkeypatch, hosts, variables, writes):
    for name in ("SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "JOB_COMPLETION_INDEX"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert hosts.writes is writes
