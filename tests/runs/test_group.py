"""Messages between the processes of a run; here each process is a thread, and connections are pairs of sockets."""

import contextlib
import json
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import jax
import pytest

from hmx.errors import ExitCode, HmxError
from hmx.runs.cluster.group import ALONE, Group
from hmx.runs.cluster.transport import Connection, ExitMessage

opened: list[Group | Connection] = []


@pytest.fixture(autouse=True)
def closed() -> Iterator[None]:
    yield
    while opened:
        opened.pop().close()


def make_connection(peer: socket.socket, **more: float) -> Connection:
    connection = Connection(peer, **more)  # type: ignore[arg-type]
    opened.append(connection)
    return connection


def make_groups(count: int, on_lost: Callable[[HmxError], None] | None = None) -> list[Group]:
    groups = [Group(index, count, on_lost) for index in range(count)]
    for index in range(1, count):
        here, there = socket.socketpair()
        groups[0].add(index, f"node{index}", here)
        groups[index].add(0, "node0", there)
    opened.extend(groups)
    return groups


def each(groups: list[Group], act: Callable[[Group], Any]) -> list[Any]:
    with ThreadPoolExecutor(len(groups)) as pool:
        return list(pool.map(act, groups))


def test_broadcast_gather_and_all_reduce_max_over_three_processes() -> None:
    groups = make_groups(3)
    said = bytes(range(256)) * 9000  # more than one piece
    assert [bytes(heard) for heard in each(groups, lambda g: g.broadcast(said if g.is_coordinator else b""))] == [
        said
    ] * 3
    assert each(groups, lambda g: g.gather(b"%d" % g.index)) == [[b"0", b"1", b"2"], [], []]
    assert each(groups, lambda g: g.all_reduce_max(7 if g.index == 2 else 0)) == [7, 7, 7]
    assert each(groups, lambda g: g.all_reduce_max(g.is_coordinator)) == [1, 1, 1]
    assert [g.is_coordinator for g in groups] == [True, False, False]


def test_a_single_process_needs_no_messages() -> None:
    assert (
        ALONE.is_coordinator
        and ALONE.broadcast(b"x") == b"x"
        and ALONE.gather(b"x") == [b"x"]
        and ALONE.all_reduce_max(3) == 3
    )
    ALONE.wait_for_end()
    ALONE.check()


def test_all_others_name_a_lost_process() -> None:
    groups = make_groups(3)
    for group in groups:
        group.hint = "what to do"
    groups[2].close()
    for group in groups[:2]:
        with pytest.raises(HmxError, match="lost process 2 on node2: its connection ended") as caught:
            group.all_reduce_max(0)
        assert (caught.value.hint, caught.value.exit_code) == ("what to do", ExitCode.UNEXPECTED)
    with pytest.raises(HmxError, match="process 2 on node2"):
        groups[0].check()
    groups[0].check()  # only once, so that the clean-up can finish


def test_a_peer_without_heartbeat_counts_as_lost() -> None:
    here, there = socket.socketpair()
    ended = threading.Event()
    connection = make_connection(here, silence=0.05)
    connection.start(lambda _: ended.set(), beat_every=9)
    assert ended.wait(30)
    assert connection.lost == "no heartbeat for 0 s"
    there.close()


def test_heartbeats_keep_a_connection() -> None:
    here, there = socket.socketpair()
    connection, other = make_connection(here, silence=2), make_connection(there, silence=60)
    connection.start()
    other.start(beat_every=0.01)
    assert not connection.ended.wait(3)
    connection.close()


def test_a_lost_coordinator_is_reported_through_on_lost() -> None:
    told: list[HmxError] = []
    heard = threading.Event()
    groups = make_groups(2, lambda problem: (told.append(problem), heard.set()))  # type: ignore[func-returns-value]
    groups[0].close()
    assert heard.wait(30)
    assert "lost process 0 on node0" in told[0].message


def test_an_error_of_one_process_ends_all_with_its_message_and_exit_code() -> None:
    groups = make_groups(3)
    groups[1].names[1] = "node1"
    groups[1].leave(HmxError("no memory", "less of it", ExitCode.CHECK_FAILED))
    for group in (groups[0], groups[2]):
        with pytest.raises(HmxError, match="process 1 on node1 failed: no memory") as caught:
            group.all_reduce_max(0)
        assert (caught.value.hint, caught.value.exit_code) == ("less of it", ExitCode.CHECK_FAILED)


def test_an_error_of_the_coordinator_reaches_waiting_workers() -> None:
    groups = make_groups(2)
    groups[0].names[0] = "node0"
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(groups[1].wait_for_end)
        pool.submit(lambda: None)
        threading.Thread(target=groups[0].leave, args=(ValueError("odd"),), daemon=True).start()
        with pytest.raises(HmxError, match="process 0 on node0 failed: ValueError: odd"):
            waiting.result()
    groups[1].close()


def test_no_error_after_a_normal_end() -> None:
    groups = make_groups(2)
    groups[0].leave()
    groups[1].wait_for_end()
    groups[1].leave()
    for group in groups:
        group.close()
        group.check()


@pytest.mark.parametrize("kind", [jax.errors.JaxRuntimeError, ValueError, ConnectionResetError])
def test_an_error_caused_by_a_lost_process_names_the_process(kind: type[Exception]) -> None:
    groups = make_groups(2)
    groups[1].close()
    with pytest.raises(HmxError, match="lost process 1 on node1"), groups[0].explaining():
        raise kind("UNKNOWN: Gloo AllGather failed: Connection reset by peer")
    with pytest.raises(jax.errors.JaxRuntimeError, match="other"), ALONE.explaining():
        raise jax.errors.JaxRuntimeError("other")


@pytest.mark.parametrize(
    "sent",
    [
        struct.pack("!cQ", b"d", 1 << 40),  # larger than a worker may send
        struct.pack("!cQ", b"e", 1 << 40),
        struct.pack("!cQ", b"e", 2) + b"{]",
        struct.pack("!cQ", b"e", 9) + json.dumps([1, 2, 3]).encode() + b"\xff" * 9,
        b"HTTP/1.1 400 Bad Request\r\n\r\n",
    ],
)
def test_invalid_frames_end_the_connection(sent: bytes) -> None:
    here, there = socket.socketpair()
    connection = make_connection(here)
    connection.start()
    with contextlib.suppress(OSError):
        there.sendall(sent)
    there.close()
    assert connection.ended.wait(30)
    assert connection.lost and connection.exit_message is None


def test_an_exit_message_arrives_unchanged() -> None:
    here, there = socket.socketpair()
    connection, other = make_connection(here), make_connection(there)
    connection.start()
    other.start()
    other.send_exit(ExitMessage("what", "hint", 4))
    assert connection.ended.wait(30)
    assert connection.exit_message == ExitMessage("what", "hint", 4)
    connection.close()
