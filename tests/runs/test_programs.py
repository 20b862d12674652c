"""Two runs share compiled programs only where these are equal."""

from __future__ import annotations

from typing import Any

import jax
import pytest

from hmx.config.fields import replace, values_of
from hmx.config.schedules import SCHEDULED
from hmx.config.schema import Config
from hmx.envs.registry import build_env
from hmx.registry.algorithms import find_algorithm
from hmx.registry.load import Loaded, load
from hmx.runs.chunk import trace_chunk
from hmx.runs.loop import train_keys
from hmx.runs.programs import MOST, Programs, program_key
from hmx.runs.session import Session, make_session

SMALL: dict[str, Any] = {
    "env.id": "corridor", "env.num_envs": 4, "env.max_steps": 20, "net.kind": "mlp", "net.hidden": (8,),
    "algo.num_steps": 8, "run.total_steps": 320,
}  # fmt: skip
OF: dict[str, dict[str, Any]] = {
    "ppo": {"ppo.num_minibatches": 2, "ppo.update_epochs": 1, "ppo.clip_vf_eps": 0.2},
    "gumbel": {"gumbel.num_simulations": 2},
    "dqn": {"replay.capacity": 64, "dqn.learn_starts": 32},
}


def config(name: str) -> Config:
    return replace(load(values={"algo.name": name}, environ={}, check=False).config, {**SMALL, **OF[name]})


def other(cfg: Config, name: str) -> Config:
    """Return a configuration that differs in everything that the host alone reads, or that changes over the run."""
    entry, values = find_algorithm(name), values_of(cfg)
    changes: dict[str, Any] = {
        "run.name": "other", "run.root": "elsewhere", "run.seed": 7, "run.total_steps": 640, "run.eval_episodes": 3,
        "run.checkpoint_every": 3, "run.keep": 5, "run.keep_best": 0, "run.keep_middle_mb": 0,
        "algo.lr_warmup": 0.5, "algo.schedule_rate": 0.3,
    }  # fmt: skip
    for scheduled in entry.schedules:
        keys = SCHEDULED[scheduled]
        changes |= {keys.schedule: "cosine", keys.end: 0.25}
        if values[keys.start]:
            changes[keys.start] = values[keys.start] / 2
    return replace(cfg, changes)


def session(cfg: Config, programs: Programs | None = None) -> Session:
    return make_session(Loaded(cfg), build_env(cfg.env, cfg.reward)[0], programs)


def programs_of(made: Session) -> list[str]:
    """Return the text of the programs of a run, before they are compiled."""
    run = made.cfg.run
    _, chunk = trace_chunk(made.algorithm, made.abstract, made.sizes.updates_per_chunk, run.num_seeds)
    return [chunk.lower().as_text(), jax.jit(made.algorithm.init).lower(train_keys(run.seed, 1)).as_text()]


def key(made: Session) -> tuple[object, ...]:
    return program_key(made.task, frozenset(made.algorithm.hypers(0)), made.sizes.updates_per_chunk)


@pytest.mark.parametrize("name", OF)
def test_runs_with_one_key_have_equal_programs(name: str) -> None:
    one = session(config(name))
    two = session(other(one.cfg, name))
    assert key(one) == key(two)
    assert programs_of(one) == programs_of(two)
    assert one.algorithm.hypers(0) != two.algorithm.hypers(0)


@pytest.mark.parametrize(
    "changes",
    [
        {"algo.gamma": 0.9}, {"net.hidden": (16,)}, {"env.num_envs": 8}, {"run.num_seeds": 2}, {"env.slip": 0.2},
        {"ppo.clip_vf_eps": 0.0}, {"run.total_steps": 64}, {"run.on_nonfinite": "skip"}, {"reward.kills": 0.5},
    ],
)  # fmt: skip
def test_what_enters_a_program_is_in_its_key(changes: dict[str, Any]) -> None:
    """A hyperparameter that is always 0, and a run shorter than a chunk, make other programs too."""
    one = session(config("ppo"))
    assert key(session(replace(one.cfg, changes))) != key(one)


def test_code_of_a_user_shares_no_schedule() -> None:
    task = Loaded(config("ppo")).changed({"algo.name": "./mine.py"})
    hypers = frozenset({"learning_rate"})
    assert program_key(task, hypers, 4) != program_key(task.changed({"algo.learning_rate": 0.1}), hypers, 4)
    assert program_key(task, hypers, 4) == program_key(task.changed({"run.name": "other"}), hypers, 4)


def test_second_session_has_the_functions_of_the_first_and_its_own_schedules() -> None:
    programs = Programs()
    one = session(config("ppo"), programs)
    two = session(other(one.cfg, "ppo"), programs)
    assert two.algorithm.update is one.algorithm.update
    assert two.shared is one.shared
    assert two.algorithm.hypers(0)["clip_eps"] == one.algorithm.hypers(0)["clip_eps"] / 2
    assert (two.cfg.run.seed, two.sizes.num_updates) == (7, 20)


def test_programs_used_longest_ago_are_forgotten() -> None:
    programs = Programs()
    first = programs.of((0,))
    second = programs.of((1,))
    for number in range(2, MOST):
        programs.of((number,))
    assert programs.of((0,)) is first  # now used after the second one
    programs.of((MOST,))
    assert programs.of((0,)) is first
    assert programs.of((1,)) is not second
