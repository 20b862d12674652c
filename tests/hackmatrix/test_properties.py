"""What must hold in every step of a long random play, whatever happens in it."""

from __future__ import annotations

import itertools
import random
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from compiled import RULES, load
from oracle import from_dict, legal
from oracle_state import MAX_HP, TYPES
from positions import at_the_exit, random_scenario
from probe import BATCH, game_step, new_games, take
from random_play import CHUNK, ENVS, Step, play

from hmx.envs.hackmatrix.rules.state import C, E, T

pytestmark = pytest.mark.slow
CHUNKS, DEEP = 20, 10  # 204,800 steps, of which 102,400 are looked at cell by cell
EPISODES = 3  # of each game, so that long episodes are not cut off
PUSH, PULL, POLY, WAIT, UNDO = 5, 6, 9, 10, 14


@pytest.fixture(scope="module")
def walk() -> list[Step]:
    return play(seed=20, chunks=CHUNKS, keep_states=DEEP)


class Board(NamedTuple):
    """One step of all games, unpacked: rosters [32, ENVS], cells [36, ENVS]."""

    enemy: np.ndarray  # bool
    enemy_cell: np.ndarray
    kind: np.ndarray
    hp: np.ndarray
    sent: np.ndarray  # transmissions, bool
    sent_cell: np.ndarray
    timer: np.ndarray
    block: np.ndarray
    spawn: np.ndarray
    state: Any
    action: np.ndarray
    ended: np.ndarray


def _slots(planes: np.ndarray, start: int, width: int = 1) -> np.ndarray:
    bits = [(planes[start + j] >> np.arange(32, dtype=np.uint32)[:, None]) & 1 for j in range(width)]
    return sum(bit.astype(np.int64) << j for j, bit in enumerate(bits))


def _on_cells(cells: Any, start: int, width: int = 1) -> np.ndarray:
    shifts = np.arange(18, dtype=np.uint32)[:, None]
    bits = [np.concatenate([(half[start + j] >> shifts) & 1 for half in cells]) for j in range(width)]
    return sum(bit.astype(np.int64) << j for j, bit in enumerate(bits))


def _board(step: Step, t: int) -> Board:
    s = jax.tree.map(lambda leaf: leaf[t], step.game)
    e, sent = s.enemies, s.transmissions
    return Board(
        _slots(e, E.ALIVE) == 1,
        _slots(e, E.ROW, 3) * 6 + _slots(e, E.COL, 3),
        _slots(e, E.TYPE, 2),
        _slots(e, E.HP, 2),
        _slots(sent, T.ALIVE) == 1,
        _slots(sent, T.ROW, 3) * 6 + _slots(sent, T.COL, 3),
        _slots(sent, T.TIMER, 6),
        (_on_cells(s.cells, C.DATA) | _on_cells(s.cells, C.PROGRAM)) == 1,
        _on_cells(s.cells, C.SPAWN, 4),
        s,
        step.action[t],
        step.terminated[t],
    )


@pytest.fixture(scope="module")
def boards(walk: list[Step]) -> list[Board]:
    return [_board(chunk, t) for chunk in walk[:DEEP] for t in range(CHUNK)]


def test_legal_action_exists_and_only_legal_actions_are_taken(walk: list[Step]) -> None:
    for chunk in walk[:DEEP]:
        assert chunk.legal.any(-1).all()
        assert np.take_along_axis(chunk.legal, chunk.action[..., None], -1).all()


def test_observations_stay_in_range(walk: list[Step]) -> None:
    for chunk in walk:
        assert chunk.low.min() >= 0
        assert chunk.high.max() <= 1


def test_slots_never_overflow_and_rewards_add_up(walk: list[Step]) -> None:
    for chunk in walk:
        assert not chunk.overflow.any()
        total = sum(chunk.terms.values())
        assert np.isfinite(chunk.reward).all()
        np.testing.assert_allclose(chunk.reward, total, atol=1e-4)
        np.testing.assert_allclose(chunk.terms["step_penalty"], -0.01, atol=1e-7)


def test_numbers_stay_in_range(boards: list[Board]) -> None:
    most = np.array([MAX_HP[t] for t in TYPES])
    for b in boards:
        s = b.state
        assert (b.enemy_cell[b.enemy] < 36).all() and (b.sent_cell[b.sent] < 36).all()
        assert (b.hp >= 1)[b.enemy].all() and (b.hp <= most[b.kind])[b.enemy].all()
        assert (b.timer >= 1)[b.sent].all()
        assert ((s.hp >= 1) & (s.hp <= 3)).all(), "a game goes on without hit points"
        assert ((s.stage >= 1) & (s.stage <= 8)).all() and ((s.interval >= 4) & (s.interval <= 12)).all()
        for number in (s.credits, s.energy, s.siphons, s.score, s.turn, s.pending, s.atk_uses):
            assert (number >= 0).all()
        assert (s.attack >= 1).all() and (s.pos < 36).all()


def test_rosters_have_no_gaps_and_transmissions_have_separate_cells(boards: list[Board]) -> None:
    for b in boards:
        for alive in (b.enemy, b.sent):
            assert (np.diff(alive.astype(int), axis=0) <= 0).all()
        cells = np.sort(np.where(b.sent, b.sent_cell, 100 + np.arange(32)[:, None]), axis=0)
        assert (np.diff(cells, axis=0) > 0).all()
        assert not (np.take_along_axis(b.block, np.minimum(b.sent_cell, 35), 0) & b.sent).any()


def _pairs(boards: list[Board]) -> list[tuple[Board, Board, np.ndarray]]:
    """Consecutive boards and the games in which the same stage went on between them without UNDO."""
    result = []
    for a, b in itertools.pairwise(boards):
        going = ~a.ended & (a.state.stage == b.state.stage) & (a.action != UNDO)
        result.append((a, b, going))
    return result


def _enemies_on_cells(board: Board, kind: int) -> np.ndarray:
    """How many enemies of a type stand on each cell of each game, [ENVS, 36]."""
    here, place = board.enemy & (board.kind == kind), 36 * np.arange(ENVS) + board.enemy_cell
    return np.bincount(place[here], minlength=36 * ENVS).reshape(ENVS, 36)


def test_only_glitches_enter_blocks_on_their_own(boards: list[Board]) -> None:
    checked = 0
    for a, b, going in _pairs(boards):
        calm = going & ~np.isin(a.action, (PUSH, PULL, POLY))
        for kind in (0, 1, 3):
            was, now = (_enemies_on_cells(x, kind) for x in (a, b))
            entered = (now > was) & b.block.T
            assert not entered[calm].any()
            checked += int(now[calm].sum())
    assert checked > 10_000


def test_entities_change_only_by_the_rules(boards: list[Board]) -> None:
    """Walking, waiting and siphoning kill nobody: every transmission and enemy is accounted for."""
    checked = 0
    for a, b, going in _pairs(boards):
        s, after = a.state, b.state
        walked = (a.action < 4) & (s.pos != after.pos)
        turn_ran = after.turn == s.turn + 1
        quiet = going & turn_ran & (walked | (a.action == 4) | (a.action == WAIT))
        due = (a.sent & (a.timer <= 1)).sum(0)
        siphoned = np.where(a.action == 4, a.spawn.sum(0) - b.spawn.sum(0), 0)
        next_turn = s.next_scheduled + 5 * (a.action == 4)
        scheduled = ~s.calm & (after.turn >= next_turn)
        room = (~b.block).sum(0) - b.enemy.sum(0) - (a.sent.sum(0) - due) - 1
        born = np.minimum(scheduled + siphoned + s.pending, np.maximum(room, 0))
        enough = quiet & (room > scheduled + siphoned + s.pending)
        np.testing.assert_array_equal(b.enemy.sum(0)[quiet], (a.enemy.sum(0) + due)[quiet])
        np.testing.assert_array_equal(b.sent.sum(0)[enough], (a.sent.sum(0) - due + born)[enough])
        checked += int(enough.sum())
    assert checked > 50_000


def test_the_same_keys_give_the_same_bits(walk: list[Step]) -> None:
    again = play(seed=20, chunks=2, keep_states=2)
    for a, b in zip(jax.tree.leaves(walk[:2]), jax.tree.leaves(again), strict=True):
        np.testing.assert_array_equal(a, b)


def test_single_game_equals_its_game_in_a_batch() -> None:
    """Rich positions and all programs, so that every shortcut taken for the few games of a batch is met."""
    rng = random.Random(4)
    given = [at_the_exit(rng) if i % 8 == 0 else random_scenario(rng) for i in range(64)]
    actions = [3 if i % 8 == 0 else rng.choice(legal(from_dict(s))) for i, s in enumerate(given)]
    state = jax.tree.map(jnp.asarray, take(load(given), np.arange(BATCH) % 64))
    actions = jnp.asarray(np.asarray(actions, np.int32)[np.arange(BATCH) % 64])
    keys = jax.random.split(jax.random.key(6), BATCH)
    many = game_step(state, actions, keys, RULES)
    given_state, given_actions = jax.tree.map(np.asarray, (state, actions))
    for i in range(64):
        alone = jax.tree.map(lambda leaf, i=i: leaf[..., i], given_state)
        one = game_step(alone, given_actions[i], jax.random.clone(keys)[i], RULES)
        for a, b in zip(jax.tree.leaves(many), jax.tree.leaves(one), strict=True):
            assert b.shape == a.shape[:-1]
            np.testing.assert_array_equal(np.asarray(a)[..., i], np.asarray(b))


def test_single_new_game_equals_its_game_in_a_batch() -> None:
    keys = jax.random.split(jax.random.key(7), BATCH)
    many = new_games(keys)
    for i in range(32):
        one = new_games(jax.random.clone(keys)[i])
        for a, b in zip(jax.tree.leaves(many), jax.tree.leaves(one), strict=True):
            np.testing.assert_array_equal(np.asarray(a)[..., i], np.asarray(b))


def _episodes(walk: list[Step]) -> dict[str, np.ndarray]:
    """Return, length, final score and last stage of the first few episodes of every game."""
    reward, ended, stage = (np.concatenate([getattr(c, n) for c in walk]) for n in ("reward", "terminated", "stage"))
    terms = {n: np.concatenate([c.terms[n] for c in walk]) for n in walk[0].terms}
    rows: dict[str, list[float]] = {"return": [], "length": [], "stage": []} | {n: [] for n in terms}
    for i in range(ENVS):
        ends = np.flatnonzero(ended[:, i])[:EPISODES]
        assert len(ends) == EPISODES, "play on for longer: not all episodes ended"
        for a, b in zip(np.append(-1, ends[:-1]) + 1, ends + 1, strict=True):
            rows["return"].append(reward[a:b, i].sum())
            rows["length"].append(b - a)
            rows["stage"].append(stage[b - 1, i])
            for n, values in terms.items():
                rows[n].append(values[a:b, i].sum())
    return {name: np.asarray(values) for name, values in rows.items()}


def test_random_play_statistics_match_the_reference(walk: list[Step]) -> None:
    """Measured in the reference: 400 games. Its sampling error is estimated from the spread seen here."""
    found = _episodes(walk)
    games = 400
    reference = {"return": -3.02, "length": 43.3}
    reference |= {"damage_penalty": -3.09, "siphon_death_penalty": -1.93, "distance_shaping": 0.88, "score_gain": 0.49}
    reference |= {"kills": 0.46, "data_siphon": 0.32, "stage_completion": 0.18, "resource_gain": 0.13}
    reference |= {"death_penalty": -0.09, "hp_recovery": 0.09, "siphon_quality": -0.05, "resource_holding": 0.02}
    far = {}
    for name, expected in reference.items():
        values = found[name]
        error = values.std() * (1 / games + 1 / len(values)) ** 0.5
        if abs(values.mean() - expected) > 3.5 * error + 0.005:
            far[name] = (values.mean(), expected, error)
    assert far == {}
    first = (found["stage"] == 1).mean()
    assert abs(first - 333 / 400) < 3.5 * (0.83 * 0.17 / games) ** 0.5, first
