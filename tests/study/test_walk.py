"""A study in every state: its commands agree, name nothing best too early, and each printed step leads on."""

from __future__ import annotations

import dataclasses
import json
import re
import shlex
from pathlib import Path

import pytest
from made_studies import make_study, peak
from typer.testing import CliRunner, Result

import hmx
from hmx.cli.app import app
from hmx.config.fields import replace
from hmx.errors import HmxError
from hmx.records.atomic import write_text
from hmx.registry.load import Loaded
from hmx.render.quantities import interval
from hmx.study.create import new_study
from hmx.study.folder import read_study
from hmx.study.plan import first_rung, longest_episode, plan_of
from hmx.study.records import (
    CONFIRMED,
    PROPOSAL,
    Confirmation,
    RungResult,
    Trial,
    confirmation_folder,
    rung_file,
    trial_folder,
    write_once,
)  # fmt: skip
from hmx.study.request import SearchRequest
from hmx.study.space import with_values
from hmx.study.state import MOST_REFUSED, standing
from hmx.study.status import study_status
from hmx.study.worker import WorkStep, work
from tests.study.test_worker import TINY, StopAt

SPACE = ["algo.learning_rate=1e-4..1e-1:log"]
SHORT = {"env.max_steps": 100, "run.total_steps": 9 * 32, "run.num_seeds": 1}
pytestmark = pytest.mark.usefixtures("one_process")
PROMISES = re.compile(r"\bbest (trial|configuration)|\bbest:|\buse (the|its)\b", re.IGNORECASE)


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def run(line: str) -> Result:
    """Run a command line, as a hint prints it."""
    words = shlex.split(line)
    assert words[0] == "hmx", line
    return CliRunner().invoke(app, words[1:], prog_name="hmx", env={"COLUMNS": "1000"})


def follow(command: str) -> None:
    """Run each part of a printed step; none may be refused."""
    for line in command.split(" && "):
        done = run(line)
        assert done.exit_code == 0, (line, done.output)


def agree(folder: Path) -> str:
    """Check that all commands of a study say the same, and return its state."""
    now, name = standing(read_study(folder)), shlex.quote(str(folder))
    assert hmx.study_status(folder).standing == hmx.study_report(folder).standing == now
    texts = []
    for command in ("status", "report"):
        assert json.loads(run(f"hmx study {command} {name} --json").stdout)["standing"]["state"] == now.state
        texts.append(" ".join(run(f"hmx study {command} {name}").stdout.split()))
    run(f"hmx study report {name} --html page.html")
    texts.append(" ".join(Path("page.html").read_text().split()))
    best = run(f"hmx study best {name}")
    assert all(now.next.command in text.replace("&amp;", "&").replace("&#x27;", "'") for text in texts)
    taken = run(f"hmx study new {name} --preset tiny --space algo.gamma=0.9..0.99")
    assert taken.exit_code == 2
    assert all(now.next.command.removeprefix("hmx ").split(" && ")[0] in done.stderr for done in (best, taken))
    assert (now.choice is None) == (now.state != "finished")
    if now.choice is None:
        assert best.exit_code == 3 and now.reason in best.stderr
        assert not any(PROMISES.search(text) for text in texts), texts
        with pytest.raises(HmxError, match=r"best trial yet|has failed"):
            hmx.best_config(folder)
        assert not hmx.study_report(folder).finalists
    else:
        assert best.exit_code == 0 and f"{now.choice}, " in best.stdout
        assert hmx.study_report(folder).finalists[0].trial == now.choice
        assert with_values(read_study(folder).configs, read_study(folder).by_number[now.choice].values).algo == (
            hmx.best_config(folder).algo
        )
    return now.state


def interrupt(step: WorkStep) -> None:
    raise KeyboardInterrupt


def test_a_walk_through_a_study_whose_worker_is_killed_after_every_decision(tmp_path: Path) -> None:
    request = SearchRequest(trials=3, rungs=2, synchronous=True, sampler="random", confirm=2, confirm_top=1)
    folder = new_study(tmp_path / "lr", {"base": Loaded(TINY)}, SPACE, request).folder
    bill, states = plan_of(read_study(folder)), [agree(folder)]
    with pytest.raises(KeyboardInterrupt):  # within the first trial
        work(folder, sinks=lambda: [StopAt(1, KeyboardInterrupt())])
    states.append(agree(folder))
    while True:
        try:
            done = work(folder, tell=interrupt)
            break
        except KeyboardInterrupt:
            assert standing(read_study(folder)).next.command == f"hmx study work {folder}" or len(states) > 5
            states.append(agree(folder))
    assert list(dict.fromkeys(states)) == ["new", "searching", "confirming", "finished"]
    assert done.standing.confirmed and done.standing.state == states[-1]
    assert study_status(folder).steps_done == bill.search_steps + bill.confirm_steps
    follow(done.standing.next.command)
    follow("hmx train --config best.toml --dry-run")


def test_a_study_without_any_value_has_failed_and_its_next_step_cures_it(tmp_path: Path) -> None:
    base = replace(TINY, SHORT)
    request = SearchRequest(trials=2, rungs=3, confirm=0)
    folder = new_study(tmp_path / "lr", {"base": Loaded(base)}, SPACE, request).folder
    worked = run(f"hmx study work {folder} --quiet")
    now = standing(read_study(folder))
    assert agree(folder) == "failed"
    assert worked.exit_code == 4 and f"error: {folder} has failed: {now.reason}" in worked.stderr
    assert worked.stderr.rstrip().endswith(f"hint: {now.next.text}: {now.next.command}")
    assert "no episode ended in 8 steps per environment, at rung 0" in now.reason
    assert not study_status(folder).finished
    follow(now.next.command)
    longer = tmp_path / "lr-2"
    assert first_rung(read_study(longer)) is None
    follow(standing(read_study(longer)).next.command)
    assert agree(longer) == "finished"
    follow(standing(read_study(longer)).next.command)  # confirms
    assert agree(longer) == "finished" and standing(read_study(longer)).confirmed
    follow(standing(read_study(longer)).next.command)


def failed(folder: Path, what: str, trials: range = range(1, 7)) -> Path:
    """A study of six trials, of which some have failed."""
    make_study(folder, peak, trials=6)
    for number in trials:
        file = rung_file(trial_folder(folder, number), 0)
        file.unlink()
        write_once(file, RungResult(rung=0, update=3, env_steps=768, per_seed=(), objective=None, failed=what))
    return folder


def test_trials_that_all_failed_give_the_reason(tmp_path: Path) -> None:
    folder = failed(tmp_path / "s", "the loss is not finite")
    assert agree(folder) == "failed"
    now = standing(read_study(folder))
    assert now.reason == "no trial has a value of the objective: 6 of 6 failed: the loss is not finite"
    follow(now.next.command)


def test_some_failed_trials_leave_a_finished_study(tmp_path: Path) -> None:
    folder = failed(tmp_path / "s", "the loss is not finite", range(1, 5))
    assert agree(folder) == "finished" and standing(read_study(folder)).choice in (5, 6)


def test_equal_trials_are_ordered_by_number(tmp_path: Path) -> None:
    folder = make_study(tmp_path / "s", lambda values: 1.0, trials=3, confirm=2)
    assert agree(folder) == "finished" and standing(read_study(folder)).choice == 1


@pytest.mark.parametrize("confirm", [0, 1, 2])
def test_the_reason_says_what_fresh_seeds_have_shown(tmp_path: Path, confirm: int) -> None:
    """One confirmed trial is not the best of several."""
    now = standing(read_study(make_study(tmp_path / "s", peak, trials=4, confirm=confirm)))
    reason = (
        "leads the search; nothing is confirmed on fresh seeds",
        "leads the search, and no other trial ran on fresh seeds",
        "is the best on fresh seeds",
    )[confirm]
    assert now.reason == f"trial {now.choice} {reason}" and now.confirmed == (confirm > 0)


def test_a_rung_whose_results_are_equal_is_named_by_every_command(tmp_path: Path) -> None:
    make = dict(trials=9, rungs=(1 / 9, 1 / 3, 1.0), confirm=1)
    folder = make_study(tmp_path / "equal", lambda values: 1.0, **make)
    caution = standing(read_study(folder)).caution
    assert caution.startswith("all 9 results at rung 0 are equal, so the options did not decide which trials continued")
    for command in ("status", "report", "best"):
        assert caution in " ".join(run(f"hmx study {command} {folder}").stdout.split())
    assert agree(folder) == "finished"
    assert standing(read_study(make_study(tmp_path / "other", peak, **make))).caution == ""


def test_status_and_best_show_the_interval_of_the_fresh_seeds(tmp_path: Path) -> None:
    folder = make_study(tmp_path / "s", peak, trials=4, noise=1.0, confirm=2)
    (best, *_) = study_status(folder).leading
    assert best.confirmed_low < best.confirmed < best.confirmed_high
    found = hmx.study_report(folder).finalists[0].confirmed
    assert (found.low, found.high) == (best.confirmed_low, best.confirmed_high)
    text = interval(best.confirmed, best.confirmed_low, best.confirmed_high)
    assert all(text in run(f"hmx study {command} {folder}").stdout for command in ("status", "best"))


def test_best_replaces_no_other_configuration_without_force(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    make_study(tmp_path / "s", peak, trials=2)
    Path("best.toml").write_text("# my own\n")
    refused = run("hmx study best ./s --config best.toml")
    assert refused.exit_code == 2 and "best.toml is another configuration" in refused.stderr
    assert Path("best.toml").read_text() == "# my own\n"
    for command in ("hmx study best ./s --config best.toml --force", "hmx study best ./s --config best.toml"):
        assert run(command).exit_code == 0
        assert "gamma" in Path("best.toml").read_text()


def test_a_study_of_one_trial_is_used_without_fresh_seeds(tmp_path: Path) -> None:
    folder = make_study(tmp_path / "s", peak, trials=1)
    assert agree(folder) == "finished"
    follow(standing(read_study(folder)).next.command)


def test_the_best_on_fresh_seeds_comes_first_everywhere(tmp_path: Path) -> None:
    folder = make_study(tmp_path / "s", peak, trials=4, confirm=2)
    second = read_study(folder).ranked(0)[1]
    file = rung_file(confirmation_folder(folder, second.number), 0)
    file.unlink()
    write_once(file, RungResult(rung=0, update=1, env_steps=256, per_seed=(500.0,) * 10, objective=500.0))
    assert agree(folder) == "finished" and standing(read_study(folder)).choice == second.number
    assert study_status(folder).leading[0].trial == second.number


@pytest.mark.parametrize(("ended", "state"), [(0, "confirming"), (1, "confirming"), (2, "failed")])
def test_confirmations_that_failed_name_no_best(tmp_path: Path, ended: int, state: str) -> None:
    folder = make_study(tmp_path / "s", peak, trials=4)
    for place, trial in enumerate(read_study(folder).ranked(0)[:2]):
        where = confirmation_folder(folder, trial.number)
        write_once(where / CONFIRMED, Confirmation(trial=trial.number, seeds=(7, 8), seen="1-4"))
        if place < ended:
            lost = RungResult(rung=0, update=3, env_steps=9, per_seed=(), objective=None, failed="killed its worker")
            write_once(rung_file(where, 0), lost)
    assert agree(folder) == state
    assert standing(read_study(folder)).state != "failed" or "killed its worker" in standing(read_study(folder)).reason


@pytest.mark.parametrize(("count", "budget"), [(3, 3), (MOST_REFUSED, 400)])
def test_trials_that_were_all_refused_ask_for_no_worker(tmp_path: Path, count: int, budget: int) -> None:
    """The budget counts trials that are accepted; a point of a grid that is refused is not replaced."""
    space = ["ppo.num_minibatches=" + "|".join(str(3 + number) for number in range(budget))]
    folder = make_study(tmp_path / "s", peak, space=space, trials=0)
    settings = (folder / "study.1.toml").read_text().replace("trials = 0", f"trials = {budget}")
    write_text(folder / "study.1.toml", settings.replace('"random"', '"grid"'))
    for number in range(1, count + 1):
        write_once(trial_folder(folder, number) / PROPOSAL, Trial(
            number=number, values={"ppo.num_minibatches": 2 + number}, sampler="grid", revision=1, refused="no fit",
        ))  # fmt: skip
    assert agree(folder) == "failed"
    now = standing(read_study(folder))
    assert "no fit" in now.reason and "study work" not in now.next.command
    follow(now.next.command)


@pytest.mark.parametrize(
    ("env", "changes", "search", "expected"),
    [
        ("pendulum", {}, {}, "certain"),  # its episodes end only at the limit of 200 steps
        ("pendulum", {"env.max_steps": 8}, {}, "may"),  # one update, whose episodes are played before it
        ("corridor", {"env.max_steps": 100}, {}, "may"),  # the finding: an episode may end earlier
        ("corridor", {"env.max_steps": 100}, {"metric": "train/entropy", "minimize": True}, None),
        ("corridor", {"env.max_steps": 100, "env.action_repeat": 20}, {}, "may"),
        ("corridor", {"env.max_steps": 8}, {}, "may"),
        ("corridor", {"env.max_steps": 8, "run.total_steps": 10 * 32}, {}, None),  # two updates
        ("corridor", {"env.max_steps": 8}, {"measure": "steps_to", "threshold": 0.5}, "certain"),  # one update
        ("gymnasium/Unheard-v0", {"env.max_steps": 0}, {}, "may"),
    ],
)
def test_a_first_rung_too_short_for_a_value_is_refused_or_warned_of(
    tmp_path: Path, made, env: str, changes: dict[str, object], search: dict[str, object], expected: str | None
) -> None:
    base = replace(TINY, {"env.id": env, **changes})
    make = dict(folder=tmp_path / "s", configs={"base": Loaded(base)}, space=SPACE)
    objective = {"metric": "train/mean_episode_return", **search}
    objective = {key: value for key, value in objective.items() if key != "minimize"}
    study = dataclasses.replace(made.study(rungs=(1 / 9, 1 / 3, 1.0)), configs={"base": base})
    settings = dataclasses.replace(study.settings, objective=dataclasses.replace(study.settings.objective, **objective))
    short = first_rung(dataclasses.replace(study, history=(settings,)))
    assert {None: None, True: "certain", False: "may"}[short and short.certain] == expected
    if expected == "certain":
        with pytest.raises(
            HmxError, match="no trial can have a value: rung 0 trains 8 steps per environment"
        ) as refused:
            new_study(**make, request=SearchRequest(trials=9, **search))
        assert not (tmp_path / "s").exists()
        steps = int(re.search(r"--steps (\d+)", refused.value.hint)[1])
        make["configs"] = {"base": Loaded(replace(base, {"run.total_steps": steps}))}
        assert first_rung(new_study(**make, request=SearchRequest(trials=9, **search))) is None


def test_longest_episode_of_a_published_task_and_of_one_that_is_unknown() -> None:
    assert longest_episode(replace(TINY, {"env.id": "pendulum", "env.max_steps": 0}).env) == 200
    assert longest_episode(replace(TINY, {"env.id": "gymnasium/Unheard-v0", "env.max_steps": 0}).env) == 0


def test_a_grid_that_selects_nothing_confirms_nothing_and_the_bill_says_so(tmp_path: Path) -> None:
    new = (
        f"hmx study new {tmp_path}/g --env corridor --steps 6400 --seeds 3 --set env.num_envs=4 --set algo.num_steps=8 "
        "--space 'algo.gamma=0.9|0.95|0.99' --json"
    )
    asked = 3 * 3 * 6400
    dear = json.loads(run(new.replace("/g", "/dear") + " --confirm 10").stdout)
    assert (dear["search_steps"], dear["confirm_steps"], dear["confirmations"]) == (asked, 30 * 6400, 3)
    bill = json.loads(run(new).stdout)
    assert (bill["search_steps"], bill["confirm_steps"], bill["confirmations"], bill["trials"]) == (asked, 0, 0, 3)
    shown = run(new.replace("/g", "/h").removesuffix(" --json")).stdout
    assert "57.6k to search, 0 to confirm" in shown and "none; --confirm 10" in shown
    many = run(new.replace("/g", "/i").replace("0.9|", "0.5|0.6|0.7|0.8|0.9|")).stdout
    assert json.loads(many)["confirmations"] == 3
