from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from new_runs import train

from hmx.algos.evaluate import Episodes
from hmx.config import fields
from hmx.config.schema import Config, EnvConfig, RewardWeights
from hmx.errors import ExitCode, HmxError
from hmx.jobs import evaluate as jobs
from hmx.jobs.evaluate import counted_weights, evaluate, make_player, side_by_side, summarise, unlike
from hmx.records.paths import RunPaths
from hmx.records.plain import plain
from hmx.reports.report.episodes import play_episodes
from hmx.reports.report.request import ReportRequest
from hmx.reports.summaries import composition, earned, undone

MakeConfig = Callable[..., Config]
pytestmark = pytest.mark.usefixtures("compiled_once")


def episodes(total: list[float], length: list[int], **info: list[float]) -> Episodes:
    terms = {"goal": np.array(total) + 1.0, "step_cost": -np.ones(len(total))}
    return Episodes(
        total=np.array(total),  # type: ignore[arg-type]
        terms=terms,  # type: ignore[arg-type]
        length=np.array(length),  # type: ignore[arg-type]
        finished=np.ones(len(total), bool),  # type: ignore[arg-type]
        info={k: np.array(v) for k, v in info.items()},  # type: ignore[misc]
    )


def test_summary_matches_a_hand_calculation() -> None:
    played = episodes(
        [-3.0, -1.0, 601.0, 1.0],
        [10, 20, 30, 40],
        highest_stage=[1.0, 1.0, 8.0, 2.0],
        wins=[0.0, 0.0, 1.0, 0.0],
        stages_completed=[0.0, 0.0, 8.0, 1.0],
        undo_stages=[0.0, 0.0, 1.0, 1.0],
        kills=[2.0, 0.0, 4.0, 2.0],
    )
    row = summarise("sampled", 0, played)
    assert (row.return_mean, row.return_median, row.length_mean) == (149.5, 0.0, 25.0)
    assert (row.stage_mean, row.stage_median, row.stage_max) == (3.0, 1.5, 8)
    assert row.stage_counts == {1: 2, 2: 1, 8: 1}
    assert row.wins == 1
    assert (row.stages_completed, row.undo_stages) == (2.25, 0.5)
    assert row.info["kills"] == 2.0
    assert row.reward_terms == {"goal": 150.5, "step_cost": -1.0}
    assert row.return_interval is not None
    assert row.return_interval.low <= 149.5 <= row.return_interval.high
    assert row.win_rate_interval is not None
    assert row.win_rate_interval.low < 0.25 < row.win_rate_interval.high
    data = json.loads(json.dumps(plain(row)))
    assert data["stage_counts"] == {"1": 2, "2": 1, "8": 1}
    assert data["return_interval"] == {"low": row.return_interval.low, "high": row.return_interval.high}


@pytest.mark.parametrize(
    ("costly", "episodes", "search", "expected"),
    [
        (False, 1000, None, 512),
        (False, 1000, 16, 125),
        (False, 200, 16, 64),
        (False, 9000, 16, 512),
        (True, 1000, None, 16),
    ],
)
def test_costly_resets_and_search_use_fewer_environments(
    costly: bool, episodes: int, search: int | None, expected: int
) -> None:
    spec = SimpleNamespace(costly_reset=costly, simulator=None)
    env: Any = SimpleNamespace(spec=spec)
    assert side_by_side(env, Config().env.num_envs, episodes, search is not None) == expected


def test_wins_without_a_stage_that_undo_brought_back_are_counted_and_shown() -> None:
    wins, stages = [1.0, 1.0, 1.0, 0.0, 0.0], [0.0, 2.0, 0.0, 0.0, 1.0]
    played = episodes([0.0] * 5, [9] * 5, wins=wins, stages_completed=[8.0, 8.0, 8.0, 1.0, 2.0], undo_stages=stages)
    row = summarise("search", 0, played)
    assert (row.wins, row.wins_without_undo) == (3, 2)
    (shown,) = undone([row], {"search": "trained"})
    stages_shown = "5.40 stages completed per episode, 0.60 of them on a board that UNDO brought back"
    assert shown.text == f"trained: {stages_shown}; wins without such a stage: 2/5"
    assert not list(undone([summarise("search", 0, episodes([0.0], [9], wins=[1.0]))], {}))


def test_return_is_shown_by_reward_term() -> None:
    rows = [summarise("greedy", seed, episodes([3.0 * seed] * 2, [9, 9])) for seed in (0, 1)]
    assert earned(rows) == {"greedy": "goal +2.50, step_cost -1.00 per episode"}
    many = {f"term{i}": float(i) for i in range(8)}
    assert composition(many) == "term7 +7.00, term6 +6.00, term5 +5.00, term4 +4.00, term3 +3.00, 2 others +3.00"
    assert composition({"reward": 0.0}) == "no reward"


def test_one_episode_has_no_interval() -> None:
    row = summarise("random", None, episodes([1.0], [3]))
    assert row.return_interval is None
    assert row.length_interval is None
    assert (row.stage_mean, row.wins, row.undo_stages, row.wins_without_undo) == (None, None, None, None)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    changes = {
        "run.name": "learned", "run.root": str(tmp_path_factory.mktemp("runs")), "run.total_steps": 60 * 256,
        "run.eval_episodes": 0, "run.updates_per_chunk": 20, "run.num_seeds": 2, "run.checkpoint_every": 1,
        "env.id": "corridor", "env.num_envs": 16, "env.max_steps": 50, "env.slip": 0.0, "net.kind": "mlp",
        "net.hidden": (16,), "net.activation": "tanh", "algo.num_steps": 16, "algo.learning_rate": 1e-2,
        "algo.lr_schedule": "constant", "ppo.value_target": "identity",
    }  # fmt: skip
    return train(fields.replace(Config(), changes)).run


def test_progress_counts_episodes_and_steps_within_a_policy(trained: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[str, int, int, float]] = []
    monkeypatch.setattr("hmx.jobs.evaluate._CHUNK", 0.0)  # report as often as possible
    evaluate(trained, episodes=512, policies=("random", "greedy"), progress=lambda *call: seen.append(call))
    assert seen[0][0].startswith("compiling") and seen[0][1:] == (0, 0)
    assert list(dict.fromkeys(call[0] for call in seen))[1:] == [
        "playing random", "playing greedy, seed 1 of 2", "playing greedy, seed 2 of 2",
    ]  # fmt: skip
    random = [call for call in seen if call[0] == "playing random"]
    ended = [done for _, done, _, _ in random]
    assert ended == sorted(ended) and ended[-1] == 512 and sum(0 < done < 512 for done in ended) > 0
    assert {total for _, _, total, _ in random} == {512}
    assert random[0][3] == 0.0 and all(rate > 0.0 for *_, rate in random[1:])


def test_policies_play_the_same_games(trained: Path) -> None:
    result = evaluate(trained, episodes=50, policies=("random", "sampled", "greedy"), seed=3)
    assert [(row.policy, row.seed) for row in result.policies] == [
        ("random", None), ("sampled", 0), ("sampled", 1), ("greedy", 0), ("greedy", 1),
    ]  # fmt: skip
    for row in result.policies:
        assert set(row.reward_terms) == {"goal", "step_cost"}
        assert sum(row.reward_terms.values()) == pytest.approx(row.return_mean, abs=1e-5)
    chance, *_, best = result.policies
    # seven steps to the right, each -0.01, and 1 at the end
    assert best.return_mean == pytest.approx(0.93, abs=1e-5)
    assert best.length_mean == 7.0
    assert chance.return_mean < 0.8
    assert (result.checkpoint, result.env_steps, result.episodes) == (60, 60 * 256, 50)
    assert result.warnings == ()
    assert evaluate(trained, episodes=50, policies=("random",), seed=3).policies[0] == chance
    assert evaluate(trained, episodes=50, policies=("random",), seed=4).policies[0] != chance


def test_evaluation_includes_search_and_the_greedy_policy(trained: Path) -> None:
    result = evaluate(trained, episodes=8, search=4)
    assert [(row.policy, row.seed) for row in result.policies] == [
        ("greedy", 0), ("greedy", 1), ("search", 0), ("search", 1),
    ]  # fmt: skip
    assert result.search == result.to_json()["search"] == 4
    assert all(row.return_mean == pytest.approx(0.93, abs=1e-5) for row in result.policies)


def test_run_trained_with_search_is_evaluated_with_search(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hmx.jobs.evaluate._SEARCHES", 4)  # environments, which share six episodes
    changes = {
        "run.name": "searched", "run.root": str(tmp_path), "run.total_steps": 512, "run.eval_episodes": 6,
        "env.id": "corridor", "env.num_envs": 16, "env.max_steps": 50, "env.slip": 0.6, "net.kind": "mlp",
        "net.hidden": (8,), "algo.name": "gumbel", "algo.num_steps": 16, "ppo.num_minibatches": 2,
        "ppo.update_epochs": 1, "gumbel.num_simulations": 3,
    }  # fmt: skip
    done = train(fields.replace(Config(), changes))
    assert [row.policy for row in done.evaluation] == ["random", "search"]
    result = evaluate(done.run, episodes=6)
    assert [row.policy for row in result.policies] == ["greedy", "search"] and result.search == 3
    assert result.policies[1] == done.evaluation[1]
    calls: list[tuple[Any, ...]] = []
    shown = play_episodes(
        RunPaths(tmp_path, "searched"), ReportRequest(), done.evaluation, lambda *call: calls.append(call)
    )
    assert np.mean(shown.returns) == pytest.approx(done.evaluation[1].return_mean, abs=1e-6)
    best, median, worst = (episode.total for episode in shown.shown)
    assert [worst, median, best] == pytest.approx([shown.returns[i] for i in (0, 2, 5)], abs=1e-6)
    assert {total for _, _, total in calls} == {6} and max(ended for _, ended, _ in calls) == 6


def test_an_older_checkpoint_can_be_chosen(trained: Path) -> None:
    assert evaluate(trained, episodes=5, policies=("greedy",), checkpoint=40).checkpoint == 40
    with pytest.raises(HmxError, match="there is no checkpoint") as caught:
        evaluate(trained, episodes=5, checkpoint=7)
    assert caught.value.exit_code == ExitCode.ARTEFACT
    assert "40, 60" in caught.value.hint


def test_changed_setting_applies_to_one_evaluation_only(trained: Path) -> None:
    short = evaluate(trained, episodes=5, policies=("random",), changes={"env.max_steps": "3"})
    assert short.changes == {"env.max_steps": 3}
    assert short.policies[0].length_mean == 3.0
    again = evaluate(trained, episodes=5, policies=("random",))
    assert again.changes == {}
    assert again.policies[0].length_mean is not None
    assert again.policies[0].length_mean > 3.0


@pytest.mark.parametrize("chosen", [RewardWeights(), RewardWeights(kills=3.0)], ids=["default", "changed"])
def test_returns_count_the_weights_of_the_evaluation_and_a_search_those_of_the_training(
    chosen: RewardWeights, monkeypatch: pytest.MonkeyPatch
) -> None:
    cfg = fields.replace(Config(), {"reward.kills": 9.0})
    spec = SimpleNamespace(simulator=None)
    session: Any = SimpleNamespace(cfg=cfg, env=SimpleNamespace(spec=spec), shared=None, lowered=None)
    played: list[object] = []
    monkeypatch.setattr(jobs, "make_env", lambda env, weights: weights)
    monkeypatch.setattr(jobs, "searched", lambda env, sees, search: env)
    monkeypatch.setattr(jobs, "_choices", lambda session, search, names: [session.env])
    monkeypatch.setattr(jobs, "_chunks", lambda env, num_envs, choices, *others: played.extend([env, *choices]))
    make_player(session, 4, weights=chosen)
    assert played == [chosen, session.env]
    make_player(session, 4, weights=cfg.reward)
    assert played[2:] == [session.env, session.env]
    assert unlike(cfg.reward, chosen) == {"reward.kills": 9.0}


def test_only_an_environment_that_reads_weights_is_evaluated_with_others() -> None:
    given = RewardWeights(kills=9.0, victory=2.0)
    assert counted_weights(EnvConfig(), given) == RewardWeights()
    assert counted_weights(EnvConfig(), given, ["reward.kills", "env.rules"]) == RewardWeights(kills=9.0)
    for other in ("corridor", "./game.py"):
        assert counted_weights(EnvConfig(id=other), given) is given


def test_players_of_shared_programs_differ_by_the_weights_they_count(monkeypatch: pytest.MonkeyPatch) -> None:
    spec, shared = SimpleNamespace(simulator=None), SimpleNamespace(players={})
    session: Any = SimpleNamespace(cfg=Config(), env=SimpleNamespace(spec=spec), shared=shared, lowered=None)
    monkeypatch.setattr(jobs, "make_env", lambda env, weights: weights)
    monkeypatch.setattr(jobs, "searched", lambda env, sees, search: env)
    monkeypatch.setattr(jobs, "_choices", lambda session, search, names: [])
    monkeypatch.setattr(jobs, "_chunks", lambda env, *others: env)
    for weights in (None, RewardWeights(kills=3.0), RewardWeights()):
        make_player(session, 4, weights=weights)
    assert list(shared.players.values()) == [session.env, RewardWeights(kills=3.0)]


def test_weights_that_an_evaluation_changes_count_in_its_returns(trained: Path) -> None:
    assert evaluate(trained, episodes=2, policies=["random"], changes={"reward.kills": 9.0}).trained_with == {}


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"changes": {"net.hidden": "8"}}, "net.hidden: 16 cannot become 8"),
        ({"episodes": 0}, "cannot play 0 episodes"),
        ({"policies": ("best",)}, "unknown policy: best"),
        ({"policies": ()}, "unknown policy: none given"),
        ({"policies": ("search",)}, "number of simulations missing"),
        ({"search": 0}, "cannot search with 0 simulations"),
    ],
)
def test_bad_requests_are_refused(given: dict[str, Any], words: str, trained: Path) -> None:
    with pytest.raises(HmxError, match=words) as caught:
        evaluate(trained, **given)
    assert caught.value.exit_code == ExitCode.USAGE


def test_damaged_checkpoint_is_skipped(make_config: MakeConfig) -> None:
    run = train(make_config(4, run__checkpoint_every=1)).run
    (run / "checkpoints" / "4" / "manifest.json").write_text("{")
    result = evaluate(run, episodes=4, policies=("sampled",))
    assert result.checkpoint == 2
    assert "checkpoint 4 is damaged" in result.warnings[0]
    assert (run / "checkpoints" / "4").is_dir(), "evaluation changes nothing"
    with pytest.raises(HmxError, match="is damaged"):
        evaluate(run, episodes=4, checkpoint=4)
