"""The files that start the workers of a study on a cluster, and how the script of a SLURM task reacts to signals."""

from __future__ import annotations

import copy
import json
import os
import re
import shlex
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from hmx.errors import HmxError
from hmx.study import cluster
from hmx.study.cluster import ClusterRequest, cluster_file

HOSTILE = "a b'c\"d$(touch x)`e`$HOME ${X} $$#f%Ag;é😀*?[x]: - {y}, & |"
ON_KUBERNETES: dict[str, Any] = {"kubernetes": 40, "image": "registry.example.com/hmx:1", "claim": "studies"}

# Extracts of the published schemas: the kinds and fields that hmx and docs/hosts/kubernetes.yaml use, and no others.
# Kubernetes 1.37 and JobSet 0.12 (both Apache License 2.0).
SCHEMAS = json.loads(Path(__file__).with_name("kubernetes.json").read_text())
_TYPES = {"object": dict, "array": list, "string": str, "boolean": bool, "integer": int, "number": int}


def text_of(folder: Path, **options: Any) -> str:
    """Return the file of a cluster for a study."""
    file = cluster_file(folder, ClusterRequest(**options))
    assert file is not None
    return file.text


def violations(schema: dict[str, Any], value: object, place: str = "") -> list[str]:
    """Return where a value does not fit a schema; a key that the schema does not know is refused."""
    if schema.get("$ref") == "Job.spec":
        schema = SCHEMAS["Job"]["properties"]["spec"]
    kinds = [schema["type"]] if isinstance(schema["type"], str) else schema["type"]
    if not any(type(value) is _TYPES[kind] for kind in kinds):
        return [f"{place}: {value!r} is not {schema['type']}"]
    wrong = [] if value in schema.get("enum", [value]) else [f"{place}: {value!r} is not one of {schema['enum']}"]
    if isinstance(value, dict):
        wrong += [f"{place}: {key} is missing" for key in schema.get("required", ()) if key not in value]
        for key, item in value.items():
            inner = schema.get("properties", {}).get(key) or schema.get("additionalProperties")
            wrong += violations(inner, item, f"{place}.{key}") if inner else [f"{place}.{key}: unknown"]
    if isinstance(value, list):
        wrong += [line for i, item in enumerate(value) for line in violations(schema["items"], item, f"{place}[{i}]")]
    return wrong


@pytest.mark.parametrize("jobset", [False, True])
@pytest.mark.parametrize("gpus", [0, 2])
def test_kubernetes_file_fits_the_published_schema(jobset: bool, gpus: int, tmp_path: Path) -> None:
    made = json.loads(text_of(tmp_path / HOSTILE, **ON_KUBERNETES, jobset=jobset, gpus=gpus))
    assert violations(SCHEMAS["JobSet" if jobset else "Job"], made) == []


def test_kubernetes_example_of_the_docs_fits_the_published_schema() -> None:
    example = Path(__file__).parents[2] / "docs" / "hosts" / "kubernetes.yaml"
    for resource in yaml.safe_load_all(example.read_text()):
        assert violations(SCHEMAS[resource["kind"]], resource) == []


def test_schema_check_finds_unknown_missing_and_wrong_fields(tmp_path: Path) -> None:
    made = json.loads(text_of(tmp_path / "lr", **ON_KUBERNETES, jobset=True))
    broken = copy.deepcopy(made)
    job = broken["spec"]["replicatedJobs"][0]["template"]["spec"]
    job["completions"] = "40"
    job["complete"] = 40
    del job["template"]["spec"]["containers"]
    assert len(violations(SCHEMAS["JobSet"], broken)) == 3


@pytest.mark.parametrize("jobset", [False, True])
def test_kubernetes_job_keeps_the_rules_beyond_the_schema(jobset: bool, tmp_path: Path) -> None:
    made = json.loads(text_of(tmp_path / ("X_y" * 60), **ON_KUBERNETES, jobset=jobset))
    job = made["spec"]["replicatedJobs"][0]["template"]["spec"] if jobset else made["spec"]
    assert job["template"]["spec"]["restartPolicy"] == "Never"  # required by podFailurePolicy
    assert job["completionMode"] == "Indexed"  # required by backoffLimitPerIndex
    codes = job["podFailurePolicy"]["rules"][1]["onExitCodes"]["values"]
    assert codes == sorted(set(codes) - {0})
    assert codes == [2, 3, 4]  # another worker would find the same wrong option, damaged file or failed study
    # A pod's host name is a label: at most 63 letters, digits and dashes. The cluster adds five characters to the name.
    host = made["metadata"]["generateName"] + "12345" + ("-workers-0" if jobset else "") + "-99999"
    assert re.fullmatch(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?", host)


def test_pod_gets_the_resources_and_the_path_that_were_asked_for(tmp_path: Path) -> None:
    text = text_of(tmp_path / HOSTILE, **ON_KUBERNETES, cpus=3, memory=1.5, gpus=2)
    made = json.loads(text)["spec"]
    pod = made["template"]["spec"]
    (container,) = pod["containers"]
    assert made["completions"] == made["parallelism"] == 40
    assert container["resources"] == {
        "requests": {"cpu": 3, "memory": "1536Mi"},
        "limits": {"memory": "1536Mi", "nvidia.com/gpu": 2},
    }
    # Kubernetes replaces $$ by $ and leaves no other reference to a variable.
    assert container["command"][:3] == ["hmx", "study", "work"]
    assert container["command"][3].replace("$$", "$") == f"{cluster.MOUNT}/{HOSTILE}"
    assert container["command"][3].count("$") == 2 * HOSTILE.count("$")
    assert pod["volumes"][0]["persistentVolumeClaim"] == {"claimName": "studies"}


def options_of(script: str) -> dict[str, str]:
    """Return the options of a batch script, by name."""
    lines = re.findall(r"^#SBATCH --([\w-]+)(?:=(.*))?$", script, re.MULTILINE)
    return dict(lines)


def test_job_array_has_the_size_limit_and_resources_that_were_asked_for(tmp_path: Path) -> None:
    script = text_of(tmp_path / "lr", slurm=40, time="2h", cpus=2, memory=0.5, gpus=1)
    assert options_of(script) == {
        "job-name": "hmx-lr",
        "array": "1-40",
        "output": f'"{tmp_path}/lr/cluster/%A_%a.log"',
        "open-mode": "append",
        "time": "120",
        "signal": "B:USR1@120",
        "requeue": "",
        "ntasks": "1",
        "cpus-per-task": "2",
        "mem": "512M",
        "gpus-per-task": "1",
    }


@pytest.mark.parametrize(
    ("time", "minutes", "notice"), [("1m", "1", "15"), ("0.05h", "3", "45"), ("1d", "1440", "120")]
)
def test_notice_before_the_limit_is_a_quarter_of_a_short_limit(time: str, minutes: str, notice: str) -> None:
    options = options_of(text_of(Path("lr"), slurm=1, time=time))
    assert (options["time"], options["signal"]) == (minutes, f"B:USR1@{notice}")


def test_job_array_without_a_limit_leaves_it_to_the_partition() -> None:
    assert "time" not in options_of(text_of(Path("lr"), slurm=1))


def test_job_array_quotes_a_hostile_path(tmp_path: Path) -> None:
    script = text_of(tmp_path / HOSTILE, slurm=2)
    (worker,) = [line for line in script.splitlines() if line.endswith(" &")]
    assert shlex.split(worker.removesuffix(" &"))[-3:] == ["study", "work", str(tmp_path / HOSTILE)]
    output = options_of(script)["output"].removesuffix('/cluster/%A_%a.log"')
    assert output.removeprefix('"').replace('\\"', '"').replace("%%", "%") == str(tmp_path / HOSTILE)
    assert re.fullmatch(r"[a-z0-9-]+", options_of(script)["job-name"])


@pytest.mark.parametrize("name", ["a\nb", "a\x1bb", "a\udcffb", "a\\b"])
def test_path_that_slurm_cannot_express_is_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(HmxError, match=r"cannot write a job for .*: the path contains"):
        cluster_file(tmp_path / name, ClusterRequest(slurm=1))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"slurm": 1, "kubernetes": 1}, "cannot combine --slurm with --kubernetes"),
        ({"time": "2h"}, "--time requires --slurm"),
        ({**ON_KUBERNETES, "time": "2h"}, "--time requires --slurm"),
        ({"jobset": True}, "--jobset requires --kubernetes"),
        ({"slurm": 1, "image": "x"}, "--image requires --kubernetes"),
        ({"submit": True}, "--submit requires --slurm or --kubernetes"),
        ({"kubernetes": 1, "claim": "x"}, "--kubernetes requires --image"),
        ({"kubernetes": 1, "image": "x"}, "--kubernetes requires --claim"),
        *(
            ({"slurm": 1, "time": time}, f"--time {time}: must be")
            for time in ("2", "0m", "30s", "2h 30m", "-1h", "1e3h")
        ),
    ],
)
def test_options_that_contradict_each_other_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(HmxError) as refused:
        cluster_file(Path("lr"), ClusterRequest(**options))
    assert refused.value.message.startswith(message)
    assert refused.value.hint


def test_request_without_a_cluster_makes_no_file() -> None:
    assert cluster_file(Path("lr"), ClusterRequest()) is None


# A worker that ends with code 7, or saves its trial and ends with 143 when it gets SIGTERM.
WORKER = """#!/bin/bash
echo "arguments: $*"
trap 'echo saved; exit 143' TERM
echo started
for i in {1..600}; do sleep 0.05; done
exit 7
"""


def program(path: Path, text: str) -> Path:
    """Write a program."""
    path.write_text(text)
    path.chmod(0o755)
    return path


class Task:
    """The script of a SLURM task, running in a folder with a stub of `scontrol`."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch, worker: str) -> None:
        bin_folder = folder / "bin"
        bin_folder.mkdir()
        monkeypatch.setattr(sys, "executable", str(program(bin_folder / "worker", worker)))
        program(bin_folder / "scontrol", '#!/bin/bash\necho "scontrol $*"\n')
        script = program(folder / "task.sh", text_of(folder / HOSTILE, slurm=3, time="2h"))
        path = f"{bin_folder}:{os.environ['PATH']}"
        env = {**os.environ, "PATH": path, "SLURM_ARRAY_JOB_ID": "41", "SLURM_ARRAY_TASK_ID": "3", "limit": "reached"}
        self.process = subprocess.Popen(
            [str(script)], stdout=subprocess.PIPE, text=True, env=env, start_new_session=True, errors="replace"
        )
        assert self.process.stdout is not None
        self.output = self.process.stdout

    def wait_for_start(self) -> None:
        """Wait until the worker has started."""
        while self.output.readline().strip() != "started":
            assert self.process.poll() is None

    def end(self) -> tuple[int, list[str]]:
        """Return the exit code and the lines that were not read yet."""
        with self.process:
            rest = self.output.read().splitlines()
        return self.process.returncode, rest


def test_slurm_task_requeues_itself_after_the_worker_has_saved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    task = Task(tmp_path, monkeypatch, WORKER)
    task.wait_for_start()
    os.kill(task.process.pid, signal.SIGUSR1)  # to the shell alone
    assert task.end() == (143, ["saved", "scontrol requeue 41_3"])


def test_slurm_task_that_is_cancelled_saves_and_does_not_requeue(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = Task(tmp_path, monkeypatch, WORKER)
    task.wait_for_start()
    os.killpg(task.process.pid, signal.SIGTERM)  # to all processes of the task
    assert task.end() == (143, ["saved"])


@pytest.mark.parametrize("code", [0, 3])
def test_slurm_task_ends_with_the_code_of_its_worker(
    code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = Task(tmp_path, monkeypatch, f"#!/bin/bash\nprintf '%s\\n' \"$@\"\nexit {code}\n")
    assert task.end() == (code, ["-P", "-m", "hmx", "study", "work", str(tmp_path / HOSTILE)])


def test_slurm_task_does_not_requeue_a_worker_that_finished_at_the_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = Task(tmp_path, monkeypatch, WORKER.replace("exit 143", "exit 0"))
    task.wait_for_start()
    os.kill(task.process.pid, signal.SIGUSR1)
    assert task.end() == (0, ["saved"])


def test_submitting_returns_the_answer_of_the_cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    study = tmp_path / HOSTILE
    study.mkdir()
    program(tmp_path / "sbatch", '#!/bin/bash\necho "Submitted $#:" && test -f "$1" && echo 12\n')
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    file = cluster_file(study, ClusterRequest(slurm=2))
    assert file is not None
    assert cluster.write(file, submit=True).answer == "Submitted 1: 12"
    assert file.file.read_text() == file.text


def test_submitting_reports_a_missing_program_and_a_refusal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = cluster_file(tmp_path, ClusterRequest(**ON_KUBERNETES))
    assert file is not None
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(HmxError, match="kubectl is not installed here"):
        cluster.write(file, submit=True)
    program(tmp_path / "kubectl", "#!/bin/sh\necho 'error: no\n claim' >&2\nexit 4\n")
    with pytest.raises(HmxError, match=r"cannot submit .*: error: no claim"):
        cluster.write(file, submit=True)


def test_file_that_cannot_be_written_is_reported(tmp_path: Path) -> None:
    (tmp_path / cluster.FOLDER).write_text("a file")
    file = cluster_file(tmp_path, ClusterRequest(slurm=2))
    assert file is not None
    with pytest.raises(HmxError, match=r"cannot write .*slurm\.sh"):
        cluster.write(file)
