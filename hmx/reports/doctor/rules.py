"""The rules of `hmx doctor`: each is a row of data and a function that finds the evidence in the metrics so far.

A rule's function returns a clause that names the numbers, or "" while nothing looks wrong. A rule is broken once its
function has found evidence at every update for a while: `patience` and `updates` say for how long. The thresholds were
set on healthy runs and on planted bugs with `benchmarks/doctor_accuracy.py`; docs/doctor.md has the measured rates.
"""

from __future__ import annotations

import math

from hmx.config.fields import FIELDS
from hmx.render.quantities import number, percent
from hmx.reports.doctor import environment
from hmx.reports.doctor.history import WINDOW, History
from hmx.reports.doctor.invariants import INVARIANTS
from hmx.reports.doctor.rule import Remedy, Rule

_RATIO_ROUNDING = 5e-3  # a GPU multiplies with 10 bits (TF32): 1.7e-3 was seen in a correct run of 306 M steps
_NO_CHANGE = 1e-8  # KL
_RATE = ("algo.learning_rate", 0.5)  # of a rollback
_SLOWER: Remedy = ("lower", "algo.learning_rate")
_USELESS = 0.02  # explained variance; healthy runs reached it after 8 to 44 updates, those with a bug never
_RARE = 400
"""Episodes without a reward after which fewer than 0.75 % have one, with 95 % confidence: more than rare rewards."""


def _constant_rewards(run: History) -> str:
    reward, returns = run["train/mean_reward"], run["train/mean_episode_return"]
    if run.continued or not (reward.constant and returns.constant):
        return ""  # an agent that has learned may get the highest return each time
    if returns.count and reward.high == 0 and run["train/num_episodes"].total < _RARE:
        return ""
    return f"mean reward {number(reward.last)} per step in every update, and no two episodes differed in return"


def _constant_advantages(run: History) -> str:
    std = run["train/advantage_std"]
    return f"standard deviation of the advantages {number(max(std.recent))}" if max(std.recent) < 1e-6 else ""


def _first_ratio(run: History) -> str:
    if run.cfg.ppo.obs_norm == "network" and run.cfg.ppo.obs_norm_update == "before_sgd":
        return ""  # that option makes them differ
    return ratio_evidence(run["train/first_ratio_error"].last)


def ratio_evidence(error: float) -> str:
    """Return the evidence of a difference between the importance ratios and 1 that rounding cannot explain."""
    if error <= _RATIO_ROUNDING:
        return ""
    return f"ratios differed from 1 by up to {number(error)} before the first gradient step"


def _improved(run: History) -> bool:
    """Return whether the mean return has kept at least half of its gain since the start."""
    returns = run["train/mean_episode_return"]
    gain = returns.best - returns.first
    return returns.full and gain > 1e-6 * abs(returns.best) and returns.mean > returns.first + gain / 2


def _certainty(run: History) -> str:
    """Return the evidence of an almost deterministic policy."""
    if run["train/std"].count:
        std = run["train/std"].last
        return f"standard deviation of the actions {number(std)}" * (std < 0.02)
    share = run["train/entropy"].last / max(run["train/max_entropy"].last, 1e-9)
    return f"entropy {percent(share, 1)} of its maximum" * (share < 0.02)


def _entropy_collapsed(run: History) -> str:
    certainty = "" if _improved(run) or run.continued else _certainty(run)  # a solved task needs no exploration
    return certainty and f"{certainty}, without a better return than at the start"


def _entropy_maximal(run: History) -> str:
    if run["train/std"].count or run["train/max_entropy"].last < 1e-3:
        return ""
    share = run["train/entropy"].last / run["train/max_entropy"].last
    return f"entropy {percent(share, 2)} of its maximum" if share > 0.998 else ""


def _large_updates(run: History) -> str:
    kl, clipped = run["train/approx_kl"], run["train/clip_frac"]
    if kl.mean <= 0.1 and clipped.mean <= 0.5:
        return ""
    return f"KL {number(kl.mean)} per update (usual: below 0.02), {percent(clipped.mean)} of the samples clipped"


def _frozen_policy(run: History) -> str:
    kl, rate = run["train/approx_kl"], run["train/learning_rate"]
    if max(kl.recent) >= _NO_CHANGE:
        return ""
    if kl.high < _NO_CHANGE and not run.continued:
        return f"KL per update at most {number(kl.high)}"
    decayed = 0.0 < rate.last < 0.01 * rate.high
    if run.config is None or not kl.full or decayed or _certainty(run):
        return ""  # a policy that has learned may be certain, and a schedule may have ended
    return f"KL at most {number(max(kl.recent))} in the latest {WINDOW} updates, {number(kl.high)} before"


def _useless_value(run: History) -> str:
    explained = run["train/explained_variance"]
    if sum(reward != 0 for reward in run["train/mean_reward"].recent) <= WINDOW / 2:
        return ""  # rewards are too rare to learn values from
    best = max(explained.best, explained.mean)
    return f"explained variance at most {number(best, 2)} so far" if explained.full and best < _USELESS else ""


def _constant_value(run: History) -> str:
    explained = run["train/explained_variance"]
    blind = explained.full and max(map(abs, explained.recent)) < 1e-4
    return f"explained variance {number(explained.mean, 1)} in every recent update" if blind else ""


def _frozen_value(run: History) -> str:
    fall = run["train/value_loss_fall"]
    frozen = max(abs(fall.low), abs(fall.high)) < 1e-5
    return "in no update did the value loss change between the epochs" if frozen else ""


def _exploding_gradients(run: History) -> str:
    norm, limit = run["train/grad_norm"], run.config.algo.max_grad_norm if run.config else 0.0
    usual = max(norm.first, limit, 0.1)
    return f"gradient norm {number(min(norm.recent))}, {number(norm.first)} at first" * (min(norm.recent) > 100 * usual)


def _clipped_gradients(run: History) -> str:
    norm, limit = min(run["train/grad_norm"].recent), run.cfg.algo.max_grad_norm
    if not limit or run.cfg.algo.grad_clip == "elementwise" or norm <= 30 * limit:
        return ""
    return f"gradient norm at least {number(norm)}, clipped at {number(limit)}"


def _nonfinite(run: History) -> str:
    skipped = math.fsum(run["train/skipped_updates"].recent)
    return f"{skipped:.0f} of the latest {len(run['train/skipped_updates'].recent)} updates were skipped" * (
        skipped > 1
    )


def _dormant_units(run: History) -> str:
    share = min(run["train/dormant_units"].recent)
    return f"{percent(share)} of the hidden units hardly react to any observation" if share > 0.5 else ""


def _zero_terms(run: History) -> str:
    weights: dict[str, float] = {}
    if run.config:
        fields = [f for f in FIELDS.values() if f.section == "reward" and f.of_env(run.config.env.id)]
        weights = {field.name: getattr(run.config.reward, field.name) for field in fields}
    zero = [
        name for name, term in run.groups["reward"].items() if term.low == term.high == 0 and weights.get(name, 1.0)
    ]
    return f"always 0: {', '.join(zero)}" if zero else ""


def _dominant_term(run: History) -> str:
    sizes = {name: math.fsum(map(abs, term.recent)) for name, term in run.groups["reward"].items()}
    active = [name for name, size in sizes.items() if size > 0]
    name = max(active, key=sizes.__getitem__, default="")
    share = sizes[name] / math.fsum(sizes.values()) if name else 0.0
    return f"{name} makes up {percent(share)} of the size of all {len(active)} terms" * (
        len(active) > 3 and share > 0.95
    )


def _slower(run: History) -> str:
    speed, cpu = run["train/steps_per_sec"], run["train/steps_per_cpu_sec"]
    if run.elapsed < 60 or max(speed.recent) >= speed.best / 3:
        return ""
    found = f"{number(speed.mean)} steps/s, {number(speed.best)} at its fastest"
    if not cpu.full:
        return found
    if cpu.mean > cpu.best / 2:
        return f"{found}; a step still takes about the same processor time, so the run waits"
    return f"{found}; {number(cpu.mean)} steps per processor second, {number(cpu.best)} at its fastest"


def _unused_action(run: History) -> str:
    unused = [name.removesuffix("_frac") for name, share in run.groups["actions"].items() if share.high == 0]
    return f"never taken: {', '.join(unused)}" if unused else ""


def _return_fell(run: History) -> str:
    returns, blocks = run["train/mean_episode_return"], run.returns.blocks
    if len(blocks) < 2:
        return ""
    best, now = max(blocks), max(blocks[-2:])
    gain, lost = best - blocks[0], best - now
    fell = gain > 0.3 * (returns.high - returns.low) and lost > 0.8 * gain
    fell = fell and lost > 5 * run.returns.noise  # else it may be noise: `best` is the highest of many blocks
    return f"mean return {number(now)}, {number(best)} at its best" * fell


def _no_progress(run: History) -> str:
    returns = run.returns
    if run.share < 0.5 or returns.count < 5 * WINDOW or run["train/mean_episode_return"].constant or run.continued:
        return ""
    gain = returns.best - returns.first
    return f"mean return {number(returns.first)} at first, {number(returns.best)} at its best" * (
        gain < 0.1 * (returns.high - returns.low)
    )


def _diverging_q(run: History) -> str:
    value, returns = abs(run["train/q_value"].mean), run["train/mean_episode_return"]
    largest = max(abs(returns.high), abs(returns.low), 1.0) if returns.count else math.inf
    return f"mean value {number(value)}, while no mean return exceeded {number(largest)}" * (value > 10 * largest)


def _no_gradient_steps(run: History) -> str:
    if run["train/gradient_steps"].high > 0 or run.steps <= run.cfg.dqn.learn_starts:
        return ""
    return f"no gradient step in {run.update:,} updates"


_FEW_UPDATES = 30  # PPO seldom learns from fewer, and the rules and curves show little


def _few_updates(run: History) -> str:
    return f"{run.total:,} updates in the whole run" * (run.total < _FEW_UPDATES)


def _still_rising(run: History) -> str:
    blocks = run.returns.blocks
    if run.share < 1 or len(blocks) < 5:
        return ""
    before, now = blocks[-3], blocks[-1]
    rises = now - before > max(3 * run.returns.noise, 0.05 * (max(blocks) - min(blocks)))
    return f"mean return {number(before)} shortly before the end, {number(now)} at the end" * rises


def _always(run: History) -> bool:
    return True


RULES: tuple[Rule, ...] = (
    Rule(
        "constant-rewards", ("train/mean_reward",), _constant_rewards,
        "There is no learning signal: all rewards and returns are the same",
        ("check the reward function and its weights", "add a shaping term if rewards are rare",
         ("raise", "env.num_envs")),
        updates=10, so_far=True,
    ),
    Rule(
        "constant-advantages", ("train/advantage_std",), _constant_advantages,
        "There is no learning signal: all advantages are the same",
        ("check that rewards depend on actions", ("check", "ppo.gae_lambda", " and algo.gamma")),
    ),
    Rule(
        "first-ratio", ("train/first_ratio_error",), _first_ratio,
        "The policy that acts differs from the policy that learns",
        ("compare log-probabilities, masks, RNN carries and observations of acting"
         " and learning: a difference is a bug",),
        patience=0.0, updates=2, configured=True,
    ),
    Rule(
        "entropy-collapsed", ("train/entropy", "train/max_entropy"), _entropy_collapsed,
        "The policy is deterministic, but the return is no better than at the start",
        (("raise", "ppo.ent_coef"), _SLOWER, "scale rewards down"), instead=("train/std",),
        rollback=(("ppo.ent_coef", 2.0), _RATE),
    ),
    Rule(
        "entropy-maximal", ("train/entropy", "train/max_entropy"), _entropy_maximal,
        "The policy is still uniform",
        (("lower", "ppo.ent_coef"), ("raise", "algo.learning_rate"), "check that rewards depend on actions"),
    ),
    Rule(
        "large-updates", ("train/approx_kl", "train/clip_frac"), _large_updates,
        "Each update changes the policy too much",
        (_SLOWER, ("lower", "ppo.update_epochs"), "use larger minibatches"), patience=0.0, updates=5,
        rollback=(_RATE,),
    ),
    Rule(
        "frozen-policy", ("train/approx_kl",), _frozen_policy,
        "The policy does not change",
        ("check algo.learning_rate and its schedule", "check that advantages differ"), rollback=(_RATE,),
    ),
    Rule(
        "constant-value", ("train/explained_variance",), _constant_value,
        "The value function returns the same for all observations",
        ("check that observations differ and reach the network", "check that the value loss has a gradient"),
    ),
    Rule(
        "frozen-value", ("train/value_loss_fall",), _frozen_value,
        "The value function does not change",
        (("check", "ppo.vf_coef", " and algo.learning_rate"), "check that the value loss has a gradient"), so_far=True,
    ),
    Rule(
        "useless-value", ("train/explained_variance", "train/mean_reward"), _useless_value,
        "The value function explains nothing",
        (("raise", "ppo.vf_coef"), "check observations and rewards", ("set", "net.shared_torso", "=false")),
        patience=0.2, updates=50, so_far=True,
    ),
    Rule(
        "exploding-gradients", ("train/grad_norm",), _exploding_gradients,
        "Gradients grow without bound",
        (_SLOWER, ("set", "algo.max_grad_norm"), "scale rewards down"), patience=0.0, updates=3,
        rollback=(("algo.max_grad_norm", 0.5), _RATE),
    ),
    Rule(
        "clipped-gradients", ("train/grad_norm",), _clipped_gradients,
        "Gradients are always clipped to a small part of their size",
        ("scale rewards down", ("set", "ppo.value_target", "=symlog"), ("raise", "algo.max_grad_norm")),
        configured=True,
    ),
    Rule(
        "nonfinite", ("train/skipped_updates",), _nonfinite,
        "Updates are skipped because values are not finite",
        (_SLOWER, "look for divisions by 0 and logarithms of 0 in rewards and observations"),
        patience=0.0, updates=1, rollback=(_RATE,),
    ),
    Rule(
        "dormant-units", ("train/dormant_units",), _dormant_units,
        "Most hidden units are dormant",
        (_SLOWER, "check the scale of the observations", ("set", "net.layer_norm", "=true"),
         ("set", "net.activation", "=tanh")),
    ),
    Rule(
        "inactive-mask", ("train/max_entropy",), environment.inactive_mask,
        "The action mask is never active",
        ("check that the environment returns its legal actions",), configured=True, so_far=True,
    ),
    Rule(
        "no-episode-ends", ("train/num_episodes",), environment.no_episode_ends,
        "An episode does not end",
        (("set", "env.max_steps"), "check that the environment reports terminations and truncations"), updates=3,
        configured=True, so_far=True, note=environment.unlimited,
    ),
    Rule(
        "always-truncated", ("train/mean_episode_length",), environment.always_truncated,
        "All episodes are truncated",
        (("raise", "env.max_steps", " if the task needs more steps"),
         "check that the environment reports terminations, if the task has any"),
        configured=True, so_far=True, note=environment.own,
    ),
    Rule(
        "zero-reward-term", ("reward/",), _zero_terms,
        "Reward terms are always 0",
        ("check the code of the reward term, unless its events are rare",), patience=0.08, note=_always, so_far=True,
    ),
    *INVARIANTS,
    Rule(
        "dominant-reward-term", ("reward/",), _dominant_term,
        "One reward term dominates the others",
        ("lower its weight", "raise the weights of the terms that should matter"),
    ),
    Rule(
        "slower", ("train/steps_per_sec",), _slower,
        "Training is much slower than it was",
        ("check the machine for other load, its temperature and free memory",), note=_always,
    ),
    Rule(
        "unused-action", ("actions/",), _unused_action,
        "A kind of action is never taken",
        ("check that the mask allows it, if there is one", ("raise", "ppo.ent_coef")), so_far=True,
    ),
    Rule(
        "return-fell", ("train/mean_episode_return",), _return_fell,
        "The return has lost most of what it had gained",
        (_SLOWER, ("set", "algo.lr_schedule", "=linear"), ("lower", "ppo.update_epochs"),
         "continue from the best checkpoint"), rollback=(_RATE,),
    ),
    Rule(
        "no-progress", ("train/mean_episode_return",), _no_progress,
        "The return is no better than at the start",
        (("run", "hmx grad-report", " to see the signal in the gradient"), "try another algo.learning_rate",
         "add denser rewards"),
        so_far=True,
    ),
    Rule(
        "diverging-q", ("train/q_value",), _diverging_q,
        "Action values are far larger than any return",
        (_SLOWER, ("raise", "dqn.target_every"), ("set", "dqn.double", "=true")), rollback=(_RATE,),
    ),
    Rule(
        "no-gradient-steps", ("train/gradient_steps",), _no_gradient_steps,
        "Learning has not started",
        (("lower", "dqn.learn_starts"), "check that the replay buffer fills"), patience=0.08,
        configured=True, so_far=True,
    ),
    Rule(
        "few-updates", ("train/approx_kl",), _few_updates,
        "The run has few updates",
        (("lower", "env.num_envs", " or algo.num_steps, so that an update takes fewer steps"),
         ("raise", "run.total_steps")),
        patience=0.0, updates=1, note=_always, configured=True,
    ),
    Rule(
        "still-rising", ("train/mean_episode_return",), _still_rising,
        "The return still rises at the end",
        ("train longer: hmx resume RUN --set run.total_steps=STEPS",), patience=0.0, updates=1, note=_always,
    ),
)  # fmt: skip
"""In the order of the report."""
