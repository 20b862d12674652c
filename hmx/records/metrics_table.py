"""List every metric of a run: name, unit, direction, reduction over a window, and meaning."""

from __future__ import annotations

import dataclasses
from typing import Literal, NamedTuple

from hmx.config.schema import RewardWeights

Direction = Literal["up", "down", "none"]
Reduce = Literal["mean", "max", "sum", "last"]

PROGRAMS: tuple[str, ...] = (
    "push", "pull", "crash", "warp", "poly", "wait", "debug", "row", "col", "undo", "step", "siph_plus",
    "exch", "show", "reset", "calm", "d_bom", "delay", "anti_v", "score", "reduc", "atk_plus", "hack",
)  # fmt: skip
"""The programs of HackMatrix in the order of their actions."""


class MetricInfo(NamedTuple):
    """One metric; `direction` is the better one, and `reduce` combines several updates."""

    name: str
    unit: str
    direction: Direction
    reduce: Reduce
    help: str

    @property
    def group(self) -> str:
        """Return the part before the slash."""
        return self.name.partition("/")[0]


GROUPS: dict[str, str] = {
    "train": "The learner and its rollouts. A metric without data in an update is absent: the return, for example, "
    "where no episode ended.",
    "reward": "The reward terms of HackMatrix, each the mean over all steps and environments of the rollout; they sum "
    "to `train/mean_reward`. Other environments report terms of their own.",
    "actions": "The kinds of actions taken, as shares of all; they sum to 1.",
    "stats": "Events in the game.",
    "programs": "How often each program was used.",
    "grad_norm": "With `run.grad_report_every`, in the records of the updates whose number it divides: a gradient "
    "report, measured before the update. `<bucket>` is `bucket_1`, `bucket_2`, ... by rising standard deviation of "
    "returns, `bucket_zero`, "
    "`bucket_undefined`, or `all`; `<part>` is `task`, `entropy`, `kl`, `value`, or `total`, and of Q-learning `td` or "
    "`total`. Norms and losses are weighted as in the training loss, which has no KL term: `kl`, measured from the "
    "policy itself, is 0. "
    "[Reading a gradient report](grad-report.md) has the definitions.",
    "replay": "The replay buffer of Q-learning; metrics of the whole buffer every `replay.survey_every` updates only.",
    "score": "The passes that score stored transitions, in the updates with such a pass.",
}

_TRAIN = (
    MetricInfo("train/mean_reward", "reward per step", "up", "mean", "reward per step, over all environments"),
    MetricInfo("train/mean_episode_return", "reward", "up", "mean", "undiscounted return of the episodes that ended"),
    MetricInfo("train/mean_episode_length", "steps", "none", "mean", "length of the episodes that ended"),
    MetricInfo("train/num_episodes", "episodes", "none", "sum", "episodes that ended"),
    MetricInfo("train/truncated_frac", "share", "none", "mean", "share of steps at which an episode was truncated"),
    MetricInfo("train/policy_loss", "", "none", "mean", "clipped surrogate loss of the policy"),
    MetricInfo("train/value_loss", "", "down", "mean", "loss of the value head, before its weight"),
    MetricInfo("train/total_loss", "", "none", "mean", "weighted sum of policy, value and entropy terms"),
    MetricInfo("train/approx_kl", "nats", "none", "mean", "estimated KL divergence from the policy that acted"),
    MetricInfo("train/clip_frac", "share", "none", "mean", "share of samples whose ratio lies outside the clip range"),
    MetricInfo(
        "train/entropy", "nats", "none", "mean", "entropy of the policy over the legal actions, as the loss rewards it"
    ),
    MetricInfo(
        "train/max_entropy",
        "nats",
        "none",
        "mean",
        "largest possible entropy: log of the number of legal actions, or log 2 per dimension of a continuous one",
    ),
    MetricInfo("train/std", "", "none", "mean", "standard deviation of continuous actions before squashing"),
    MetricInfo(
        "train/explained_variance", "share", "up", "mean", "share of the return variance explained by the value"
    ),
    MetricInfo("train/grad_norm", "", "none", "mean", "global norm of the gradient before clipping"),
    MetricInfo(
        "train/first_ratio_error",
        "",
        "down",
        "max",
        "largest distance of an importance ratio from 1 before the first gradient step; a bug if above rounding",
    ),
    MetricInfo("train/sequence_coverage", "share", "none", "mean", "share of training sequences used at least once"),
    MetricInfo(
        "train/nonfinite_sequences",
        "sequences",
        "down",
        "sum",
        "sequences whose advantages are not finite; they get the lowest priority",
    ),
    MetricInfo("train/max_sequence_weight", "", "none", "max", "largest importance weight of a sampled sequence"),
    MetricInfo("train/learning_rate", "", "none", "last", "learning rate of the optimiser"),
    MetricInfo("train/clip_eps", "", "none", "last", "clip range of the importance ratio"),
    MetricInfo("train/clip_vf_eps", "reward", "none", "last", "clip range of the value, where it is clipped"),
    MetricInfo("train/ent_coef", "", "none", "last", "weight of the entropy bonus"),
    MetricInfo("train/prio_beta", "", "none", "last", "exponent of the importance weights of prioritised sequences"),
    MetricInfo(
        "train/skipped_updates",
        "updates",
        "down",
        "sum",
        "updates that were skipped because a value was not finite; only with on_nonfinite = skip",
    ),
    MetricInfo(
        "train/grad_report_seconds",
        "seconds",
        "down",
        "mean",
        "duration of the gradient report, the first one including compilation; only with grad_report_every",
    ),
    MetricInfo("train/td_error", "reward", "none", "mean", "mean absolute TD error of the sampled transitions"),
    MetricInfo("train/q_value", "reward", "none", "mean", "value of the actions taken in the sampled transitions"),
    MetricInfo("train/epsilon", "probability", "none", "last", "probability of a random action"),
    MetricInfo("train/is_beta", "", "none", "last", "exponent of the importance weights of prioritised replay"),
    MetricInfo(
        "train/gradient_steps",
        "gradient steps",
        "none",
        "last",
        "gradient steps of the update; 0 until learning starts",
    ),
    MetricInfo("train/env_steps", "steps", "none", "last", "environment steps taken so far, per seed"),
    MetricInfo("train/steps_per_sec", "steps per second", "up", "mean", "environment steps per second, over all seeds"),
)

_ACTIONS = (
    MetricInfo("actions/move_frac", "share", "none", "mean", "share of actions that move or attack"),
    MetricInfo("actions/siphon_frac", "share", "none", "mean", "share of actions that siphon"),
    MetricInfo("actions/program_frac", "share", "none", "mean", "share of actions that run a program"),
)

_STATS = (
    MetricInfo("stats/highest_stage", "stage", "up", "max", "highest stage reached in any environment"),
    MetricInfo("stats/stages_completed", "stages", "up", "sum", "stages completed"),
    MetricInfo("stats/wins", "games", "up", "sum", "games won: stage 8 completed; in SMAX every enemy killed"),
    MetricInfo("stats/win_rate", "share", "up", "mean", "share of the ended episodes that were won; SMAX only"),
    MetricInfo("stats/undo_stages", "stages", "none", "sum", "stages completed by the UNDO loophole"),
    MetricInfo("stats/deaths", "games", "down", "sum", "games lost"),
    MetricInfo("stats/overflow", "entities", "down", "sum", "enemies and transmissions without a free slot"),
)

_BUCKET = (
    ("<part>", "", "norm of the mean gradient over the bucket's steps, before clipping"),
    ("per_sample/<part>", "", "norm of the summed gradient, divided by the number of episodes"),
    ("per_token/<part>", "", "norm of the summed gradient, divided by the number of steps"),
    ("loss/policy", "", "clipped surrogate, mean over steps"),
    ("loss/entropy", "", "entropy, weighted and with the sign it has in the loss: negative"),
    ("loss/kl", "nats", "KL divergence from the policy that acted, weighted"),
    ("loss/value", "", "loss of the value head, weighted"),
    ("loss/td", "", "TD loss of Q-learning, before importance weights"),
    ("loss/total", "", "sum of the losses"),
    ("reward_std_mean", "reward", "standard deviation of a group's returns, mean over groups"),
    ("reward_std_min", "reward", "lowest of these standard deviations"),
    ("reward_std_max", "reward", "highest of these standard deviations"),
    ("return_mean", "reward", "undiscounted return of the episodes"),
    ("truncated_frac", "share", "share of episodes that the report truncated"),
    ("group_count", "groups", "start states"),
    ("sample_count", "episodes", "episodes"),
    ("sample_pct", "%", "share of all episodes"),
    ("token_count", "steps", "steps"),
    ("share", "share", "of the whole gradient, by projection; over buckets these sum to 1"),
    ("component_share/<part>", "share", "of the bucket's gradient, by projection; over parts these sum to 1"),
    ("cos/task_value", "cosine", "between the gradients of the policy and of the value loss"),
    ("cos/task_entropy", "cosine", "between the gradients of the policy loss and of the entropy bonus"),
    ("cos_all/<part>", "cosine", "between the bucket's gradient and that of all"),
    ("noise/<part>/signal", "", "unbiased square of the true norm, of `task` or `td`, and of `total`; may be negative"),
    ("noise/<part>/trace", "", "trace of the covariance between groups"),
    ("noise/<part>/scale", "groups", "trace / signal: number of groups at which they are equal"),
    ("noise/<part>/snr", "", "groups x signal / trace"),
)

_GRAD = (
    *(MetricInfo(f"grad_norm/<bucket>/{name}", unit, "none", "mean", words) for name, unit, words in _BUCKET),
    MetricInfo("grad_norm/all/layer/<layer>", "", "none", "mean", "norm of the total gradient within one layer"),
    MetricInfo("grad_norm/clip_scale", "", "none", "mean", "clipping factor of the gradient of `all`"),
)


def _reward_rows() -> tuple[MetricInfo, ...]:
    rows = []
    for term in dataclasses.fields(RewardWeights):
        weight, doc, unit = term.default, term.metadata["doc"], term.metadata["unit"]
        # Up also for penalties: a larger reward term is always better.
        rows.append(MetricInfo(f"reward/{term.name}", "reward per step", "up", "mean", f"{weight:+g} {unit}: {doc}"))
    return tuple(rows)


def _program_rows() -> tuple[MetricInfo, ...]:
    return tuple(MetricInfo(f"programs/{p}", "uses", "none", "sum", f"uses of {_title(p)}") for p in PROGRAMS)


def _title(program: str) -> str:
    special = {"siph_plus": "SIPH+", "atk_plus": "ATK+", "anti_v": "ANTI-V"}
    return special.get(program, program.upper())


_REPLAY = (
    MetricInfo("replay/is_weight_min", "", "none", "mean", "smallest importance weight of a batch"),
    MetricInfo("replay/is_weight_max", "", "none", "max", "largest importance weight of a batch"),
    MetricInfo("replay/drawn_scored", "share", "none", "mean", "share of the sampled transitions that have a score"),
    MetricInfo(
        "replay/ess", "share", "none", "last", "effective sample size of the probabilities, as a share of the buffer"
    ),
    MetricInfo("replay/prob_ratio", "", "none", "last", "largest / smallest sampling probability"),
    MetricInfo("replay/coverage", "share", "up", "last", "share of the transitions that have a score"),
    MetricInfo(
        "replay/staleness_p50",
        "transitions",
        "down",
        "last",
        "median of the transitions added since a score",
    ),
    MetricInfo("replay/staleness_p90", "transitions", "down", "last", "90th percentile of the same"),
    MetricInfo("replay/score_zero", "share", "none", "last", "share of the scores that are 0"),
    MetricInfo("replay/score_td_rank", "", "none", "last", "rank correlation of scores and absolute TD errors"),
    MetricInfo("replay/alpha_td", "", "none", "last", "current exponent of the TD error"),
    MetricInfo("replay/alpha_c", "", "none", "last", "current exponent of the score"),
    MetricInfo("replay/nonfinite", "values", "down", "last", "TD errors and scores so far that were not finite"),
)

_SCORE = (
    MetricInfo("score/mean", "", "none", "mean", "mean score of a pass, in the unit of the score metric"),
    MetricInfo("score/max", "", "none", "max", "largest score of a pass"),
    MetricInfo("score/ended", "share", "none", "mean", "share of the rollouts whose episode ended within the horizon"),
    MetricInfo("score/reliability", "", "up", "mean", "rank correlation of the scores from two halves of the rollouts"),
)

METRICS: dict[str, MetricInfo] = {
    row.name: row for row in (*_TRAIN, *_reward_rows(), *_ACTIONS, *_STATS, *_program_rows(), *_REPLAY, *_SCORE, *_GRAD)
}
"""By name. In the names of gradient reports, `<bucket>`, `<part>` and `<layer>` are placeholders."""

RENAMED: dict[str, str] = {
    "train/cut_frac": "train/truncated_frac",
    "train/row_coverage": "train/sequence_coverage",
    "train/nonfinite_rows": "train/nonfinite_sequences",
    "train/max_row_weight": "train/max_sequence_weight",
}
"""Name up to schema 1 of metrics.jsonl -> name since schema 2. Readers of records rename old ones."""


def docs_markdown() -> str:
    """Return the page docs/metrics.md."""
    out = [
        "# Metrics",
        "",
        "`metrics.jsonl` of a run has one JSON object per update and seed, with the metrics below and:",
        "",
        "| field | meaning |",
        "|---|---|",
        "| `schema` | version of the format, now 2 |",
        "| `run` | id of the run, as in `meta.json` |",
        "| `update`, `env_steps`, `seed` | updates done, environment steps per seed, and seed of the agent |",
        "| `elapsed` | seconds that the run has been training, over all resumptions, from a monotonic clock |",
        "| `wall_time` | seconds since 1970; never goes back, even if the clock does |",
        "| `nonfinite` | number of values that are not finite; they are written as `null` |",
        "",
        "*Better* is the better direction; *over time* is how several updates are combined. Schema 1 had no `run`, no",
        "`elapsed`, and other names: "
        + ", ".join(f"`{old}` for `{new}`" for old, new in RENAMED.items())
        + ". Readers accept them.",
    ]
    for group, words in GROUPS.items():
        out += [
            "",
            f"## `{group}/`",
            "",
            words,
            "",
            "| name | unit | better | over time | meaning |",
            "|---|---|---|---|---|",
        ]
        for row in METRICS.values():
            if row.group == group:
                better = "" if row.direction == "none" else row.direction
                out.append(f"| `{row.name}` | {row.unit} | {better} | {row.reduce} | {row.help} |")
    return "\n".join(out) + "\n"
