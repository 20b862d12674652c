"""The entry of HackMatrix in the registry; imports no JAX."""

from __future__ import annotations

from types import MappingProxyType
from typing import Literal

from hmx.config.option import opt
from hmx.registry.entry import EnvEntry

GameRules = Literal["original", "designed"]
ObsKind = Literal["packed", "counted", "flat"]

_OPTIONS = {
    "obs": (ObsKind, opt(
        "packed",
        "observation of HackMatrix: packed words that the network decodes, the same with the score and what else a "
        "player can count, or 1,545 floats",
        shape="always",
    )),
    "undo_depth": (int, opt(4, "snapshots for the program UNDO", "snapshots", ge=1, shape="always")),
    "rules": (GameRules, opt(
        "designed",
        "rules of HackMatrix: as in the original game, or as designed, without its UNDO bug (docs/adr/0003-rules.md)",
        gone=("closed",),
    )),
}  # fmt: skip

_WEIGHTS = (
    ("step_penalty", -0.01, "each valid action, including programs that cost no turn", "per step"),
    ("stage_completion", 1.0, "completing stage 1 to 8, times 1, 2, 4, 8, 16, 32, 64 or 100", "per stage"),
    ("score_gain", 0.5, "each point of score", "per point"),
    ("kills", 0.3, "each enemy or transmission destroyed, except scheduled ones", "per kill"),
    ("data_siphon", 1.0, "each data siphon picked up by walking", "per siphon"),
    ("distance_shaping", 0.05, "each cell by which the shortest path to the exit gets shorter", "per cell"),
    ("victory", 1.0, "completing stage 8, times 500 + 100 x score", "per win"),
    ("death_penalty", -0.5, "death, times the stage rewards collected so far", "per death"),
    ("siphon_death_penalty", -10.0, "death next to an enemy that a siphon brought", "per death"),
    ("resource_gain", 0.05, "each credit and energy gained, minus those spent", "per unit"),
    ("resource_holding", 0.01, "each credit and energy held when a stage is completed", "per unit"),
    ("damage_penalty", -1.0, "each hit point lost in a step, net", "per hp"),
    ("hp_recovery", 1.0, "each hit point gained in a step, net", "per hp"),
    ("siphon_quality", -0.025,
     "each credit and energy missed by a worse siphon position: -0.5 x the reward missed, which is 0.05 per unit, as "
     "resource_gain pays by default", "per unit"),
    ("program_waste", -0.3, "using RESET with 2 hit points", "per use"),
)  # fmt: skip
"""Each weight multiplies a count that the rules emit (`hmx.envs.hackmatrix.rules.Events`), or a quantity derived from
such counts."""

_STARTS = {
    "share": (float, opt(
        0.0, "probability, per environment and rollout, that episodes begin in stage 2 to 8, with random programs",
        "probability", ge=0, le=1, shape="if_not_default",
    )),
    "share_schedule": ("Schedule", opt("constant", "schedule of share")),
    "share_end": (float, opt(1.0, "final share, as a share of the initial one", ge=0, le=1)),
}  # fmt: skip

_PROGRAMS = (
    "push", "pull", "crash", "warp", "poly", "wait", "debug", "row", "col", "undo", "step", "siph+",
    "exch", "show", "reset", "calm", "d_bom", "delay", "anti-v", "score", "reduc", "atk+", "hack",
)  # fmt: skip

_METRICS = (
    ("actions/move_frac", "share", "none", "mean", "share of actions that move or attack"),
    ("actions/siphon_frac", "share", "none", "mean", "share of actions that siphon"),
    ("actions/program_frac", "share", "none", "mean", "share of actions that run a program"),
    ("stats/highest_stage", "stage", "up", "max", "highest stage reached in any environment"),
    ("stats/stages_completed", "stages", "up", "sum", "stages completed"),
    ("stats/wins", "games", "up", "sum", "games won: stage 8 completed; in SMAX every enemy killed"),
    ("stats/undo_stages", "stages", "none", "sum", "stages completed by the UNDO loophole"),
    ("stats/deaths", "games", "down", "sum", "games lost"),
    ("stats/overflow", "entities", "down", "sum", "enemies and transmissions without a free slot"),
    *((f"programs/{name.replace('+', '_plus').replace('-', '_')}", "uses", "none", "sum", f"uses of {name.upper()}")
      for name in _PROGRAMS),
)  # fmt: skip

ENTRIES = (
    EnvEntry(
        "hackmatrix",
        "hmx.envs.hackmatrix.env:make_hackmatrix",
        lambda cfg, weights: (cfg, weights),
        options=MappingProxyType({
            "EnvConfig": _OPTIONS,
            "RewardWeights": {name: (float, opt(weight, *words)) for name, weight, *words in _WEIGHTS},
            "StartsConfig": _STARTS,
        }),
        metrics=_METRICS,
        groups=MappingProxyType({"programs": "How often each program was used."}),
        masked=True,
        steady_terms=("step_penalty",),
        features=lambda cfg: frozenset({"board"} if cfg.obs == "flat" else {"board", "cells"}),
    ),
)  # fmt: skip
