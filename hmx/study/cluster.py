"""The file that starts the workers of a study on a cluster: a job array of SLURM, or a Job or JobSet of Kubernetes."""

from __future__ import annotations

import dataclasses
import json
import math
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

from hmx.config.files import make_folder, words
from hmx.config.option import opt
from hmx.config.textfile import quoted
from hmx.errors import ExitCode, HmxError, one_line
from hmx.records.atomic import write_text
from hmx.records.plain import JsonResult, JsonValue

PANEL = "Cluster"
FOLDER = "cluster"  # in the study: the file of each engine, and the output of SLURM's tasks
MOUNT = "/srv/hmx/studies"  # where a pod sees the volume

_NOTICE = 120  # seconds between the signal that saves a trial and the time limit
_MINUTES = {"m": 1, "h": 60, "d": 24 * 60}
_USER = 1000  # of the image that the Dockerfile builds


@dataclasses.dataclass(frozen=True, kw_only=True)
class ClusterRequest:
    """The engine that starts the workers of a study, and what each worker gets."""

    slurm: int | None = opt(
        None, "write a job array of SLURM with N tasks, each a worker", ge=1, metavar="N", panel=PANEL
    )
    kubernetes: int | None = opt(
        None, "write an Indexed Job of Kubernetes with N pods, each a worker", ge=1, metavar="N", panel=PANEL
    )
    jobset: bool = opt(
        False, "with --kubernetes: write a JobSet, which needs the JobSet controller in the cluster", panel=PANEL
    )
    time: str = opt(
        "",
        "with --slurm: time limit of a task, such as 90m, 2h or 1d, before which it saves its trial and waits in the "
        "queue again (the limit of the partition by default)",
        metavar="TIME",
        panel=PANEL,
    )
    cpus: int = opt(1, "processors per worker", ge=1, metavar="N", panel=PANEL)
    memory: float = opt(4.0, "memory per worker", "GiB", gt=0, metavar="GIB", panel=PANEL)
    gpus: int = opt(0, "GPUs per worker", ge=0, metavar="N", panel=PANEL)
    image: str = opt("", "with --kubernetes: container image with hmx", metavar="IMAGE", panel=PANEL)
    claim: str = opt(
        "",
        "with --kubernetes: PersistentVolumeClaim whose volume is the folder that contains the study",
        metavar="NAME",
        panel=PANEL,
    )
    submit: bool = opt(False, "submit the file, with sbatch or kubectl", panel=PANEL)


@dataclasses.dataclass(frozen=True, kw_only=True)
class ClusterFile(JsonResult):
    """A file for a cluster, and the command that submits it."""

    file: Path
    text: str
    command: tuple[str, ...]
    answer: str = ""  # of the cluster, once it is submitted


def cluster_file(folder: Path, request: ClusterRequest, other_versions: bool = False) -> ClusterFile | None:
    """Return the file that starts the workers of a study; None if the request names no cluster.

    With `other_versions`, the workers accept that the study was made with other package versions.

    Raises:
        HmxError: the options contradict each other, or the engine cannot express the path of the study.
    """
    _check(request)
    study = _plain(folder.absolute())
    options = ["--other-versions"] if other_versions else []
    if request.slurm is not None:
        path = study / FOLDER / "slurm.sh"
        text = _job_array(study, request.slurm, request, options)
        return ClusterFile(file=path, text=text, command=("sbatch", str(path)))
    if request.kubernetes is not None:
        path = study / FOLDER / "kubernetes.json"
        text = json.dumps(_manifest(study.name, request.kubernetes, request, options), indent=2) + "\n"
        # Not `apply`: each submission starts more workers, under a name that the cluster completes.
        return ClusterFile(file=path, text=text, command=("kubectl", "create", "-f", str(path)))
    return None


def write(made: ClusterFile, submit: bool = False) -> ClusterFile:
    """Write the file, which replaces an earlier one, and submit it if asked; return it with the cluster's answer.

    Raises:
        HmxError: it cannot be written (exit code 3), or the program of the cluster is missing here or refuses the file.
    """
    try:
        make_folder(made.file.parent)
        write_text(made.file, made.text)
    except OSError as problem:
        hint = "check the permissions of the study's folder and the free space"
        raise HmxError(f"cannot write {made.file}: {words(problem)}", hint, ExitCode.ARTEFACT) from problem
    if not submit:
        return made
    program, command = made.command[0], shlex.join(made.command)
    if shutil.which(program) is None:
        raise HmxError(f"cannot submit {made.file}: {program} is not installed here", f"where it is: {command}")
    done = subprocess.run(made.command, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace")
    if done.returncode:
        reason = one_line(done.stderr or done.stdout or f"exit code {done.returncode}")
        hint = f"change the options or the file, then submit it: {command}"
        raise HmxError(f"cannot submit {made.file}: {quoted(reason, 300)}", hint, ExitCode.UNEXPECTED)
    return dataclasses.replace(made, answer=one_line(done.stdout))


def _check(request: ClusterRequest) -> None:
    engines = {"--slurm": request.slurm is not None, "--kubernetes": request.kubernetes is not None}
    if all(engines.values()):
        raise HmxError("cannot combine --slurm with --kubernetes: they are two clusters", "run the command twice")
    for option, given, engine in (
        ("--time", request.time, "--slurm"),
        ("--jobset", request.jobset, "--kubernetes"),
        ("--image", request.image, "--kubernetes"),
        ("--claim", request.claim, "--kubernetes"),
    ):
        if given and not engines[engine]:
            raise HmxError(f"{option} requires {engine}", f"{engine} 8 {option} ...")
    if request.submit and not any(engines.values()):
        raise HmxError("--submit requires --slurm or --kubernetes", "--slurm 8 --submit")
    for option, given in {"--image": request.image, "--claim": request.claim}.items():
        if engines["--kubernetes"] and not given:
            raise HmxError(f"--kubernetes requires {option}", "--image registry.example.com/hmx:latest --claim studies")


def _plain(path: Path, refused: str = "") -> Path:
    """Return a path that an engine can express; refuse one with control characters or those of `refused`."""
    if not str(path).isprintable() or any(character in str(path) for character in refused):
        bad = " or ".join(["control characters", *refused])
        raise HmxError(f"cannot write a job for {quoted(str(path), 200)}: the path contains {bad}", "rename the folder")
    return path


# SLURM


def _job_array(study: Path, workers: int, request: ClusterRequest, more: list[str]) -> str:
    minutes = _minutes(request.time)
    # In double quotes in a script of sbatch; % starts a replacement, and a backslash would switch these off.
    output = str(_plain(study / FOLDER, refused="\\")).replace("%", "%%").replace('"', '\\"')
    notice = _NOTICE if minutes is None else min(_NOTICE, 60 * minutes // 4)
    options = [
        f"--job-name=hmx-{_label(study.name)}",
        f"--array=1-{workers}",
        f'--output="{output}/%A_%a.log"',
        "--open-mode=append",
        *([f"--time={minutes}"] if minutes is not None else []),
        f"--signal=B:USR1@{notice}",
        "--requeue",
        "--ntasks=1",
        f"--cpus-per-task={request.cpus}",
        f"--mem={_mebibytes(request)}M",
        *([f"--gpus-per-task={request.gpus}"] if request.gpus else []),
    ]
    # Without -P Python would import modules from the current folder, which the command `hmx` does not.
    worker = shlex.join([sys.executable, "-P", "-m", "hmx", "study", "work", str(study), *more])
    return _JOB_ARRAY.format(
        options="\n".join(f"#SBATCH {option}" for option in options),
        folder=shlex.quote(str(_plain(Path.cwd()))),
        worker=worker,
    )


_JOB_ARRAY = """#!/bin/bash
# Written by `hmx study work`, which replaces this file. To change it, change a copy.
{options}

cd -- {folder} || exit

# SLURM sends USR1 to this shell alone, before the time limit. To stop a task it sends TERM to all its processes.
limit=
trap 'limit=reached; kill -TERM "${{worker:-$!}}"' USR1
trap : TERM

{worker} &
worker=$!
wait "$worker"
code=$?
while kill -0 "$worker" 2> /dev/null; do # a signal has ended `wait` before the worker
    wait "$worker"
    code=$?
done

# The worker was stopped before the time limit: wait in the queue for the next turn.
if [ "$limit" = reached ] && [ "$code" -gt 128 ]; then
    scontrol requeue "${{SLURM_ARRAY_JOB_ID}}_${{SLURM_ARRAY_TASK_ID}}"
fi
exit "$code"
"""


def _minutes(text: str) -> int | None:
    """Return a time limit in whole minutes, which are SLURM's unit; None without one."""
    if not text:
        return None
    number = re.fullmatch(r"([0-9]{1,6}(?:\.[0-9]{1,6})?)([mhd])", text.strip().lower())
    minutes = float(number[1]) * _MINUTES[number[2]] if number else 0.0
    if minutes < 1:
        raise HmxError(f"--time {quoted(text)}: must be a number with m, h or d, of at least a minute", "--time 2h")
    return math.ceil(minutes)


# Kubernetes


def _manifest(name: str, workers: int, request: ClusterRequest, more: list[str]) -> dict[str, JsonValue]:
    metadata: dict[str, JsonValue] = {"generateName": f"hmx-{_label(name)}-"}
    job = _job(workers, request, ["hmx", "study", "work", f"{MOUNT}/{name}", *more])
    if not request.jobset:
        return {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": job}
    spec: dict[str, JsonValue] = {
        "network": {"enableDNSHostnames": False},  # the workers exchange files only
        "replicatedJobs": [{"name": "workers", "replicas": 1, "template": {"spec": job}}],
    }
    return {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "metadata": metadata, "spec": spec}


def _job(workers: int, request: ClusterRequest, command: list[str]) -> dict[str, JsonValue]:
    lost: JsonValue = {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}
    refused: JsonValue = {
        "action": "FailIndex",
        "onExitCodes": {
            "operator": "In",
            "values": [int(ExitCode.USAGE), int(ExitCode.ARTEFACT), int(ExitCode.CHECK_FAILED)],
        },
    }
    return {
        "completionMode": "Indexed",
        "completions": workers,
        "parallelism": workers,
        "backoffLimitPerIndex": 6,
        "podFailurePolicy": {"rules": [lost, refused]},  # a drained node is not the worker's fault
        "template": {"spec": _pod(request, command)},
    }


def _pod(request: ClusterRequest, command: list[str]) -> dict[str, JsonValue]:
    memory = f"{_mebibytes(request)}Mi"
    gpus: dict[str, JsonValue] = {"nvidia.com/gpu": request.gpus} if request.gpus else {}
    container: dict[str, JsonValue] = {
        "name": "worker",
        "image": request.image,
        # Kubernetes replaces $(NAME) by an environment variable, and $$ by $.
        "command": [word.replace("$", "$$") for word in command],
        "resources": {
            "requests": {"cpu": request.cpus, "memory": memory},
            "limits": {"memory": memory, **gpus},
        },
        "volumeMounts": [{"name": "studies", "mountPath": MOUNT}],
    }
    security: dict[str, JsonValue] = {
        "runAsNonRoot": True,
        "runAsUser": _USER,
        "fsGroup": _USER,
        "fsGroupChangePolicy": "OnRootMismatch",  # not the files of a whole study each time
    }
    return {
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": _NOTICE,
        "securityContext": security,
        "containers": [container],
        "volumes": [{"name": "studies", "persistentVolumeClaim": {"claimName": request.claim}}],
    }


def _label(name: str) -> str:
    """Return a name of lower-case letters, digits and dashes that resembles the study's, for the names of jobs."""
    return re.sub(r"[^a-z0-9]+", "-", name.lower())[:32].strip("-") or "study"


def _mebibytes(request: ClusterRequest) -> int:
    return math.ceil(request.memory * 1024)
