"""`hmx envs`: every environment with its origin, its sizes, and the missing packages."""

from __future__ import annotations

import dataclasses
import importlib.util

from hmx.config.coerce import show
from hmx.config.fields import FIELDS
from hmx.config.schema import ENV_IDS, EnvConfig
from hmx.records.plain import JsonValue, plain_object
from hmx.registry.environments import EXTRAS, clashes, features_of, find_source, names_in, stored_sizes
from hmx.registry.sizes import Sizes
from hmx.registry.user_code import registered
from hmx.render.blocks import Block, Cell, Document, Paragraph, facts
from hmx.render.numbers import right, table_of, texts
from hmx.render.quantities import data_size

SCHEMA = 1


@dataclasses.dataclass(frozen=True, kw_only=True)
class EnvironmentRow:
    """One environment, or all of an extra (`gymnax/NAME`); sizes are None if they are known only after building it."""

    id: str
    origin: str
    observation: int | None = None  # numbers in the observation of one agent
    actions: int | None = None  # 0 if actions are continuous
    action_dim: int | None = None  # numbers of a continuous action
    agents: int | None = None
    state_bytes: int | None = None
    missing: str = ""  # the package to install, or another reason why it does not work
    action_names: tuple[str, ...] = ()
    reward_terms: tuple[str, ...] = ()
    max_steps: int | None = None
    options: dict[str, JsonValue] = dataclasses.field(default_factory=dict)  # `env.NAME` of its entry, `env.my.NAME`
    renders: bool | None = None


def list_environments() -> list[EnvironmentRow]:
    """Return all environments that can be named, without building any."""
    stored = stored_sizes()
    rows = [_sized(name, "built in", stored.get(name)) for name in ENV_IDS]
    for extra, package in EXTRAS.items():
        installed = importlib.util.find_spec(package) is not None
        missing, origin = "" if installed else f"pip install -e '.[{extra}]'", f"extra {extra}"
        known = [f"{extra}/{name}" for name in names_in(extra)]
        rows += [_sized(name, origin, stored.get(name), missing) for name in known]
        if not known:
            rows.append(EnvironmentRow(id=f"{extra}/NAME", origin=origin, missing=missing))
    for point in registered("env.id"):
        origin = f"package {point.dist.name}" if point.dist is not None else "package"
        found = clashes(point.name)
        missing = f"the name is taken: {', '.join(found)}" if found else ""
        rows.append(EnvironmentRow(id=point.name, origin=origin, missing=missing))
    return rows


def _sized(env_id: str, origin: str, sizes: Sizes | None, missing: str = "") -> EnvironmentRow:
    if sizes is None:
        return EnvironmentRow(id=env_id, origin=origin, missing=missing)
    return EnvironmentRow(
        id=env_id, origin=origin, observation=sizes.features, actions=sizes.num_actions, action_dim=sizes.action_dim,
        agents=sizes.num_agents, state_bytes=sizes.state_bytes, missing=missing,
    )  # fmt: skip


def build_environment(cfg: EnvConfig) -> EnvironmentRow:
    """Build an environment and return its sizes."""
    from hmx.config.schema import RewardWeights
    from hmx.envs.registry import build_env, sizes_of  # imports JAX

    env, done = build_env(cfg, RewardWeights())
    source = find_source(cfg.id)
    spec = env.spec
    return dataclasses.replace(
        _sized(cfg.id, source.origin if source is not None else "", sizes_of(env)),
        action_names=spec.action_names,
        reward_terms=spec.reward_terms,
        max_steps=spec.max_steps,
        options={**{name: getattr(done, name) for name in _declared(cfg.id)}, **dict(done.my)},
        renders=spec.render is not None or "board" in features_of(cfg),
    )


def to_json(rows: list[EnvironmentRow]) -> dict[str, JsonValue]:
    """Return a JSON object with stable keys."""
    return {"schema": SCHEMA, "environments": [plain_object(row) for row in rows]}


def document(rows: list[EnvironmentRow]) -> Document:
    """Show a row per environment, or all facts about a single one that was built."""
    columns = [
        texts("id", lambda row: Cell(row.id, tone="strong")), texts("origin", lambda row: row.origin),
        right("observation", lambda row: "" if row.observation is None else f"{row.observation:,}"),
        right("actions", _actions), right("agents", lambda row: "" if row.agents is None else str(row.agents), 2),
        right("state", lambda row: "" if row.state_bytes is None else data_size(row.state_bytes), 1),
        texts("missing", _missing),
    ]  # fmt: skip
    blocks: list[Block] = [table_of(rows, columns)]
    if len(rows) == 1 and rows[0].renders is not None:
        (row,) = rows
        pairs = [
            ("actions", ", ".join(row.action_names) or f"{row.action_dim} numbers in [-1, 1]"),
            ("reward terms", ", ".join(row.reward_terms)),
            ("step limit", f"{row.max_steps:,} steps" if row.max_steps else "none"),
            ("options", ", ".join(_option(row.id, *pair) for pair in row.options.items()) or "none"),
            ("hmx watch", "shows its picture" if row.renders else "shows its observation: it has no render"),
        ]
        blocks.append(facts(tuple(pairs)))
    else:
        words = (
            "Install an extra in a clone of hmx: pip install -e '.[gymnax]'. Write your own: hmx new-env NAME. "
            "hmx envs ID builds one and shows all about it."
        )
        blocks.append(Paragraph(words, "faint"))
    return Document("", tuple(blocks))


def _declared(env_id: str) -> list[str]:
    """Return the names of the options in `[env]` that the entry of an environment declares."""
    return [field.name for field in FIELDS.values() if field.section == "env" and env_id in field.envs]


def _option(env_id: str, name: str, value: JsonValue) -> str:
    return f"env.{'' if name in _declared(env_id) else 'my.'}{name}={show(value)}"


def _actions(row: EnvironmentRow) -> str:
    return "" if row.actions is None else f"{row.actions}" if row.actions else f"{row.action_dim} continuous"


def _missing(row: EnvironmentRow) -> Cell:
    return Cell("not installed" if row.missing.startswith("pip") else row.missing, row.missing, "warning")
