"""The most consequential positions, as the game shows them."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from hmx.config.smax_facts import PREFIX
from hmx.env.frozenlake import LAKE, SIDE
from hmx.env.protocol import EnvSpec
from hmx.reports.consequence.source import Scene
from hmx.runs import buffers
from hmx.runs.buffers import OBS
from hmx.stats.ranks import Host

_MOST_SHOWN = 64  # numbers of an observation


def top_positions(scene: Scene, rows: dict[str, Host], number: int) -> list[dict[str, Any]]:
    """The positions of the highest scores, highest first, the older first of two equal ones.

    Where the same action was taken in what looks the same, only the first is told, and how many there are.
    """
    order = [int(row) for row in np.lexsort((rows["birth"], -rows["score"].astype(np.float64)))]
    times: dict[bytes, list[int]] = {}
    for row in order:
        if rows["score"][row] > 0.0:
            look = scene.buffer.items[OBS][rows["index"][row]].tobytes() + rows["action"][row][0].tobytes()
            times.setdefault(look, []).append(row)
    return [{**_described(scene, rows, same[0]), "times": len(same)} for same in [*times.values()][:number]]


def _described(scene: Scene, rows: dict[str, Host], row: int) -> dict[str, Any]:
    spec = scene.agent.env.spec
    valid = np.flatnonzero(rows["valid"][row])
    mean, action = rows["mean"][row], rows["action"][row]
    others = valid[valid != 0]
    best = int(others[np.argmax(mean[others])])
    tried = [
        {
            "action": action_name(spec, action[k]),
            "taken": bool(k == 0),
            "mean": float(mean[k]),
            "sd": float(rows["sd"][row][k]),
            "distance": float(rows["divergence"][row][k]),
        }
        for k in sorted(valid, key=lambda k: -mean[k])
    ]
    slot = int(rows["index"][row])
    return {
        "index": slot,
        "birth": int(rows["birth"][row]),
        "score": float(rows["score"][row]),
        "error": float(rows["error"][row]) if "error" in rows else None,
        "td_error": float(scene.buffer.td_errors[slot]),
        "taken": action_name(spec, action[0]),
        "best": action_name(spec, action[best]),
        "gap": float(mean[best] - mean[0]),
        "actions": tried,
        **drawn(scene, slot),
    }


def action_name(spec: EnvSpec, action: Host) -> str:
    """A joint action in words, the agents' in their order."""
    return "+".join(spec.action_names[int(a)] for a in action)


def drawn(scene: Scene, slot: int) -> dict[str, Any]:
    """A position: `position` for HackMatrix, `map` or `battle` where there is one, else the `observation`."""
    env, buffer = scene.agent.env, scene.buffer
    if env.spec.id == "hackmatrix":
        from hmx.game.scenario import to_dict

        state = buffers.env_states(buffer, env, np.array([slot]))
        return {"position": to_dict(jax.tree.map(lambda leaf: np.asarray(leaf)[..., 0], state.game))}
    if env.spec.id.startswith("frozenlake"):
        cell = int(buffer.env_states["core"][slot])
        text = "".join(LAKE)
        marked = text[:cell] + "@" + text[cell + 1 :]
        return {"map": [marked[i : i + SIDE] for i in range(0, SIDE * SIDE, SIDE)]}
    if env.spec.id.startswith(PREFIX):
        from hmx.env.smax import units  # of an optional extra

        battle = buffers.env_states(buffer, env, np.array([slot])).core.state
        return {"battle": units(jax.tree.map(lambda leaf: np.asarray(leaf)[0], battle), env.spec.num_agents)}
    obs = buffer.items[OBS][slot]
    return {"observation": [[float(x) for x in agent.reshape(-1)[:_MOST_SHOWN]] for agent in obs]}
