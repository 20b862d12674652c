"""Cost of splitting a run over devices: throughput, and the bytes that devices send each other per update.

    python benchmarks/device_scaling.py [--devices 1,2,4,8] [--rounds 5] [--set KEY=VALUE]

Each count is measured in a separate process, in which one processor looks like that many devices; on a machine with
accelerators, this flag has no effect.With fewer cores than devices the throughput shows only the cost of splitting. The
bytes are counted in the compiled program, loops
included, and hold wherever it runs: what one device has to receive, for an all-gather its result without its own part,
for an all-reduce twice that share of the operand (a ring sends it around twice). Beside them stands the arithmetic of
the layers, so that a network of known speed and devices of known speed give a forecast: seconds per update >= max(FLOP
/ (devices x FLOP/s), bytes / (bytes/s)).
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

_WIDTH = {"pred": 1, "s8": 1, "u8": 1, "bf16": 2, "f16": 2, "s32": 4, "u32": 4, "f32": 4, "s64": 8, "u64": 8, "f64": 8}
_KINDS = "all-reduce|all-gather|all-to-all|collective-permute|reduce-scatter"
_COLLECTIVE = re.compile(rf"= (?P<shape>\(?[^=]*?\)?) (?P<kind>{_KINDS})(?:-start)?\(")
_CALLED = re.compile(r"(?:body|to_apply|calls|condition)=%?([\w.-]+)")
_TRIPS = re.compile(r'known_trip_count":\{"n":"(\d+)"')


def shape_bytes(shape: str) -> int:
    """Bytes of an HLO shape, or of a tuple of them."""
    total = 0
    for kind, sizes in re.findall(r"([a-z]+\d*)\[([\d,]*)\]", shape):
        count = 1
        for size in filter(None, sizes.split(",")):
            count *= int(size)
        total += _WIDTH.get(kind, 4) * count
    return total


def computations(text: str) -> dict[str, list[str]]:
    """The lines of each computation of a compiled program; the entry is also under the empty name."""
    found: dict[str, list[str]] = {}
    lines: list[str] = []
    for line in re.sub(r"/\*.*?\*/", "", text).splitlines():
        if line.endswith("{") and not line.startswith(" "):
            lines = found[line.removeprefix("ENTRY ").split(" ")[0].lstrip("%")] = []
            if line.startswith("ENTRY"):
                found[""] = lines
        else:
            lines.append(line)
    return found


def collectives(program: dict[str, list[str]], name: str = "", times: int = 1) -> Iterator[tuple[str, int, int]]:
    """(kind, bytes of the result, how often) of every collective; a loop of unknown length counts once."""
    for line in program.get(name, ()):
        if match := _COLLECTIVE.search(line):
            yield match["kind"], shape_bytes(match["shape"]), times
        elif " while(" in line or " call(" in line or " conditional(" in line:
            trips = _TRIPS.search(line)
            for called in _CALLED.findall(line):
                yield from collectives(program, called, times * int(trips[1] if trips else 1))


def received(kind: str, size: int, devices: int) -> float:
    """Bytes that one device receives."""
    share = (devices - 1) / devices
    return size * share * (2 if kind == "all-reduce" else 1)


def measure(num_devices: int, rounds: int, sets: list[str]) -> dict[str, Any]:
    """Figures of one count, in this process."""
    import jax

    from hmx.registry.load import load
    from hmx.reports.bench.measure import Updates, time_in_turn
    from hmx.runs import chunk as chunks
    from hmx.runs import devices
    from hmx.runs.session import open_session
    from hmx.stats.intervals import median

    cfg = load(environ={}, sets=[*sets, f"run.devices={num_devices}", "run.updates_per_chunk=1"]).config
    session = open_session(cfg)._replace(mesh=devices.make_mesh(cfg.run.devices, cfg.env.num_envs))
    compiled: list[Any] = []

    def recorded(build: Callable[[], Any]) -> Any:
        compiled.append(build())
        return compiled[-1]

    with mock.patch.object(chunks, "interruptible", recorded):
        updates = Updates(session)
    seconds = time_in_turn({"update": lambda: updates.update(1)}, rounds)["update"]
    found = list(collectives(computations(compiled[0].as_text())))
    weights = sum(leaf.size for leaf in jax.tree.leaves(updates.state.params) if leaf.ndim == 2)
    return {
        "steps_per_sec": session.sizes.batch_size / median(seconds),
        "compile_s": updates.compilation.waited,
        "count": sum(times for _, _, times in found),
        "bytes": {
            kind: sum(received(k, size, num_devices) * times for k, size, times in found if k == kind)
            for kind in sorted({kind for kind, _, _ in found})
        },
        "flops": 2 * weights * session.sizes.batch_size * (1 + 3 * cfg.ppo.update_epochs),
        "device": jax.devices()[0].device_kind,
    }


def main() -> None:
    """Measure every count in turn, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--devices", default="1,2,4,8")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="any configuration key")
    parser.add_argument("--child", type=int, default=0, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.child:
        print(json.dumps(measure(args.child, args.rounds, args.set)))
        return
    counts = [int(part) for part in args.devices.split(",")]
    sets = [word for text in args.set for word in ("--set", text)]
    first = None
    for count in counts:
        flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count={count}"
        command = [sys.executable, __file__, "--child", str(count), "--rounds", str(args.rounds), *sets]
        done = subprocess.run(
            command, env={**os.environ, "XLA_FLAGS": flags}, stdout=subprocess.PIPE, text=True, check=True
        )
        found = json.loads(done.stdout.splitlines()[-1])
        if first is None:
            first = found
            print(f"{found['device']}, {os.cpu_count()} cores; layers: {found['flops'] / 1e9:,.1f} GFLOP per update")
            print(f"{'devices':>7} {'steps/s':>10} {'ratio':>6} {'compile':>8} {'messages':>9} {'received by one':>16}")
        total = sum(found["bytes"].values())
        parts = ", ".join(f"{kind} {size / 1e6:.2f} MB" for kind, size in found["bytes"].items())
        ratio = found["steps_per_sec"] / first["steps_per_sec"]
        print(
            f"{count:>7} {found['steps_per_sec']:>10,.0f} {ratio:>6.2f} {found['compile_s']:>6.1f} s"
            f" {found['count']:>9,} {total / 1e6:>13.2f} MB   {parts}"
        )


if __name__ == "__main__":
    main()
