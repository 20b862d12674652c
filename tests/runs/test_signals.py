from __future__ import annotations

import gc
import os
import signal
import sys
import threading
import time
import weakref

import pytest

from hmx.runs.signals import SignalGuard, StopNow, interruptible, wait_for


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_the_first_signal_is_a_request(signum: signal.Signals) -> None:
    heard: list[int] = []
    with SignalGuard(heard.append) as guard:
        assert guard.requested is None
        signal.raise_signal(signum)
        assert guard.requested == signum
    assert heard == [signum]


def test_second_signal_stops_at_once_and_third_has_the_default_action() -> None:
    before, hook = [signal.getsignal(s) for s in (signal.SIGINT, signal.SIGTERM)], sys.unraisablehook
    with SignalGuard() as guard:
        signal.raise_signal(signal.SIGTERM)
        with pytest.raises(StopNow) as stopped:
            signal.raise_signal(signal.SIGINT)
        assert signal.getsignal(signal.SIGINT) is signal.SIG_DFL
    assert stopped.value.signum == signal.SIGINT
    assert guard.requested == signal.SIGTERM
    assert [signal.getsignal(s) for s in (signal.SIGINT, signal.SIGTERM)] == before and sys.unraisablehook == hook


@pytest.mark.parametrize("place", ["gc callback", "finaliser", "weakref callback"])
def test_a_second_signal_in_a_callback_whose_exceptions_are_dropped_still_stops(place: str) -> None:
    """Python prints such an exception as "Exception ignored in ..."; pytest turns that into an error."""
    left = [signal.SIGINT]  # one signal, however often garbage is collected

    def callback(*given: object) -> None:
        if left:
            signal.raise_signal(left.pop())

    class Thing:
        pass

    class Finalised:
        __del__ = callback

    with SignalGuard(), pytest.raises(StopNow):
        signal.raise_signal(signal.SIGTERM)
        if place == "finaliser":
            Finalised()
        elif place == "weakref callback":
            thing = Thing()
            reference = weakref.ref(thing, callback)
            del thing
            assert reference() is None
        else:
            gc.callbacks.append(callback)
            gc.collect()
        time.sleep(30)
    if callback in gc.callbacks:
        gc.callbacks.remove(callback)


def test_a_signal_the_parent_ignores_stays_ignored() -> None:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with SignalGuard() as guard:
            signal.raise_signal(signal.SIGINT)
        assert guard.requested is None
    finally:
        signal.signal(signal.SIGINT, before)


def test_no_handler_is_installed_outside_the_main_thread() -> None:
    before = signal.getsignal(signal.SIGINT)
    seen: list[object] = []

    def work() -> None:
        with SignalGuard():
            seen.append(signal.getsignal(signal.SIGINT))
        seen.append(interruptible(lambda: 3))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [before, 3]


def test_a_signal_is_handled_while_work_blocks() -> None:
    release = threading.Event()

    def work() -> str:
        assert threading.current_thread() is not threading.main_thread(), "where a compilation would block handlers"
        os.kill(os.getpid(), signal.SIGINT)
        release.wait()
        return "done"

    with SignalGuard(lambda _: release.set()) as guard:
        assert interruptible(work) == "done"
    assert guard.requested == signal.SIGINT


def test_second_signal_abandons_endless_work() -> None:
    release = threading.Event()

    def work() -> None:
        for _ in range(2):
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(0.05)
        release.wait()

    with SignalGuard(), pytest.raises(StopNow):
        interruptible(work)
    release.set()


def test_a_wait_ends_in_time() -> None:
    release = threading.Event()
    thread = threading.Thread(target=release.wait)
    thread.start()
    assert not wait_for(thread, 0.01)
    release.set()
    assert wait_for(thread)


def test_errors_are_passed_on() -> None:
    with pytest.raises(ZeroDivisionError):
        interruptible(lambda: 1 // 0)
