"""Declare an option, from which help texts, documentation, completion, range checks and digests derive."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, Literal, ParamSpec, get_args

OnPolicyName = Literal["ppo", "gumbel"]
AlgorithmName = Literal[OnPolicyName, "dqn"]
ALGORITHMS: tuple[AlgorithmName, ...] = get_args(AlgorithmName)
ShapeRule = Literal["", "always", "from_schema_2", "if_not_default"]
"""Whether a key fixes the shapes or the meaning of a checkpoint's arrays, and so is in its shape digest: always, in
checkpoints since schema 2, or where it is not at its default (for a key that is younger than some checkpoints)."""

PPO: tuple[AlgorithmName, ...] = ("ppo",)
GUMBEL: tuple[AlgorithmName, ...] = ("gumbel",)
ON_POLICY: tuple[AlgorithmName, ...] = get_args(OnPolicyName)
DQN: tuple[AlgorithmName, ...] = ("dqn",)
RUN_PANEL, CONFIG_PANEL, OUTPUT_PANEL = "Run", "Configuration", "Output"
MAX_SEED = 2**31 - 1
REQUIRED = object()  # the default of a field without one


@dataclasses.dataclass
class Option:
    """All facts about an option; `opt` takes the same arguments."""

    default: Any  # value if no other is given
    doc: str  # its meaning, as a phrase without a full stop
    unit: str = ""  # of a number
    _: dataclasses.KW_ONLY
    ge: float | None = None  # lowest value; of a tuple, the lowest of its elements
    gt: float | None = None  # value that it must exceed
    le: float | None = None  # highest value
    flag: str = ""  # command-line option that sets it, such as `--lr`
    short: str = ""  # short form of that option, such as `-n`
    metavar: str = ""  # how help writes the value of that option
    panel: str = CONFIG_PANEL  # group of options in the help
    known: tuple[str, ...] = ()  # values to offer if others are possible too; closed choices are a `Literal`
    words: Mapping[str, int | None] = dataclasses.field(default_factory=dict)  # for a number, such as `all` for 0
    parse: Callable[[Any], Any] | None = None  # of a text, or the texts of a repeatable option; raises HmxError
    applies: tuple[AlgorithmName, ...] = ()  # algorithms that read it; empty for all
    envs: tuple[str, ...] = ()  # environments whose entries declare it; empty for all
    shape: ShapeRule = ""  # whether it is part of the shape digest
    gone: tuple[str, ...] = ()  # removed values, which recorded runs may have
    fixed: bool = False  # whether a run keeps its first value although no array depends on it


P = ParamSpec("P")


def field_of(kind: Callable[P, Any]) -> Callable[P, Any]:
    """Return a function that makes a dataclass field of facts: it takes the arguments of `kind`, a dataclass."""

    def opt(*args: P.args, **kwargs: P.kwargs) -> Any:
        facts = dict(vars(kind(*args, **kwargs)))
        default = facts.pop("default")
        return dataclasses.field(default=dataclasses.MISSING if default is REQUIRED else default, metadata=facts)

    return opt


opt = field_of(Option)
"""Make a dataclass field of an `Option`."""


def section(kind: Any, applies: tuple[AlgorithmName, ...] = ()) -> Any:
    """Make a field for a table of the configuration file; `applies` is that of its options."""
    return dataclasses.field(default_factory=kind, metadata={"applies": applies})


def same(kind: Any, name: str, panel: str, **changes: Any) -> Any:
    """Make a field with default, range and help of an option that another record declares, apart from `changes`."""
    field = next(field for field in dataclasses.fields(kind) if field.name == name)
    default = changes.pop("default", field.default)
    return dataclasses.field(default=default, metadata={**field.metadata, "panel": panel, **changes})


def checkpoint_option(panel: str) -> Any:
    """Declare `--checkpoint`."""
    return opt(None, "checkpoint to use (the latest by default)", ge=0, metavar="UPDATE", panel=panel)


def search_option(panel: str) -> Any:
    """Declare `--search`."""
    doc = "look ahead before each action by simulating N steps of the environment; a run of gumbel does by default"
    return opt(None, doc, "simulations", ge=1, le=1024, metavar="N", panel=panel)
