"""What must hold in every step of a long random play, whatever happens in it."""

from __future__ import annotations

import random

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from compiled import RULES, load
from oracle import from_dict, legal
from positions import at_the_exit, random_scenario
from probe import BATCH, game_step, new_games, take
from random_play import ENVS, Step, play

pytestmark = pytest.mark.slow
CHUNKS, DEEP = 14, 7  # 143,360 steps, half of them with their states
EPISODES = 2  # of each game, so that long episodes are not cut off


@pytest.fixture(scope="module")
def walk() -> list[Step]:
    return play(seed=20, chunks=CHUNKS, keep_states=DEEP)


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
