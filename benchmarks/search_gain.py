"""Gain and cost of search at play time in a run.

    python benchmarks/search_gain.py RUN [--simulations 0 4 16 64] [--episodes 64] [--set env.rules=designed]

Plays the same number of episodes for each number of simulations; 0 is the greedy policy without search. Printed are the
mean return with its standard error, the mean stage, the share of episodes won and of stages completed with UNDO (of
HackMatrix), and the decisions per second (of processor time on a CPU), without compilation.
"""

from __future__ import annotations

import argparse

import jax
import numpy as np

from hmx.algos.evaluate import TO_THE_END, algorithm_policy, make_chunks, make_evaluation, search_policy
from hmx.algos.search import make_search, searched
from hmx.registry.load import load
from hmx.reports.bench.measure import device_clock
from hmx.runs.loop import eval_key
from hmx.runs.restoring import Run


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run")
    parser.add_argument("--root", default="runs", help="runs folder, for a name")
    parser.add_argument("--simulations", type=int, nargs="+", default=[0, 4, 16, 64])
    parser.add_argument("--episodes", type=int, default=64, help="all side by side")
    parser.add_argument("--set", action="append", default=[], help="change the configuration of the run")
    args = parser.parse_args()
    run = Run.find(args.run, args.root)
    run = run._replace(task=load(file=run.folder, sets=args.set))
    cfg, session = run.cfg, run.open()
    clock = device_clock()
    state = run.agent(session).state
    print(f"{'simulations':>11} {'return':>8} {'± se':>6} {'stage':>6} {'won':>6} {'by UNDO':>8} {'decisions/s':>12}")
    for simulations in args.simulations:
        policy = algorithm_policy(session.algorithm, greedy=True)
        env = searched(session.env, cfg.gumbel.sees, simulations or None)
        if simulations:
            policy = search_policy(session.algorithm, make_search(session.algorithm, env, cfg, simulations))
        chunks = make_chunks(make_evaluation(env, policy, args.episodes, args.episodes))
        play, key = chunks.start(eval_key(cfg.run.seed))
        play, _ = chunks.advance(state, key, play, 1)  # compiles
        began = clock()
        play, _ = chunks.advance(state, key, play, TO_THE_END)
        played = jax.device_get(play.episodes)
        rate = played.length.sum() / (clock() - began)
        info = {name: np.asarray(values) for name, values in played.info.items()}
        error = played.total.std() / np.sqrt(args.episodes)
        line = f"{simulations:>11} {played.total.mean():>8.2f} {error:>6.2f}"
        if "highest_stage" in info:
            undone = info["undo_stages"].sum() / max(1.0, info["stages_completed"].sum())
            line += f" {info['highest_stage'].mean():>6.2f} {(info['wins'] > 0).mean():>6.1%} {undone:>8.1%}"
        else:
            line += f" {'':>6} {'':>6} {'':>8}"
        print(f"{line} {rate:>12,.0f}", flush=True)


if __name__ == "__main__":
    main()
