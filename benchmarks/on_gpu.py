"""What only a GPU can show, in less than ten minutes: exact resume, speed, peers, the champion, the cost of reports.

    python benchmarks/on_gpu.py --out FOLDER [--parts A,B,C,D,E] [--peers FOLDER] [--purejaxrl FOLDER]

A, 120 s: PPO on HackMatrix, 8,192 environments, 40 updates: killed three times and resumed, beside a run that was not
    killed; the same with an empty cache at every start, and with deterministic operations.
B, 170 s: the environment alone, PPO, and a search with 16 simulations, with 65,536 environments; with command buffers,
    bfloat16 and deterministic operations; the share of time in which the GPU waits.
C, 110 s: CartPole with 2,048 environments, and 1 and 256 seeds: hmx, rejax and PureJaxRL in turn.
D, 110 s: 10,000 games of the champion with a search of 16 simulations.
E, 80 s: the share of training that metrics, gradient reports and consequence scores take.

A part ends after its seconds at the latest. FOLDER/results.jsonl gets a line for the machine and one for each figure,
as soon as it is known; what was cut or failed has a line too. While part A runs, other processes compile what the
later parts measure: equality of bits is no matter of speed. Without part A, the others wait for that.

Nothing is fetched. `--peers` is a folder with the packages of rejax, gymnax before 1.0 and distrax (`pip install
--target FOLDER`), `--purejaxrl` a clone of its repository; without them part C measures hmx alone. `--tiny` has sizes
for a try on a CPU.
"""

from __future__ import annotations

import argparse
import functools
import importlib.metadata
import json
import os
import platform
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from kill_harness import metrics_of

from hmx.records.paths import RunPaths

SECONDS = {"A": 120, "B": 170, "C": 110, "D": 110, "E": 80}
"""The longest time of each part."""

HERE = Path(__file__).parent
BUFFERS = "FUSION,CUBLAS,CUBLASLT,CUDNN,CUSTOM_CALL,CONDITIONAL,WHILE,DYNAMIC_SLICE_FUSION"
ARMS = {
    "default": ([], {}),
    "command buffers": (
        [],
        {"XLA_FLAGS": f"--xla_gpu_enable_command_buffer={BUFFERS} --xla_gpu_graph_min_graph_size=1"},
    ),
    "bfloat16": (["net.compute_dtype=bfloat16"], {}),
    "deterministic": ([], {"XLA_FLAGS": "--xla_gpu_deterministic_ops=true"}),
}
"""Settings and variables of each arm."""

Row = dict[str, Any]
Arm = tuple[list[str], dict[str, str]]


class Sizes(NamedTuple):
    """What is measured; `tiny` only shows that it runs."""

    resumed_envs: int = 8_192
    resumed_steps: int = 16  # per update
    updates: int = 40
    kills: int = 3
    envs: int = 65_536
    cartpole_envs: int = 2_048
    seeds: tuple[int, ...] = (1, 256)
    games: int = 10_000
    cost_envs: int = 8_192
    settings: tuple[str, ...] = ()  # of all trainings on HackMatrix


TINY = Sizes(
    8, 8, 6, 1, 16, 16, (1, 2), 2, 16,
    ("net.hidden=8", "ppo.bptt_horizon=4", "ppo.num_minibatches=1", "ppo.update_epochs=1"),
)  # fmt: skip


class Cut(Exception):
    """The time of the part is over."""


class Context(NamedTuple):
    """What all parts share."""

    sizes: Sizes
    folder: Path  # of runs and caches
    variables: Mapping[str, str]  # of all processes
    peers: str
    purejaxrl: str

    def start(self, words: Sequence[str], variables: Mapping[str, str], output: Any) -> subprocess.Popen[str]:
        """Start a process whose errors go to a file beside the runs."""
        with (self.folder / "errors.txt").open("a") as errors:
            return subprocess.Popen(
                [sys.executable, *words], stdin=subprocess.DEVNULL, stdout=output, stderr=errors, text=True,
                env={**self.variables, **variables}, cwd=self.folder,
            )  # fmt: skip

    def lines(self, words: Sequence[str], until: float, variables: Mapping[str, str] | None = None) -> Iterator[Row]:
        """Yield the JSON lines that a process prints.

        Raises:
            Cut: it had not ended in time.
            RuntimeError: it ended with an error.
        """
        with tempfile.TemporaryFile("w+") as output:
            process = self.start(words, variables or {}, output)
            try:
                status = process.wait(max(0.0, until - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
                status = None
            output.seek(0)
            yield from (json.loads(line) for line in output if line.startswith("{") and line.endswith("\n"))
        if status is None:
            raise Cut
        if status:
            raise self.failure(status)

    def failure(self, status: int) -> RuntimeError:
        """Return the error of a process that ended with a status other than 0."""
        said = (self.folder / "errors.txt").read_text(errors="replace")
        return RuntimeError(f"exit code {status}: {said[-600:]}")


Step = Callable[[float], Iterable[Row]]  # the moment at which it must end -> rows


# Part A


def training(context: Context, name: str) -> list[str]:
    """Return the command that trains one of the runs that are compared."""
    sizes = context.sizes
    per_update = sizes.resumed_envs * sizes.resumed_steps
    values = {
        "run.total_steps": sizes.updates * per_update, "run.updates_per_chunk": 1, "run.checkpoint_every": 1,
        "run.eval_episodes": 0, "run.evaluations": 0, "env.num_envs": sizes.resumed_envs,
        "algo.num_steps": sizes.resumed_steps, "ppo.bptt_horizon": sizes.resumed_steps,
    }  # fmt: skip
    return ["-m", "hmx", "train", "--name", name, *sets([f"{key}={value}" for key, value in values.items()], sizes)]


def sets(values: Iterable[str], sizes: Sizes) -> list[str]:
    """Return the options for settings and those of all trainings."""
    return [word for value in (*values, *sizes.settings) for word in ("--set", value)]


def exact_resume(context: Context) -> Mapping[str, Step]:
    """Kill runs and resume them, and compare their ends with those of runs that were not killed."""

    def compared(arm: str, reference: str, kills: int, cold: bool, until: float) -> Iterator[Row]:
        variables = ARMS[arm][1] if arm in ARMS else {}
        if not RunPaths(context.folder / "runs", reference).folder.exists():
            list(context.lines(training(context, reference), until, variables))
        name = f"killed-{len(list((context.folder / 'runs').glob('killed-*')))}"
        moments = killed(context, name, kills, variables, cold, until)
        paths = [RunPaths(context.folder / "runs", each) for each in (reference, name)]
        records = [metrics_of(each) for each in paths]
        last = [str(max(each.checkpoints.iterdir(), key=lambda path: path.name.zfill(9))) for each in paths]
        equal = next(iter(context.lines([__file__, "--equal", *last], until, {"JAX_PLATFORMS": "cpu"})))
        yield {"killed_after_updates": moments, "equal_records": records[0] == records[1], **equal}

    return {
        "default": functools.partial(compared, "default", "whole", context.sizes.kills, False),
        "an empty cache at every start": functools.partial(compared, "default", "whole", 1, True),
        "deterministic": functools.partial(compared, "deterministic", "whole-deterministic", 1, False),
    }


def killed(
    context: Context, name: str, kills: int, variables: Mapping[str, str], cold: bool, until: float
) -> list[int]:
    """Train a run, kill it after some updates and resume it; return the updates that it had recorded."""
    last = context.sizes.updates - 1
    moments = sorted(random.Random(name).sample(range(2, last), kills))
    metrics = RunPaths(context.folder / "runs", name).metrics
    found, words = [], training(context, name)
    for number, moment in enumerate([*moments, None]):
        fresh = {"HMX_CACHE_DIR": str(context.folder / f"cold-{name}-{number}")} if cold else {}
        process = context.start(words, {**variables, **fresh}, subprocess.DEVNULL)
        try:
            while process.poll() is None and (moment is None or recorded(metrics) < moment):
                if time.monotonic() > until:
                    raise Cut
                time.sleep(0.002)
        finally:
            process.kill()
        status = process.wait()
        if moment is None and status:
            raise context.failure(status)
        found += [recorded(metrics)] if moment is not None else []
        words = ["-m", "hmx", "resume", name]
    return found


def recorded(metrics: Path) -> int:
    """Return how many records a run has."""
    return metrics.read_bytes().count(b"\n") if metrics.exists() else 0


def print_equality(one: str, other: str) -> None:
    """Print whether two checkpoints have equal states, as JSON."""
    from hmx.runs.checkpoint import equal_states

    print(json.dumps({"equal_states": equal_states(Path(one), Path(other))}))


# Part B


def benchmark(context: Context, search: bool, arm: str) -> list[str]:
    """Return the command that measures the environment, acting and updates of PPO, or of learning from search."""
    values = [f"env.num_envs={context.sizes.envs}", *ARMS[arm][0]]
    values += ["algo.num_steps=4", "ppo.bptt_horizon=4", "gumbel.num_simulations=16"] if search else []
    preset = ["--preset", "gumbel"] if search else []
    return ["-m", "hmx", "bench", "--json", "--seconds", "1", *preset, *sets(values, context.sizes)]


def speeds(context: Context) -> Mapping[str, Step]:
    """Measure speeds, and how long the GPU waits between kernels."""

    def measured(search: bool, arm: str, until: float) -> Iterator[Row]:
        for found in context.lines(benchmark(context, search, arm), until, ARMS[arm][1]):
            speed = {each["name"]: each["steps_per_sec"] for each in found["phases"] if each["steps_per_sec"]}
            yield {"steps_per_sec": speed, "memory_bytes": found["memory_bytes"]}

    def waits(search: bool, arm: str, until: float) -> Iterator[Row]:
        words = [__file__, "--waiting", *(["search"] if search else []), *(["--tiny"] if tiny else [])]
        yield from context.lines(words, until, ARMS[arm][1])

    tiny = context.sizes == TINY
    steps: dict[str, Step] = {}
    for what, arms in (("PPO", list(ARMS)), ("search", ["default", "command buffers"])):
        steps |= {f"{what}, {arm}": functools.partial(measured, what == "search", arm) for arm in arms}
        steps[f"{what}, time in which the GPU waits"] = functools.partial(waits, what == "search", "default")
    return steps


def print_waiting(search: bool, sizes: Sizes) -> None:
    """Trace an update, and print the share of time without a kernel, as JSON."""
    from contextlib import closing

    import jax

    from hmx.registry.load import load
    from hmx.reports.bench.measure import Updates
    from hmx.runs.compilation import enable_cache
    from hmx.runs.session import open_session

    enable_cache()
    steps = 4 if search or sizes == TINY else 16
    values = [f"env.num_envs={sizes.envs}", "run.updates_per_chunk=1", f"algo.num_steps={steps}", *sizes.settings]
    values += [f"ppo.bptt_horizon={steps}", *(["gumbel.num_simulations=16"] if search else [])]
    session = open_session(load(preset="gumbel" if search else None, sets=values, environ={}).config)
    with closing(Updates(session)) as updates, tempfile.TemporaryDirectory() as folder:
        updates.update(1)
        with jax.profiler.trace(folder):
            updates.update(1)
        (file,) = Path(folder).rglob("*.xplane.pb")
        planes = jax.profiler.ProfileData.from_file(str(file)).planes
        kernels = [
            (event.start_ns, event.start_ns + event.duration_ns)
            for plane in planes if plane.name.startswith("/device:GPU")
            for line in plane.lines if line.name.startswith("Stream")
            for event in line.events
        ]  # fmt: skip
    print(json.dumps({"kernels": len(kernels), "waiting": waiting(kernels)}))


def waiting(kernels: Iterable[tuple[float, float]]) -> float | None:
    """Return the share of the time from the first kernel to the last in which none runs; None without kernels.

    Kernels may overlap: what counts is the union of their intervals.
    """
    kernels = sorted(kernels)
    if not kernels:
        return None
    begin, end = kernels[0]
    first, busy = begin, 0.0
    for start, stop in kernels[1:]:
        if start > end:
            busy, begin = busy + end - begin, start
        end = max(end, stop)
    busy += end - begin
    return 1 - busy / (end - first)


# Parts C, D and E


def peers(context: Context) -> Mapping[str, Step]:
    """Train CartPole beside rejax and PureJaxRL."""
    sizes = context.sizes
    words = [
        str(HERE / "many_seeds.py"), "--json", "--rounds", "3", "--envs", str(sizes.cartpole_envs),
        "--seeds", ",".join(map(str, sizes.seeds)),
    ]  # fmt: skip
    words += ["--peer", "rejax"] if context.peers else []
    words += ["--peer", "purejaxrl", "--purejaxrl", context.purejaxrl] if context.peers and context.purejaxrl else []
    path = os.pathsep.join(filter(None, [context.peers, context.variables.get("PYTHONPATH", "")]))
    return {"CartPole": lambda until: context.lines(words, until, {"PYTHONPATH": path} if path else {})}


def games(context: Context) -> list[str]:
    """Return the command that plays the champion."""
    episodes = ["--episodes", str(context.sizes.games)]
    return ["-m", "hmx", "evaluate", "champion", "--search", "16", "--policy", "search", *episodes, "--json", "--quiet"]


def champion(context: Context) -> Mapping[str, Step]:
    """Play the champion."""

    def played(until: float) -> Iterator[Row]:
        began = time.monotonic()
        for found in context.lines(games(context), until):
            yield {"policies": found["policies"], "seconds": time.monotonic() - began}

    return {"champion": played}


def cost_commands(context: Context) -> Mapping[str, list[str]]:
    """Return the commands that measure what metrics, gradient reports and scores cost."""
    sizes = context.sizes
    values = sets([f"env.num_envs={sizes.cost_envs}"], sizes)
    small = ["--groups", "4", "--per-group", "2", "--max-length", "8"] if sizes == TINY else []
    short = ["--passes", "1", "--rounds", "1"] if sizes == TINY else ["--passes", "2", "--rounds", "3"]
    return {
        "metrics": ["-m", "hmx", "bench", "--json", "--seconds", "15", "--metrics", *values],
        "gradient report every 50 updates": [
            str(HERE / "grad_report_cost.py"), "--short", "--json", "--num-envs", str(sizes.cost_envs), *small,
        ],
        "1,000 scores every 10 chunks": [
            str(HERE / "scored_training.py"), "--json", "--env", "lake" if sizes == TINY else "chunks", *short,
        ],
    }  # fmt: skip


def costs(context: Context) -> Mapping[str, Step]:
    """Measure what metrics, gradient reports and scores cost."""

    def measured(words: list[str], until: float) -> Iterator[Row]:
        for found in context.lines(words, until):
            yield {"metrics": found["metrics"]} if "phases" in found else found

    return {name: functools.partial(measured, words) for name, words in cost_commands(context).items()}


PARTS = {"A": exact_resume, "B": speeds, "C": peers, "D": champion, "E": costs}


def compiling(context: Context, parts: Sequence[str]) -> list[subprocess.Popen[str]]:
    """Start processes that fill the cache for the parts B, D and E."""
    commands: list[tuple[list[str], dict[str, str]]] = []
    if "B" in parts:
        commands += [(benchmark(context, False, arm), ARMS[arm][1]) for arm in ARMS]
        commands += [(benchmark(context, True, arm), ARMS[arm][1]) for arm in ("default", "command buffers")]
    if "D" in parts:
        commands.append((games(context), {}))
    if "E" in parts:
        commands.append((cost_commands(context)["metrics"], {}))
    return [context.start(words, variables, subprocess.DEVNULL) for words, variables in commands]


def machine() -> Row:
    """Describe the machine and the versions."""
    query = ["nvidia-smi", "--query-gpu=name,driver_version,memory.total", "--format=csv,noheader"]
    try:
        gpu = subprocess.run(query, capture_output=True, text=True, check=True, timeout=20).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        gpu = ""
    found = {d.metadata["Name"].lower(): d.version for d in importlib.metadata.distributions() if d.metadata["Name"]}
    wanted = {name: version for name, version in found.items() if name == "hmx" or name.startswith("jax")}
    return {"gpu": gpu, "python": platform.python_version(), "cores": os.cpu_count(), "versions": wanted}


def measure(context: Context, parts: Sequence[str], write: Callable[[Row], None]) -> None:
    """Run the parts one after another; `write` gets each row at once."""
    others = [] if context.sizes == TINY else compiling(context, parts)
    if "A" not in parts:
        wait_for(others, time.monotonic() + SECONDS["A"])
    for part in parts:
        began = time.monotonic()
        until = began + SECONDS[part]
        for name, step in PARTS[part](context).items():
            head = {"part": part, "what": name}
            try:
                for row in step(until):
                    write({**head, **row})
            except Cut:
                write({**head, "cut": f"after {SECONDS[part]} s of the part"})
            except (RuntimeError, OSError, StopIteration) as problem:
                write({**head, "failed": str(problem)})
        if part == "A":
            wait_for(others, until)
        write({"part": part, "seconds": round(time.monotonic() - began, 1)})


def wait_for(processes: Iterable[subprocess.Popen[str]], until: float) -> None:
    """Wait until all have ended; end those that have not by then."""
    for process in processes:
        try:
            process.wait(max(0.0, until - time.monotonic()))
        except subprocess.TimeoutExpired:
            process.terminate()
            process.wait()


def main() -> None:
    """Measure the parts that were asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", metavar="FOLDER", help="gets results.jsonl")
    parser.add_argument("--parts", default=",".join(PARTS), help="separated by commas")
    parser.add_argument("--peers", default="", metavar="FOLDER", help="packages of rejax, gymnax before 1.0, distrax")
    parser.add_argument("--purejaxrl", default="", metavar="FOLDER", help="a clone of the repository of PureJaxRL")
    parser.add_argument("--tiny", action="store_true", help="sizes for a try on a CPU")
    parser.add_argument("--equal", nargs=2, help=argparse.SUPPRESS)
    parser.add_argument("--waiting", nargs="?", const="PPO", help=argparse.SUPPRESS)
    args = parser.parse_args()
    sizes = TINY if args.tiny else Sizes()
    if args.equal:
        print_equality(*args.equal)
    elif args.waiting:
        print_waiting(args.waiting == "search", sizes)
    elif not args.out or not set(parts := args.parts.split(",")) <= set(PARTS):
        parser.error(f"--out FOLDER is needed, and --parts takes {','.join(PARTS)}")
    else:
        out = Path(args.out)
        out.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory() as folder, (out / "results.jsonl").open("a") as results:

            def write(row: Row) -> None:
                print(json.dumps(row), flush=True)
                results.write(json.dumps(row) + "\n")
                results.flush()

            place = {"HMX_CACHE_DIR": str(Path(folder, "cache")), "XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
            peers_folder, clone = (str(Path(each).resolve()) if each else "" for each in (args.peers, args.purejaxrl))
            write(machine())
            measure(Context(sizes, Path(folder), {**os.environ, **place}, peers_folder, clone), parts, write)


if __name__ == "__main__":
    main()
