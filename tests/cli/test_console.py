"""The live panel and the stream of JSON lines."""

from __future__ import annotations

import dataclasses
import io
import json
import math
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from hmx.config.schema import Config
from hmx.console.panel import ConsoleSink, JsonSink, RecentReturn
from hmx.console.progress import ProgressLog
from hmx.jobs.evaluation import PolicyStats
from hmx.render.blocks import Document
from hmx.render.terminal import print_document
from hmx.reports.summaries import few_wins, policies
from hmx.runs.sinks import RunInfo
from hmx.stats.intervals import wilson

INFO = RunInfo(
    name="hackmatrix-ppo-s0-001",
    path=Path("runs/hackmatrix-ppo-s0-001"),
    config=Config(),
    created="",
    first_update=0,
    total_updates=100,
    steps_per_update=40_000,
    num_seeds=1,
)


def sink(now: Any, width: int = 80) -> tuple[ConsoleSink, Console]:
    """A sink on a console that is no terminal, to be drawn by hand."""
    console = Console(file=io.StringIO(), width=width)
    return ConsoleSink(console, now), console


def drawn(panel: ConsoleSink, console: Console) -> str:
    """What the panel shows now."""
    with console.capture() as capture:
        console.print(panel)
    return capture.get()


def record(update: int, seed: int = 0, **metrics: float) -> dict[str, float]:
    """A record as the loop makes it."""
    named = {name.replace("__", "/"): value for name, value in metrics.items()}
    return {"update": update, "env_steps": update * 40_000, "seed": seed, "wall_time": 0.0, **named}


def test_the_compile_phase_is_named_and_timed(now):
    panel, console = sink(now)
    panel.start(INFO)
    panel.phase("compiling")
    now.seconds += 12
    text = drawn(panel, console)
    assert "compiling 0:12" in text and "compiled" not in text and "0/4.00M" in text
    assert "the next run with these sizes starts faster" in text and text.count("compiling") == 1
    panel.start(dataclasses.replace(INFO, compile_time="44 s last time"))
    assert "44 s last time" in drawn(panel, console)


def test_stop_is_timed_and_explains_how_to_stop_at_once(now):
    panel, console = sink(now)
    panel.start(INFO)
    panel.phase("stopping")
    now.seconds += 12
    text = drawn(panel, console)
    assert "stopping 0:12" in text and "Ctrl-C again stops at once, without saving " in text


def test_time_left_counts_training_only(now):
    panel, console = sink(now)
    panel.start(INFO)
    panel.phase("compiling")
    now.seconds += 600
    panel.phase("training")
    now.seconds += 30
    panel.record(record(25, train__steps_per_sec=33_333.0))
    panel.flush()
    text = drawn(panel, console)
    assert "0:30 elapsed, 1:30 remaining" in text
    assert "25%" in text and "1.00M/4.00M" in text and "33.3k steps/s" in text


def test_gradient_report_is_named_and_timed_separately(now):
    """The first one compiles, which says nothing about the time that is left."""
    panel, console = sink(now)
    panel.start(INFO)
    panel.phase("training")
    now.seconds += 30
    panel.record(record(25, grad_norm__all=0.5))
    panel.flush()
    panel.phase("measuring")
    now.seconds += 20
    text = drawn(panel, console)
    assert "measuring 0:20" in text and "0:30 elapsed, 1:30 remaining" in text and "grad_norm" not in text
    panel.phase("training")
    assert "0:30 elapsed, 1:30 remaining" in drawn(panel, console)


def test_resumed_run_measures_speed_by_its_own_steps(now):
    panel, console = sink(now)
    panel.start(RunInfo(**{**INFO.__dict__, "first_update": 50}))
    panel.phase("training")
    now.seconds += 10
    panel.record(record(60))
    panel.flush()
    assert "0:10 elapsed, 0:40 remaining" in drawn(panel, console)


def test_resumed_run_shows_what_came_before(now, tmp_path):
    lines = [
        record(update, train__mean_episode_return=update / 50, elapsed=update * 2.0)
        | ({"eval/return": update / 50, "eval/random_return": 0.0} if update in (1, 25) else {})
        for update in range(1, 51)
    ]
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps({"schema": 2, **line}) + "\n" for line in lines))
    resumed = dataclasses.replace(INFO, path=tmp_path, first_update=50)
    panel, console = sink(now)
    panel.start(resumed)
    panel.phase("training")
    now.seconds += 10
    panel.record(record(60, train__mean_episode_return=1.0))
    panel.flush()
    text = drawn(panel, console)
    assert "1:50 elapsed, 0:40 remaining" in text  # 100 s before
    assert "evaluated: return +0.50, random play +0.00" in text
    assert "return +1.00  ▁" in text and text.count("▁") < 40 and "█" in text
    log = ProgressLog(io.StringIO(), now)
    log.start(resumed)
    log.record(record(60))
    log.flush()
    assert "evaluated at" not in log._stream.getvalue()  # it was shown before


def test_return_stage_entropy_and_kl_are_shown_and_seeds_averaged(now):
    panel, console = sink(now)
    panel.start(INFO)
    panel.phase("training")
    for update in range(1, 5):
        for seed, value in ((0, update), (1, update + 2.0)):
            panel.record(record(update, seed, train__mean_episode_return=value, stats__highest_stage=3.0))
    panel.record(record(5, train__entropy=1.25, train__approx_kl=0.0123))
    panel.flush()
    text = drawn(panel, console)
    assert "return +5.00  ▁▃▆█" in text
    assert "stage 3" in text and "entropy 1.25" in text and "KL 0.0123" in text


def test_a_metric_without_data_is_not_shown_as_zero(now):
    panel, console = sink(now)
    panel.start(INFO)
    panel.phase("training")
    panel.record(record(1))
    panel.flush()
    text = drawn(panel, console)
    assert "no return yet: not every game has ended once" in text and "stage" not in text and "KL" not in text


@pytest.mark.parametrize("width", [40, 80])
def test_the_panel_shows_evaluations_before_a_training_game_has_ended(now, width):
    panel, console = sink(now, width)
    panel.start(INFO)
    panel.phase("training")
    for update, value in [(1, -3.5), (11, 2.0)]:
        panel.record({**record(update), "eval/return": value, "eval/random_return": -3.5})
        panel.flush()
    text = drawn(panel, console)
    assert "evaluated: return +2.00" in text and "no return yet" in text
    assert width < 80 or "evaluated: return +2.00, random play -3.50  ▁▁█" in text
    assert all(len(line) <= width for line in text.splitlines())


def test_the_return_covers_the_updates_that_the_longest_first_game_took():
    """Games of one policy: half win after 1 update, half lose after 4, and all environments start together."""
    returns = RecentReturn()
    for update, (mean, episodes) in enumerate([(None, 0), (None, 0), (None, 0), (0.5, 64), (1.0, 16), (1.0, 16)], 1):
        known = {} if mean is None else {"train__mean_episode_return": mean}
        returns.record(record(update, train__num_episodes=episodes, **known))
        assert len(returns.means) == max(update - 3, 0)
    assert returns.means == [0.5, (32 + 16) / 80, (32 + 32) / 96]  # single updates say 1.0 from update 5 on
    for update in range(7, 11):
        returns.record(record(update, train__num_episodes=8, train__mean_episode_return=-1.0))
    assert returns.means[-1] == -1.0  # after the policy changed, the returns follow


def lengths_decide(before: float, after: float, change: int, seed: int, limit: int = 48) -> tuple[Any, Any]:
    """Return the means of single updates and those of the panel, at every update from the first return on.

    256 environments start together: a success returns 1 after 2 to 12 steps, a failure 0 at the limit. Successes have
    the probability `before`, in episodes that begin before step `change`, or `after`. Updates of 8 steps have what the
    collector records: first episodes when all have ended, then the episodes that ended.
    """
    rng, width = np.random.default_rng(seed), 8
    ended = []
    for _ in range(256):
        at, first = 0, True
        while at < 960:
            won = rng.random() < (before if at < change else after)
            at += int(rng.integers(2, 13)) if won else limit
            ended.append((-(-at // width) * width, float(won), first))
            first = False
    held = max(at for at, _, first in ended if first)
    counted = [(max(at, held), won) for at, won, first in ended if first or at > held]
    returns, raw = RecentReturn(), {}
    for step in range(width, 960, width):
        wins = [won for at, won in counted if at == step]
        known = {"train__mean_episode_return": np.mean(wins)} if wins else {}
        returns.record(record(step // width, train__num_episodes=len(wins), **known))
        raw |= {step: np.mean(wins)} if wins else {}
    assert min(raw) == limit
    at = np.arange(limit, 960, width)
    return tuple(np.interp(at, list(raw), means) for means in (list(raw.values()), returns.means))


@pytest.mark.parametrize(("share", "bound"), [(0.1, 0.09), (0.2, 0.11), (0.5, 0.11), (0.9, 0.03)])
def test_the_return_has_little_bias_towards_short_or_long_episodes(share, bound):
    raw, shown = np.mean([lengths_decide(share, share, 0, seed) for seed in range(3)], 0)
    assert abs(raw[0] - share) < 0.05  # the first point has one game of each environment
    assert np.abs(shown - share).max() < bound < 0.75 * np.abs(raw - share).max()
    assert np.abs(shown[13:] - share).max() < 0.06  # from the third longest game on


def test_the_return_follows_when_the_policy_changes():
    _, shown = np.mean([lengths_decide(0.2, 0.8, 480, seed) for seed in range(3)], 0)
    assert np.abs(shown[:53] - 0.2).max() < 0.12
    assert np.abs(shown[67:] - 0.8).max() < 0.04


@pytest.mark.parametrize("width", [40, 80, 200])
def test_the_panel_fits(now, width):
    panel, console = sink(now, width)
    panel.start(INFO)
    panel.phase("training")
    now.seconds += 4000
    for update in range(1, 60):
        panel.record(record(update, train__mean_episode_return=-3.0 + update, train__steps_per_sec=31_234.5))
    panel.record(record(60, train__mean_episode_return=math.nan, train__entropy=1.2, train__approx_kl=0.01))
    panel.flush()
    lines = drawn(panel, console).splitlines()
    assert max(map(len, lines)) <= min(width, 84)
    assert len({len(line) for line in lines}) == 1 and len(lines) == 6


def test_panel_writes_nothing_without_a_terminal(now):
    panel, console = sink(now)
    panel.start(INFO)
    panel.phase("training")
    panel.record(record(1, train__mean_episode_return=1.0))
    panel.flush()
    panel.close("finished")
    assert console.file.getvalue() == ""


def test_last_state_stays_in_a_terminal(now):
    console = Console(file=io.StringIO(), width=80, force_terminal=True)
    panel = ConsoleSink(console, now)
    panel.start(INFO)
    panel.phase("training")
    panel.record(record(100, train__mean_episode_return=1.5))
    panel.warn("the disk is nearly full")
    panel.close("finished")
    text = console.file.getvalue()
    assert "finished" in text and "100%" in text and "warning: the disk is nearly full" in text


def test_json_lines_contain_unchanged_records():
    stream = io.StringIO()
    lines = JsonSink(stream)
    lines.start(INFO)
    lines.record(record(1, train__loss=0.5, train__kl=math.nan))
    lines.warn("careful")
    first, second, third = (json.loads(line) for line in stream.getvalue().splitlines())
    assert first["event"] == "start" and first["run"] == INFO.name and first["total_updates"] == 100
    assert second == {
        "schema": 1, "event": "update", "update": 1, "env_steps": 40_000, "seed": 0, "wall_time": 0.0,
        "train/loss": 0.5, "train/kl": None, "nonfinite": 1,
    }  # fmt: skip
    assert third == {"schema": 1, "event": "warning", "message": "careful"}


def test_closed_pipe_stops_the_run_cleanly(monkeypatch):
    class Gone(io.StringIO):
        def write(self, text: str) -> int:
            raise BrokenPipeError

    raised: list[int] = []
    monkeypatch.setattr(signal, "raise_signal", raised.append)
    lines = JsonSink(Gone())
    lines.record(record(1))
    lines.record(record(2))
    assert raised == [signal.SIGTERM] and lines.broken


def test_wins_are_counted_without_stages():
    facts = {"return_mean": 1.0, "return_interval": None, "return_median": 1.0, "length_interval": None}
    rows = [
        PolicyStats(policy=name, seed=None, episodes=8, unfinished=0, length_mean=9.0, wins=wins, **facts)
        for name, wins in (("random", 0), ("greedy", 5))
    ]
    shown = Console(file=io.StringIO(), width=80)
    print_document(Document("", (policies(rows, {}),)), shown)
    text = shown.file.getvalue()
    assert "wins" in text and "5/8" in text and "0/8" in text and "stage" not in text


def test_an_interval_that_rests_on_few_wins_says_so() -> None:
    rows = [
        PolicyStats(policy=policy, episodes=200, return_mean=1.0, wins=wins, win_rate_interval=wilson(wins, 200))
        for policy, wins in (("random", 0), ("greedy", 0), ("sampled", 2), ("search", 10))
    ]
    rests = "the return rests on {} wins in 200 episodes (win rate {} %), so its interval covers less than 95 %"
    assert [note.text for note in few_wins(rows, {"sampled": "trained"})] == [
        "greedy: no win in 200 episodes, so the return does not show rarer wins",
        f"trained: {rests.format(2, '0.3 to 3.6')}",
    ]


def test_few_wins_of_several_seeds_are_one_sentence() -> None:
    rows = [
        PolicyStats(
            policy="sampled", seed=seed, episodes=200, return_mean=1.0, wins=wins, win_rate_interval=wilson(wins, 200)
        )
        for seed, wins in enumerate((2, 0, 5, 40))
    ]
    assert [note.text for note in few_wins(rows, {"sampled": "trained"})] == [
        "trained: the returns of 3 seeds rest on 0 to 5 wins in 200 episodes, so their intervals cover less than 95 %"
    ]
    lost = [dataclasses.replace(row, wins=0, win_rate_interval=wilson(0, 200)) for row in rows]
    assert [note.text for note in few_wins(lost, {})] == [
        "sampled: no win in 200 episodes of each of 4 seeds, so the return does not show rarer wins"
    ]
