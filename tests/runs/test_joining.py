"""How processes find each other: who they are, what they refuse, and whom. JAX itself is started in tests/cli."""

import contextlib
import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import pytest

from hmx.errors import HmxError
from hmx.runs.cluster import rendezvous as joining
from hmx.runs.cluster.group import ALONE, Group
from hmx.runs.cluster.rendezvous import Place, Wanted, join, locate, parse_address
from hmx.runs.cluster.transport import send_hello

wanted = partial(Wanted, timeout=300.0)

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


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


def place(index: int, count: int, port: int) -> Place:
    return Place(host="127.0.0.1", port=port, count=count, index=index, local_devices=None)


def test_the_options_say_it_all() -> None:
    found = locate(wanted(coordinator="[fe80::1]:29400", count=2, index=1))
    assert found == Place(host="fe80::1", port=29400, count=2, index=1, local_devices=None)


def test_one_process_is_alone_and_starts_nothing() -> None:
    assert locate(wanted(count=1)) is None
    assert locate(wanted(coordinator="node1:29400", count=1, index=0)) is None
    with join(wanted(count=1)) as group:
        assert group is ALONE


def test_slurm_says_it(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in SLURM.items():
        monkeypatch.setenv(name, value)
    assert locate(wanted()) == Place(host="node007", port=61441, count=12, index=5, local_devices=(1,))
    # an option wins over what is found
    assert locate(wanted(coordinator="node008:29400")) == Place(
        host="node008", port=29400, count=12, index=5, local_devices=(1,)
    )


def test_open_mpi_says_it(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in OPEN_MPI.items():
        monkeypatch.setenv(name, value)
    found = locate(wanted())
    assert found is not None
    assert (found.host, found.count, found.index, found.local_devices) == ("10.96.0.1", 3, 2, (0,))


def test_kubernetes_without_its_package_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    monkeypatch.setitem(__import__("sys").modules, "kubernetes", None)
    with pytest.raises(HmxError, match="`kubernetes` package") as caught:
        locate(wanted())
    assert "--process-id" in caught.value.hint
    assert locate(wanted(coordinator="hmx-0.hmx:29400", count=2, index=0)) is not None


@pytest.mark.parametrize(
    ("wanted", "said", "hint"),
    [
        (wanted(), "--coordinator, --num-processes and --process-id must be given", "--coordinator HOST:PORT"),
        (wanted(coordinator="a:1", count=2), "so that --process-id must be given", "--process-id I"),
        (wanted(count=2, index=0), "so that --coordinator must be given", "--coordinator HOST:PORT"),
        (wanted(coordinator="a:1", count=2, index=2), "numbered from 0 to 1", "of its own"),
        (wanted(coordinator="a:1", count=2, index=-1), "--process-id -1", "of its own"),
        (wanted(coordinator="a:1", count=1, index=1), "--process-id 1: with --num-processes 1", "of its own"),
        (wanted(coordinator="a:1", count=0, index=0), "there is at least one", "--num-processes 2"),
    ],
)
def test_parts_that_are_missing_or_out_of_range_are_named(wanted: Wanted, said: str, hint: str) -> None:
    with pytest.raises(HmxError) as caught:
        locate(wanted)
    assert said in caught.value.message and hint in caught.value.hint


@pytest.mark.parametrize(
    "text",
    ["", ":", "node1", "node1:", ":1", "node1:0", "node1:65536", "node1:x", "node1:" + "9" * 5000, "a b:1", "a:٣"],
)
def test_a_coordinator_must_be_a_host_and_a_port(text: str) -> None:
    with pytest.raises(HmxError, match="must be HOST:PORT") as caught:
        parse_address(text)
    assert "node001:29400" in caught.value.hint


def meet(places: list[Place], timeout: float = 60.0) -> list[Any]:
    """The address of JAX's service as each process hears it, or the error it ends in."""

    def one(mine: Place) -> Any:
        group = Group(mine.index, mine.count)
        try:
            address = (joining._lead if group.leads else joining._follow)(mine, group, timeout)
            assert group.names[0] and len(group.names) == mine.count
            return address
        except HmxError as error:
            group.leave(error)
            return error
        finally:
            done.wait()
            group.close()

    done = threading.Barrier(len(places))
    with ThreadPoolExecutor(len(places)) as pool:
        return list(pool.map(one, places))


def test_processes_meet_in_any_order_and_strangers_are_turned_away() -> None:
    port = free_port()

    def stranger() -> None:
        for _ in range(1000):
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port)) as connection:
                connection.sendall(b"GET / HTTP/1.1\r\n\r\n")
                return

    threading.Thread(target=stranger, daemon=True).start()
    first, *others = meet([place(2, 3, port), place(0, 3, port), place(1, 3, port)])
    assert first.startswith("127.0.0.1:") and others == [first, first]


def test_those_who_do_not_come_are_named() -> None:
    port = free_port()
    led, followed = meet([place(0, 4, port), place(2, 4, port)], timeout=1.0)
    assert "processes 1, 3 have not come within 1 seconds" in led.message
    assert f"--coordinator 127.0.0.1:{port} --num-processes 4 --process-id 1" in led.hint
    assert "processes 1, 3 have not come" in followed.message, "who came is told why it ends"


def test_a_coordinator_that_nobody_listens_at_is_told() -> None:
    port = free_port()
    (error,) = meet([place(1, 2, port)], timeout=0.1)
    assert f"process 0 was not reached at 127.0.0.1:{port} within 0.1 seconds: Connection refused" in error.message
    assert "--coordinator" in error.hint


def test_a_port_in_use_is_told() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        (error,) = meet([place(0, 2, port)], timeout=1.0)
    assert f"cannot listen on port {port}: Address already in use" in error.message
    assert "--coordinator 127.0.0.1:PORT" in error.hint


def test_processes_that_do_not_belong_together_are_told_both() -> None:
    port = free_port()
    led, followed = meet([place(0, 2, port), place(1, 3, port)])
    assert "says that there are 3 processes, and process 0 that there are 2" in led.message
    assert "there are 3 processes" in followed.message


def test_a_number_cannot_be_taken_twice() -> None:
    port = free_port()
    errors = meet([place(0, 3, port), place(1, 3, port), place(1, 3, port)])
    assert all("has come, and that number is taken" in error.message for error in errors)


@pytest.mark.parametrize("index", [2, 0, -1, "1", [1], None, True])
def test_a_number_that_is_none_is_refused(index: object) -> None:
    hello = {"index": index, "count": 2, "host": "node1", "versions": joining._versions()}
    problem = joining._misfit(place(0, 2, 1024), hello, joining._versions(), {1})
    assert problem is not None and "that number is taken" in problem.message
    assert joining._misfit(place(0, 2, 1024), {**hello, "index": 1}, joining._versions(), {1}) is None


def test_other_versions_are_named() -> None:
    port, group = free_port(), Group(0, 2)

    def odd() -> None:
        connection = joining._reach(place(1, 2, port), 60.0)
        with connection:
            send_hello(connection, {"index": 1, "count": 2, "host": "\x1b[2Jnode1", "versions": {"jax": "0.0.1"}})
            connection.recv(1)

    coming = threading.Thread(target=odd)
    coming.start()
    with pytest.raises(
        HmxError, match=r"process 1 on \\x1b\[2Jnode1 has other versions than process 0: .*jax 0\.0\.1 there"
    ):
        joining._lead(place(0, 2, port), group, 60.0)
    coming.join()
