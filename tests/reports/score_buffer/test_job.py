"""`hmx score-buffer`: known answers, and scores that depend on the request alone."""

from __future__ import annotations

import dataclasses
import json
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax.numpy as jnp
import lake
import numpy as np
import pytest
from lake_values import CELLS, optimal_values
from new_runs import train

from hmx.algos.policy_outputs import make_policy_outputs
from hmx.config import fields
from hmx.config.schema import Config
from hmx.envs.registry import make_env
from hmx.errors import ExitCode, HmxError
from hmx.records import score_file
from hmx.reports.score_buffer import run as runs
from hmx.reports.score_buffer.findings import ScoreFindings, check_gates
from hmx.reports.score_buffer.job import dry_run, score_buffer
from hmx.reports.score_buffer.measure import fresh_errors, replay_facts
from hmx.reports.score_buffer.request import ScoreRequest
from hmx.reports.score_buffer.source import open_agent
from hmx.runs import buffers
from hmx.runs.signals import StopNow

EXACT = ScoreRequest(policy="greedy", select="all", rollouts=1, horizon=200, collect=48, bootstrap=False)
# Random returns, so that every key matters, and values of truncated rollouts, so that rounding would show.
NOISY = ScoreRequest(select="all", rollouts=64, horizon=6, aggregate="policy", collect=48)


def table(folder: Path, name: str = "scores.npz") -> dict[str, np.ndarray]:
    return {name: buffers.loaded(column) for name, column in score_file.read(folder / name)[1].items()}


@pytest.fixture(scope="module", autouse=True)
def compiled_once() -> Iterator[None]:
    """Equal requests share a compiled program, whatever buffer they score."""
    compiled, programs = runs._compiled, {}

    def shared(task: Any, policy: Any, part: int, horizon: int) -> Any:
        key = repr((task.agent.cfg, task.options, task.policy, task.seed, part, horizon))
        if key not in programs:
            programs[key] = compiled(task, policy, part, horizon)
        return programs[key]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(runs, "_compiled", shared)
        yield


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two runs whose policies are the table of optimal values, and a buffer of all states for each."""
    place = tmp_path_factory.mktemp("lake")
    lake.make_run(place / "runs")
    lake.make_run(place / "slippery", id="frozenlake-slippery")
    lake.make_buffer(place / "all.npz")
    lake.make_buffer(place / "slippery.npz", id="frozenlake-slippery")
    return place


@pytest.fixture(scope="module")
def noisy(home: Path) -> Path:
    """The slippery states scored in one uninterrupted call."""
    out = home / "noisy"
    score_buffer(home / "slippery.npz", checkpoint=home / "slippery" / "lake", request=NOISY, out=out)
    return out


def score_noisy(home: Path, out: Path, **changes: Any) -> ScoreFindings:
    told = changes.pop("progress", lambda *args: None)
    request = dataclasses.replace(NOISY, **changes)
    run = home / "slippery" / "lake"
    return score_buffer(home / "slippery.npz", checkpoint=run, request=request, out=out, progress=told)


@pytest.mark.parametrize("horizon", [200, None])
def test_scores_are_the_gaps_of_the_optimal_values(home: Path, tmp_path: Path, horizon: int | None) -> None:
    """V*(start) = .99^13, and so on for all 53 states and 4 actions, to the last bit."""
    request = dataclasses.replace(EXACT, horizon=horizon)
    found = score_buffer(home / "all.npz", checkpoint=home / "runs" / "lake", request=request, out=tmp_path / "o")
    rows, values = table(tmp_path / "o"), optimal_values()[CELLS]
    assert sorted(rows["index"]) == list(range(53)) and list(rows["birth"]) == sorted(rows["birth"])
    values = values[rows["index"]]
    np.testing.assert_allclose(values.max(), 0.99**0, rtol=1e-6)
    gaps = np.abs(values - values.max(1, keepdims=True))
    by_action = np.zeros_like(values)
    np.put_along_axis(by_action, rows["action"][..., 0], rows["divergence"], 1)
    np.testing.assert_array_equal(by_action, gaps)
    np.testing.assert_allclose(rows["score"], gaps.sum(1) / 3, rtol=2e-7)
    np.testing.assert_allclose(rows["proxy"], gaps.sum(1) / 3, rtol=1e-6)  # exact values: one step tells it all
    np.testing.assert_array_equal(rows["spread"], gaps.max(1))
    np.testing.assert_array_equal(rows["bias"], 0.0)
    assert found.noise.null == 0.0 and found.rollouts.truncated_share == 0.0
    assert found.proxy.correlation.value == pytest.approx(1.0) and found.proxy.kind == "value gap"
    assert found.rollouts.horizon == (horizon or 15)
    best = found.top[0]
    assert (best.slot, best.taken, best.best) == (45, "down", "up")
    assert best.state["map"][6] == "FHFFH@HF"  # type: ignore[index]
    report = json.loads((tmp_path / "o" / "report.json").read_text())
    assert report["finding"] == found.finding and report["top"][0]["state"]["map"] == best.state["map"]


def test_scores_do_not_depend_on_order_or_on_other_positions(home: Path, noisy: Path, tmp_path: Path) -> None:
    whole = table(noisy)
    assert len(np.unique(whole["score"])) > 40
    some = np.random.default_rng(0).permutation(53)[:31]
    (tmp_path / "slots.txt").write_text("\n".join(map(str, some)))
    score_noisy(home, tmp_path / "some", indices=str(tmp_path / "slots.txt"))
    found = table(tmp_path / "some")
    np.testing.assert_array_equal(found["index"], some)
    place = np.argsort(whole["index"])[some]
    np.testing.assert_equal(found, {name: column[place] for name, column in whole.items()})
    score_noisy(home, tmp_path / "other", seed=5)
    assert (table(tmp_path / "other")["score"] != whole["score"]).mean() > 0.9


def test_interrupted_call_resumes_to_the_same_bits(home: Path, noisy: Path, tmp_path: Path) -> None:
    out, heard = tmp_path / "o", []

    def stop(phase: str, done: int, total: int) -> None:
        heard.append((phase, done))
        if phase == "scoring" and len([x for x in heard if x[0] == "scoring"]) == 3:
            signal.raise_signal(signal.SIGTERM)

    with pytest.raises(StopNow) as caught:
        score_noisy(home, out, progress=stop)
    assert caught.value.signum == signal.SIGTERM and "53 positions are saved" in caught.value.hint
    assert sorted(p.name for p in out.iterdir()) == ["unfinished.npz"]
    kept = len(table(out, "unfinished.npz")["index"])
    assert 0 < kept < 53
    heard.clear()
    result = score_noisy(home, out, progress=lambda phase, done, total: heard.append((phase, done)))
    assert ("compiling", kept) in heard
    np.testing.assert_equal(table(out), table(noisy))
    assert sorted(p.name for p in out.iterdir()) == ["report.json", "scores.npz"]
    # a third call computes nothing
    heard.clear()
    again = score_noisy(home, out, progress=lambda phase, done, total: heard.append((phase, done)))
    assert not [x for x in heard if x[0] in ("compiling", "scoring")]
    assert again.finding == result.finding and again.cost == result.cost


def refused(words: str, code: ExitCode, *args: Any, **kwargs: Any) -> None:
    with pytest.raises(HmxError) as caught:
        score_buffer(*args, **kwargs)
    assert words in caught.value.message + caught.value.hint, caught.value.message
    assert caught.value.exit_code == code and caught.value.hint


def test_impossible_requests_are_refused_before_playing(home: Path, tmp_path: Path) -> None:
    run, buffer, out = home / "runs" / "lake", home / "all.npz", tmp_path / "o"
    refused("was filled in frozenlake, but the policy plays frozenlake-slippery", ExitCode.ARTEFACT,
            buffer, checkpoint=home / "slippery" / "lake", request=EXACT, out=out)  # fmt: skip
    longer = lake.make_buffer(tmp_path / "longer.npz", max_steps=90)
    refused("env.max_steps = 90 in the buffer, 100 here", ExitCode.ARTEFACT, longer, checkpoint=run, out=out)
    whole = buffers.load(buffer)
    buffers.save(tmp_path / "bare.npz", dataclasses.replace(whole, env_states={}))
    refused("no environment states", ExitCode.ARTEFACT, tmp_path / "bare.npz", checkpoint=run, out=out)
    refused("a saved buffer has no policy", ExitCode.USAGE, buffer, out=out)
    refused("--checkpoint lake", ExitCode.USAGE, buffer, out=out)
    refused("it is for saved buffers", ExitCode.USAGE, run, checkpoint=run, out=out)
    refused("does not exist", ExitCode.ARTEFACT, tmp_path / "no.npz", checkpoint=run, out=out)
    by_policy = dataclasses.replace(EXACT, aggregate="policy")
    refused("needs probabilities of actions", ExitCode.USAGE, buffer, checkpoint=run, request=by_policy, out=out)
    refused("there is no agent 1", ExitCode.USAGE, run, request=ScoreRequest(agent=1), out=out)
    assert not out.exists()


def test_short_horizons_are_refused_unless_forced_or_bootstrapped(home: Path, tmp_path: Path) -> None:
    run, short = home / "runs" / "lake", dataclasses.replace(EXACT, horizon=4)
    refused("cannot score with a horizon of 4 steps", ExitCode.USAGE, home / "all.npz", checkpoint=run,
            request=short, out=tmp_path / "o")  # fmt: skip
    forced = dataclasses.replace(short, force=True)
    found = score_buffer(home / "all.npz", checkpoint=run, request=forced, out=tmp_path / "o")
    assert found.rollouts.horizon == 4 and found.rollouts.truncated_share > 0.5
    assert any("truncated by the horizon" in warning for warning in found.warnings)
    valued = dataclasses.replace(short, bootstrap=True)
    score_buffer(home / "all.npz", checkpoint=run, request=valued, out=tmp_path / "v")
    values = optimal_values()[CELLS]
    gaps = np.abs(values - values.max(1, keepdims=True)).sum(1) / 3
    rows = table(tmp_path / "v")
    np.testing.assert_allclose(rows["score"], gaps[rows["index"]], atol=1e-6)  # exact values make up for the horizon


def test_results_of_another_request_are_kept_without_force_and_corrected_ones_lack_their_bias(
    home: Path, noisy: Path, tmp_path: Path
) -> None:
    shutil.copytree(noisy, tmp_path / "o")
    before = (tmp_path / "o" / "scores.npz").read_bytes()
    with pytest.raises(HmxError, match="scores for other options"):
        score_noisy(home, tmp_path / "o", seed=9)
    (tmp_path / "o" / "scores.npz").write_bytes(before[:-300])
    with pytest.raises(HmxError, match="damaged") as caught:
        score_noisy(home, tmp_path / "o")
    assert caught.value.exit_code == ExitCode.ARTEFACT
    found = score_noisy(home, tmp_path / "o", force=True, correct=True)
    plain, corrected = table(noisy), table(tmp_path / "o")
    # two programs; sqrt(distance^2 - noise^2) magnifies what they round differently where both are alike
    apart = np.abs(corrected["score"] - (plain["score"] - plain["bias"]))
    assert np.quantile(apart, 0.9) <= 1e-7 and apart.max() <= 1e-5
    assert plain["bias"].mean() > 0.2 * plain["score"].mean() and found.options.corrected
    np.testing.assert_array_equal(corrected["c_w1"], plain["c_w1"])


def test_scores_are_written_back_only_to_existing_transitions(home: Path, tmp_path: Path) -> None:
    """While it is scored the buffer goes on being filled: the first ten slots have new transitions."""
    path = Path(shutil.copy(home / "slippery.npz", tmp_path / "b.npz"))
    old = buffers.load(path)

    def overwrite(phase: str, done: int, total: int) -> None:
        if phase == "scoring" and done == 0:
            birth = np.where(np.arange(53) < 10, old.birth + 1000, old.birth).astype(np.uint32)
            header = dataclasses.replace(old.header, num_added=2000)
            buffers.save(path, dataclasses.replace(old, birth=birth, header=header))

    request = dataclasses.replace(NOISY, write_back=True)
    run = home / "slippery" / "lake"
    found = score_buffer(path, checkpoint=run, request=request, progress=overwrite)
    assert found.out == tmp_path / "b.scores" and "10 of the transitions scored are no longer" in found.warnings[0]
    new, rows = buffers.load(found.out / "buffer.npz"), table(found.out)
    assert list(np.flatnonzero(~new.scored)) == list(range(10))
    there = rows["index"] >= 10
    np.testing.assert_array_equal(new.consequence_scores[rows["index"][there]], rows["score"][there])
    assert set(new.scored_at[10:]) == {2000} and set(new.scored_at[:10]) == {0}
    np.testing.assert_array_equal(new.td_errors, old.td_errors)
    # the newest births are not scored yet, and stale ones come first
    request = dataclasses.replace(NOISY, select="stale", positions=12)
    score_buffer(found.out / "buffer.npz", checkpoint=run, request=request, out=tmp_path / "stale")
    picked = table(tmp_path / "stale")["index"]
    assert set(range(10)) <= set(picked) and len(picked) == 12


def test_a_run_without_a_buffer_collects_positions(home: Path, tmp_path: Path) -> None:
    request = dataclasses.replace(NOISY, select="uniform", positions=20, write_back=True, target_coverage=0.5)
    found = score_buffer(home / "slippery" / "lake", request=request, out=tmp_path / "o")
    made = buffers.load(tmp_path / "o" / "buffer.npz")
    assert found.buffer.collected and made.header.size == 48 and made.scored.sum() == 20
    assert found.coverage.after == pytest.approx(20 / 48) and found.coverage.before == 0.0
    assert {gate.name: gate.passed for gate in found.gates}["coverage"] is False
    # the state before each step, and what came after: the next one of the same environment
    cells = made.items["obs_t"][:, 0].argmax(-1)
    np.testing.assert_array_equal(cells, made.env_states["core"])
    ended = made.items["terminated_tp1"] | made.items["truncated_tp1"]
    steps = made.env_states["steps"]
    np.testing.assert_array_equal(steps[16:], np.where(ended[:-16], 0, steps[:-16] + 1))
    # |r + gamma V(s') - V(s)| by the table
    value = optimal_values().max(1)
    following = np.where(ended[:-16], 0.0, value[cells[16:]])
    wanted = np.abs(made.items["reward_tp1"][:-16] + 0.99 * following - value[cells[:-16]])
    np.testing.assert_allclose(made.td_errors[:-16], wanted, atol=1e-6)
    # and once more from what was kept
    again = score_buffer(
        tmp_path / "o" / "buffer.npz", checkpoint=home / "slippery" / "lake", request=request, out=tmp_path / "again"
    )
    np.testing.assert_equal(table(tmp_path / "again"), table(tmp_path / "o"))
    assert again.coverage.before == pytest.approx(20 / 48)


def test_score_files_without_their_columns_are_refused(home: Path, noisy: Path, tmp_path: Path) -> None:
    """The file of an earlier call with the right request and seal, but not all columns."""
    header, columns = score_file.read(noisy / "scores.npz")
    (tmp_path / "o").mkdir()
    score_file.write(tmp_path / "o" / "scores.npz", header, {n: c for n, c in columns.items() if n != "halves"})
    with pytest.raises(HmxError, match="the column halves is missing") as caught:
        score_noisy(home, tmp_path / "o")
    assert caught.value.exit_code == ExitCode.ARTEFACT


def test_gates_refuse_noisy_scores(home: Path, noisy: Path) -> None:
    result = score_noisy(home, noisy)
    names = {gate.name: gate.passed for gate in result.gates}
    assert names == {"reliability": False, "null": False, "ties": True, "coverage": True}
    with pytest.raises(HmxError, match=r"null .* limit 0\.25") as caught:
        check_gates(result)
    assert caught.value.exit_code == ExitCode.CHECK_FAILED and "reliability 0" in caught.value.message
    check_gates(dataclasses.replace(result, gates=result.gates[2:]))


def test_dry_run_computes_the_cost(home: Path) -> None:
    plan = dry_run(home / "slippery.npz", checkpoint=home / "slippery" / "lake", request=NOISY)
    assert plan.env_steps == 53 * 5 * 64 * 6 and plan.positions == 53 and not plan.is_bound
    auto = dry_run(home / "runs" / "lake", request=ScoreRequest(positions=10))
    assert auto.horizon == 100 and auto.is_bound and auto.positions == 10 and auto.size == 4096
    assert auto.out == home / "runs" / "lake" / "reports" / "scores" and not auto.out.exists()
    with pytest.raises(HmxError, match="needs probabilities of actions"):
        dry_run(home / "runs" / "lake", request=ScoreRequest(policy="greedy", aggregate="policy"))


@pytest.mark.thorough
def test_buffer_of_a_q_learner_gives_the_same_scores_from_checkpoint_and_file(tmp_path: Path) -> None:
    """From its checkpoint, and from the file of `--save-buffer`: the same transitions, so the same scores."""
    cfg = fields.replace(
        Config(),
        {
            "run.name": "q", "run.root": str(tmp_path), "run.total_steps": 256, "run.eval_episodes": 0,
            "run.updates_per_chunk": 4, "env.id": "corridor", "env.num_envs": 4, "env.max_steps": 20,
            "net.hidden": (8,), "algo.name": "dqn", "algo.num_steps": 4, "replay.capacity": 128, "replay.save": True,
            "dqn.learn_starts": 32, "dqn.batch_size": 8,
        },
    )  # fmt: skip
    run = train(cfg).run
    request = ScoreRequest(select="all", rollouts=4)
    found = score_buffer(run, request=request, out=tmp_path / "a")
    assert found.proxy.kind == "Q-gap" and found.policy.kind == "greedy"
    assert found.options.team_reward == "sum" and not found.buffer.collected
    assert found.buffer.size == 128 and found.buffer.added == 256
    file = run / "reports" / "buffer.npz"
    score_buffer(file, checkpoint=run, request=request, out=tmp_path / "b")
    np.testing.assert_equal(table(tmp_path / "a"), table(tmp_path / "b"))
    # the gap of action values and the TD errors of today, from the network itself
    agent = open_agent(run, tmp_path, 0)
    buffer, rows = buffers.load(file), table(tmp_path / "a")
    slots = rows["index"]
    values = np.asarray(agent.network.outputs(agent.params, jnp.asarray(buffer.items["obs_t"])))[:, 0]
    taken = buffer.items["action_t"][:, 0]
    legal = buffer.items["legal_t"][:, 0]  # the corridor has two actions, of which one may not be
    gaps = np.where(legal, np.abs(np.take_along_axis(values, taken[:, None], 1) - values), 0.0).sum(1)
    np.testing.assert_allclose(rows["proxy"], gaps[slots], atol=1e-6)
    after = np.asarray(agent.network.outputs(agent.params, jnp.asarray(buffer.items["obs_tp1"])))[:, 0]
    after = np.where(buffer.items["legal_tp1"][:, 0], after, -np.inf).max(1)
    following = np.where(buffer.items["agent_done_tp1"][:, 0], 0.0, after)
    wanted = np.abs(buffer.items["reward_tp1"] + 0.99 * following - values[np.arange(128), taken])
    np.testing.assert_allclose(fresh_errors(agent, buffer, slots), wanted[slots], atol=1e-6)
    cut = {name: leaf for name, leaf in buffer.items.items() if name != "obs_tp1"}
    assert fresh_errors(agent, dataclasses.replace(buffer, items=cut), slots) is None


def test_recurrent_networks_are_refused() -> None:
    cfg = fields.replace(Config(), {"env.id": "corridor", "net.rnn": "gru"})
    with pytest.raises(HmxError, match="a recurrent network") as caught:
        make_policy_outputs(cfg, make_env(cfg.env, cfg.reward))
    assert "net.rnn = none" in caught.value.hint


def test_replay_of_a_buffer_has_the_requested_exponent_and_constant() -> None:
    errors = np.array([0.0, 0.25, 1.0, 3.0], np.float32)
    buffer: Any = SimpleNamespace(
        td_errors=errors, consequence_scores=np.zeros(4, np.float32), scored=np.zeros(4, bool)
    )
    facts = replay_facts(buffer, ScoreRequest(mixing="td", alpha_td=0.25, eps_td=0.5))
    probs = (errors + 0.5) ** 0.25 / ((errors + 0.5) ** 0.25).sum()
    np.testing.assert_allclose(facts.ess, 1 / (4 * np.square(probs).sum()), rtol=1e-5)
    np.testing.assert_allclose(facts.is_weight_max, 1 / (4 * probs[0]), rtol=1e-5)
