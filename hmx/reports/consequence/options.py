"""What `hmx score-buffer` may be asked: the words of its options, read and judged before anything is computed."""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path
from typing import NamedTuple

import numpy as np

from hmx.config.textfile import quoted, read_text
from hmx.errors import ExitCode, HmxError
from hmx.replay import MIXINGS
from hmx.scoring import AGGREGATES, METRICS
from hmx.stats.ranks import Host

ACTIONS = {"all": "all", "single-dev": "single", "sampled": "sampled", "topk": "topk"}
POLICIES = {"greedy": "greedy", "softmax": "softmax", "eps": "epsilon"}
SELECTS = ("all", "uniform", "stale", "indices")
UNSCORED = ("mean", "zero")
MAX_ROLLOUTS = 100_000
MAX_HORIZON = 1_000_000
MAX_COLLECT = 10_000_000


@dataclasses.dataclass(frozen=True, kw_only=True)
class Ask:
    """What is wanted; text as it is typed.

    Attributes:
        actions: `all`, `single-dev`, `sampled:K` or `topk:K`; empty takes all, or for several agents single-dev.
        rollouts: continuations per action.
        horizon: steps, or `auto`: what 99 % of a sample of rollouts need to end.
        gamma: discount; None takes the run's.
        policy: `greedy`, `softmax:T` or `eps:E`; empty takes the agent's own.
        bootstrap: whether episodes that are cut go on in value.
        crn: common random numbers.
        metric: distance of returns.
        aggregate: over alternatives.
        select: `all`, `uniform:N`, `stale:N` or `indices:FILE`.
        collect: positions to collect where there is no buffer.
        mixing: how replay would mix signals.
        mu: share of draws by consequence.
        alpha_td: exponent of TD errors.
        alpha_c: exponent of scores.
        target_ess: effective sample size to fit exponents to; 0 leaves them.
        unscored: what a transition without a score counts as: the mean score, or zero.
        target_coverage: share of transitions that should have a score.
        chunk: positions between two saves of what is done; changes no score.
        seed: None takes the run's.
        top: most consequential positions that are reported.
        force: score although the horizon is too short, and in place of what is there.
        write_back: also write the buffer with its new scores.
        agent: which of several agents trained side by side.
    """

    actions: str = ""
    rollouts: int = 16
    horizon: str = "auto"
    gamma: float | None = None
    policy: str = ""
    bootstrap: bool = False
    crn: bool = True
    metric: str = "w1"
    aggregate: str = "mean"
    select: str = "uniform:256"
    collect: int = 4096
    mixing: str = "additive"
    mu: float = 0.5
    alpha_td: float = 0.6
    alpha_c: float = 0.6
    target_ess: float = 0.0
    unscored: str = "mean"
    target_coverage: float = 0.0
    chunk: int = 64
    seed: int | None = None
    top: int = 8
    force: bool = False
    write_back: bool = False
    agent: int = 0


class Chosen(NamedTuple):
    """An option of the form NAME or NAME:VALUE."""

    name: str
    value: str = ""


def check(ask: Ask) -> None:
    """Refuses what makes no sense whatever is scored.

    Raises:
        HmxError: an option is not one of its choices or out of its range, or the file it names is none.
    """
    actions(ask.actions)
    policy(ask.policy)
    horizon(ask.horizon)
    chosen = selection(ask.select)
    if chosen.name == "indices":
        indices(Path(chosen.value), 2**31)
    for option, value, choices in (
        ("--metric", ask.metric, METRICS),
        ("--aggregate", ask.aggregate, AGGREGATES),
        ("--mixing", ask.mixing, MIXINGS),
        ("--unscored", ask.unscored, UNSCORED),
    ):
        if value not in choices:
            raise HmxError(f"{option} {quoted(value)}: no such choice", f"{option} takes {', '.join(choices)}")
    for option, number, low, high in (
        ("--rollouts", ask.rollouts, 1, MAX_ROLLOUTS),
        ("--collect", ask.collect, 1, MAX_COLLECT),
        ("--chunk", ask.chunk, 1, 10_000_000),
        ("--top", ask.top, 0, 100),
        ("--gamma", ask.gamma, 0.0, 1.0),
        ("--mu", ask.mu, 0.0, 1.0),
        ("--alpha-td", ask.alpha_td, 0.0, 8.0),
        ("--alpha-c", ask.alpha_c, 0.0, 8.0),
        ("--target-ess", ask.target_ess, 0.0, 1.0),
        ("--target-coverage", ask.target_coverage, 0.0, 1.0),
    ):
        if number is not None and not low <= number <= high:
            raise HmxError(f"{option} {number}: must be from {low} to {high:,}", f"{option} {_near(number, low, high)}")


def actions(text: str) -> Chosen:
    """Which actions are compared; the value is a number.

    Raises:
        HmxError: it is none of the forms.
    """
    chosen = _split(text, "--actions", ("", *ACTIONS), "all, single-dev, sampled:K or topk:K")
    if chosen.name in ("sampled", "topk"):
        _whole(chosen.value, f"--actions {chosen.name}", 1, 4096)
    elif chosen.value:
        raise HmxError(f"--actions {quoted(text)}: {chosen.name} takes no number", f"--actions {chosen.name}")
    return chosen


def policy(text: str) -> tuple[str, float] | None:
    """Kind and parameter of the continuation; None for the agent's own.

    Raises:
        HmxError: it is none of the forms, or the number is out of its range.
    """
    if not text:
        return None
    chosen = _split(text, "--policy", tuple(POLICIES), "greedy, softmax:T or eps:E")
    if chosen.name == "greedy" and not chosen.value:
        return "greedy", 1.0
    limits = {"softmax": (1e-6, 1e6, "1"), "eps": (0.0, 1.0, "0.1")}
    if chosen.name not in limits:
        raise HmxError(f"--policy {quoted(text)}: greedy takes no number", "--policy greedy")
    low, high, good = limits[chosen.name]
    try:
        value = float(chosen.value)
    except ValueError:
        value = math.nan
    if not low <= value <= high:
        said = f"--policy {quoted(text)}: {chosen.name} takes a number from {low:g} to {high:g}"
        raise HmxError(said, f"--policy {chosen.name}:{good}")
    return POLICIES[chosen.name], value


def horizon(text: str) -> int | None:
    """Steps of a rollout; None for `auto`.

    Raises:
        HmxError: it is neither.
    """
    return None if text == "auto" else _whole(text, "--horizon", 1, MAX_HORIZON, ", or auto")


def selection(text: str) -> Chosen:
    """Which positions are scored.

    Raises:
        HmxError: it is none of the forms.
    """
    chosen = _split(text, "--select", SELECTS, "all, uniform:N, stale:N or indices:FILE")
    if chosen.name in ("uniform", "stale"):
        _whole(chosen.value, f"--select {chosen.name}", 1, 2**31 - 1)
    elif chosen.name == "indices" and not chosen.value:
        raise HmxError("--select indices: names no file", "--select indices:slots.txt")
    elif chosen.name == "all" and chosen.value:
        raise HmxError(f"--select {quoted(text)}: all takes no number", "--select all")
    return chosen


def indices(path: Path, size: int) -> Host:
    """The slots that a file names, in its order: whole numbers between white space or commas.

    Raises:
        HmxError: it cannot be read (exit code 3), or holds anything else, a slot twice, or one that is not filled (2).
    """
    hint = "a file for --select indices: holds slots of the buffer, whole numbers from 0, one a line"
    try:
        words = read_text(path).replace(",", " ").split()
    except OSError as problem:
        said = (problem.strerror or str(problem)).lower()
        raise HmxError(f"cannot read {quoted(str(path))}: {said}", hint, ExitCode.ARTEFACT) from None
    except ValueError:
        raise HmxError(f"{quoted(str(path))} is not a text file", hint) from None
    if not words:
        raise HmxError(f"{quoted(str(path))} names no slot", hint)
    bad = next((word for word in words if not (word.isascii() and word.isdigit() and len(word) < 10)), None)
    if bad is not None:
        raise HmxError(f"{quoted(str(path))}: {quoted(bad)} is not a slot", hint)
    found = np.array([int(word) for word in words], np.int64)
    if found.max() >= size:
        raise HmxError(f"{quoted(str(path))}: slot {found.max()} is not filled, of {size:,}", hint)
    if len(np.unique(found)) < len(found):
        raise HmxError(f"{quoted(str(path))} names a slot twice", hint)
    return found


def _split(text: str, option: str, names: tuple[str, ...], forms: str) -> Chosen:
    name, _, value = text.partition(":")
    if name not in names:
        raise HmxError(f"{option} {_shown(text)}: no such choice", f"{option} takes {forms}")
    return Chosen(name, value)


def _whole(text: str, what: str, low: int, high: int, also: str = "") -> int:
    value = int(text) if text.isascii() and text.isdigit() and len(text) < 12 else -1
    if not low <= value <= high:
        said = f"{what} {_shown(text)}: must be a whole number from {low} to {high:,}{also}"
        colon = ":" if " " in what else " "
        raise HmxError(said, f"{what}{colon}{max(low, 16)}")
    return value


def _shown(text: str) -> str:
    return quoted(text) or '""'


def _near(value: float, low: float, high: float) -> str:
    return f"{low:g}" if not value > low else f"{high:g}"
