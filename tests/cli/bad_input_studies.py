"""Bad input to the commands of a study."""

from __future__ import annotations

from importlib.util import find_spec

from bad_input_parts import ARTEFACT, USAGE, Row, rows

NO_OPTUNA: list[Row] = (
    []
    if find_spec("optuna")
    else rows(
        "study new a --preset tiny --space algo.gamma=0.9..0.99",
        (
            ["--sampler", "tpe"],
            USAGE,
            ["tpe needs a package that is not installed: optuna", "pip install -e", "[study]'"],
        ),
    )
)

NEW = rows(
    "study new",
    ([], USAGE, ["missing argument 'STUDY'"]),
    (["a"], USAGE, ["a study needs something to vary"]),
    (["a b?", "--space", "algo.gamma=0.9|0.99"], USAGE, ["'a b?' cannot be the name of a study", "hmx study new a-b"]),
    (["a", "--space", "algo.gamma=0.9..1.5"], USAGE, ["algo.gamma = 0.9..1.5 (--space)", "from 0 to 1"]),
    (["a", "--space", "run.seed=1..5"], USAGE, ["run.seed = 1..5 (--space)", "a study cannot vary it"]),
    (["a", "--space", "ppo.num_minibatches=7|8", "--preset", "tiny"], USAGE, ["ppo.num_minibatches"]),
    (["a", "--space", "algo.gamma=0.9|0.99", "--trials", "7"], USAGE, ["the grid has 2 points"]),
    (["a", "--space", "algo.gamma=0.9..0.99", "--sampler", "grid"], USAGE, ["a grid has no ranges"]),
    (["a", "--space", "algo.gamma=0.9..0.99", "--sampler", "best"], USAGE, ["--sampler best", "quasi-random"]),
    (["a", "--space", "algo.gamma=0.9..0.99", "--metric", "nope"], USAGE, ["there is no such metric"]),
    (
        ["a", "--space", "algo.gamma=0.9..0.99", "--threshold", "3"],
        USAGE,
        ["a threshold needs a measure of time"],
    ),
    (["a", "--space", "algo.gamma=0.9..0.99", "--measure", "steps_to"], USAGE, ["steps_to needs a threshold"]),
)

EVALUATED = rows(
    "study new a --space algo.gamma=0.9..0.99 --metric evaluation",
    (["--rungs", "2"], USAGE, ["a run that has ended"]),
    (["--minimize"], USAGE, ["a higher one is better"]),
    (["--eval-episodes", "0"], USAGE, ["needs episodes"]),
)

OTHERS = [
    row
    for command in ("work", "status", "best", "verify", "add")
    for row in rows(
        f"study {command}",
        ([], USAGE, ["missing argument 'STUDY'"]),
        (["nosuch"], ARTEFACT, ["there is no study nosuch", "hmx study new"]),
    )
]

GATE = [
    *rows(
        "gate new",
        ([], USAGE, ["missing argument 'GATE'"]),
        (["a b?"], USAGE, ["'a b?' cannot be the name of a gate", "hmx gate new a-b"]),
        (["a", "--metric", "nope"], USAGE, ["there is no such metric"]),
        (["a", "--error", "0.9"], USAGE, ["--error"]),
        (["a", "--preset", "tiny", "--seeds", "3", "--max-seeds", "16"], USAGE, ["is not a multiple of --seeds 3",
         "--max-seeds 18"]),
        (["a", "--set", "algo.gama=0.9"], USAGE, ["algo.gamma"]),
        (["a", "--", "python", "train.py"], USAGE, ["the command has no {seed} and no {file}", "-- python train.py"]),
        (["a", "--preset", "control", "--env", "pendulum", "--at", "500"], USAGE, ["run.total_steps = 500 (--at)",
         "try --at 1024", "hint: --at 1024"]),
        (["a", "--lr", "1e-3", "--", "python", "{seed}", "{file}"], USAGE, ["a command has no options of hmx"]),
        (["a", "--", "no-such-program", "{seed}", "{file}"], USAGE, ["there is no command no-such-program"]),
    ),
    *[row for name in ("try", "status", "report", "verify", "adopt") for row in rows(
        f"gate {name}", (["nosuch", *(["1"] if name == "adopt" else [])], ARTEFACT, ["there is no gate nosuch"]),
    )],
]  # fmt: skip
STUDY = [*GATE, *NEW, *NO_OPTUNA, *EVALUATED, *OTHERS]
