"""What processes of a run tell each other: here each is a thread, and the connections are pairs of sockets."""

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
from hmx.runs.cluster.transport import Farewell, Line

opened: list[Group | Line] = []


@pytest.fixture(autouse=True)
def closed() -> Iterator[None]:
    yield
    while opened:
        opened.pop().close()


def make_line(connection: socket.socket, **more: float) -> Line:
    line = Line(connection, **more)  # type: ignore[arg-type]
    opened.append(line)
    return line


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


def test_what_number_0_says_reaches_all_and_what_all_say_reaches_number_0() -> None:
    groups = make_groups(3)
    said = bytes(range(256)) * 9000  # more than one piece
    assert [bytes(heard) for heard in each(groups, lambda g: g.share(said if g.leads else b""))] == [said] * 3
    assert each(groups, lambda g: g.collect(b"%d" % g.index)) == [[b"0", b"1", b"2"], [], []]
    assert each(groups, lambda g: g.highest(7 if g.index == 2 else 0)) == [7, 7, 7]
    assert each(groups, lambda g: g.highest(g.leads)) == [1, 1, 1]
    assert [g.leads for g in groups] == [True, False, False]


def test_one_process_asks_nobody() -> None:
    assert ALONE.leads and ALONE.share(b"x") == b"x" and ALONE.collect(b"x") == [b"x"] and ALONE.highest(3) == 3
    ALONE.wait_for_end()
    ALONE.check()


def test_a_process_that_is_gone_is_named_to_all_others() -> None:
    groups = make_groups(3)
    for group in groups:
        group.hint = "what to do"
    groups[2].close()
    for group in groups[:2]:
        with pytest.raises(HmxError, match="process 2 on node2 is gone: its connection ended") as caught:
            group.highest(0)
        assert (caught.value.hint, caught.value.exit_code) == ("what to do", ExitCode.UNEXPECTED)
    with pytest.raises(HmxError, match="process 2 on node2"):
        groups[0].check()
    groups[0].check()  # once: what is done at the end must not be cut short by it


def test_a_process_that_hears_nothing_of_another_takes_it_for_gone() -> None:
    here, there = socket.socketpair()
    ended = threading.Event()
    line = make_line(here, silence=0.05)
    line.start(lambda _: ended.set(), beat_every=9)
    assert ended.wait(30)
    assert line.lost == "nothing was heard of it for 0 seconds"
    there.close()


def test_signs_of_life_are_enough() -> None:
    here, there = socket.socketpair()
    line, other = make_line(here, silence=2), make_line(there, silence=60)
    line.start()
    other.start(beat_every=0.01)
    assert not line.ended.wait(3)
    line.close()


def test_number_0_gone_without_a_word_is_told_at_once_to_whoever_asked() -> None:
    told: list[HmxError] = []
    heard = threading.Event()
    groups = make_groups(2, lambda problem: (told.append(problem), heard.set()))  # type: ignore[func-returns-value]
    groups[0].close()
    assert heard.wait(30)
    assert "process 0 on node0 is gone" in told[0].message


def test_an_error_of_one_ends_all_with_its_message_and_code() -> None:
    groups = make_groups(3)
    groups[1].names[1] = "node1"
    groups[1].leave(HmxError("no memory", "less of it", ExitCode.CHECK_FAILED))
    for group in (groups[0], groups[2]):
        with pytest.raises(HmxError, match="process 1 on node1 stopped: no memory") as caught:
            group.highest(0)
        assert (caught.value.hint, caught.value.exit_code) == ("less of it", ExitCode.CHECK_FAILED)


def test_an_error_of_number_0_reaches_those_who_wait_for_the_end() -> None:
    groups = make_groups(2)
    groups[0].names[0] = "node0"
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(groups[1].wait_for_end)
        pool.submit(lambda: None)
        threading.Thread(target=groups[0].leave, args=(ValueError("odd"),), daemon=True).start()
        with pytest.raises(HmxError, match="process 0 on node0 stopped: ValueError: odd"):
            waiting.result()
    groups[1].close()


def test_after_a_good_end_nobody_is_missed() -> None:
    groups = make_groups(2)
    groups[0].leave()
    groups[1].wait_for_end()
    groups[1].leave()
    for group in groups:
        group.close()
        group.check()


def test_a_program_that_fails_since_a_process_is_gone_says_so() -> None:
    groups = make_groups(2)
    groups[1].close()
    with pytest.raises(HmxError, match="process 1 on node1 is gone"), groups[0].explaining():
        raise jax.errors.JaxRuntimeError("UNKNOWN: Gloo AllGather failed")
    with pytest.raises(jax.errors.JaxRuntimeError, match="other"), ALONE.explaining():
        raise jax.errors.JaxRuntimeError("other")


@pytest.mark.parametrize(
    "sent",
    [
        struct.pack("!cQ", b"d", 1 << 40),  # more than anybody may send to number 0
        struct.pack("!cQ", b"e", 1 << 40),
        struct.pack("!cQ", b"e", 2) + b"{]",
        struct.pack("!cQ", b"e", 9) + json.dumps([1, 2, 3]).encode() + b"\xff" * 9,
        b"HTTP/1.1 400 Bad Request\r\n\r\n",
    ],
)
def test_bytes_that_nobody_should_send_end_the_connection(sent: bytes) -> None:
    here, there = socket.socketpair()
    line = make_line(here)
    line.start()
    with contextlib.suppress(OSError):
        there.sendall(sent)
    there.close()
    assert line.ended.wait(30)
    assert line.lost and line.farewell is None


def test_a_farewell_travels_whole() -> None:
    here, there = socket.socketpair()
    line, other = make_line(here), make_line(there)
    line.start()
    other.start()
    other.say_farewell(Farewell("what", "hint", 4))
    assert line.ended.wait(30)
    assert line.farewell == Farewell("what", "hint", 4)
    line.close()
