"""Runs on simulators: they resume bit for bit, and save what they have when a worker fails."""

from __future__ import annotations

import json
import shutil
import signal
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import walk_sim
from exported_policies import made_state
from new_runs import prepare, train

from hmx.envs.protocol import Quantity
from hmx.errors import ExitCode, HmxError
from hmx.jobs.evaluate import evaluate
from hmx.jobs.exported.agreement import measure
from hmx.jobs.exported.program import make_program
from hmx.jobs.fork import fork
from hmx.jobs.requests import ForkRequest
from hmx.jobs.resume import resume
from hmx.play.request import WatchRequest
from hmx.play.watch import watch
from hmx.records import meta as metas
from hmx.records.frozen import read_config
from hmx.records.paths import RunPaths
from hmx.registry import user_code
from hmx.reports.compute_config.job import compute_sizes
from hmx.reports.compute_config.request import SizesRequest
from hmx.reports.compute_config.source import read_source
from hmx.reports.report.job import run_report
from hmx.reports.report.request import ReportRequest
from hmx.runs import checkpoint
from hmx.runs.hosted import Host, _check_finite, _Rollout, limits_of, outside
from hmx.runs.restoring import restore
from hmx.runs.session import open_session
from hmx.simulators.episode import TRAINING, episode_seed
from hmx.simulators.pool import SimulatorFailed

pytestmark = pytest.mark.usefixtures("compiled_once")
WALK = str(Path(__file__).parents[1] / "walk_sim.py")
CLOCK = {"elapsed", "wall_time", "train/steps_per_sec", "train/steps_per_cpu_sec", "run"}
UPDATES = 4  # of 8 steps in 4 environments, with a checkpoint after 2 and at the end


def config(new_config, root, more=(), **options):
    """Make the configuration of a run on the walk, with options of the simulator."""
    user_code.allow(WALK, "env.id")
    own = {f"env.my.{key}": value for key, value in options.items()}
    settings = {"env__id": WALK, "env__max_steps": 0, "run__name": "walk", "run__root": str(root), **dict(more)}
    return new_config(UPDATES, run__updates_per_chunk=1, run__checkpoint_every=2, **settings, **own)


def killed(run, name):
    """Copy a run as if it had been killed after the checkpoint of update 2."""
    copy = run.parent / name / run.name
    shutil.copytree(run, copy)
    shutil.rmtree(copy / "checkpoints" / str(UPDATES))
    shutil.copy(copy / "checkpoints" / "2" / "meta.json", copy / "meta.json")
    return copy


def state_of(run):
    paths = RunPaths(run.parent, run.name)
    return restore(open_session(read_config(paths)), paths).state


def test_reference_policy_reads_what_simulators_show(new_config, tmp_path):
    """A recurrent one, with its own RNN carry from rollout to rollout: a policy that does not learn equals it."""
    rnn = {"net__rnn": "gru", "net__rnn_hidden": 4}
    train(config(new_config, tmp_path, {**rnn, "algo__learning_rate": 0.1}))  # far enough for the carry to matter
    more = {"run__name": "near", "run__init_from": "walk", "ppo__ref": "walk", "ppo__ref_kl_coef": 0.5}
    run = train(config(new_config, tmp_path, {**rnn, **more, "algo__learning_rate": 0.0})).run
    found = [json.loads(line)["train/ref_kl"] for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert len(found) == UPDATES and max(map(abs, found)) < 1e-7
    cut = killed(run, "again")
    shutil.rmtree(tmp_path / "walk")
    resume(cut)
    one, other = (jax.tree.leaves(state_of(path)) for path in (run, cut))
    assert all(
        np.array_equal(*(np.asarray(checkpoint.as_data(leaf)) for leaf in pair))
        for pair in zip(one, other, strict=True)
    )


def records_of(run):
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [{key: value for key, value in line.items() if key not in CLOCK} for line in lines if "update" in line]


def same(one, other):
    leaves = zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True)
    plain = (
        (jax.random.key_data(a), jax.random.key_data(b)) if a.dtype == one.key.dtype else (a, b) for a, b in leaves
    )
    return all(np.array_equal(np.asarray(a), np.asarray(b)) for a, b in plain)


@pytest.fixture(scope="module")
def whole(new_config, tmp_path_factory):
    """A finished run whose episodes are replayed when it resumes."""
    return train(config(new_config, tmp_path_factory.mktemp("runs"), length=11)).run


def check_exact(run, name="killed"):
    resumed = resume(killed(run, name))
    assert (resumed.first_update, resumed.warnings) == (2, ())
    assert max(record["train/first_ratio_error"] for record in records_of(run)) < 1e-5
    assert records_of(resumed.run) == records_of(run)
    assert same(state_of(resumed.run), state_of(run))


def test_a_run_that_replays_its_episodes_ends_in_the_same_bits(whole):
    check_exact(whole)


RECURRENT = {"net__rnn": "gru", "net__rnn_hidden": 4, "ppo__bptt_horizon": 4, "ppo__obs_norm": "network"}


@pytest.mark.parametrize(
    ("more", "options"),
    [
        ({"env__async_factor": 1}, {"actions": "parts", "state": True}),
        (RECURRENT, {"actions": "box", "ends": "truncated"}),
    ],
    ids=["by its own state, actions of two parts", "recurrent, continuous, truncated"],
)
def test_other_simulators_and_networks_resume_to_the_same_bits(new_config, tmp_path, more, options):
    check_exact(train(config(new_config, tmp_path, more, **options)).run)


def test_rollouts_are_what_the_simulators_show_and_what_the_policy_computes(new_config, tmp_path, monkeypatch):
    """Every number again, from walks and calls of our own: truncated episodes, an RNN carry, two groups."""
    kept, collect = [], Host.collect

    def recorded(host, state):
        seen = collect(host, state)
        kept.append((jax.tree.map(jnp.copy, state), seen))
        return seen

    monkeypatch.setattr(Host, "collect", recorded)
    groups = {"env__num_workers": 2, "env__async_factor": 2}
    more = {"net__rnn": "gru", "net__rnn_hidden": 4, "ppo__bptt_horizon": 4, **groups}
    cfg = config(new_config, tmp_path, more, ends="truncated")
    train(cfg)
    act = jax.jit(open_session(cfg).algorithm.act, static_argnums=6)
    same = partial(np.testing.assert_allclose, rtol=1e-4, atol=1e-6)
    walks = [walk_sim.make(walk_sim.Options(ends="truncated")) for _ in range(4)]
    episodes = [0] * 4

    def begin(i):
        return walks[i].reset(seed=episode_seed(cfg.run.seed, TRAINING, i, episodes[i]))[0]

    shown, reset = np.stack([begin(i) for i in range(4)]), np.ones(4, bool)
    carry = kept[0][0].actors.carry
    assert len(kept) == UPDATES
    for state, seen in kept:
        steps = jax.tree.map(np.asarray, seen.transitions)
        for t in range(8):
            if t % 4 == 0:
                jax.tree.map(lambda stored, now, at=t // 4: same(stored[at], now), seen.carry, carry)
            np.testing.assert_array_equal(steps.obs_t[t, :, 0], shown)
            np.testing.assert_array_equal(steps.reset_t[t], reset)
            given = steps.obs_t[t], steps.legal_t[t], steps.reset_t[t], jax.random.key(0)
            decision, carry = act(state, carry, *given, False)
            same(steps.value_t[t], decision.value)
            chosen = np.take_along_axis(np.asarray(decision.probs), steps.action_t[t][..., None], -1)[..., 0]
            same(steps.log_prob_t[t], np.log(chosen))
            after = [walk.step(action) for walk, action in zip(walks, steps.action_t[t, :, 0], strict=True)]
            final, rewards, terminated, truncated = (np.array(column) for column in list(zip(*after, strict=True))[:4])
            np.testing.assert_array_equal(steps.reward_tp1[t, :, 0], rewards.astype(np.float32))
            np.testing.assert_array_equal(steps.terminated_tp1[t, :, 0], terminated)
            np.testing.assert_array_equal(steps.truncated_tp1[t, :, 0], truncated)
            at_end = act(state, carry, final[:, None], steps.legal_t[t], np.zeros(4, bool), jax.random.key(0), False)
            same(steps.value_final_tp1[t, :, 0], np.where(truncated, at_end[0].value[:, 0], 0.0))
            reset = terminated | truncated
            episodes = [number + bool(over) for number, over in zip(episodes, reset, strict=True)]
            shown = np.stack([begin(i) if reset[i] else final[i] for i in range(4)])
        np.testing.assert_array_equal(seen.obs_last[:, 0], shown)
        jax.tree.map(same, seen.carry_last, carry)
    assert min(episodes) == UPDATES * 8 // 7
    first, second = np.split(np.asarray(kept[0][1].action_t), 2, axis=1)
    assert (first != second).any()  # groups draw their own random numbers


@pytest.mark.slow
def test_a_search_in_copies_of_a_simulator_resumes_to_the_same_bits(new_config, tmp_path):
    search = {"algo__name": "gumbel", "gumbel__num_simulations": 2, "env__num_workers": 2}
    run = train(config(new_config, tmp_path, search, state=True)).run
    resumed = resume(killed(run, "killed"))
    assert records_of(resumed.run) == records_of(run) and same(state_of(resumed.run), state_of(run))


def test_a_simulator_that_is_not_deterministic_resumes_with_new_episodes_and_a_warning(
    new_config, tmp_path, monkeypatch
):
    run = train(config(new_config, tmp_path, fault="random")).run
    begun, rewards, collect = [], [], Host.collect

    def recorded(host, state):
        begun.append(np.asarray(state.actors.reset))
        seen = collect(host, state)
        rewards.append(np.array(seen.transitions.reward_tp1))
        return seen

    monkeypatch.setattr(Host, "collect", recorded)
    done = resume(killed(run, "killed"))
    assert done.state == "finished"
    (note,) = [text for text in done.warnings if "4 of 4 running episodes could not be replayed" in text]
    assert metas.read(done.run / "meta.json").resumes[-1].notes == (note,)
    assert begun[0].all() and not begun[1].all()
    first, second = records_of(done.run)[2:]
    assert first["train/mean_episode_length"] == second["train/mean_episode_length"] == 7.0
    assert first["train/mean_episode_return"] == pytest.approx(rewards[0][:7].sum(0).mean(), rel=1e-5)
    (facts,) = run_report(ReportRequest(runs=(str(done.run),))).runs
    assert note in facts.warnings


def test_a_signal_within_a_rollout_leaves_the_episodes_before_it(new_config, tmp_path, monkeypatch):
    """Of simulators that offer their state: it is not of the update that counts, so the episodes are replayed."""
    cfg = config(new_config, tmp_path, length=11, state=True)
    whole = train(config(new_config, tmp_path / "whole", length=11, state=True)).run
    act = _Rollout.act

    def signalled(rollout, t, group):
        if (rollout.acting_update, t, group) == (3, 4, 0):
            signal.raise_signal(signal.SIGTERM)
        act(rollout, t, group)

    def updating(host, state):
        monkeypatch.setattr(_Rollout, "acting_update", int(state.update), raising=False)
        return collect(host, state)

    collect = Host.collect
    monkeypatch.setattr(Host, "collect", updating)
    monkeypatch.setattr(_Rollout, "act", signalled)
    stopped = train(cfg)
    assert (stopped.state, stopped.updates) == ("interrupted", 3)
    monkeypatch.undo()
    resumed = resume(stopped.run)
    assert (resumed.first_update, resumed.warnings) == (3, ())
    assert records_of(resumed.run) == records_of(whole) and same(state_of(resumed.run), state_of(whole))


def test_an_update_that_is_not_finite_leaves_the_episodes_before_it(new_config, tmp_path, monkeypatch, whole):
    collect = Host.collect

    def spoilt(host, state):
        seen = collect(host, state)
        if int(state.update) == 3:  # the newest checkpoint is of update 2
            seen.transitions.reward_tp1[3, 1] = np.nan
        return seen

    with monkeypatch.context() as patch, pytest.raises(HmxError, match=r"update 4: .* not finite"):
        patch.setattr(Host, "collect", spoilt)
        train(config(new_config, tmp_path, length=11))
    resumed = resume(tmp_path / "walk")
    assert resumed.warnings == () and records_of(resumed.run) == records_of(whole)
    assert same(state_of(resumed.run), state_of(whole))


def test_a_run_whose_simulator_fails_is_saved_and_can_be_resumed(new_config, tmp_path):
    with pytest.raises(SimulatorFailed, match="killed by signal 9") as failed:
        train(config(new_config, tmp_path, fault="die", at=20))  # in the third update
    assert failed.value.exit_code == ExitCode.CHECK_FAILED and "hmx resume" in failed.value.hint
    assert [record["update"] for record in records_of(tmp_path / "walk")] == [1, 2]
    assert resume(tmp_path / "walk").state == "finished"  # the fault counts the steps of a process


def test_numbers_that_are_not_finite_are_refused_with_environment_and_step():
    pool = SimpleNamespace(recipe=SimpleNamespace(env_id="walk"))
    steps = SimpleNamespace(reward_tp1=np.zeros((4, 3, 1)), obs_t=np.zeros((4, 3, 1, 2)))
    good = SimpleNamespace(transitions=steps, obs_last=np.zeros((3, 1, 2)))
    _check_finite(pool, good)
    steps.obs_t[2, 1, 0, 1] = np.inf
    with pytest.raises(SimulatorFailed, match="the observation of environment 1 is not finite at step 3 of this"):
        _check_finite(pool, good)


def test_the_first_number_outside_its_limits_is_described():
    limits = limits_of(SimpleNamespace(obs_low=(-1.0, -np.inf), obs_high=(1.0, np.inf)))
    obs_t = np.full((4, 3, 1, 2), 0.9, np.float32)
    obs_t[..., 1] = 1e9
    assert outside(obs_t, limits) is None
    obs_t[2, 1, 0, 0] = -1.5
    assert outside(obs_t, limits) == "number 0 is -1.5, not in [-1, 1], in environment 1"
    assert limits_of(SimpleNamespace(obs_low=(-np.inf,), obs_high=(np.inf,))) is None
    assert limits_of(SimpleNamespace(obs_low=(), obs_high=())) is None  # an image


def test_a_run_warns_once_of_observations_outside_their_space(new_config, tmp_path):
    done = train(config(new_config, tmp_path, fault="outside", at=3))
    (warning,) = [text for text in done.warnings if "outside its space" in text]
    assert "number 0 is " in warning and "not in [-20, 20], in environment 0" in warning


def test_a_fork_continues_the_episodes(whole):
    forked = fork(whole, ForkRequest(at=2, name="forked"))
    assert forked.warnings == () and records_of(forked.run) == records_of(whole)


def test_damaged_episodes_are_named(whole):
    run = killed(whole, "damaged")
    file = run / "checkpoints" / "2" / "episodes.npz"
    file.write_bytes(file.read_bytes()[:-8])
    with pytest.raises(HmxError, match=r"episodes.npz"):
        resume(run)


def test_evaluation_plays_whole_episodes_from_the_same_positions(whole):
    one, other = (evaluate(whole, episodes=6, policies=["sampled"]).policies[0] for _ in range(2))
    assert (one.episodes, one.length_mean, one.unfinished) == (6, 11.0, 0)
    assert one.return_mean == other.return_mean
    for search in (partial(evaluate, search=4), lambda run: watch(run, WatchRequest(search=4))):
        with pytest.raises(HmxError, match=r"a search needs: it has no get_state and set_state"):
            search(whole)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"algo__name": "dqn"}, "which dqn needs: it has no get_state and set_state"),
        ({"run__grad_report_every": 2}, "which run.grad_report_every needs: it has no get_state and set_state"),
        ({"run__num_seeds": 2}, "a simulator trains one agent per run"),
        ({"env__num_workers": 8}, "more workers than environments: 8 > 4"),
        ({"env__num_workers": 3}, "3 workers do not divide 4 environments"),
        ({"env__num_workers": 1, "env__async_factor": 2}, "2 groups do not divide 1 workers"),
        ({"env__num_workers": 2, "env__envs_per_worker": 3}, "4 environments are not 2 workers x 3 environments"),
        ({"ppo__obs_norm": "env"}, "steps outside the compiled update"),
        ({"env__action_repeat": 2}, "repeats actions itself"),
    ],
)
def test_what_a_simulator_rules_out_is_refused(new_config, tmp_path, changes, words):
    with pytest.raises(HmxError, match=words):
        prepare(config(new_config, tmp_path, more=changes))


def test_a_part_for_the_critic_separates_the_networks_and_is_not_exported(new_config, tmp_path):
    cfg = config(new_config, tmp_path, more={"net__shared_torso": True}, obs="parts")
    session = prepare(cfg, origins={"net.shared_torso": "default"})
    assert not session.cfg.net.shared_torso
    with pytest.raises(HmxError, match="numbers that only the value network reads, so it needs a separate one"):
        prepare(cfg, origins={"net.shared_torso": "--set"})
    params = session.abstract.params
    assert params["torso"]["dense_0"]["kernel"].shape[0] == 2  # policy, time
    assert params["value_torso"]["dense_0"]["kernel"].shape[0] == 3  # time, critic
    program = make_program(session, made_state(session))
    obs, *_ = program.inputs
    assert [number.name for number in obs.quantities] == ["policy[0]", "time[0]"] and obs.shape == (2,)
    assert [port.name for port in program.outputs] == ["action", "probs"]
    measure(program, jax.jit(program.call), None).check()


@pytest.mark.parametrize("actions", ["box", "parts"])
def test_the_policy_of_a_simulator_is_exported_with_the_limits_of_its_actions(new_config, tmp_path, actions):
    session = open_session(config(new_config, tmp_path, actions=actions))
    program = make_program(session, made_state(session))
    measure(program, jax.jit(program.call), None).check()
    action = program.outputs[0]
    if actions == "box":
        assert action.quantities == (Quantity("action_0", "", -2.0, 4.0),)
        return
    assert (action.shape, action.parts, action.low, action.high) == ((2,), (2, 3), 0.0, 2.0)
    obs, mask = np.zeros((1, 2), np.float32), np.array([[True, False, False, False, True]])
    assert np.asarray(program.call(obs, mask)[0]).tolist() == [[0, 2]]


@pytest.mark.parametrize(
    "more",
    [{"env__num_envs": 8, "env__num_workers": 4}, {"env__num_envs": 3, "env__num_workers": 3}],
    ids=["two", "one"],
)
def test_computed_sizes_are_the_processes_and_forward_passes_of_the_run(new_config, tmp_path, monkeypatch, more):
    """Workers are counted as child processes, and groups and environments as calls of the policy and their rows."""
    workers, rows, begin = set[int](), list[int](), Host.begin
    before = children()

    def counted(host, *state):
        workers.update(children() - before)
        decide = host.decide

        def recorded(*given):
            rows.append(len(given[2]))  # observations `[E, A, ...]` of one group
            return decide(*given)

        host.decide = recorded
        return begin(host, *state)

    monkeypatch.setattr(Host, "begin", counted)
    run = train(config(new_config, tmp_path, more)).run
    sizes = compute_sizes(read_source(run=run), {}, SizesRequest())
    derived, steps = sizes.derived, sizes.train.num_updates * 8
    assert sizes.valid and sizes.workers and sizes.input["num_workers"] == len(workers) == more["env__num_workers"]
    assert sizes.input["async_factor"] == len(rows) / steps and set(rows) == {derived["batch_size_envs"]}
    assert derived["num_envs"] == more["env__num_envs"] == len(workers) * derived["envs_per_worker"]
    assert sizes.input["forward_pass_minibatch_target_size"] == derived["agents_per_forward"] == rows[0]


def children() -> set[int]:
    """Return the running children of this process that step simulators, which leaves out the guard of a pool."""
    files = Path("/proc/self/task").glob("*/children")
    numbers = {int(number) for file in files for number in file.read_text().split()}
    return {number for number in numbers if "simulators/boot.py" in Path(f"/proc/{number}/cmdline").read_text()}
