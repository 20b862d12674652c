"""Workers: their numbers change no result, and what goes wrong in one of them is named."""

from __future__ import annotations

import os
import subprocess
import sys
import time

import numpy as np
import pytest
from simulators.conftest import recipe

from hmx.errors import ExitCode, HmxError
from hmx.registry.workers import ALONE
from hmx.simulators.episode import unpack_state
from hmx.simulators.pool import SimulatorFailed, WorkerPool, child_environment, measure
from hmx.simulators.process import module_path, without_here
from hmx.simulators.spaces import Facts

STEPS = 20


def played(pool, steps=STEPS):
    """Play fixed actions: what every environment showed, step by step."""
    pool.reset()
    random, seen = np.random.default_rng(0), []
    for _ in range(steps):
        pool.at.action[:] = random.integers(2, size=pool.at.action.shape)
        for group in range(pool.plan.num_groups):
            pool.send(group)
        for group in range(pool.plan.num_groups):
            pool.wait(group)
        seen.append([array.copy() for array in pool.at])
    return [np.stack(arrays) for arrays in zip(*seen, strict=True)]


def processes(pool):
    return [process.process.pid for process in pool._processes]


def is_running(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_a_worker_reports_the_form_of_its_simulator():
    facts = measure(recipe(actions="parts", state=True), 60.0)
    limits = {"obs_low": (-20.0, -20.0), "obs_high": (20.0, 20.0)}
    assert facts == Facts((2,), "float32", (2, 3), 0, 0, True, "", **limits)


def test_results_do_not_depend_on_the_number_of_workers_and_groups(open_pool):
    one, two = played(open_pool(1, 4)), played(open_pool(4, 1, groups=2))
    assert all(np.array_equal(a, b) for a, b in zip(one, two, strict=True))


def test_an_end_shows_the_last_observation_and_starts_a_new_episode_in_the_same_step(open_pool):
    obs, final_obs, _, _, reward, terminated, truncated, number, steps, _ = played(open_pool(1, 2, ends="truncated"))
    assert truncated[6].all() and not truncated[:6].any() and not terminated.any()
    assert (final_obs[6, :, 1] == 7).all() and (obs[6, :, 1] == 0).all() and (obs[7, :, 1] == 1).all()
    assert np.allclose(reward[6], final_obs[6, :, 0])
    assert number[:8, 0].tolist() == [0] * 6 + [1, 1] and steps[:8, 0].tolist() == [1, 2, 3, 4, 5, 6, 0, 1]
    assert (obs[6, 0] != obs[13, 0]).any()  # every episode has a seed of its own


def test_workers_play_legal_actions_at_random_by_themselves(open_pool):
    pool = open_pool(2, 2, fault="masks", at=10**9)
    pool.reset()
    pool.play(5)
    assert pool.at.steps.tolist() == [5] * 4 and pool.at.action.any()
    pool.play(9)
    assert pool.at.number.tolist() == [2] * 4 and pool.at.steps.tolist() == [0] * 4


def test_masks_arrive_with_the_observation_that_they_belong_to(open_pool):
    obs, _, legal, *_ = played(open_pool(1, 1, fault="masks", at=10**9))
    assert (legal[:, 0, 0] == (obs[:, 0, 1] % 2 == 0)).all() and legal[:, 0, 1].all()


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        (
            "raise",
            r"(?s)cannot run walk: worker 1, environment 2: ValueError: the engine is broken\n.*walk_sim.py:\d+, in _b",
        ),
        ("die", r"cannot run walk: worker 1 \(environments 2 to 3\) was killed by signal 9"),
        ("leave a child", r"cannot run walk: worker 1 \(environments 2 to 3\) ended with exit code 3"),
        ("crash", r'(?s)was killed by signal 11\n  Fatal Python error.*walk_sim.py", line \d+ in _broken'),
        ("hang", r"cannot run walk: worker 1 \(environments 2 to 3\) has not answered for 0.5 s"),
        ("shape", r"environment 2: an observation has shape \(3,\); its space has \(2,\)"),
        ("no mask", r"environment 2: info\['action_mask'\] allows no action"),
    ],
)
def test_a_failure_names_worker_and_environment_and_leaves_no_process(open_pool, fault, words):
    pool = open_pool(2, 2, groups=2, fault=fault, at=4)
    pids = processes(pool)
    for process in pool._processes:
        process.limit(0.5 if fault in ("hang", "leave a child") else 60.0)
    pool._timeout = 0.5
    pool.reset()
    with pytest.raises(SimulatorFailed, match=words) as failed:
        for _ in range(9):
            pool.send(1)
            pool.wait(1)
    assert failed.value.exit_code == ExitCode.CHECK_FAILED
    assert not any(map(is_running, pids))


def test_of_a_long_error_the_first_and_last_lines_are_shown(open_pool):
    pool = open_pool(1, 1, fault="raise a long text")
    pool.reset()
    pool.send(0)
    words = r"(?s)ValueError: the first line\n.*\nthe last line\n.*in _broken"
    with pytest.raises(SimulatorFailed, match=words) as failed:
        pool.wait(0)
    assert "... 5,000,002 characters left out ..." in failed.value.message and len(failed.value.message) < 4000


def test_what_a_simulator_prints_is_kept_and_reported_once(open_pool, capfd):
    pool = open_pool(1, 1, fault="print")
    pool.reset()
    assert pool.printed() == (0, "hello from the simulator")
    assert pool.printed() is None
    assert capfd.readouterr() == ("", "")


def test_what_many_prints_add_up_to_is_dropped(open_pool, monkeypatch):
    monkeypatch.setattr("hmx.simulators.pool._MAX_PRINTED", 100)
    pool = open_pool(1, 1, fault="print")
    pool.reset()
    pool.printed()
    assert os.fstat(pool._processes[0].output.fileno()).st_size == len("hello from the simulator\n")
    for _ in range(4):
        pool.reset()
    pool.printed()
    assert os.fstat(pool._processes[0].output.fileno()).st_size == 0


def test_each_worker_has_one_thread_unless_the_user_says_otherwise(monkeypatch):
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setenv("MKL_NUM_THREADS", "3")
    environ = child_environment()
    assert (environ["OMP_NUM_THREADS"], environ["OPENBLAS_NUM_THREADS"], environ["MKL_NUM_THREADS"]) == ("1", "1", "3")


def test_states_are_in_the_order_of_environments(open_pool):
    pool = open_pool(2, 3, state=True)
    played(pool, 4)
    places = [unpack_state(state)["position"] for state in pool.states()]
    assert len(set(places)) == 6
    np.testing.assert_allclose(places, pool.at.obs[:, 0], rtol=1e-6)


def test_simulators_are_closed_with_the_pool(open_pool):
    pool = open_pool(1, 1, fault="print")
    output = os.dup(pool._processes[0].output.fileno())
    pool.close()
    assert os.pread(output, 100, 0) == b"closed\n"
    os.close(output)


def test_a_process_that_a_simulator_started_ends_with_its_worker(open_pool):
    pool = open_pool(1, 1, fault="process")
    pool.reset()
    started = int(pool.printed()[1])
    assert is_running(started)
    pool.close()
    while is_running(started):
        time.sleep(0.05)


TRAINER = """
import os, signal, sys
sys.path[:] = {path!r}
from simulators.conftest import recipe
from hmx.registry.workers import ALONE
from hmx.simulators.pool import WorkerPool, measure
made = recipe(fault={fault!r})
pool = WorkerPool(made, measure(made, 60.0), ALONE, seed=0, stream=0, timeout=60.0)
pool.reset()
pids = [pool._processes[0].process.pid]
if {fault!r} == "process":
    pids.append(int(pool.printed()[1]))
else:
    pool.send(0)
print(*pids, flush=True)
if {stopped}:
    os.kill(pids[0], signal.SIGSTOP)
if {forked} and os.fork() == 0:  # it holds all descriptors of this process open
    os.close(1)
    signal.pause()
os.kill(os.getpid(), 9)
"""


@pytest.mark.parametrize(
    ("fault", "stopped", "forked"),
    [
        ("loop in C", False, False),
        ("hang", True, False),
        ("process", False, False),
        ("process", True, False),
        ("loop in C", False, True),
    ],
)
def test_workers_and_what_they_started_end_with_a_killed_trainer(fault, stopped, forked):
    script = TRAINER.format(path=sys.path, fault=fault, stopped=stopped, forked=forked)
    with subprocess.Popen(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, text=True, start_new_session=True
    ) as trainer:
        pids = [*map(int, trainer.stdout.readline().split())]
        assert trainer.wait() == -9 and len(pids) == 1 + (fault == "process")
        while any(map(is_running, pids)):
            time.sleep(0.05)
        if forked:
            os.killpg(trainer.pid, 9)


def test_the_path_of_a_worker_has_the_current_folder_last_or_not_at_all(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    places = os.pathsep.join(["", "/opt/mine", ".", "src", os.curdir + os.sep, str(tmp_path)])
    kept = os.pathsep.join(["/opt/mine", "src", str(tmp_path)])
    assert without_here({"PYTHONPATH": places, "HOME": "/h"}) == {"PYTHONPATH": kept, "HOME": "/h"}
    assert without_here({"PYTHONPATH": "."}) == without_here({"PYTHONPATH": ""}) == {}
    for here in ("", ".", str(tmp_path)):
        monkeypatch.setattr(sys, "path", [here, "/opt/mine"])
        assert module_path(own_code=False) == (["/opt/mine"], str(tmp_path), False)
        assert module_path(own_code=True) == (["/opt/mine"], str(tmp_path), True)
    monkeypatch.setattr(sys, "path", ["/opt/mine"])
    assert module_path(own_code=True) == (["/opt/mine"], str(tmp_path), False)


def test_the_guard_of_a_pool_ends_with_it(open_pool):
    pool = open_pool(2, 1)
    guard = pool._guard._process
    assert guard.poll() is None
    pool.close()
    assert guard.poll() == 0


def test_a_second_instance_with_other_spaces_is_refused():
    made = recipe()
    facts = Facts((2,), "float32", (3,), 0, 0, False, "")
    with pytest.raises(HmxError, match=r"two instances of this simulator differ: action parts \(2,\) and \(3,\)"):
        WorkerPool(made, facts, ALONE, seed=0, stream=0, timeout=60.0)
