"""The sink of `examples/trackio_sink.py`, with trackio itself."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).parents[2] / "examples" / "trackio_sink.py"
READ = """
import json, sys
from trackio.sqlite_storage import SQLiteStorage as Storage
(name,) = Storage.get_runs("hmx")
print(json.dumps([name, Storage.get_logs("hmx", name)]))
"""


def test_a_resume_continues_the_run_of_trackio(tmp_path: Path) -> None:
    pytest.importorskip("trackio")
    import json

    info = tmp_path / "site" / "trackio_sink-1.0.dist-info"
    info.mkdir(parents=True)
    (tmp_path / "site" / EXAMPLE.name).write_bytes(EXAMPLE.read_bytes())
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: trackio_sink\nVersion: 1.0\n")
    point = next(line.strip() for line in EXAMPLE.read_text().splitlines() if "trackio_sink:" in line)
    (info / "entry_points.txt").write_text(f"[hmx.sinks]\n{point.replace(chr(34), '')}\n")
    paths = [str(tmp_path / "site"), str(EXAMPLE.parents[1]), *filter(None, [os.environ.get("PYTHONPATH")])]
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "TRACKIO_DIR": str(tmp_path / "trackio")}

    def python(*words: str) -> str:
        line = [sys.executable, "-P", *words]
        return subprocess.run(line, cwd=tmp_path, env=environ, check=True, stdout=subprocess.PIPE, text=True).stdout

    out = python(
        "-m", "hmx", "train", "--preset", "tiny", "--steps", "512", "--name", "r", "--sink", "trackio", "--json"
    )
    assert all(json.loads(line) for line in out.splitlines())  # trackio prints, but not between the JSON
    python("-m", "hmx", "resume", "r", "--steps", "768", "--quiet")
    records = [json.loads(line) for line in (tmp_path / "runs" / "r" / "metrics.jsonl").read_text().splitlines()]
    name, logs = json.loads(python("-c", READ).splitlines()[-1])
    assert name == f"r-{records[0]['run'][:8]}"
    assert [(log["step"], log["train/entropy"]) for log in logs] == [
        (record["env_steps"], pytest.approx(record["train/entropy"])) for record in records
    ]
