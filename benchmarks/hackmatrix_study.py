"""Limits of an agent in HackMatrix: the value of each possession, and how its games are won and lost.

    python benchmarks/hackmatrix_study.py RUN [--positions 1000] [--search N] [--games 1000] [--only grants|games]

Grants: positions from the agent's own games, from true starts, are edited (more attack, credits, each program, ...) and
continued (to the end of the game, or `--longest` steps) with the same random numbers as without the edit. The script
prints the return gained, with a 95 % interval over the positions, and the additional games won. A program is granted
with 8 credits and 8 energy, and compared with these alone. `n` leaves out positions that the edit does not change.

Games: deaths by stage, by the origin of the enemies next to the player (a siphon, the board or the schedule), by their
type, and by the last action. For each program: the share of games in which the player saw a block with it before owning
it, the share of these in which it then owned it, and the share of games won with and without it.

`--search N` plays everything with N simulations instead of the policy alone.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from hmx.algos.evaluate import EvalPolicy, Play, algorithm_policy, make_evaluation, search_policy
from hmx.algos.search import make_search
from hmx.envs.hackmatrix.env import HackMatrixState
from hmx.envs.hackmatrix.observation import observed, packed
from hmx.envs.hackmatrix.rules import ACTION_NAMES, PROGRAMS, Rules, State, bits
from hmx.envs.hackmatrix.rules.mask import legal_actions
from hmx.envs.hackmatrix.rules.play import advance, legal_word_of, random_words
from hmx.envs.hackmatrix.rules.scenario import to_dict
from hmx.envs.hackmatrix.rules.state import C, layer
from hmx.envs.hackmatrix.rules.tables import FIRST_PROGRAM, SIPHON
from hmx.runs.loop import eval_key
from hmx.runs.restoring import Run
from hmx.runs.session import Session

Edit = Callable[[State], State]
RESOURCES = "8 credits and 8 energy"


def edits() -> Iterator[tuple[str, str, Edit]]:
    """Yield the name of each grant, its baseline, and the function that edits a game."""

    def rich(game: State) -> State:
        return game._replace(credits=game.credits + 8, energy=game.energy + 8)

    def attack(n: int) -> Edit:
        return lambda game: game._replace(attack=jnp.maximum(game.attack, n))

    def program(k: int) -> Edit:
        return lambda game: rich(game._replace(owned=game.owned | jnp.uint32(1 << k)))

    yield RESOURCES, "", rich
    yield "attack 2", "", attack(2)
    yield "attack 3", "", attack(3)
    yield "3 hit points", "", lambda game: game._replace(hp=jnp.full_like(game.hp, 3))
    yield "a data siphon", "", lambda game: game._replace(siphons=game.siphons + 1)
    for k, known in enumerate(PROGRAMS):
        yield known.name, RESOURCES, program(k)
    everything = jnp.uint32((1 << len(PROGRAMS)) - 1)
    yield "all programs", RESOURCES, lambda game: rich(game._replace(owned=jnp.full_like(game.owned, everything)))


def positions(session: Session, policy: EvalPolicy, agent: Any, count: int) -> HackMatrixState:
    """Return a position from each of `count` sequences of games, at a step drawn from 20 to 199."""
    whole = make_evaluation(session.env, policy, count, count)
    play = jax.jit(whole.start)(jax.random.key(1))
    when = jax.random.randint(jax.random.key(2), (count,), 20, 200)

    @jax.jit
    def run(play: Play) -> Any:
        def step(i: Any, carried: tuple[Play, Any]) -> tuple[Play, Any]:
            now, kept = carried
            now, _ = whole.step(agent, jax.random.key(3), now)
            kept = jax.tree.map(lambda new, old: jnp.where(when == i, new, old), now.now.env_state, kept)
            return now, kept

        return jax.lax.fori_loop(0, 200, step, (play, play.now.env_state))[1]

    kept: HackMatrixState = run(play)
    return kept


def grants(session: Session, policy: EvalPolicy, agent: Any, count: int, longest: int) -> None:
    """Print the gain of each edit."""
    begun = positions(session, policy, agent, count)
    whole = make_evaluation(session.env, policy, count, count, longest)
    blank = jax.jit(whole.start)(jax.random.key(4))

    @jax.jit
    def finish(game: State) -> tuple[Any, Any]:
        legal = legal_word_of(game)
        start = blank.now._replace(
            env_state=begun._replace(game=game, legal=legal),
            obs=observed(packed(game, session.cfg.env.obs), session.cfg.env.obs),
            legal=legal_actions(legal).T[:, None],
        )
        play = blank._replace(now=start)
        step = jax.random.key(5)
        end = jax.lax.while_loop(whole.unfinished, lambda now: whole.step(agent, step, now)[0], play)
        return end.episodes.total, end.episodes.info["wins"]

    results = {"": (begun.game, *jax.device_get(finish(begun.game)))}
    total, wins = results[""][1:]
    print(f"{count} positions, played on: return {total.mean():.1f}, {wins.mean():.1%} won\n", flush=True)
    print(f"| granted | compared with | n | return gained | 95 % | won, points | 95 % |\n{'|---' * 7}|")
    for name, base, edit in edits():
        game = edit(begun.game)
        results[name] = (game, *jax.device_get(finish(game)))
        other, total, wins = results[base]
        changed = np.zeros(count, bool)
        for new, old in zip(jax.tree.leaves(game), jax.tree.leaves(other), strict=True):
            changed |= (np.asarray(new) != np.asarray(old)).reshape(-1, count).any(0)
        gained, won = (
            (after - before)[changed] for after, before in zip(results[name][1:], (total, wins), strict=True)
        )
        cells = [name, base or "nothing", str(int(changed.sum()))]
        for x, scale in ((gained, 1.0), (won, 100.0)):
            half = 1.96 * scale * x.std(ddof=1) / np.sqrt(len(x))
            mean = scale * x.mean()
            cells += [f"{mean:+.1f}", f"{mean - half:+.1f} to {mean + half:+.1f}"]
        print(f"| {' | '.join(cells)} |", flush=True)


def on_board(game: State) -> jax.Array:
    """Return the set of programs in blocks that are visible and not siphoned, one bit each; uint32 [E]."""
    cells = game.cells
    blocks = layer(cells, C.PROGRAM) & ~layer(cells, C.HIDDEN) & ~layer(cells, C.SIPHONED)
    found = jnp.zeros_like(game.owned)
    for k in range(len(PROGRAMS)):
        here = blocks
        for i in range(5):
            value = layer(cells, C.VALUE + i)
            here = here & (value if k >> i & 1 else ~value)
        found |= jnp.where(bits.some(here), jnp.uint32(1 << k), jnp.uint32(0))
    return found


def whole_games(session: Session, policy: EvalPolicy, agent: Any, games: int) -> None:
    """Print how games ended, and how often with and without each program."""
    cfg = session.cfg
    rules = Rules(undo_depth=cfg.env.undo_depth, name=cfg.env.rules)
    whole = make_evaluation(session.env, policy, min(games, 256), games)
    play, key = jax.jit(whole.start)(eval_key(cfg.run.seed)), jax.random.key(6)

    @jax.jit
    def step(play: Play) -> tuple[Play, Any, Any, Any, Any]:
        after, stepped = whole.step(agent, key, play)
        action = stepped.decision.action
        # The same random numbers once more: the environment shows the next game, not the position at death.
        _, k_env = jax.random.split(jax.random.fold_in(key, play.now.step))
        words, _ = random_words(jax.random.split(k_env, action.shape[0]))
        state = play.now.env_state
        turn = advance(state.game, action[:, 0], words, rules, state.legal)
        died = (turn.events.died > 0) & (play.entry < games)
        offered = on_board(state.game) & ~state.game.owned
        return after, died, turn.state, action[:, 0], offered

    counts: dict[str, Counter[str]] = {name: Counter() for name in ("stage", "beside", "types", "action")}
    by_stage: dict[int, Counter[str]] = {}
    owned, seen = (np.zeros(games + 1, np.uint32) for _ in range(2))  # per game; idle environments use the last entry
    while bool(whole.unfinished(play)):
        entry = np.minimum(play.entry, games)
        owned[entry] |= np.asarray(play.now.env_state.game.owned)
        play, died, state, action, offered = step(play)
        seen[entry] |= np.asarray(offered)
        for i in np.flatnonzero(died):
            game = to_dict(jax.tree.map(lambda leaf, i=i: np.asarray(leaf)[..., i], state))
            player = game["player"]
            near = [e for e in game["enemies"] if abs(e["row"] - player["row"]) + abs(e["col"] - player["col"]) == 1]
            origin = {
                "siphon" if e.get("spawnedFromSiphon") else "schedule" if e.get("isFromScheduledTask") else "board"
                for e in near
            }
            cause = " and ".join(sorted(origin)) or "no enemy beside"
            last = int(action[i])
            counts["stage"][str(game["stage"])] += 1
            counts["beside"][cause] += 1
            counts["types"][" and ".join(sorted({e["type"] for e in near})) or "none"] += 1
            group = "siphon" if last == SIPHON else "program" if last >= FIRST_PROGRAM else "move or attack"
            counts["action"][ACTION_NAMES[last] if group == "program" else group] += 1
            by_stage.setdefault(int(game["stage"]), Counter())[cause] += 1
    total = sum(counts["stage"].values())
    print(f"\n{games} games, {total} deaths ({total / games:.1%})")
    for name, found in counts.items():
        print(f"{name}: " + ", ".join(f"{what} {n / total:.1%}" for what, n in found.most_common(12)))
    for stage, causes in sorted(by_stage.items()):
        listed = ", ".join(f"{what} {n}" for what, n in causes.most_common())
        print(f"stage {stage}: {sum(causes.values())} deaths: {listed}")
    print(f"\n| program | games that showed it | that then owned it | won with it | won without |\n{'|---' * 5}|")
    won = np.asarray(play.episodes.info["wins"]) > 0
    for k, program in enumerate(PROGRAMS):
        has, shown = ((bitsets[:games] >> k & 1).astype(bool) for bitsets in (owned, seen))
        cells = (f"{100 * x.mean():.1f} %" if len(x) else "" for x in (shown, has[shown], won[has], won[~has]))
        print(f"| {program.name} ({has.sum()} games) | {' | '.join(cells)} |")


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run")
    parser.add_argument("--root", default="runs", help="runs folder, for a name")
    parser.add_argument("--positions", type=int, default=1000)
    parser.add_argument("--longest", type=int, default=500, help="steps that a position is played on, at most")
    parser.add_argument("--games", type=int, default=1000)
    parser.add_argument("--search", type=int, help="simulations per decision from the true state; else only the policy")
    parser.add_argument("--only", choices=("grants", "games"))
    args = parser.parse_args()
    run = Run.find(args.run, args.root)
    cfg = run.cfg
    if cfg.env.id != "hackmatrix":
        raise SystemExit(f"{args.run} plays {cfg.env.id}, not hackmatrix")
    session = run.open()
    agent = run.agent(session).state
    if args.search:
        policy = search_policy(session.algorithm, make_search(session.algorithm, session.env, cfg, args.search))
    else:
        policy = algorithm_policy(session.algorithm, greedy=False)
    if args.only != "games":
        grants(session, policy, agent, args.positions, args.longest)
    if args.only != "grants":
        whole_games(session, policy, agent, args.games)


if __name__ == "__main__":
    main()
