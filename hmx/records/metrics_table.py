"""List every metric of a run: name, unit, direction, reduction over a window, and meaning."""

from __future__ import annotations

import dataclasses
from typing import Literal, NamedTuple

from hmx.config.schema import ENTRIES, RewardWeights

Direction = Literal["up", "down", "none"]
Reduce = Literal["mean", "max", "sum", "last"]


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
    "where no episode ended. Means over episodes are also absent until every environment has ended its first episode. "
    "The first mean covers exactly these first episodes. Without this rule the first means would cover the short "
    "episodes only, which end first.",
    "eval": "Small evaluations while the run trains (`run.evaluations`), in the record of the update after each: "
    "whole episodes of the agent as it is then, from the start of the game, and of random play. Every episode that "
    "starts counts, so no mean favours short or long ones. All evaluations of a run start from the same positions.",
    "reward": "The weighted reward terms, each the mean over all steps and environments of the rollout; they sum to "
    "`train/mean_reward`. Other environments report their own terms.",
    "actions": "The kinds of actions taken, as shares of all; they sum to 1.",
    "stats": "Events in the game.",
    "starts": "With `starts.share`: the training episodes that began in a later stage. They do not count in the groups "
    "`reward`, `actions` and `stats` and in those of a game, nor in `train/mean_reward`, `train/mean_episode_return`, "
    "`train/mean_episode_length` and `train/num_episodes`.",
    "actor": "The parts of the gradient of ordinary updates, with `run.grad_report_every` in the records of the "
    "updates whose number it divides; PPO only. They are those of the training batch: one backward pass per part and "
    "minibatch, then the mean over the minibatches of all epochs, weighted as in the training loss and before "
    "clipping. "
    "`kl` needs a reference policy (`ppo.ref`), and is absent without one.",
    "grad_norm": "With `run.grad_report_every`, in the records of the updates whose number it divides: a gradient "
    "report, measured before the update. `<bucket>` is `bucket_1`, `bucket_2`, ... by rising standard deviation of "
    "returns, `bucket_zero`, "
    "`bucket_undefined`, or `all`; `<part>` is `task`, `entropy`, `kl`, `value`, or `total`, and of Q-learning `td` or "
    "`total`. Norms and losses are weighted as in the training loss. `kl` is the penalty for the distance from a "
    "reference policy (`ppo.ref`), and is absent without one. "
    "[Reading a gradient report](grad-report.md) has the definitions.",
    "replay": "The replay buffer of Q-learning; metrics of the whole buffer every `replay.survey_every` updates only.",
    "score": "The passes that score stored transitions, in the updates with such a pass.",
} | {group: words for entry in ENTRIES for group, words in entry.groups.items()}

_ROWS: tuple[tuple[str, str, Direction, Reduce, str], ...] = (
    ("train/mean_reward", "reward per step", "up", "mean", "reward per step, over all environments"),
    ("train/mean_episode_return", "reward", "up", "mean", "undiscounted return of the episodes that ended"),
    ("train/mean_episode_length", "steps", "none", "mean", "length of the episodes that ended"),
    ("eval/return", "reward", "up", "mean", "mean undiscounted return of the agent before this update"),
    ("eval/return_low", "reward", "up", "mean", "lower end of its 95 % interval (bootstrap over episodes)"),
    ("eval/return_high", "reward", "up", "mean", "upper end of its 95 % interval"),
    ("eval/random_return", "reward", "none", "mean", "mean undiscounted return of random play"),
    ("eval/length", "steps", "none", "mean", "mean length of the agent's episodes"),
    ("eval/episodes", "episodes", "none", "last", "episodes of each of the two"),
    ("train/num_episodes", "episodes", "none", "sum", "episodes that ended"),
    ("train/truncated_frac", "share", "none", "mean", "share of steps at which an episode was truncated"),
    ("train/policy_loss", "", "none", "mean",
     "loss of the policy: clipped surrogate of PPO, cross-entropy to the search of gumbel"),
    ("train/value_loss", "", "down", "mean", "value head loss, before its weight"),
    ("train/value_loss_fall", "share", "none", "mean",
     "share by which the value loss of the last epoch is below that of the first, over the same samples"),
    ("train/total_loss", "", "none", "mean",
     "weighted sum of policy, value and entropy terms, and of the KL divergence from a reference policy"),
    ("train/approx_kl", "nats", "none", "mean", "estimated KL divergence from the policy that acted"),
    ("train/clip_frac", "share", "none", "mean", "share of samples whose ratio lies outside the clip range"),
    ("train/ref_kl", "nats", "none", "mean",
     "exact KL divergence of the policy from the reference policy of ppo.ref, before its weight"),
    ("train/search_kl", "nats", "down", "mean", "KL divergence of the policy from the search that it learns from"),
    ("train/search_entropy", "nats", "none", "mean", "entropy of the search that the policy learns from"),
    ("train/entropy", "nats", "none", "mean", "entropy of the policy over the legal actions, as the loss rewards it"),
    ("train/max_entropy", "nats", "none", "mean",
     "largest possible entropy: log of the number of legal actions, or log 2 per dimension of a continuous one"),
    ("train/std", "", "none", "mean", "standard deviation of continuous actions before squashing"),
    ("train/advantage_std", "reward", "none", "mean",
     "standard deviation of the advantages, not normalised; without a unit if ppo.advantage_scale = symlog"),
    ("train/explained_variance", "share", "up", "mean", "share of the return variance explained by the value"),
    ("train/grad_norm", "", "none", "mean", "global gradient norm before clipping"),
    ("train/first_ratio_error", "", "down", "max",
     "largest distance of an importance ratio from 1 before the first gradient step; a bug if above rounding"),
    ("train/dormant_units", "share", "down", "mean",
     "share of the hidden units whose mean absolute activation is at most 0.025 of their layer's mean; measured on up "
     "to 256 observations, by Q-learning every replay.survey_every updates"),
    ("train/sequence_coverage", "share", "none", "mean", "share of training sequences used at least once"),
    ("train/nonfinite_sequences", "sequences", "down", "sum",
     "sequences whose advantages are not finite; they get the lowest priority"),
    ("train/max_sequence_weight", "", "none", "max", "largest importance weight of a sampled sequence"),
    ("train/learning_rate", "", "none", "last", "learning rate of the optimiser"),
    ("train/clip_eps", "", "none", "last", "clip range of the importance ratio"),
    ("train/clip_vf_eps", "reward", "none", "last", "clip range of the value, if it is clipped"),
    ("train/ent_coef", "", "none", "last", "entropy bonus weight"),
    ("train/ref_kl_coef", "", "none", "last", "weight of the KL divergence from the reference policy"),
    ("train/start_share", "probability", "none", "last", "probability that an episode begins in a later stage"),
    ("train/prio_beta", "", "none", "last", "exponent of the importance weights of prioritised sequences"),
    ("train/skipped_updates", "updates", "down", "sum",
     "updates that were skipped because a value was not finite; only with on_nonfinite = skip"),
    ("train/grad_report_seconds", "seconds", "down", "mean",
     "duration of the gradient report, the first one including compilation; only with grad_report_every"),
    ("train/td_error", "reward", "none", "mean", "mean absolute TD error of the sampled transitions"),
    ("train/q_value", "reward", "none", "mean", "value of the actions taken in the sampled transitions"),
    ("train/epsilon", "probability", "none", "last", "probability of a random action"),
    ("train/is_beta", "", "none", "last", "exponent of the importance weights of prioritised replay"),
    ("train/gradient_steps", "gradient steps", "none", "last",
     "gradient steps of the update; 0 until learning starts"),
    ("train/env_steps", "steps", "none", "last", "environment steps taken so far, per seed"),
    ("train/steps_per_sec", "steps per second", "up", "mean", "environment steps per second, over all seeds"),
    ("train/steps_per_cpu_sec", "steps per second", "up", "mean",
     "environment steps per second of CPU time of the process, over all seeds"),
    ("actor/grad_norm/task", "", "none", "mean", "gradient norm of the policy loss"),
    ("actor/grad_norm/entropy", "", "none", "mean", "gradient norm of the entropy bonus"),
    ("actor/grad_norm/kl", "", "none", "mean", "gradient norm of the penalty of ppo.ref"),
    ("actor/loss/entropy", "", "none", "mean", "entropy, weighted and with the sign it has in the loss: negative"),
    ("actor/loss/kl", "nats", "none", "mean", "KL divergence from the reference policy, weighted"),
    ("starts/mean_episode_return", "reward", "up", "mean", "undiscounted return of those that ended"),
    ("starts/mean_episode_length", "steps", "none", "mean", "length of those that ended"),
    ("starts/num_episodes", "episodes", "none", "sum", "how many ended"),
    ("starts/wins", "games", "up", "sum", "games won"),
    ("starts/share", "share", "none", "mean", "their share of all steps"),
    ("replay/is_weight_min", "", "none", "mean", "smallest importance weight of a batch"),
    ("replay/is_weight_max", "", "none", "max", "largest importance weight of a batch"),
    ("replay/drawn_scored", "share", "none", "mean", "share of the sampled transitions that have a score"),
    ("replay/ess", "share", "none", "last", "effective sample size of the probabilities, as a share of the buffer"),
    ("replay/prob_ratio", "", "none", "last", "largest / smallest sampling probability"),
    ("replay/coverage", "share", "up", "last", "share of the transitions that have a score"),
    ("replay/staleness_p50", "transitions", "down", "last", "median of the transitions added since a score"),
    ("replay/staleness_p90", "transitions", "down", "last", "90th percentile of the same"),
    ("replay/score_zero", "share", "none", "last", "share of the scores that are 0"),
    ("replay/score_td_rank", "", "none", "last", "rank correlation of scores and absolute TD errors"),
    ("replay/alpha_td", "", "none", "last", "current exponent of the TD error"),
    ("replay/alpha_c", "", "none", "last", "current exponent of the score"),
    ("replay/nonfinite", "values", "down", "last", "TD errors and scores so far that were not finite"),
    ("score/mean", "", "none", "mean", "mean score of a pass, in the unit of the score metric"),
    ("score/max", "", "none", "max", "largest score of a pass"),
    ("score/ended", "share", "none", "mean", "share of the rollouts whose episode ended within the horizon"),
    ("score/reliability", "", "up", "mean", "rank correlation of the scores from two halves of the rollouts"),
)  # fmt: skip

_BUCKET = (
    ("<part>", "", "norm of the mean gradient over the bucket's steps, before clipping"),
    ("per_sample/<part>", "", "norm of the summed gradient, divided by the number of episodes"),
    ("per_token/<part>", "", "norm of the summed gradient, divided by the number of steps"),
    ("loss/policy", "", "clipped surrogate, mean over steps"),
    ("loss/entropy", "", "entropy, weighted and with the sign it has in the loss: negative"),
    ("loss/kl", "nats", "KL divergence from the reference policy, weighted"),
    ("loss/value", "", "value head loss, weighted"),
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


def _metrics() -> tuple[MetricInfo, ...]:
    # Up also for penalties: a larger reward term is always better.
    rewards = (
        MetricInfo(
            f"reward/{term.name}", "reward per step", "up", "mean", f"{term.default:+g} {meta['unit']}: {meta['doc']}"
        )
        for term in dataclasses.fields(RewardWeights)
        if (meta := term.metadata)
    )
    return (
        *(MetricInfo(*row) for row in _ROWS),
        *(MetricInfo(*row) for entry in ENTRIES for row in entry.metrics),
        *rewards,
        *(MetricInfo(f"grad_norm/<bucket>/{name}", unit, "none", "mean", help) for name, unit, help in _BUCKET),
        MetricInfo("grad_norm/all/layer/<layer>", "", "none", "mean", "norm of the total gradient within one layer"),
        MetricInfo("grad_norm/clip_scale", "", "none", "mean", "clipping factor of the gradient of `all`"),
    )


METRICS: dict[str, MetricInfo] = {row.name: row for row in _metrics()}
"""By name. In the names of gradient reports, `<bucket>`, `<part>` and `<layer>` are placeholders."""

MEASURED: frozenset[str] = frozenset(
    ("run", "elapsed", "wall_time", "train/steps_per_sec", "train/steps_per_cpu_sec", "train/grad_report_seconds")
)
"""Fields of a record that differ between equal runs: the run id, times and speeds."""

RENAMED: dict[str, str] = {
    "train/cut_frac": "train/truncated_frac",
    "train/row_coverage": "train/sequence_coverage",
    "train/nonfinite_rows": "train/nonfinite_sequences",
    "train/max_row_weight": "train/max_sequence_weight",
}
"""Name up to schema 1 of metrics.jsonl -> name since schema 2. Readers of records rename old ones."""
