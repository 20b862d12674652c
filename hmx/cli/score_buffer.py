"""`hmx score-buffer`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from hmx.cli import completion
from hmx.cli.options import MAX_SEED, OUTPUT_PANEL, DryRun, Json, ask, switch

_WHAT, _SCORE, _REPLAY = "Positions", "Scores", "Replay"

CHOICES: dict[str, tuple[str, ...]] = {
    "--select": ("all", "uniform:", "stale:", "indices:"),
    "--actions": ("all", "single-dev", "sampled:", "topk:"),
    "--policy": ("greedy", "softmax:", "eps:"),
    "--metric": ("w1", "dmean", "tv", "js", "tv_bins", "js_bins"),
    "--aggregate": ("mean", "max", "policy"),
    "--mixing": ("td", "additive", "multiplicative"),
    "--unscored": ("mean", "zero"),
}
"""What Tab offers; a test holds it against what the job takes."""


def _choose(option: str, metavar: str, help_text: str, panel: str, **more: Any) -> Any:
    """An option of several choices."""

    def offered(incomplete: str) -> list[str]:
        return [name for name in CHOICES[option] if name.startswith(incomplete)]

    return ask(option, metavar, help_text, panel, autocompletion=offered, **more)


PathArgument = Annotated[
    Path,
    typer.Argument(
        metavar="PATH",
        help="A saved buffer, a run, its folder of checkpoints, or a checkpoint.",
        show_default=False,
        autocompletion=completion.run_names,
    ),
]
CheckpointRun = Annotated[
    Path | None,
    ask(
        "--checkpoint",
        "RUN",
        "Whose policy plays on from a saved buffer: a run, its folder of checkpoints, or a checkpoint.",
        _WHAT,
        autocompletion=completion.run_names,
    ),
]
Agent = Annotated[int, ask("--agent", "N", "Which of several agents trained side by side.", _WHAT)]
Collect = Annotated[int, ask("--collect", "N", "Positions to collect by playing, where a run keeps no buffer.", _WHAT)]
Select = Annotated[
    str,
    _choose(
        "--select",
        "WHICH",
        "Positions to score: all, uniform:N, stale:N (without score first, then the oldest), or indices:FILE.",
        _WHAT,
    ),
]
Actions = Annotated[
    str,
    _choose(
        "--actions",
        "WHICH",
        "What the action taken is compared with: all, single-dev (one agent does something else), sampled:K or topk:K; "
        "all by default, and single-dev for several agents.",
        _SCORE,
        show_default=False,
    ),
]
Rollouts = Annotated[int, ask("--rollouts", "N", "Continuations per action.", _SCORE)]
Horizon = Annotated[
    str, ask("--horizon", "STEPS", "Steps of each; auto takes what 99 % of a sample need to end.", _SCORE)
]
Gamma = Annotated[float | None, ask("--gamma", "X", "Discount per step; the run's by default.", _SCORE)]
Policy = Annotated[
    str,
    _choose(
        "--policy",
        "KIND",
        "How play goes on: greedy, softmax:T or eps:E; by default softmax:1 for PPO, greedy for Q-learning.",
        _SCORE,
        show_default=False,
    ),
]
Bootstrap = Annotated[bool, switch("--bootstrap", "Rollouts that are cut go on in value.", _SCORE)]
Crn = Annotated[
    bool,
    typer.Option(
        "--crn/--no-crn",
        help="Whether the actions of a position meet the same random numbers.",
        metavar="",
        rich_help_panel=_SCORE,
    ),
]
Metric = Annotated[
    str,
    _choose(
        "--metric",
        "KIND",
        "Distance of returns: w1 (Wasserstein-1), dmean (of means), tv, js, tv_bins or js_bins.",
        _SCORE,
    ),
]
Aggregate = Annotated[
    str, _choose("--aggregate", "KIND", "Over the alternatives: mean, max, or weighed by the policy.", _SCORE)
]
Seed = Annotated[
    int | None, ask("--seed", "N", "Seed of the rollouts; the run's by default.", _SCORE, min=0, max=MAX_SEED)
]
Chunk = Annotated[int, ask("--chunk", "N", "Positions between two saves of progress; changes no score.", _SCORE)]
Mixing = Annotated[str, _choose("--mixing", "KIND", "Of TD error and score: td, additive or multiplicative.", _REPLAY)]
Mu = Annotated[float, ask("--mu", "X", "Share of draws by score, in additive mixing.", _REPLAY)]
AlphaTd = Annotated[float, ask("--alpha-td", "X", "Exponent of TD errors.", _REPLAY)]
AlphaC = Annotated[float, ask("--alpha-c", "X", "Exponent of scores.", _REPLAY)]
TargetEss = Annotated[
    float, ask("--target-ess", "SHARE", "Effective sample size that exponents are fitted to; 0 leaves them.", _REPLAY)
]
Unscored = Annotated[
    str, _choose("--unscored", "KIND", "What a transition without a score counts as: the mean score, or zero.", _REPLAY)
]
TargetCoverage = Annotated[
    float, ask("--target-coverage", "SHARE", "Share of transitions that should have a score, for --strict.", _REPLAY)
]
Out = Annotated[
    Path | None,
    ask("--out", "FOLDER", "Where results go; reports/scores of the run, or a folder beside the buffer.", OUTPUT_PANEL),
]
WriteBack = Annotated[
    bool, switch("--write-back", "Also write the buffer with its new scores, to the same folder.", OUTPUT_PANEL)
]
Top = Annotated[int, ask("--top", "N", "Most consequential positions to report.", OUTPUT_PANEL)]
HtmlFile = Annotated[Path | None, ask("--html", "FILE", "Write a page with drawings.", OUTPUT_PANEL)]
Strict = Annotated[
    bool, switch("--strict", "End with exit code 4 if scores are noisy, tie, or cover too little.", OUTPUT_PANEL)
]
Force = Annotated[
    bool, switch("--force", "Score although the horizon is too short, and replace other results.", OUTPUT_PANEL)
]


def score_buffer(
    path: PathArgument,
    checkpoint: CheckpointRun = None,
    agent: Agent = 0,
    collect: Collect = 4096,
    select: Select = "uniform:256",
    actions: Actions = "",
    rollouts: Rollouts = 16,
    horizon: Horizon = "auto",
    gamma: Gamma = None,
    policy: Policy = "",
    bootstrap: Bootstrap = False,
    crn: Crn = True,
    metric: Metric = "w1",
    aggregate: Aggregate = "mean",
    seed: Seed = None,
    chunk: Chunk = 64,
    mixing: Mixing = "additive",
    mu: Mu = 0.5,
    alpha_td: AlphaTd = 0.6,
    alpha_c: AlphaC = 0.6,
    target_ess: TargetEss = 0.0,
    unscored: Unscored = "mean",
    target_coverage: TargetCoverage = 0.0,
    out: Out = None,
    write_back: WriteBack = False,
    top: Top = 8,
    html: HtmlFile = None,
    strict: Strict = False,
    force: Force = False,
    dry_run: DryRun = False,
    json: Json = False,
) -> None:
    """Score how much decisions mattered.

    Takes positions from a replay buffer, or collects some, tries every action in each of them and plays on; the score
    is how far the returns of the action taken are from those of its alternatives. Ctrl-C keeps what is done; the same
    command goes on.
    """
    from hmx.cli import scoring
    from hmx.reports.consequence.options import Ask

    asked = Ask(
        actions=actions, rollouts=rollouts, horizon=horizon, gamma=gamma, policy=policy, bootstrap=bootstrap, crn=crn,
        metric=metric, aggregate=aggregate, select=select, collect=collect, mixing=mixing, mu=mu, alpha_td=alpha_td,
        alpha_c=alpha_c, target_ess=target_ess, unscored=unscored, target_coverage=target_coverage, chunk=chunk,
        seed=seed, top=top, force=force, write_back=write_back, agent=agent,
    )  # fmt: skip
    if dry_run:
        scoring.show_plan(path, checkpoint, asked, out, json=json)
    else:
        scoring.show_scores(path, checkpoint, asked, out, html=html, strict=strict, json=json)
