"""Progress without a terminal: which lines are written, and when."""

from __future__ import annotations

import dataclasses
import io
import queue
import textwrap
from pathlib import Path

import pytest

from hmx.cli import boundary
from hmx.config.schema import Config
from hmx.console.progress import Pace, ProgressLog, Reminder, progress_lines
from hmx.runs.sinks import RunInfo

INFO = RunInfo("first", Path("runs/first"), Config(), "", 0, 100, 1000, 1, "cpu")


def record(update: int, **metrics: float) -> dict[str, float]:
    return {"update": update, "env_steps": update * 1000, "seed": 0, "wall_time": 0.0, **metrics}


def test_progress_lines_appear_every_10_s_then_every_30_s(now):
    pace = Pace(now)
    due = []
    for second in range(0, 181):
        now.seconds = second
        if pace.due(0.0):
            due.append(second)
    assert due == [10, 20, 30, 40, 50, 80, 110, 140, 170]


@pytest.mark.parametrize(
    "words",
    [
        *("train --preset tiny", "resume x", "evaluate x", "report x", "grad-report x", "score-buffer x", "bench"),
        "watch x",
    ],
)
def test_first_line_is_written_before_jax_is_imported(shell, tmp_path, words):
    """The import takes more than a second."""
    script = """
        import sys
        class Refuse:
            def find_spec(name, *more):
                if name == "jax":
                    sys.exit("importing JAX")
        sys.meta_path.insert(0, Refuse)
        from hmx.__main__ import main
        main()
    """
    (tmp_path / "runs" / "x").mkdir(parents=True)
    lines = shell("-c", textwrap.dedent(script), *words.split()).stderr.splitlines()
    assert lines[0].startswith("starting") and lines[-1] == "importing JAX"


def test_compiling_shows_its_previous_duration(now):
    out = io.StringIO()
    log = ProgressLog(out, now)
    log.start(dataclasses.replace(INFO, compile_time="44 s last time"))
    log.phase("compiling")
    log.phase("training")
    assert out.getvalue().splitlines()[2:] == ["compiling (44 s last time) ...", "compiled in 0.0 s"]


def test_progress_line_appears_every_5_percent_but_not_within_10_s(now):
    pace = Pace(now)
    now.seconds = 100.0
    assert pace.due(0.5)
    now.seconds = 105.0
    assert not pace.due(0.9)
    now.seconds = 111.0
    assert not pace.due(0.54)
    assert pace.due(0.56)


def test_a_run_reports_its_folder_compiling_progress_and_end(now):
    out = io.StringIO()
    log = ProgressLog(out, now)
    log.start(dataclasses.replace(INFO, total_updates=8))
    log.phase("compiling")
    now.seconds = 16.0
    log.phase("training")
    now.seconds = 18.0
    metrics = {"train/mean_episode_return": 1.5, "train/steps_per_sec": 2000.0, "stats/highest_stage": 3.0}
    log.record(record(4, **metrics))
    log.flush()
    log.warn("a warning")
    log.record(record(8))
    log.flush()  # too early for another line
    log.close("finished")
    assert out.getvalue().splitlines() == [
        "run runs/first on cpu",
        "8 updates of 1,000 steps",
        "compiling ...",
        "compiled in 16.0 s",
        " 50%  4.00k/8.00k steps  2.00k steps/s  0:02 remaining  return +1.50  stage 3.0",
        "warning: a warning",
        "finished after 8.00k steps",
    ]


def test_a_run_without_finished_episodes_reports_no_return(now):
    out = io.StringIO()
    log = ProgressLog(out, now)
    log.start(INFO)
    now.seconds = 20.0
    log.record(record(1))
    log.flush()
    assert out.getvalue().splitlines()[-2:] == [
        "  1%  1.00k/100k steps  33:00 remaining", "no return yet: not every game has ended once"
    ]  # fmt: skip
    now.seconds = 40.0
    log.record(record(2))
    log.flush()
    assert out.getvalue().splitlines()[-1] == "  2%  2.00k/100k steps  32:40 remaining"  # the reason is given once


def test_a_line_keeps_the_last_return_where_no_episode_ended(now):
    out = io.StringIO()
    log = ProgressLog(out, now)
    log.start(INFO)
    log.record(record(1, **{"train/mean_episode_return": 2.5}))
    log.flush()
    now.seconds = 20.0
    log.record(record(2))
    log.flush()
    assert out.getvalue().splitlines()[-1].endswith("  return +2.50")


def test_control_characters_of_a_run_do_not_reach_the_terminal(now):
    out = io.StringIO()
    ProgressLog(out, now).warn("\x1b[2Jgone")
    assert "\x1b" not in out.getvalue()


def test_phases_of_a_report_are_named_once_and_then_timed(now):
    out = io.StringIO()
    reminder = Reminder(print)
    report = progress_lines(out, reminder, now)
    report("scoring", 0, 100)
    now.seconds = 5.0
    report("scoring", 10, 100)
    now.seconds = 10.0
    report("scoring", 50, 100)
    report("playing", 0, 0)
    now.seconds = 20.0
    report("playing", 1, 4, 2500.0)
    reminder.end()
    lines = ["scoring ...", "scoring:  50%  50/100  0:10 remaining", "playing ..."]
    assert out.getvalue().splitlines() == [*lines, "playing:  25%  1/4  2.50k steps/s  0:30 remaining"]


def test_a_silent_phase_is_named_again_until_it_ends():
    said = queue.Queue()
    reminder = Reminder(said.put, every=0.01)
    reminder.begin("compiling")
    assert [said.get(), said.get()] == ["still compiling (0:00)"] * 2
    reminder.begin("evaluating")
    while said.get() != "still evaluating (0:00)":
        pass
    reminder.end()


def test_stop_while_compiling_does_not_report_a_compile_time(now):
    out = io.StringIO()
    log = ProgressLog(out, now)
    log.start(INFO)
    log.phase("compiling")
    log.phase("stopping")
    assert out.getvalue().splitlines()[2:] == [
        "compiling ...",
        "stopping ... saves a checkpoint first; Ctrl-C again stops at once, without saving",
    ]


@pytest.mark.parametrize(
    ("program", "path", "expected"),
    [
        ("/somewhere/bin/hmx", None, "run /somewhere/bin/hmx resume a, not xhmx resume or hmx itself"),
        ("/somewhere/bin/hmx", "/usr/bin/hmx", "run hmx resume a, not xhmx resume or hmx itself"),
        ("/usr/lib/pytest/__main__.py", None, "run hmx resume a, not xhmx resume or hmx itself"),
    ],
)
def test_printed_commands_can_be_pasted(monkeypatch, program, path, expected):
    monkeypatch.setattr("sys.argv", [program])
    monkeypatch.setattr("shutil.which", lambda name: path)
    assert boundary.pasteable("run hmx resume a, not xhmx resume or hmx itself") == expected


def test_hint_has_the_installed_path_of_documents(monkeypatch, tmp_path):
    hint = "docs/python.md explains it; docs/gone.md does not"
    root = Path(boundary.__file__).parents[2]
    monkeypatch.chdir(root)
    assert boundary._findable(hint) == hint
    monkeypatch.chdir(tmp_path)
    assert boundary._findable(hint) == f"{root}/{hint}"
    installed = tmp_path / "share" / "doc" / "hmx" / "docs" / "gone.md"
    installed.parent.mkdir(parents=True)
    installed.touch()
    monkeypatch.setattr("sysconfig.get_path", lambda name: str(tmp_path))
    assert boundary._findable("docs/gone.md") == str(installed)


def test_each_evaluation_has_a_line_with_random_play(now):
    """Also before any training game has ended; two agents are averaged, and only the first one is announced."""
    out = io.StringIO()
    log = ProgressLog(out, now)
    log.start(dataclasses.replace(INFO, num_seeds=2))
    log.phase("training")
    for update, values in [(1, (-4.0, -3.0)), (11, (1.0, 2.0)), (12, ())]:
        log.phase("evaluating")
        log.phase("training")
        for seed, value in enumerate(values or (None, None)):
            measured = {} if value is None else {"eval/return": value, "eval/random_return": -3.5}
            log.record({**record(update, **measured), "seed": seed})
        log.flush()
    assert out.getvalue().splitlines()[2:] == [
        "evaluating ...",
        "evaluated at 0%: return -3.50, random play -3.50",
        "evaluated at 10%: return +1.50, random play -3.50",
    ]
