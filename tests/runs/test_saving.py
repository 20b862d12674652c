from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator

import pytest

from hmx.runs import saving
from hmx.runs.saving import Saver


@pytest.fixture
def release() -> Iterator[threading.Event]:
    event = threading.Event()
    yield event
    event.set()


@pytest.mark.parametrize("back", [0.0, 86_400.0])
def test_a_slow_write_is_reported_and_a_clock_set_back_is_named(
    back: float, release: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[tuple[str, bool]] = []

    def on_slow(message: str, stuck: bool) -> None:
        told.append((message, stuck))
        release.set()

    monkeypatch.setattr(saving, "SLOW", 0.05)
    saver = Saver(lambda state, update, score: release.wait, on_slow=on_slow)
    saver.save({}, 7)
    now = time.time
    monkeypatch.setattr(time, "time", lambda: now() - back)
    saver.wait()
    message, stuck = told[0]
    assert message.startswith("checkpoint 7 is still being written")
    assert stuck == (back > 0) == ("clock was set back by 86400 s" in message)


def test_a_wait_for_a_slow_write_can_be_ended(release: threading.Event, monkeypatch: pytest.MonkeyPatch) -> None:
    def stop(message: str, stuck: bool) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(saving, "SLOW", 0.05)
    write: Callable[[], object] = release.wait
    saver = Saver(lambda state, update, score: write, on_slow=stop)
    saver.save({}, 7)
    with pytest.raises(KeyboardInterrupt):
        saver.wait()


def test_a_failed_write_is_reported_once_and_not_as_written() -> None:
    written: list[int] = []

    def fail() -> None:
        raise OSError("no space")

    saver = Saver(lambda state, update, score: fail, written.append)
    saver.save({}, 3)
    with pytest.raises(OSError, match="no space"):
        saver.wait()
    saver.wait()
    assert written == []


def test_one_checkpoint_is_written_at_a_time(release: threading.Event) -> None:
    done: list[str] = []

    def prepare(state: object, update: int, score: float | None) -> Callable[[], object]:
        done.append(f"copied {update}")
        return lambda: (release.wait(), done.append(f"wrote {update}"))

    saver = Saver(prepare, lambda update: done.append(f"registered {update}"))
    saver.save({}, 1)
    saver.collect()
    assert done == ["copied 1"]
    threading.Timer(0.05, release.set).start()
    saver.save({}, 2)
    saver.wait()
    assert done == [f"{what} {update}" for update in (1, 2) for what in ("copied", "wrote", "registered")]
