"""The packed observation: its float view and what the cells network reads are the same board."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from random_play import play

from hmx.config.schema import EnvConfig, RewardWeights
from hmx.envs.hackmatrix import observation, symmetries
from hmx.envs.hackmatrix.env import make_hackmatrix
from hmx.envs.hackmatrix.observation import CELL_FEATURES, F, V
from hmx.envs.hackmatrix.rules import NUM_ACTIONS, bits

BOARD = observation.SIDE


@pytest.fixture(scope="module")
def steps():
    """A play that the tests of the game compile as well."""
    return play(seed=0, chunks=1, keep_states=1)[0]


@pytest.fixture(scope="module")
def words(steps):
    """Observations of many different positions, [N, WORDS]."""
    return jnp.asarray(steps.obs).reshape(-1, observation.WORDS)


@pytest.fixture(scope="module")
def views(words):
    player, programs, grid = jax.jit(observation.parts)(words)
    scalars, cells = jax.jit(observation.cells_view)(words)
    return tuple(np.asarray(x) for x in (player, programs, grid, scalars, cells))


def test_flat_observation_is_player_programs_and_grid(words, views):
    player, programs, grid, *_ = views
    flat = np.asarray(jax.jit(observation.decode)(words))
    assert flat.shape == (len(words), observation.FLAT_SIZE)
    np.testing.assert_array_equal(flat, np.concatenate([player, programs, grid.reshape(len(words), -1)], axis=1))


def test_scalars_are_player_and_programs(views):
    player, programs, _, scalars, _ = views
    np.testing.assert_array_equal(scalars, np.concatenate([player, programs], axis=1))


def test_the_board_of_the_cells_view_is_the_grid(views):
    _, _, grid, _, cells = views
    board = cells[:, : BOARD**2].reshape(-1, BOARD, BOARD, CELL_FEATURES)
    np.testing.assert_array_equal(board[..., :4], grid[..., :4])
    np.testing.assert_allclose(board[..., F.HP] + 2 * board[..., F.HP + 1], grid[..., 4] * 3, atol=1e-6)
    points = sum(board[..., F.POINTS + j] * 2**j for j in range(5))
    np.testing.assert_allclose(points, grid[..., 10] * 9, atol=1e-5)
    number = sum(board[..., F.NUMBER + j] * 2**j for j in range(5))
    known = board[..., F.PROGRAM] > 0
    np.testing.assert_array_equal(number[known], grid[known][:, 12:35].argmax(-1))
    assert set(np.unique(number[known])) == set(range(23)), "the positions do not show every program"
    for feature, channel in ((F.ITEM, 39), (F.EXIT, 40), (F.CENTER, 41), (F.QUESTION, 9), (F.BLOCK_SIPHONED, 11)):
        np.testing.assert_array_equal(board[..., feature], grid[..., channel])


def test_cell_of_the_player_is_marked(words, views):
    cells = views[4]
    place = np.asarray(words[:, 2 * V.PLANES])
    np.testing.assert_array_equal(cells[:, : BOARD**2, F.MARK].argmax(-1), place)
    np.testing.assert_array_equal(cells[:, : BOARD**2, F.MARK].sum(-1), 1)
    assert len(np.unique(place)) > 30, "the player stands on too few different cells"


def test_remaining_cells_are_the_board_around_the_player(words, views):
    """Five by five cells, then the far parts of the player's row and column; cut out of a padded board."""
    cells = views[4]
    board = cells[:, : BOARD**2].reshape(-1, BOARD, BOARD, CELL_FEATURES)
    for n, place in enumerate(np.asarray(words[:, 2 * V.PLANES])):
        row, col = divmod(int(place), BOARD)
        window = np.zeros((11, 11, CELL_FEATURES))
        window[5 - row : 11 - row, 5 - col : 11 - col] = board[n]
        window[5 - row : 11 - row, 5 - col : 11 - col, F.MARK] = 1
        far = [window[5, :3], window[5, 8:], window[:3, 5], window[8:, 5]]
        expected = np.concatenate([window[3:8, 3:8].reshape(25, CELL_FEATURES), *far])
        np.testing.assert_array_equal(cells[n, BOARD**2 :], expected)


def test_both_observations_contain_the_stage(words):
    stages = jnp.arange(1, 9)
    shown = words[:8].at[:, 2 * V.PLANES + 4].set(stages.astype(jnp.uint32))
    np.testing.assert_allclose(jax.jit(observation.decode)(shown)[:, 5], (stages - 1) / 7)
    assert (words[:, 2 * V.PLANES + 4] >= 1).all()


@pytest.fixture(scope="module")
def counted(steps):
    """Positions of the play, with counts that differ between games, and their words [COUNTED_WORDS, games]."""
    game = jax.tree.map(lambda leaf: leaf[-1] if leaf.ndim else leaf, steps.game)
    number = jnp.arange(len(game.hp), dtype=jnp.int32)
    game = game._replace(score=3 * number, atk_uses=number % 3, step_active=number % 2 == 1, interval=12 - number % 8)
    return game, jax.jit(partial(observation.packed, obs="counted"))(game)


def test_a_counted_observation_adds_what_a_player_can_count(counted):
    game, words = counted
    due = np.maximum(np.asarray(game.next_scheduled) - np.asarray(game.turn), 0)
    assert len(np.unique(due)) > 3
    expected = np.stack([game.score / 10, due / 12, game.interval / 12, game.step_active, game.atk_uses / 2], -1)
    plain = jax.jit(observation.packed)(game)
    np.testing.assert_array_equal(words[: observation.WORDS], plain)
    shown, alone = (jax.jit(observation.cells_view)(w.T) for w in (words, plain))
    np.testing.assert_allclose(shown[0], np.concatenate([alone[0], expected], -1), rtol=1e-6)
    np.testing.assert_array_equal(shown[1], alone[1])
    shown, alone = (jax.jit(observation.decode)(w.T) for w in (words, plain))
    np.testing.assert_allclose(shown, np.concatenate([alone, expected], -1), rtol=1e-6)


def test_a_symmetry_keeps_the_counts(counted):
    words = counted[1].T
    turned = jax.jit(symmetries.turned)(words, jnp.arange(len(words)) % 8)
    np.testing.assert_array_equal(turned[:, observation.WORDS :], words[:, observation.WORDS :])


@pytest.mark.parametrize(("obs", "size"), [("packed", 67), ("counted", 72), ("flat", 1545)])
def test_each_observation_has_its_shape_in_every_place(obs, size):
    """At a start, after a step that renews games, and in the spec."""
    env = make_hackmatrix(EnvConfig(obs=obs), RewardWeights())
    keys = jax.random.split(jax.random.key(0), 4)
    state, first = jax.eval_shape(env.reset, keys)
    _, after = jax.eval_shape(env.step, state, jnp.zeros((4, 1), jnp.int32), keys)
    shapes = {first.obs.shape, first.final_obs.shape, after.obs.shape, after.final_obs.shape}
    assert shapes == {(4, 1, size)} and env.spec.obs_shape == (size,)


@pytest.mark.parametrize("symmetry", range(8))
def test_a_symmetry_turns_the_board_and_nothing_else(words, views, symmetry):
    *_, scalars, cells = views
    turned = jax.jit(symmetries.turned)(words, jnp.full(len(words), symmetry))
    found_scalars, found = jax.jit(observation.cells_view)(turned)
    np.testing.assert_array_equal(found[:, : BOARD**2].reshape(-1, BOARD, BOARD, CELL_FEATURES), seen(cells, symmetry))
    np.testing.assert_array_equal(found_scalars[:, 2:], scalars[:, 2:])  # all but row and column of the player


def seen(cells, symmetry):
    """Return the boards under a symmetry, [N, row, column, feature]."""
    board = cells[:, : BOARD**2].reshape(-1, BOARD, BOARD, CELL_FEATURES)
    board = board.swapaxes(1, 2) if symmetry & 4 else board
    board = board[:, :, ::-1] if symmetry & 1 else board
    return board[:, ::-1] if symmetry & 2 else board


@pytest.mark.parametrize("symmetry", range(8))
def test_a_move_under_a_symmetry_ends_where_the_move_before_it_ends(symmetry):
    """By the moves of the rules, from every cell."""
    board = bits.cell(jnp.arange(BOARD**2))

    def turned(board):
        words = jnp.zeros((BOARD**2, observation.WORDS), jnp.uint32)
        words = words.at[:, V.ENEMY].set(board.lo).at[:, V.PLANES + V.ENEMY].set(board.hi)
        words = symmetries.turned(words, jnp.full(BOARD**2, symmetry))
        return bits.Board(words[:, V.ENEMY], words[:, V.PLANES + V.ENEMY])

    before = symmetries.SYMMETRIES[symmetry]
    assert sorted(before) == list(range(NUM_ACTIONS)) and before[4:] == tuple(range(4, NUM_ACTIONS))
    for move, source in zip(bits.MOVES, before, strict=False):
        np.testing.assert_array_equal(jnp.stack(move(turned(board))), jnp.stack(turned(bits.MOVES[source](board))))
