"""One game at a time: the frames that watching and playing are made of."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from hmx.algos.evaluate import random_policy
from hmx.algos.types import Decision
from hmx.config.schema import EnvConfig, RewardWeights
from hmx.envs.hackmatrix.rules.scenario import to_dict
from hmx.envs.hackmatrix.rules.tables import ACTION_NAMES, PROGRAMS, SIPHON
from hmx.errors import ExitCode, HmxError
from hmx.play import simulator
from hmx.play.frames import Frame, FramePolicy, frame_policy
from hmx.play.saved_games import read as read_game
from hmx.play.saved_games import replayed, save, saved_game
from hmx.play.scenario import read_scenario
from hmx.play.simulator import Simulator

MAX_STEPS = 4


@pytest.fixture(scope="module", autouse=True)
def compiled_once():
    """All games of this file share one compiled step."""
    functions = simulator._compiled(EnvConfig(max_steps=MAX_STEPS), RewardWeights(), simulator.Rules(name="designed"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(simulator, "_compiled", lambda *_: functions)
        yield


@pytest.fixture(scope="module")
def chance():
    return frame_policy(random_policy())


def game(**more: Any) -> Simulator:
    """A game of at most a few steps."""
    return Simulator(EnvConfig(max_steps=more.pop("max_steps", MAX_STEPS)), RewardWeights(), **{"seed": 0, **more})


def to_the_end(match: Simulator) -> list[Frame]:
    """Every frame of an episode."""
    frames = [match.frame]
    while match.choice is not None:
        frames.append(match.act(match.choice))
    return frames


def test_the_same_seed_gives_the_same_frames(chance):
    one, two, other = (to_the_end(game(seed=seed, policy=chance)) for seed in (3, 3, 4))
    assert [frame.to_json() for frame in one] == [frame.to_json() for frame in two]
    assert one[0].position != other[0].position


def test_policy_receives_the_state_of_the_environment():
    """A search plays on from it. This one takes the last legal action by the mask that the state holds."""

    def decide(env_state, carry, obs, mask, reset, key):
        last = jnp.array([[31]]) - jax.lax.clz(env_state.legal[0]).astype(jnp.int32)
        return Decision(last, jnp.zeros((1, 1)), mask / mask.sum(), jnp.zeros((1, 1))), carry

    frames = to_the_end(game(seed=1, policy=FramePolicy(jax.jit(decide))))
    assert [after.action for after in frames[1:]] == [before.legal[-1] for before in frames[:-1]]


def test_search_that_sees_what_the_player_sees_receives_what_it_imagines(chance):
    """The imagination of a stub counts the steps of the episode; the choice rests on it."""

    def imagine(before, action, state, known, key):
        assert action.shape == (1, 1) and key.shape == (1,)
        imagined = jnp.where(known, before.steps + 1, 0)
        taken.append((bool(known[0]), int(action[0, 0]), int(imagined[0])))
        return state._replace(steps=imagined)

    def decide(state, carry, obs, mask, reset, key):
        assert int(state.true.steps[0]) == int(state.imagined.steps[0])
        return chance.decide(state.true, carry, obs, mask, reset, key)

    taken: list[tuple[bool, int, int]] = []
    match = game(seed=1, policy=FramePolicy(decide, imagine=imagine))
    frames = to_the_end(match)
    assert taken == [(frame.step > 0, frame.action or 0, frame.step) for frame in frames[:-1]]
    match.new()
    assert taken[-1] == (False, 0, 0)


def test_rewards_of_frames_add_up(chance):
    frames = to_the_end(game(seed=1, policy=chance))
    total = 0.0
    for number, frame in enumerate(frames):
        assert frame.step == number
        if number == 0:
            assert frame.action is None and frame.reward is None
            continue
        assert frame.action in frames[number - 1].legal
        assert set(frame.terms) == set(vars(RewardWeights()))
        assert frame.reward == pytest.approx(sum(frame.terms.values()), abs=1e-6)
        total += frame.reward
        assert frame.episode_return == pytest.approx(total, abs=1e-5)


def test_probabilities_belong_to_the_position_shown(chance):
    for frame in to_the_end(game(policy=chance))[:-1]:
        assert sum(frame.probs) == pytest.approx(1.0, abs=1e-5)
        assert {index for index, share in enumerate(frame.probs) if share > 0} == set(frame.legal)
        assert frame.value is None  # chance has no opinion


def test_the_step_limit_stops_an_episode(chance):
    frames = to_the_end(game(policy=chance))
    assert len(frames) == MAX_STEPS + 1
    assert frames[-1].outcome == "stopped" and frames[-1].legal == () and frames[-1].probs is None


def test_every_episode_is_a_new_game(chance):
    match = game(policy=chance)
    first = to_the_end(match)
    assert match.new().episode == 1 and match.frame.step == 0 and match.frame.episode_return == 0.0
    assert match.frame.position != first[0].position


def test_an_illegal_action_is_refused():
    match = game()
    siphons = match.frame.position["player"]["dataSiphons"]
    illegal = next(index for index in range(28) if index not in match.frame.legal)
    with pytest.raises(ValueError, match="cannot be taken now"):
        match.act(illegal)
    assert match.frame.step == 0 and match.frame.position["player"]["dataSiphons"] == siphons


SCENARIO = {
    "player": {"row": 4, "col": 5, "hp": 1},
    "enemies": [{"type": "daemon", "row": 3, "col": 5, "hp": 3}],
    "stage": 8,
}


def test_every_episode_starts_from_the_scenario():
    match = game(position=SCENARIO)
    assert match.frame.position["stage"] == 8 and match.frame.position["player"]["hp"] == 1
    assert match.new().position == game(position=SCENARIO).frame.position


def test_won_game_is_reported():
    frame = game(position=SCENARIO).act(ACTION_NAMES.index("up"))
    assert frame.outcome == "won" and frame.terms["victory"] == 500.0 and frame.legal == ()


def test_lost_game_is_reported():
    second = {"type": "daemon", "row": 4, "col": 4, "hp": 3}
    match = game(position={**SCENARIO, "enemies": [*SCENARIO["enemies"], second]})
    frame = match.act(ACTION_NAMES.index("left"))  # which stuns the second; the first one strikes
    assert frame.outcome == "died" and frame.position["player"]["hp"] == 0


def test_dead_player_cannot_act():
    frame = game(position={"player": {"row": 0, "col": 0, "hp": 0}}).frame
    assert frame.outcome == "died" and frame.legal == ()


def test_player_without_legal_moves_is_stuck():
    walls = [{"row": 0, "col": 1, "type": "data"}, {"row": 1, "col": 0, "type": "data"}]
    frame = game(position={"player": {"row": 0, "col": 0}, "blocks": walls}).frame
    assert frame.outcome == "stuck" and frame.legal == ()


def test_an_impossible_scenario_is_refused():
    with pytest.raises(HmxError, match=r"player\.row"):
        game(position={"player": {"row": 9, "col": 0}})


def test_frame_is_written_as_json(chance):
    for frame in to_the_end(game(policy=chance)):
        text = json.dumps(frame.to_json(), allow_nan=False)
        assert not re.search(r"-0\.0\b", text)
        assert json.loads(text)["position"] == frame.position


def test_random_play_is_uniform_over_legal_actions():
    mask = jnp.zeros((1, 1, 28), bool).at[0, 0, jnp.array([1, SIPHON])].set(True)
    seen = None, None, (), jnp.zeros(1), mask, jnp.ones(1, bool)
    decision, _ = random_policy().act(*seen, jax.random.key(0))
    assert decision.probs[0, 0].tolist() == [0.5 if index in (1, SIPHON) else 0.0 for index in range(28)]
    assert int(decision.action[0, 0]) in (1, SIPHON)


DOCS = Path(__file__).parents[2] / "docs"
EXAMPLE = DOCS / "scenarios/first-siphon.json"


def test_the_example_scenario_plays_as_documented():
    match = game(position=read_scenario(EXAMPLE), max_steps=0)
    assert SIPHON in match.frame.legal
    after = match.act(SIPHON).position
    assert after["player"]["score"] == 3 and after["player"]["credits"] == 7 and after["player"]["energy"] == 5
    assert [ACTION_NAMES[number] for number in after["ownedPrograms"]] == ["row"]
    assert len(after["transmissions"]) == 6  # one was there, and the blocks called 3 + 2


def test_page_about_the_game_is_current():
    page = (DOCS / "hackmatrix.md").read_text()
    assert f"```json\n{EXAMPLE.read_text()}```" in page
    for name, credits, energy, spawn, effect in PROGRAMS:
        assert f"| {name.upper()} | {credits} | {energy} | {spawn} | {effect} |" in page


def test_saved_game_is_played_again_with_the_same_positions(chance, tmp_path):
    match = game(seed=5, policy=chance)
    match.new()
    frames = [match.frame.position, *(match.act(match.choice).position for _ in range(3))]
    path = save(saved_game(match), tmp_path / "games")
    assert path == tmp_path / "games" / "hackmatrix-s5-001.json"
    assert save(saved_game(match), tmp_path / "games").name == "hackmatrix-s5-002.json"
    read = read_game(path)
    assert (read.episode, read.rules, read.outcome, len(read.actions)) == (1, "designed", "unfinished", 3)
    again = replayed(read, path.name, EnvConfig(max_steps=MAX_STEPS))
    states = again.positions.env_state
    seen = [to_dict(jax.tree.map(lambda leaf, i=i: np.asarray(leaf)[..., i], states.game)) for i in range(3)]
    assert seen == frames[:3]
    assert [ACTION_NAMES[int(one)] for one in again.positions.taken[:, 0]] == list(read.actions)
    assert again.positions.legal.shape == (3, 1, len(ACTION_NAMES))


def test_saved_game_with_an_illegal_action_is_refused(chance, tmp_path):
    match = game(seed=5, policy=chance)
    match.act(match.choice)
    data = json.loads(save(saved_game(match), tmp_path).read_text()) | {"actions": ["hack"]}
    (tmp_path / "other.json").write_text(json.dumps(data))
    with pytest.raises(HmxError, match="hack is not legal at step 0"):
        replayed(read_game(tmp_path / "other.json"), "other.json", EnvConfig(max_steps=MAX_STEPS))
    for text, why in (("{}", "not a saved game"), (json.dumps(data | {"actions": []}), "no move")):
        (tmp_path / "bad.json").write_text(text)
        with pytest.raises(HmxError, match=why):
            read_game(tmp_path / "bad.json")


@pytest.mark.parametrize(
    "change",
    [
        {"seed": 2**64}, {"seed": 2**31}, {"seed": True}, {"seed": 1.0}, {"episode": 10**12}, {"undo_depth": 65},
        {"total": 10**400}, {"total": "x"}, {"actions": 3}, {"position": []}, {"rules": "new"}, {"schema": 2},
    ],
)  # fmt: skip
def test_a_saved_game_of_impossible_values_is_refused(chance, tmp_path, change):
    match = game(seed=5, policy=chance)
    match.act(match.choice)
    path = save(saved_game(match), tmp_path)
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(HmxError, match="not a saved game") as caught:
        read_game(path)
    assert caught.value.exit_code == ExitCode.USAGE


def test_a_saved_game_of_any_depth_is_refused(tmp_path):
    (tmp_path / "deep.json").write_text("[" * 100_000)
    with pytest.raises(HmxError, match="not a saved game"):
        read_game(tmp_path / "deep.json")


def test_an_episode_is_found_by_its_number():
    one, other = game(seed=5), game(seed=5)
    for _ in range(3):
        one.new()
    assert other.new(3).position == one.frame.position
