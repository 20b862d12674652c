"""What the figures of `hmx bench` mean, in sentences."""

from __future__ import annotations

from collections.abc import Sequence

from hmx.config.option import ON_POLICY
from hmx.config.schema import Config
from hmx.reports.bench.findings import Part, PartName, SizeSpeed
from hmx.reports.quantities import duration, interval, percent

WHAT: dict[PartName, str] = {
    "environment": "environment steps",
    "network": "choosing actions",
    "learning": "learning (the rest of an update)",
    "saving": "saving checkpoints",
    "logging": "writing metrics",
}

_LONG = 0.25  # of the time of a run, from which compiling is worth a sentence
_WORTH = 1.1  # times as fast, from which another size is suggested


def verdict(parts: Sequence[Part], compile_seconds: float, run_seconds: float) -> str:
    """Name the part that takes most of the time, and compiling if that is long beside the whole run."""
    first = parts[0]
    text = f"Training spends {percent(first.share)} of its time in {WHAT[first.name]}"
    text += f": {duration(first.seconds)} per update."
    if compile_seconds > _LONG * run_seconds:
        text += f" Compiling takes {duration(compile_seconds)} once, and the whole run {duration(run_seconds)}."
    return text


def advice(cfg: Config, bottleneck: PartName) -> str:
    """Say what makes that part faster."""
    if bottleneck == "environment":
        return (
            f"Make a step of {cfg.env.id} cheaper, or compare numbers of environments below. While the environment "
            "takes most of the time, more epochs or a larger network cost little."
        )
    if bottleneck == "network":
        search = f"fewer simulations (gumbel.num_simulations is {cfg.gumbel.num_simulations}), "
        less = search if cfg.algo.name == "gumbel" else ""
        return (
            f"Use {less}a smaller network (net.hidden), or more environments, since larger batches use a processor "
            "better."
        )
    if bottleneck == "saving":
        return f"Save less often: run.checkpoint_every is {cfg.run.checkpoint_every}."
    if bottleneck == "logging":
        return f"Write the records of more updates at once: run.updates_per_chunk is {cfg.run.updates_per_chunk}."
    if cfg.algo.name == "dqn":
        return (
            f"Use fewer gradient steps per update (dqn.gradient_steps is {cfg.dqn.gradient_steps}) or smaller batches "
            f"(dqn.batch_size is {cfg.dqn.batch_size}); these change what an agent learns from a step."
        )
    if cfg.algo.name in ON_POLICY:
        return (
            f"Use fewer epochs (ppo.update_epochs is {cfg.ppo.update_epochs}) or fewer, larger minibatches "
            f"(ppo.num_minibatches is {cfg.ppo.num_minibatches}); these change what an agent learns from a step."
        )
    return f"Look at the update of {cfg.algo.name}."


def suggestion(sizes: Sequence[SizeSpeed]) -> str:
    """Suggest the fastest number of environments, if its interval says that it is faster."""
    faster = [size for size in sizes if size.ratio.value >= _WORTH and (size.ratio.low or 0.0) > 1]
    if not sizes:
        return ""
    if not faster:
        return "None of the other numbers of environments is faster by 10 % or more."
    best = max(faster, key=lambda size: size.ratio.value)
    return (
        f"--num-envs {best.num_envs} is {interval(*best.ratio)} times as fast in steps per second. With more "
        "environments, a policy is updated less often for the same number of steps."
    )


def not_measured(late: Sequence[tuple[int, float]], large: Sequence[int]) -> str:
    """Say which other numbers of environments were not measured, and why."""
    texts = []
    if late:
        numbers = ", ".join(f"{number:,}" for number, _ in late)
        texts.append(f"No time for {numbers} environments: about {duration(sum(s for _, s in late))} more (--seconds).")
    if large:
        texts.append(f"No memory for {', '.join(f'{number:,}' for number in large)} environments.")
    return " ".join(texts)
