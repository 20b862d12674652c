"""Record what the commands of a checkout do as text files, and show what differs between two recordings.

    python tools/behaviour.py record FOLDER [--only help,refusals] [--checkout ANOTHER]
    python tools/behaviour.py diff FOLDER ANOTHER

Each file shows some command lines, their exit codes, output and new files. Every command runs in a process of its own.
Times, ids and paths are replaced by placeholders, so that one commit always gives the same bytes on one machine.
"""

from __future__ import annotations

import argparse
import difflib
import importlib
import json
import multiprocessing
import os
import re
import runpy
import shlex
import shutil
import sys
import tarfile
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "hmx-behaviour"
FORK = multiprocessing.get_context("fork")
PRELOADED = ("pydantic", "typer.rich_utils", "rich.progress", "jax", "flax.linen", "optax", "orbax.checkpoint")
"""Imported once and inherited by the process of every command, which then only imports hmx itself."""

ENVIRON = {
    "COLUMNS": "100", "LINES": "40", "TERM": "dumb", "NO_COLOR": "1", "WANDB_MODE": "disabled",
    "OPENBLAS_NUM_THREADS": "1", "JAX_PLATFORMS": "cpu", "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
    # Two devices, and programs that compile quickly: see tests/conftest.py.
    "XLA_FLAGS": "--xla_force_host_platform_device_count=2 --xla_backend_optimization_level=0"
    " --xla_cpu_use_fusion_emitters=false --xla_cpu_parallel_codegen_split_count=1",
}  # fmt: skip

TAB = """
_HMX_COMPLETE=complete_bash COMP_WORDS="hmx " COMP_CWORD=1
_HMX_COMPLETE=complete_bash COMP_WORDS="hmx train --set algo." COMP_CWORD=3
_HMX_COMPLETE=complete_bash COMP_WORDS="hmx train --env " COMP_CWORD=3
_HMX_COMPLETE=complete_bash COMP_WORDS="hmx train --preset s" COMP_CWORD=3
_HMX_COMPLETE=complete_zsh _TYPER_COMPLETE_ARGS="hmx evaluate "
_HMX_COMPLETE=complete_fish _TYPER_COMPLETE_ARGS="hmx compare --metric " _TYPER_COMPLETE_FISH_ACTION=get-args
"""

REFUSALS = """
trian
--versoin
train surplus
train --sedd 1
train --name
train --env hackmatirx
train --env smax/4m
train --env brax/ant@warp
train --env corridor --set env.num_agents=3
train --env corridor --set net.kind=cells
train --env corridor --set starts.share=0.5
train --env ./none.py
train --algo dnq
train --algo ./none.py --env corridor
train --algo dqn --env pendulum
train --algo dqn --set ppo.clip_eps=0.3
train --algo dqn --set net.rnn=gru
train --algo gumbel --env pendulum
train --algo gumbel --set ppo.advantage_scale=symlog
train --net nosuch.net:make --env corridor
train --seed -1
train --seeds 0 --lr fast --num-envs 3.7
train --steps 1e30
train --save-buffer
train --distributed --devices 4
train --process-id 1
train --name ../escape
train --preset qick
train --preset lake --num-envs 24
train --preset lake --set replay.mixing=additive
train --preset lake --set score.every=1 --set score.actions=topk
train --preset tiny --name ppo
train --set ppo.episode_end=truncate
train --set ppo.advantage_when=minibatch
train --set ppo.num_minibatches=7
train --set ppo.value_target=two_hot --set ppo.clip_vf_eps=0.2
train --set algo.gama=0.9
train --set algo.my.size=3
train --set algo.grad_clip=per_network
train --set reward.kils=1
train --set agent.gamma=0.9 --dry-run
train --config missing.toml
HMX_ALGO_GAMMA=1.5 train --config bad.toml --set ppo.clip_eps=-1
resume nosuch
resume runs/ppo --set env.num_envs=7
resume runs/ppo --set algo.gamma=2
resume runs/dqn --set replay.capacity=5
evaluate runs/ppo --policy lucky
evaluate runs/ppo --policy search
evaluate runs/dqn --checkpoint 77
watch
watch --random --search 8
play
report nosuch
report runs/ppo runs/ppo
doctor runs/ppo --fail-on xx
compare tiny
compare tiny metaa
compare runs/ppo runs/lstm --metric train/mean_episode_retrun
compare runs/ppo runs/lstm --fail-if "iqn(A) > 1"
compare tiny metta --fail-if "1 < 2 < 3"
compare tiny metta --last 0.1
compare metta tiny --impl
compare runs/ppo runs/dqn --range lake=0:1
compute-config --num-agnets 3
compute-config --num-agents 257
compute-config --batch-size 1
compute-config --bptt-horizon 63
compute-config --num-workers 3
compute-config --sweep foo=1
bench --compare nosuch.json
bench --json --md -
check-env coridor
check-env corridor --steps 1
grad-report runs/ppo --replay
grad-report runs/ppo --buckets 65
grad-report runs/ppo --by luck
grad-report runs/ppo --agent 1
score-buffer nosuch.npz
score-buffer runs/dqn --policy greedy --aggregate policy
score-buffer runs/dqn --actions some
score-buffer runs/ppo --checkpoint runs/ppo
export runs/ppo --to pickle
board --port x
presets surplus
envs corridr
envs corridor --set env.my.size=3
new-env 3d
runs lst
runs list --sort speed
runs rename runs/ppo ../x
runs rm runs/ppo
runs export runs/ppo --output runs/ppo/run.toml
runs verify /
runs sync nosuch
"""

FILES = {
    "bad.toml": '[env]\nnum_envs = -3\n[algo]\nactivatoin = "relu"\n',
}
"""Files that each scratch folder starts with, next to the archived runs."""

PLANS = """
presets
presets --json
envs
envs --json
compute-config --json
compute-config --explain
compute-config --fix --batch-size 500000
compute-config --sweep num_agents=2,3,4 --csv -
compute-config --preset metta --gpu-mem 80GB --md -
train --dry-run --full
train --dry-run --full --preset gumbel
train --dry-run --full --preset dqn
train --dry-run --auto-scale --num-envs 8192 --json
"""
BUILT_IN = (
    "hackmatrix", "counting", "corridor", "frozenlake", "recall", "rendezvous", "pendulum", "cartpole"
)  # fmt: skip


class Case(NamedTuple):
    """Command lines that run one after the other in a scratch folder of their own."""

    name: str
    lines: tuple[str, ...]


class Done(NamedTuple):
    """What a command did."""

    code: int
    out: str
    err: str


def lines_of(text: str) -> tuple[str, ...]:
    """Return the lines of a table of command lines."""
    return tuple(line.strip() for line in text.strip().splitlines())


def help_cases() -> Iterator[Case]:
    """Yield the help of every command that the help of `hmx` lists, and what Tab offers."""
    with tempfile.TemporaryDirectory() as folder:
        names = ["", *(f"{name}" for name in listed("--help", Path(folder)))]
        names += [f"runs {name}" for name in listed("runs --help", Path(folder))]
    for name in names:
        yield Case(name.replace(" ", "-") or "hmx", (f"{name} --help",))
    yield Case("tab", lines_of(TAB))


def listed(line: str, folder: Path) -> list[str]:
    """Return the names of the commands that a help text lists."""
    commands = run(line, folder).out.partition(" Commands ")[2]
    return re.findall(r"^│ ([a-z-]+) ", commands, re.MULTILINE)


def refusal_cases() -> Iterator[Case]:
    """Yield command lines that must be refused, a file for each command."""
    lines = lines_of(REFUSALS)
    command = {line: next(word for word in shlex.split(line) if "=" not in word) for line in lines}
    for name in sorted(set(command.values())):
        yield Case(name.strip("-"), tuple(line for line in lines if command[line] == name))


def plan_cases() -> Iterator[Case]:
    """Yield what `hmx` says of every preset and environment before any training."""
    yield Case("lists", lines_of(PLANS))
    with tempfile.TemporaryDirectory() as folder:
        presets = json.loads(run("presets --json", Path(folder)).out)["presets"]
    for name in (preset["name"] for preset in presets):
        yield Case(name, (f"train --preset {name} --dry-run --json", f"compute-config --preset {name} --json"))
    for name in BUILT_IN:
        yield Case(f"env-{name}", (f"envs {name} --json",))


PARTS = {"help": help_cases, "refusals": refusal_cases, "plans": plan_cases}


def run(line: str, folder: Path) -> Done:
    """Run a command line, after assignments to environment variables, in a folder."""
    words = shlex.split(line)
    environ = {}
    while words and re.match(r"[A-Z_]+=", words[0]):
        name, _, value = words.pop(0).partition("=")
        environ[name] = value
    with tempfile.TemporaryDirectory() as outputs:
        streams = (Path(outputs, "out"), Path(outputs, "err"))
        process = FORK.Process(target=hmx, args=(words, environ, folder, *streams))
        process.start()
        process.join()
        out, err = (stream.read_text() for stream in streams)
    assert process.exitcode is not None
    return Done(process.exitcode, out, err)


def hmx(words: list[str], environ: Mapping[str, str], folder: Path, out: Path, err: Path) -> None:
    """Become `python -m hmx`; this runs in a process of its own."""
    for stream, path in ((sys.stdout, out), (sys.stderr, err)):
        stream.flush()
        os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT), stream.fileno())
    os.environ.update(environ)
    os.chdir(folder)
    sys.path.insert(0, str(folder))
    sys.argv = ["hmx", *words]
    runpy.run_module("hmx", run_name="__main__", alter_sys=True)


def play(case: Case, template: Path, checkout: Path, target: Path) -> None:
    """Run the command lines of a case in a copy of a folder, and write what they did."""
    with tempfile.TemporaryDirectory(prefix="behaviour-") as scratch:
        folder = Path(scratch, "work")
        shutil.copytree(template, folder)
        os.environ.update(TMPDIR=scratch, HOME=scratch, XDG_STATE_HOME=scratch, XDG_CACHE_HOME=scratch)
        text = "\n".join(transcript(line, folder) for line in case.lines)
        for path, name in ((folder, "WORK"), (Path(scratch), "SCRATCH"), (checkout, "CHECKOUT")):
            text = text.replace(str(path), name)
    target.write_text(text)


def transcript(line: str, folder: Path) -> str:
    """Run a command line and return what it did as text."""
    before = files(folder)
    done = run(line, folder)
    after = files(folder)
    text = f"$ {line}\nexit code {done.code}\n"
    for title, output in (("stdout", done.out), ("stderr", done.err)):
        if output:
            text += f"--- {title}\n{shown(output)}\n"
    text += "".join(f"--- new file {name}\n" for name in sorted(after - before))
    text += "".join(f"--- removed file {name}\n" for name in sorted(before - after))
    return text


def prepare(folder: Path, checkout: Path) -> None:
    """Fill a folder with small files and archived runs: finished ones in `runs`, others in folders of their own."""
    for name, text in FILES.items():
        (folder / name).write_text(text)
    data = checkout / "tests" / "data"
    for archive in sorted([*data.glob("run-schema-*.tar.gz"), *data.glob("0.1.0/*.tar.gz")]):
        with tarfile.open(archive) as file:
            file.extractall(folder / archive.name.removesuffix(".tar.gz"), filter="data")
    (folder / "runs").mkdir()
    for run_folder in sorted(folder.glob("*/finished/*")):
        shutil.move(run_folder, folder / "runs")


def files(folder: Path) -> set[str]:
    """Return the files below a folder; those of a store of arrays have random names and are left out."""
    names = (str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())
    return {name for name in names if "/arrays/" not in name and "__pycache__" not in name}


def shown(text: str) -> str:
    """Return output with JSON on several lines, and placeholders for what differs from run to run."""
    lines = [pretty(line) if line.startswith("{") else line.rstrip() for line in text.splitlines()]
    return "\n".join(lines)


def pretty(line: str) -> str:
    """Return a line of JSON indented."""
    return json.dumps(json.loads(line), indent=1, ensure_ascii=False)


def record(folder: Path, only: Iterable[str], checkout: Path) -> None:
    """Write the files of the parts into a folder."""
    if not (checkout / "hmx" / "__main__.py").is_file():
        sys.exit(f"error: there is no hmx in {checkout}")
    foreign = [name for name in os.environ if name.startswith(("HMX_", "_HMX_", "WANDB_", "JAX_"))]
    for name in foreign:
        del os.environ[name]
    os.environ.update(ENVIRON, JAX_COMPILATION_CACHE_DIR=str(CACHE), PYTHONPATH=str(checkout))
    sys.path[0] = str(checkout)  # in place of the folder of this script
    for module in PRELOADED:
        importlib.import_module(module)
    with tempfile.TemporaryDirectory() as template, ProcessPoolExecutor(os.cpu_count(), mp_context=FORK) as pool:
        prepare(Path(template), checkout)
        jobs = []
        for part in only:
            target = folder / part
            shutil.rmtree(target, ignore_errors=True)
            target.mkdir(parents=True)
            for case in PARTS[part]():
                jobs.append(pool.submit(play, case, Path(template), checkout, target / f"{case.name}.txt"))
        for job in jobs:
            job.result()


def diff(old: Path, new: Path) -> int:
    """Print a unified diff of two recordings; return 1 if there is a difference."""
    names = {path.relative_to(side) for side in (old, new) for path in side.rglob("*.txt")}
    different = False
    for name in sorted(names):
        before, after = (read_lines(side / name) for side in (old, new))
        for line in difflib.unified_diff(before, after, str(old / name), str(new / name), lineterm=""):
            print(line)
            different = True
    return int(different)


def read_lines(path: Path) -> list[str]:
    """Return the lines of a file; none if there is no such file."""
    return path.read_text().splitlines() if path.exists() else []


def main() -> int:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    recorder = commands.add_parser("record")
    recorder.add_argument("folder", type=Path)
    recorder.add_argument("--only", default=",".join(PARTS), help="parts, separated by commas")
    recorder.add_argument("--checkout", type=Path, default=ROOT, help="folder of the source tree to record")
    differ = commands.add_parser("diff")
    differ.add_argument("old", type=Path)
    differ.add_argument("new", type=Path)
    given = parser.parse_args()
    if given.command == "diff":
        return diff(given.old, given.new)
    record(given.folder.resolve(), given.only.split(","), given.checkout.resolve())
    return 0


if __name__ == "__main__":
    sys.exit(main())
