"""How often `hmx doctor` finds a planted bug before a tenth of the run, and how often it warns about a healthy run.

    python benchmarks/doctor_accuracy.py [--only bugs|healthy] [--case NAME ...] [--updates NUMBER ...] [--seeds NUMBER]
                                         [--keep FOLDER] [--json]

32 bugs are planted one at a time: wrong options, or code that is replaced while the run trains. Each such run is
stopped after a tenth of its updates. A bug counts as found if any rule warned by then, and as named if one of the
expected rules did. 30 healthy runs (tasks x seeds) train to their end; a warning about any of them is a false alarm.
Bugs without a rule are planted too, with the expected rules "". The rule `slower` does not count, since it
measures the machine. Takes about ten minutes on two cores.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import os
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple
from unittest import mock

if __name__ == "__main__":  # compiling takes most of the time; before JAX is imported
    os.environ.setdefault("XLA_FLAGS", "--xla_backend_optimization_level=0")

import jax
import jax.numpy as jnp

from hmx.algos.optim import make_optimiser
from hmx.algos.ppo import update as ppo
from hmx.config import fields
from hmx.config.names import clean_run_name
from hmx.config.schema import Config
from hmx.envs import registry
from hmx.envs.protocol import Env
from hmx.errors import HmxError
from hmx.jobs.train import train
from hmx.nets import make_net
from hmx.registry.load import Loaded, bind, load
from hmx.reports.doctor.monitor import Finding, Monitor
from hmx.runs import session
from hmx.runs.sinks import Record, RunInfo, Sink

UPDATES = 200
SMALL = {
    "env.num_envs": 16, "algo.num_steps": 32, "net.hidden": (32,), "net.activation": "tanh", "run.eval_episodes": 0,
    "ppo.num_minibatches": 4, "ppo.value_target": "identity", "algo.learning_rate": 2e-3, "run.updates_per_chunk": 10,
    "env.max_steps": 100, "run.checkpoint_every": 1000,
}  # fmt: skip
TASKS: dict[str, dict[str, Any]] = {
    "pole": {"env.id": "cartpole-discrete", "env.max_steps": 500},
    "corridor": {"env.id": "corridor"},
    "lake": {"env.id": "frozenlake", "env.num_envs": 256, "ppo.ent_coef": 0.05},
    "slippery": {"env.id": "frozenlake-slippery", "env.num_envs": 256, "env.max_steps": 200},
    "recall": {"env.id": "recall", "net.rnn": "gru", "net.rnn_hidden": 32},
    "rendezvous": {"env.id": "rendezvous", "env.num_agents": 2},
    "pendulum": {"env.id": "pendulum", "env.max_steps": 200, "algo.num_steps": 64, "ppo.reward_scale": 0.1,
                 "algo.gamma": 0.95, "ppo.update_epochs": 10, "net.shared_torso": False, "ppo.obs_norm": "network"},
    "matrix": {"env.id": "hackmatrix", "env.num_envs": 64, "env.max_steps": 1000, "ppo.num_minibatches": 8,
               "ppo.value_target": Config().ppo.value_target, "algo.learning_rate": 5e-4, "net.activation": "relu"},
    "replay": {"env.id": "frozenlake", "algo.name": "dqn", "algo.num_steps": 16, "net.hidden": (64,),
               "algo.max_grad_norm": 10.0, "dqn.batch_size": 64, "dqn.gradient_steps": 16, "dqn.learn_starts": 1024,
               "dqn.target_every": 200, "dqn.epsilon_fraction": 0.5, "replay.capacity": 16384,
               "algo.learning_rate": 1e-3},
}  # fmt: skip
HEALTHY = {
    "pole": 5, "corridor": 5, "lake": 4, "slippery": 3, "pendulum": 3, "replay": 3, "recall": 3, "rendezvous": 3,
    "matrix": 1,
}  # fmt: skip
"""Task -> seeds, each a healthy run."""

Patch = Callable[[], Any]


class Bug(NamedTuple):
    """A planted bug."""

    name: str
    task: str
    expected: str  # rules that name it
    options: Mapping[str, Any] = MappingProxyType({})
    patch: Patch = contextlib.nullcontext


def batches(change: Callable[[Any], Any]) -> Patch:
    """Change the batch that PPO learns from."""
    make = ppo.make_batch
    return lambda: mock.patch.object(ppo, "make_batch", lambda *args: change(make(*args)))


def envs(change: Callable[[Env], Env]) -> Patch:
    """Change the environment."""
    build = registry.build_env

    def changed(*args: Any) -> tuple[Any, Any]:
        env, cfg = build(*args)
        return change(env), cfg

    return lambda: mock.patch.object(session, "build_env", changed)


def timesteps(change: Callable[[Any], Any]) -> Patch:
    """Change the results of the environment."""

    def changed(env: Env) -> Env:
        def after(pair: Any) -> Any:
            return pair[0], change(pair[1])

        return env._replace(
            reset=lambda keys: after(env.reset(keys)),
            step=lambda state, action, keys: after(env.step(state, action, keys)),
        )

    return envs(changed)


def with_actions(change: Callable[[Any, Any], Any]) -> Patch:
    """Change the action before the environment sees it."""
    return envs(lambda env: env._replace(step=lambda s, action, keys: env.step(s, change(action, keys), keys)))


def paid(factor: Any) -> Patch:
    """Multiply all rewards."""

    def change(t: Any) -> Any:
        return t._replace(reward=t.reward * factor, terms={k: v * factor for k, v in t.terms.items()})

    return timesteps(change)


def constant(t: Any) -> Any:
    """Pay 1 at every step."""
    first = next(iter(t.terms))
    terms = {name: jnp.full_like(term, float(name == first)) for name, term in t.terms.items()}
    return t._replace(reward=jnp.ones_like(t.reward), terms=terms)


def never_done(t: Any) -> Any:
    """Never report the end of an episode."""
    no = jnp.zeros_like(t.terminated)
    return t._replace(terminated=no, truncated=no, agent_done=jnp.zeros_like(t.agent_done))


def shuffled(leaf: Any) -> Any:
    """Give every step the value of another."""
    return jax.random.permutation(jax.random.key(0), leaf.reshape(-1)).reshape(leaf.shape)


def noisy(leaf: Any) -> Any:
    """Add noise."""
    return leaf + jax.random.normal(jax.random.key(0), leaf.shape)


def rolled(t: Any) -> Any:
    """Show every environment the observation of another."""
    return t._replace(obs=jnp.roll(t.obs, 1, 0), final_obs=jnp.roll(t.final_obs, 1, 0))


def scattered(action: Any, keys: Any) -> Any:
    """Replace actions with random ones."""
    return jax.vmap(lambda key, a: jax.random.randint(key, a.shape, 0, 2))(keys, action)


def unseen(t: Any) -> Any:
    """Show nothing."""
    return t._replace(obs=jnp.zeros_like(t.obs), final_obs=jnp.zeros_like(t.final_obs))


def all_legal(t: Any) -> Any:
    """Call every action legal."""
    return t._replace(legal=jnp.ones_like(t.legal), final_legal=jnp.ones_like(t.final_legal))


def without(first: int, end: int) -> Patch:
    """Forbid some actions."""

    def change(t: Any) -> Any:
        return t._replace(
            legal=t.legal.at[..., first:end].set(False), final_legal=t.final_legal.at[..., first:end].set(False)
        )

    return timesteps(change)


def sometimes_nan(t: Any) -> Any:
    """Make a reward NaN now and then."""
    return t._replace(reward=jnp.where(t.obs[..., :1].sum(-1) > 0.04, jnp.nan, t.reward))


def no_steps(make: Any) -> Any:
    """Never apply a gradient."""
    return lambda cfg: make(cfg)._replace(step=lambda params, opt_state, grads, rate: (params, opt_state))


def dead(make: Any) -> Any:
    """Start with biases so low that seven of eight hidden units stay at 0."""

    def with_dead(*args: Any) -> Any:
        net = make(*args)

        def init(key: Any) -> Any:
            torso = net.init(key)["torso"]
            low = {name: {**layer, "bias": layer["bias"].at[::8].add(10.0) - 10.0} for name, layer in torso.items()}
            return {**net.init(key), "torso": low}

        return net._replace(init=init)

    return with_dead


def attribute(name: str, value: Any) -> Patch:
    """Replace a name in the module of PPO."""
    return lambda: mock.patch.object(ppo, name, value)


def negative_entropy(cfg: Config, update: int) -> dict[str, float]:
    """Reward certainty instead of entropy."""
    return {**SCHEDULED(cfg, update), "ent_coef": -1.0}


def stopped(cfg: Config, update: int) -> dict[str, float]:
    """Learn in the first update only."""
    return {**SCHEDULED(cfg, update), **({"learning_rate": 0.0} if update else {})}


SCHEDULED = ppo.scheduled
NO_SIGNAL, SIZES = "constant-rewards constant-advantages", "large-updates entropy-collapsed"
VALUE = "useless-value constant-value frozen-value"

BUGS = (
    Bug("reward weight 0", "lake", NO_SIGNAL, patch=paid(0.0)),
    Bug("all reward weights 0", "matrix", NO_SIGNAL, patch=paid(0.0)),
    Bug("same reward everywhere", "pendulum", NO_SIGNAL, patch=timesteps(constant)),
    Bug(
        "advantages all 1",
        "corridor",
        NO_SIGNAL,
        patch=batches(lambda b: b._replace(advantage=jnp.ones_like(b.advantage))),
    ),
    Bug("advantages all 0", "pole", NO_SIGNAL, patch=batches(lambda b: b._replace(advantage=0 * b.advantage))),
    Bug(
        "old log-probabilities off",
        "pole",
        "first-ratio",
        patch=batches(lambda b: b._replace(log_prob_old=b.log_prob_old + 0.1)),
    ),
    Bug(
        "mask dropped in the loss",
        "corridor",
        "first-ratio",
        patch=batches(lambda b: b._replace(legal=jnp.ones_like(b.legal))),
    ),
    Bug("noise on stored observations", "pole", "first-ratio", patch=batches(lambda b: b._replace(obs=noisy(b.obs)))),
    Bug(
        "RNN carry lost",
        "recall",
        "first-ratio",
        {"ppo.bptt_horizon": 4},
        batches(lambda b: b._replace(carry=jax.tree.map(jnp.zeros_like, b.carry))),
    ),
    Bug(
        "actions stored off by one",
        "lake",
        "first-ratio",
        patch=batches(lambda b: b._replace(action=(b.action + 1) % 4)),
    ),
    Bug("learning rate 1", "pole", SIZES, {"algo.learning_rate": 1.0}),
    Bug("learning rate 0.3, many epochs", "corridor", SIZES, {"algo.learning_rate": 0.3, "ppo.update_epochs": 10}),
    Bug("learning rate 0.1", "pendulum", SIZES, {"algo.learning_rate": 0.1}),
    Bug("entropy bonus 10", "pole", "entropy-maximal", {"ppo.ent_coef": 10.0}),
    Bug(
        "entropy with the wrong sign",
        "pole",
        "entropy-collapsed large-updates",
        patch=attribute("scheduled", negative_entropy),
    ),
    Bug("learning rate 0", "pole", "frozen-policy", {"algo.learning_rate": 0.0}),
    Bug("learning rate 0 after an update", "pole", "frozen-policy", patch=attribute("scheduled", stopped)),
    Bug(
        "gradients never applied",
        "corridor",
        "frozen-policy",
        patch=attribute("make_optimiser", no_steps(make_optimiser)),
    ),
    Bug(
        "policy loss without gradient",
        "pole",
        "entropy-maximal frozen-policy",
        patch=attribute("clipped_surrogate", lambda log_prob, *rest: 0 * log_prob),
    ),
    Bug("value loss weight 0", "pole", VALUE, {"ppo.vf_coef": 0.0, "net.shared_torso": False}),
    Bug("value targets shuffled", "corridor", VALUE, patch=batches(lambda b: b._replace(target=shuffled(b.target)))),
    Bug("observations all 0", "pole", VALUE, patch=timesteps(unseen)),
    Bug("observations of other environments", "pole", f"{VALUE} entropy-maximal", patch=timesteps(rolled)),
    Bug("mask all true", "corridor", "inactive-mask", patch=timesteps(all_legal)),
    Bug("step limit 4", "pole", "always-truncated", {"env.max_steps": 4}),
    Bug("ends never reported", "lake", "no-episode-ends", patch=timesteps(never_done)),
    Bug("weight of one term x 1000", "matrix", "dominant-reward-term", {"reward.step_penalty": -10.0}),
    Bug("programs forbidden", "matrix", "unused-action", patch=without(5, 28)),
    Bug("rewards x 10,000", "pole", "clipped-gradients", patch=paid(1e4)),
    Bug("learning starts too late", "replay", "no-gradient-steps", {"dqn.learn_starts": 16384}),
    Bug("rewards NaN now and then", "pole", "nonfinite", {"run.on_nonfinite": "skip"}, timesteps(sometimes_nan)),
    Bug("hidden units dead", "matrix", "dormant-units", patch=attribute("make_net", dead(make_net))),
    # no rule was made for these
    Bug("actions replaced with random ones", "pole", "", patch=with_actions(scattered)),
    Bug("rewards with the wrong sign", "pole", "", patch=paid(-1.0)),
    Bug("discount 0", "lake", "", {"algo.gamma": 0.0}),
    Bug(
        "rewards of other environments",
        "corridor",
        "",
        patch=timesteps(lambda t: t._replace(reward=jnp.roll(t.reward, 1, 0))),
    ),
)


class Watch(Sink):
    """Check the rules during training, and stop the run after some updates."""

    def __init__(self, stop: int = 0) -> None:
        self.stop = stop
        self.found: list[Finding] = []
        self.seconds = 0.0
        self.records = 0

    def start(self, info: RunInfo) -> None:
        """Make the monitor."""
        self.monitor = Monitor(info.config)

    def record(self, record: Record) -> None:
        """Take a record; a run may be stopped later than asked, at the end of a chunk."""
        if self.stop and int(record["update"]) > self.stop:
            return
        start = time.thread_time()
        self.found += self.monitor.add(record)
        self.seconds += time.thread_time() - start
        self.records += 1
        if self.stop and int(record["update"]) == self.stop:
            signal.raise_signal(signal.SIGTERM)


def configure(task: str, updates: int, seeds: int = 1, **options: Any) -> Config:
    """Return the configuration of a task."""
    values = {**SMALL, **TASKS[task], **options, "run.num_seeds": seeds}
    if values.get("algo.name") == "dqn":
        values = {key: value for key, value in values.items() if not key.startswith("ppo.")}
    values["run.total_steps"] = updates * values["env.num_envs"] * values["algo.num_steps"]
    return fields.replace(load(environ={}, check=False).config, values)


def run(cfg: Config, watch: Watch, keep: str, name: str) -> None:
    """Train in a temporary folder, or in one to keep; a failed run needs no finding."""
    with contextlib.nullcontext(keep) if keep else tempfile.TemporaryDirectory() as folder:
        values = {"run.root": str(Path(folder).resolve() / "runs"), "run.name": clean_run_name(name)}
        try:
            train(bind(Loaded(fields.replace(cfg, values))), sinks=[watch], force=True)
        except HmxError as error:
            print(f"  the run failed: {error.message}", file=sys.stderr)


def counts(finding: Finding) -> bool:
    """Return whether a finding is a warning about the run, not about other load on the machine."""
    return finding.severity == "warning" and finding.rule != "slower"


def bugs(names: list[str], updates: int, keep: str, seeds: int) -> Iterator[dict[str, Any]]:
    """Plant each bug."""
    for bug in BUGS:
        if names and bug.name not in names:
            continue
        watch = Watch(updates // 10)
        with bug.patch():
            run(configure(bug.task, updates, **bug.options), watch, keep, f"bug-{bug.name}-{updates}")
        rules = [finding.rule for finding in watch.found if counts(finding)]
        named = bool(set(bug.expected.split()) & set(rules))
        yield {"bug": bug.name, "task": bug.task, "updates": updates, "made_for": bool(bug.expected),
               "found": bool(rules), "named": named, "rules": rules}  # fmt: skip


def healthy(names: list[str], updates: int, keep: str, more: int) -> Iterator[dict[str, Any]]:
    """Train every task to its end."""
    for task, usual in HEALTHY.items():
        if names and task not in names:
            continue
        watch, seeds = Watch(), more or usual
        run(configure(task, updates, seeds), watch, keep, f"healthy-{task}-{updates}")
        found = [
            f"{f.rule} ({f.evidence}, seed {f.seeds[0]}, step {f.since})"
            for f in watch.found
            if f.severity == "warning"
        ]
        alarmed = {seed for f in watch.found if f.severity == "warning" for seed in f.seeds}
        yield {"task": task, "updates": updates, "runs": seeds, "alarmed": len(alarmed), "warnings": found,
               "ms_per_record": round(1e3 * watch.seconds / max(watch.records, 1), 3)}  # fmt: skip


def printed(cases: Iterable[Iterable[dict[str, Any]]], as_json: bool) -> list[dict[str, Any]]:
    """Print each row as soon as it is known, and return all of them."""
    rows = []
    for row in itertools.chain.from_iterable(cases):
        rows.append(row)
        print(json.dumps(row) if as_json else "  ".join(f"{k}={v}" for k, v in row.items()), flush=True)
    return rows


def main() -> None:
    """Print a line per case, and the rates."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", choices=("bugs", "healthy"))
    parser.add_argument("--case", nargs="*", default=[])
    parser.add_argument("--updates", nargs="*", type=int, default=[UPDATES], help="lengths of the runs")
    parser.add_argument("--seeds", type=int, default=0, help="healthy runs of each task, instead of the usual number")
    parser.add_argument("--keep", default="", help="keep the run folders below this folder")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    kinds = [kind for kind in (bugs, healthy) if args.only in (None, kind.__name__)]
    cases = (kind(args.case, updates, args.keep, args.seeds) for kind in kinds for updates in args.updates)
    rows = printed(cases, args.json)
    for made_for in (True, False):
        planted = [row for row in rows if row.get("made_for") is made_for]
        if planted:
            found, named = (sum(row[key] for row in planted) for key in ("found", "named"))
            which = "with a rule" if made_for else "without a rule"
            print(f"bugs {which}: {found} of {len(planted)} found, {named} named", file=sys.stderr)
    runs = sum(row.get("runs", 0) for row in rows)
    if runs:
        print(f"healthy runs: {sum(row.get('alarmed', 0) for row in rows)} of {runs} alarmed", file=sys.stderr)


if __name__ == "__main__":
    main()
