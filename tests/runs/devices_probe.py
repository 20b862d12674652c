"""Run by test_devices.py in a process of its own, for which one processor looks like eight devices.

    python devices_probe.py CASE DEVICES...

Prints one JSON object: by number of devices, what three updates report, the parameters they end in, and what the
compiled program says of its work and its communication.
"""

import json
import re
import sys
from typing import Any

import jax
import numpy as np

from hmx.config.learning import PpoConfig
from hmx.config.schema import AlgoConfig, Config, EnvConfig, NetConfig, RunConfig, StartsConfig
from hmx.runs import chunk as chunks
from hmx.runs import devices
from hmx.runs.checkpoint import to_host
from hmx.runs.loop import init_state
from hmx.runs.session import open_session

UPDATES = 3
CASES: dict[str, dict[str, dict[str, Any]]] = {
    "plain": {"env": {"id": "frozenlake", "num_envs": 16}},
    "hackmatrix": {"env": {"id": "hackmatrix", "num_envs": 8}, "starts": {"share": 0.5}},
    "memory": {
        "env": {"id": "recall", "num_envs": 8, "recall_delay": 2},
        "net": {"rnn": "gru", "rnn_hidden": 8},
        "ppo": {"advantage": "vtrace", "prio_alpha": 0.5},
        "run": {"num_seeds": 2},
    },
}


def configure(case: str, num_devices: int) -> Config:
    given = CASES[case]
    return Config(
        run=RunConfig(devices=num_devices, **given.get("run", {})),
        env=EnvConfig(**{"max_steps": 9, **given["env"]}),
        starts=StartsConfig(**given.get("starts", {})),
        net=NetConfig(hidden=(16,), **given.get("net", {})),
        algo=AlgoConfig(num_steps=8),
        ppo=PpoConfig(num_minibatches=2, update_epochs=2, **given.get("ppo", {})),
    )


def measure(case: str, num_devices: int) -> dict[str, Any]:
    cfg = configure(case, num_devices)
    session = open_session(cfg)
    compiled: list[Any] = []
    chunks.interruptible = lambda compile_: compiled.append(compile_()) or compiled[0]  # type: ignore[attr-defined]
    mesh, seeds = devices.make_mesh(cfg.run.devices, cfg.env.num_envs), cfg.run.num_seeds
    chunk = chunks.compile_chunk(session.algorithm, session.abstract, UPDATES, seeds, mesh=mesh)
    state = devices.put(mesh, session.algorithm, init_state(session.algorithm, 0, seeds), seeds)
    hypers = {name: np.full(UPDATES, value, np.float32) for name, value in session.algorithm.hypers(0).items()}
    result = chunk.call(state, hypers, np.int32(UPDATES))
    text = compiled[0].as_text()
    return {
        "values": np.asarray(result.packed).tolist(),
        "leaves": {name: leaf.astype(np.float64).tolist() for name, leaf in to_host(result.state).items()},
        "spread": {
            str(leaf.sharding.num_devices if not leaf.sharding.is_fully_replicated else 1)
            for leaf in jax.tree.leaves(result.state.actors.env_state)
        }.pop(),
        "flops": compiled[0].cost_analysis()["flops"],
        "collectives": len(re.findall(r"(?:all-reduce|all-gather|all-to-all|collective-permute)(?:-start)?\(", text)),
    }


if __name__ == "__main__":
    print(json.dumps({number: measure(sys.argv[1], int(number)) for number in sys.argv[2:]}))
