"""`hmx watch` and `hmx play`: the frames of episodes in any environment, and a game that a person plays."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import jax

from hmx.algos.search import make_act, simulations_of
from hmx.config.schema import Config, EnvConfig
from hmx.config.textfile import quoted, read_text
from hmx.envs.registry import make_env
from hmx.errors import ExitCode, HmxError
from hmx.jobs.simulator import Frame, FramePolicy, Simulator, Spectator, decide_at_random
from hmx.records.artefact import check_schema, words
from hmx.records.frozen import read_config
from hmx.records.layout import find_policy
from hmx.records.paths import RunPaths
from hmx.runs.compilation import enable_cache
from hmx.runs.loop import seed_state
from hmx.runs.restoring import restore_policy
from hmx.runs.session import Session, open_session
from hmx.runs.signals import interruptible

_SCHEMA = 1  # schema of a scenario without a schema number

_NEEDED = 'a scenario is a JSON object with at least a player, as {"player": {"row": 0, "col": 0}}'


def watch(
    run: str | Path | None = None,
    *,
    random: bool = False,
    env: EnvConfig | None = None,
    scenario: Path | None = None,
    seed: int = 0,
    episodes: int = 1,
    greedy: bool = False,
    search: int | None = None,
    checkpoint: int | None = None,
) -> Iterator[Frame]:
    """Play whole episodes and yield every position with the probabilities and value of the policy, or of its search.

    The first of several agents trained side by side plays. `env` is the environment of random play without a run,
    and `scenario` a file with the position that every episode starts from.

    Raises:
        HmxError: no run and not random, an environment that does not work, an impossible scenario, or a search that is
            not possible (exit code 2); no such run or no intact checkpoint (3). Raised by this call, not by the first
            frame.
    """
    if (run is None and not random) or (run is not None and env is not None):
        why = "no run given" if run is None else "a run has its own environment"
        raise HmxError(f"cannot watch: {why}", "hmx watch RUN, or hmx watch --random --env ID")
    position = None if scenario is None else read_scenario(scenario)
    enable_cache()
    paths = None if run is None else find_policy(run)
    cfg = Config(env=env or EnvConfig()) if paths is None else read_config(paths)
    if search is not None and run is None:
        raise HmxError("cannot search: random play has no values to guide it", "hmx watch RUN --search 32")
    if scenario is not None and cfg.env.id != "hackmatrix":
        raise HmxError(f"cannot start from a scenario: {cfg.env.id} has none", "leave out --scenario")

    def open_game() -> Simulator | Spectator:
        if random or paths is None:
            made = make_env(cfg.env, cfg.reward)
            policy = FramePolicy(jax.jit(partial(decide_at_random, action_dim=made.spec.action_dim)))
        else:
            session = open_session(cfg, paths)
            made, policy = session.env, agent_policy(session, paths, greedy, checkpoint, search)
        if cfg.env.id == "hackmatrix":
            return Simulator(cfg.env, cfg.reward, seed=seed, position=position, policy=policy)
        return Spectator(made, seed=seed, policy=policy)

    # In another thread, so that Ctrl-C works while it compiles.
    return _frames(interruptible(open_game), episodes)


def _frames(game: Simulator | Spectator, episodes: int) -> Iterator[Frame]:
    for episode in range(episodes):
        yield game.new() if episode else game.frame
        while game.choice is not None:
            yield game.act(game.choice)  # type: ignore[arg-type]  # what it chose, it takes


def agent_policy(
    session: Session, paths: RunPaths, greedy: bool, checkpoint: int | None, search: int | None
) -> FramePolicy:
    """Return the policy of the first agent of a run; `search` is the number of simulations, see `simulations_of`."""
    state = seed_state(restore_policy(session, paths, checkpoint).state, 0, session.cfg.run.num_seeds)
    search = simulations_of(session.cfg, search)
    decide = partial(make_act(session.algorithm, session.env, session.cfg, search, greedy), state)
    return FramePolicy(jax.jit(decide), session.algorithm.initial_carry((1, session.env.spec.num_agents)))


def open_game(
    *,
    seed: int = 0,
    scenario: Path | None = None,
    advise: str | Path | None = None,
    search: int | None = None,
    checkpoint: int | None = None,
) -> Simulator:
    """Open a game without a step limit, by the rules of the run whose agent advises, if any.

    Raises:
        HmxError: a run of another environment, or a search that is not possible (exit code 2); no such run or no intact
            checkpoint (3).
    """
    if advise is None and (search is not None or checkpoint is not None):
        searches = search is not None
        what, option = ("search", "--search 32") if searches else ("use a checkpoint", f"--checkpoint {checkpoint}")
        raise HmxError(f"cannot {what}: no agent given", f"hmx play --advise RUN {option}")
    position = None if scenario is None else read_scenario(scenario)
    paths = None if advise is None else find_policy(advise)
    cfg = Config() if paths is None else read_config(paths)
    if cfg.env.id != "hackmatrix":
        raise HmxError(f"cannot take advice from {advise}: it plays {cfg.env.id}", "give a run of HackMatrix")
    enable_cache()
    env = dataclasses.replace(cfg.env, max_steps=0)

    def begin() -> Simulator:
        policy = None
        if paths is not None:
            policy = agent_policy(open_session(cfg, paths), paths, False, checkpoint, search)
        return Simulator(env, cfg.reward, seed=seed, position=position, policy=policy)

    # In another thread, so that Ctrl-C works while it compiles.
    return interruptible(begin)


def read_scenario(path: Path) -> dict[str, object]:
    """Read the position in a file; `hmx.envs.hackmatrix.rules.scenario.from_dict` checks it.

    Raises:
        HmxError: no such file, not readable, or of a newer schema (exit code 3); too long, not JSON, or not an
            object (2).
    """
    try:
        data = json.loads(read_text(path))
    except OSError as error:
        hint = "check the path and its permissions; docs/scenarios/first-siphon.json is an example"
        raise HmxError(f"cannot read {path}: {words(error)}", hint, ExitCode.ARTEFACT) from None
    except UnicodeDecodeError:
        raise HmxError(f"{path} is not a text file in UTF-8", _NEEDED) from None
    except (ValueError, RecursionError) as error:  # JSONDecodeError is a ValueError
        raise HmxError(f"{path} is not JSON: {error}", _NEEDED) from None
    if isinstance(data, dict):
        number = data.pop("schema", _SCHEMA)
        if type(number) is not int or number < 1:
            message = f"{path}: schema must be a whole number, not {quoted(repr(number))}"
            raise HmxError(message, f'write "schema": {_SCHEMA}')
        check_schema(number, _SCHEMA, str(path))
    position = data.get("position", data) if isinstance(data, dict) else data
    if not isinstance(position, dict):
        raise HmxError(f"cannot read the scenario: {path} holds no position", _NEEDED)
    return position
