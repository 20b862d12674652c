"""New games and new stages: every board is one the rules allow, and all of them come as often as the rules say."""

from __future__ import annotations

import random
from typing import Any

import jax
import numpy as np
import pytest
from compiled import RULES, board_problem, counts_of, load, match, read
from oracle import from_dict, outcomes
from oracle_enemies import spawn, spawn_cells
from oracle_state import CORNERS, DATA, MAX_HP, NEIGHBOURS, TYPES, Cell, Position
from positions import at_the_exit
from probe import BATCH, ENV, new_game_problem, new_games, new_later_games, probe, views
from statistics_of import SURPRISE, chi_square, fits, spread, uniform

from hmx.envs.hackmatrix import rules as game
from hmx.envs.hackmatrix.rules.scenario import from_dict as read_scenario
from hmx.envs.hackmatrix.rules.scenario import to_dict
from hmx.envs.hackmatrix.rules.tables import P

GAMES = 8192


@pytest.fixture(scope="module")
def state() -> game.State:
    keys = jax.random.split(jax.random.key(2), GAMES).reshape(-1, BATCH)
    batches = [jax.tree.map(np.asarray, new_games(some)) for some in keys]
    return jax.tree.map(lambda *leaves: np.concatenate(leaves, axis=-1), *batches)


@pytest.fixture(scope="module")
def games(state: game.State) -> list[Position]:
    return read(state)


def test_new_games_follow_the_rules(games: list[Position]) -> None:
    assert [p for p in map(new_game_problem, games) if p] == []


def test_legal_action_always_exists(state: game.State) -> None:
    small = jax.tree.map(lambda leaf: leaf[..., :BATCH], state)
    mask = views(small)[3]
    assert mask[:, :4].any(-1).all(), "a board without a way out"


def test_corner_exit_and_bonus_follow_the_rules(games: list[Position]) -> None:
    assert uniform([g.cell for g in games], CORNERS) > SURPRISE
    pairs = [(a, b) for a in CORNERS for b in CORNERS if a != b]
    assert uniform([(g.cell, g.exit) for g in games], pairs) > SURPRISE
    bonuses = [(10, 0, 0), (0, 11, 0), (0, 0, 1)]
    assert uniform([(g.credits, g.energy, g.siphons) for g in games], bonuses) > SURPRISE
    both = [(c, b) for c in CORNERS for b in bonuses]
    assert uniform([(g.cell, (g.credits, g.energy, g.siphons)) for g in games], both) > SURPRISE


def test_number_of_blocks_follows_the_rules(games: list[Position]) -> None:
    counts = [sum(c.block for c in g.cells) for g in games]
    assert counts.count(0) <= GAMES // 1000, "layouts are given up too early"
    assert uniform([n for n in counts if n], range(5, 12)) > SURPRISE


def test_kinds_and_contents_of_blocks_follow_the_rules(games: list[Position]) -> None:
    blocks = [c for g in games for c in g.cells if c.block]
    kinds = {(DATA, False): 0.45, ("program", False): 0.45, (DATA, True): 0.05, ("program", True): 0.05}
    assert fits([(b.content, b.question) for b in blocks], kinds) > SURPRISE
    for hidden in (False, True):
        some = [b for b in blocks if b.question == hidden]
        assert uniform([b.value for b in some if b.content == DATA], range(1, 10)) > SURPRISE
        assert uniform([b.value for b in some if b.content != DATA], range(23)) > SURPRISE


def test_kinds_are_independent_of_cells_and_of_each_other(games: list[Position]) -> None:
    for cell in (1, 8, 34):
        kinds = [g.cells[cell].content == DATA for g in games if g.cells[cell].block]
        assert fits(kinds, {True: 0.5, False: 0.5}) > SURPRISE
    firsts = [[c for c in g.cells if c.block][:2] for g in games]
    pairs = [(a.content == DATA, b.content == DATA) for a, b in (f for f in firsts if len(f) == 2)]
    assert uniform(pairs, [(a, b) for a in (True, False) for b in (True, False)]) > SURPRISE


def test_resources_follow_the_rules(games: list[Position]) -> None:
    cells = [c for g in games for c in g.cells if c.credits or c.energy]
    amounts = {(kind, n): p / 2 for kind in ("credits", "energy") for n, p in ((1, 0.45), (2, 0.45), (3, 0.10))}
    found = [("credits", c.credits) if c.credits else ("energy", c.energy) for c in cells]
    assert fits(found, amounts) > SURPRISE
    for cell in (0, 14, 35):
        assert fits([k for g in games if (k := _resource(g.cells[cell]))], amounts) > SURPRISE


def _resource(cell: Cell) -> tuple[str, int] | None:
    if cell.credits:
        return "credits", cell.credits
    return ("energy", cell.energy) if cell.energy else None


def test_first_transmission_follows_the_rules(games: list[Position]) -> None:
    assert uniform([g.transmissions[0].type for g in games], TYPES) > SURPRISE
    ranks = []
    for g in games:
        (born,) = g.transmissions
        g.transmissions = []
        cells = spawn_cells(g)
        g.transmissions = [born]
        ranks.append((cells.index(born.cell), len(cells)))
    assert spread(ranks) > SURPRISE
    # Measured in the reference: 3.9 % appear on the exit, 7.4 % on a data siphon.
    share = np.mean([g.transmissions[0].cell == g.exit for g in games])
    assert abs(share - 0.039) < 4 * (0.039 / GAMES) ** 0.5 + 0.003


def _own_layouts(count: int) -> list[frozenset[int]]:
    """Layouts by the rejection of section 2.3, in plain Python; the exit is the corner (5, 5), the player at (0, 0)."""
    rng = random.Random(5)
    free = [c for c in range(36) if c not in CORNERS]
    layouts = []
    while len(layouts) < count:
        k = rng.randint(5, 11)
        while True:
            blocks = frozenset(rng.sample(free, k))
            pos = Position(0, cells=[Cell(DATA, 1, 1) if c in blocks else Cell(credits=1) for c in range(36)])
            pos.cells[35], pos.cells[5], pos.cells[30] = (
                Cell("exit"),
                Cell("siphon", credits=1),
                Cell("siphon", credits=1),
            )
            if board_problem(pos) is None:
                layouts.append(blocks)
                break
    return layouts


def _class_of(cell: int) -> tuple[int, int]:
    """The cell up to the symmetries of the square."""
    row, col = min(cell // 6, 5 - cell // 6), min(cell % 6, 5 - cell % 6)
    return min(row, col), max(row, col)


def _touching(blocks: frozenset[int]) -> int:
    return sum(n in blocks for b in blocks for n in NEIGHBOURS[b]) // 2


def test_layouts_match_plain_rejection_sampling(games: list[Position]) -> None:
    theirs = [frozenset(c for c in range(36) if g.cells[c].block) for g in games]
    theirs = [blocks for blocks in theirs if blocks]
    own = _own_layouts(4000)
    classes = sorted({_class_of(c) for c in range(36)} - {(0, 0)})
    table = [[sum(_class_of(b) == k for x in sample for b in x) for k in classes] for sample in (theirs, own)]
    assert _same(table) > SURPRISE
    pairs = [[sum(_touching(x) == n for x in sample) for n in range(0, 13)] for sample in (theirs, own)]
    assert _same(pairs) > SURPRISE
    sizes = [[sum(len(x) == n for x in sample) for n in range(5, 12)] for sample in (theirs, own)]
    assert _same(sizes) > SURPRISE


def _same(table: list[list[int]]) -> float:
    """The p-value that two rows of counts come from one distribution."""
    counts = np.asarray(table, float)
    counts = counts[:, counts.min(0) >= 5]
    expected = counts.sum(1, keepdims=True) * counts.sum(0, keepdims=True) / counts.sum()
    return chi_square(counts.ravel(), expected.ravel(), free=counts.shape[1] - 1)


def test_new_stages_keep_entities_and_respect_them() -> None:
    rng = random.Random(3)
    scenarios = [at_the_exit(rng) for _ in range(BATCH)]
    seen = probe(load(scenarios), [3] * BATCH, seed=8)
    events = counts_of(seen.events)
    counts, corners = [], []
    for i, (scenario, actual) in enumerate(zip(scenarios, read(seen.after), strict=True)):
        found = outcomes(from_dict(scenario, undo_depth=RULES.undo_depth), 3)
        assert found is not None and found[0].new_stage
        outcome, problems = match(found, actual, events[i])
        assert outcome is not None, problems
        counts.append(sum(c.block for c in actual.cells))
        corners.append(actual.exit)
    assert fits([n for n in counts if n], dict.fromkeys(range(5, 12), 1.0)) > SURPRISE
    assert uniform(corners, [0, 5, 30]) > SURPRISE


def test_new_enemies_have_full_hit_points(games: list[Position]) -> None:
    """A transmission becomes an enemy of its type with full hit points."""
    some = [g for g in games[:BATCH]]
    seen = probe(load([_wait_scene(g) for g in some]), [10] * len(some), seed=4)
    for g, after in zip(some, read(seen.after), strict=True):
        (born,) = after.enemies
        expected = g.transmissions[0]
        assert (born.cell, born.type, born.hp) == (expected.cell, expected.type, MAX_HP[expected.type])


def _wait_scene(g: Position) -> dict:
    row, col = divmod(g.cell, 6)
    t = g.transmissions[0]
    entry = {"row": t.cell // 6, "col": t.cell % 6, "turnsRemaining": 1, "enemyType": t.type}
    return {"player": {"row": row, "col": col, "energy": 1}, "transmissions": [entry], "ownedPrograms": [10]}


@pytest.fixture(scope="module")
def later_state() -> game.State:
    batches = []
    for keys in jax.random.split(jax.random.key(3), GAMES // 4).reshape(-1, BATCH):
        state, timestep = jax.tree.map(np.asarray, new_later_games(keys))
        assert timestep.legal[:, 0, :4].any(-1).all() and not timestep.terminated.any()
        batches.append(state.game)
    return jax.tree.map(lambda *leaves: np.concatenate(leaves, axis=-1), *batches)


@pytest.fixture(scope="module")
def later_games(later_state: game.State) -> list[Position]:
    return read(later_state)


def later_problem(pos: Position) -> str | None:
    """What the beginning of a later stage breaks of the rules, if anything."""
    clean = Position(pos.cell, cells=pos.cells, exit=pos.exit, stage=pos.stage)
    clean.interval = clean.next_turn = 13 - pos.stage
    for name in ("hp", "credits", "energy", "siphons", "score", "attack", "owned", "transmissions"):
        setattr(clean, name, getattr(pos, name))
    if clean.key() != pos.key() or pos.cell not in CORNERS or len(pos.transmissions) != pos.stage:
        return f"not the beginning of a stage: {pos}"
    clean.transmissions = []
    used, boosts = 2 * (pos.stage - 1) + 1 - pos.siphons, pos.attack - 1
    blocks = len(pos.owned) + -(-pos.score // 9)
    earned = pos.credits + pos.energy + 8 * boosts
    if pos.hp not in (2, 3) or used < 0 or blocks > min(4 * used, 11 * (pos.stage - 1)):
        return f"{pos.hp} hit points, {used} siphons used on {blocks} blocks in {pos.stage - 1} stages"
    if earned > 3 * (5 * used - blocks) or boosts > 2 * (pos.stage - 1) or (boosts and P.ATK_PLUS not in pos.owned):
        return f"{earned} credits and energy from {used} siphons, attack {pos.attack}, programs {sorted(pos.owned)}"
    return board_problem(clean) or spawn(clean, pos.transmissions)


def test_later_starts_are_valid_positions(later_games: list[Position], later_state: game.State) -> None:
    assert [p for p in map(later_problem, later_games) if p] == []
    for i in range(4):
        scenario = to_dict(jax.tree.map(lambda leaf, i=i: np.asarray(leaf)[..., i], later_state))
        assert to_dict(read_scenario(scenario)) == scenario


def test_later_starts_cover_stages_programs_and_strength(later_games: list[Position]) -> None:
    assert uniform([g.stage for g in later_games], range(2, 9)) > SURPRISE
    owned = np.array([len(g.owned) for g in later_games])
    assert (owned <= 2).mean() > 0.25 and (owned >= 10).mean() > 0.15
    attack = np.array([g.attack for g in later_games])
    assert set(attack) == {1, 2, 3, 4, 5} and 0.5 < (attack == 1).mean() < 0.7
    rich = [g for g in later_games if g.stage > 4 and g.attack == 1]  # where no bound is reached
    each = [sum(k in g.owned for g in rich) for k in range(23)]
    assert max(each) < 1.4 * min(each)


def test_program_with_two_resets_contains_the_operations_once() -> None:
    """A search resets and steps in several places; tracing and compiling HackMatrix takes seconds each time."""

    def twice(keys: jax.Array) -> tuple[Any, Any]:
        return ENV.reset(keys), ENV.reset(jax.random.clone(keys))

    program = jax.make_jaxpr(twice)(jax.random.split(jax.random.key(0), 2))
    first, second = (eqn.params["jaxpr"] for eqn in program.eqns if eqn.params.get("name") == "_reset")
    assert first is second
