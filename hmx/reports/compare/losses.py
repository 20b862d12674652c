"""`hmx compare --impl`: the losses of several configurations on one batch. The only part that needs JAX."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from hmx.config.schema import Config
from hmx.errors import HmxError, counted
from hmx.render.blocks import Block, Column, Heading, Paragraph, Row, Table
from hmx.render.quantities import number, percent
from hmx.reports.compare.findings import Loss, Losses, SideFacts
from hmx.reports.compare.sides import Side


def losses(sides: Sequence[Side], seed: int = 0) -> Losses:
    """Compute the losses of every side on one batch; refuse recurrent networks and value heads that differ."""
    configs = [_config(side) for side in sides]
    _check(sides, configs)

    from hmx.reports.compare.loss_terms import compare_losses  # needs JAX

    return compare_losses({side.letter: config for side, config in zip(sides, configs, strict=True)}, seed)


def _config(side: Side) -> Config:
    if not side.configs:
        hint = "give runs, configurations or presets, for example hmx compare --impl brax scs"
        raise HmxError(f"cannot compute the loss of side {side.letter}: it has no configuration", hint)
    return side.configs[0]


def _check(sides: Sequence[Side], configs: Sequence[Config]) -> None:
    if configs[0].net.rnn != "none":
        message = f"cannot compare losses with the network of side {sides[0].letter}: it is recurrent"
        raise HmxError(message, "put a side with net.rnn = none first; its network is used for all")
    if len({config.ppo.value_target == "two_hot" for config in configs}) > 1:
        message = "cannot compare losses: some sides have ppo.value_target = two_hot, and no network has both heads"
        raise HmxError(message, "compare sides that all have two_hot, or none of them")


def blocks(losses: Losses, sides: Sequence[SideFacts]) -> Iterator[Block]:
    """Yield the losses as a section of the report."""
    labels = {side.letter: side.label for side in sides}
    yield Heading("One batch through every loss")
    yield Paragraph(
        f"{counted(losses.num_envs, 'environment')} of {losses.env}, {counted(losses.num_steps, 'step')} each, played "
        f"with the initial network of {labels[losses.network]} ({losses.parameters:,} parameters). Episodes are "
        f"truncated after {counted(losses.truncated_after, 'step')}: "
        f"{percent(losses.truncated_frac, 1)} of the steps are truncations, "
        f"{percent(losses.terminated_frac, 1)} terminations. Every side gets this environment and network; standard "
        "deviations of actions, rewards, advantages, targets, weights and clipping are its own. Observations are not "
        "normalised."
    )
    columns = (Column("", "left"), *(Column(labels[letter]) for letter in losses.sides))
    for i, steps in enumerate(losses.gradient_steps):
        when = f"After {counted(steps, 'gradient step')} of {losses.network}" if steps else "At the first gradient step"
        yield Table(columns, tuple(_rows(losses, [found[i] for found in losses.sides.values()])), when)


def _rows(losses: Losses, each: Sequence[Loss]) -> Iterator[Row]:
    def row(name: str, values: Iterable[float | None]) -> Row:
        return Row((name, *(number(value, 4) for value in values)))

    for name, pairs in (("advantage", [v.advantage for v in each]), ("target", [v.target for v in each])):
        yield Row((f"{name}, mean ± std", *(f"{number(mean, 4)} ± {number(std, 4)}" for mean, std in pairs)))
    yield row("correlation of advantages", (v.correlation for v in each))
    yield row("largest |ratio - 1|", (v.ratio_error for v in each))
    yield row("clipped share", (v.clip_frac for v in each))
    for name in losses.components:
        yield Row((name,))
        if name in each[0].raw:
            yield row("  nats" if name == "entropy" else "  loss", (v.raw[name] for v in each))
        yield row("  loss" if name == "total" else "  term of the total", (v.weighted[name] for v in each))
        yield row("  gradient norm", (v.norm[name] for v in each))
        yield row("  gradient cosine", (v.cosine[name] for v in each))
