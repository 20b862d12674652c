"""`benchmarks/on_gpu.py`: rows are kept whatever happens to a step, and its parts run on a CPU."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
sys.path.insert(0, str(BENCHMARKS))
try:
    import on_gpu
finally:
    sys.path.pop(0)


@pytest.fixture
def context(tmp_path: Path) -> on_gpu.Context:
    return on_gpu.Context(on_gpu.TINY, tmp_path, dict(os.environ), "", "")


def test_gpu_waits_while_no_kernel_runs() -> None:
    assert on_gpu.waiting([]) is None
    assert on_gpu.waiting([(5, 9)]) == 0
    # 0 to 4 overlap, 6 to 10 holds 7 to 8: 8 of 10 are busy
    assert on_gpu.waiting([(6, 10), (0, 3), (7, 8), (2, 4)]) == pytest.approx(0.2)


def test_all_parts_together_take_less_than_ten_minutes() -> None:
    assert set(on_gpu.SECONDS) == set(on_gpu.PARTS)
    assert sum(on_gpu.SECONDS.values()) <= 590


def test_rows_before_a_cut_are_kept(context: on_gpu.Context, monkeypatch: pytest.MonkeyPatch) -> None:
    waited = subprocess.Popen.wait

    def wait(process: subprocess.Popen[str], timeout: float | None = None) -> int:
        """Time is over once the process has printed."""
        while timeout is not None:
            if (context.folder / "printed").exists():
                raise subprocess.TimeoutExpired(process.args, timeout)
            time.sleep(0.01)
        return waited(process)

    monkeypatch.setattr(subprocess.Popen, "wait", wait)
    code = "import time; print('{\"a\": 1}'); print('no row', flush=True); open('printed', 'w'); time.sleep(3600)"
    lines = context.lines(["-c", code], time.monotonic() + 3600)
    assert next(lines) == {"a": 1}
    with pytest.raises(on_gpu.Cut):
        next(lines)


def test_failure_has_the_end_of_the_error_output(context: on_gpu.Context) -> None:
    code = "import sys; print('no such device', file=sys.stderr); sys.exit(3)"
    with pytest.raises(RuntimeError, match=r"exit code 3: .*no such device"):
        list(context.lines(["-c", code], time.monotonic() + 3600))


def test_steps_that_are_cut_or_fail_stop_no_other(context: on_gpu.Context, monkeypatch: pytest.MonkeyPatch) -> None:
    def cut(until: float) -> Iterator[on_gpu.Row]:
        yield {"value": 1}
        raise on_gpu.Cut

    def failed(until: float) -> Iterator[on_gpu.Row]:
        raise RuntimeError("exit code 1")
        yield {}

    steps = {"one": cut, "two": failed, "three": lambda _: [{"value": 3}]}
    monkeypatch.setattr(on_gpu, "PARTS", {"A": lambda _: steps})
    monkeypatch.setattr(on_gpu, "compiling", lambda context, parts: [])
    rows: list[on_gpu.Row] = []
    on_gpu.measure(context, ["A"], rows.append)
    assert rows[:-1] == [
        {"part": "A", "what": "one", "value": 1},
        {"part": "A", "what": "one", "cut": "after 120 s of the part"},
        {"part": "A", "what": "two", "failed": "exit code 1"},
        {"part": "A", "what": "three", "value": 3},
    ]
    assert rows[-1]["part"] == "A"
    assert "seconds" in rows[-1]


@pytest.mark.thorough
@pytest.mark.parametrize("part", ["A", "B", "D", "E"])
def test_part_runs_on_a_cpu(part: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    words = ["--out", str(tmp_path), "--parts", part, "--tiny"]
    code = "import sys, on_gpu; on_gpu.SECONDS = dict.fromkeys('ABCDE', 3600); sys.argv[0] = 'on_gpu.py'; on_gpu.main()"
    subprocess.run(
        [sys.executable, "-c", code, *words], check=True, timeout=7200,
        env={**os.environ, "JAX_PLATFORMS": "cpu", "PYTHONPATH": str(BENCHMARKS)},
    )  # fmt: skip
    first, *rows, last = map(json.loads, (tmp_path / "results.jsonl").read_text().splitlines())
    assert first["versions"]["jax"]
    assert last == {"part": part, "seconds": last["seconds"]}
    assert not [row for row in rows if "cut" in row or "failed" in row]
    if part == "A":
        assert len(rows) == 3
        assert all(row["equal_states"] and row["equal_records"] and row["killed_after_updates"] for row in rows)
    if part == "B":
        speeds = [row["steps_per_sec"] for row in rows if "steps_per_sec" in row]
        assert len(speeds) == 6
        assert all(each[phase]["value"] > 0 for each in speeds for phase in ("environment", "acting", "update"))
        assert [row["waiting"] for row in rows if "waiting" in row] == [None, None]  # there is no GPU
    if part == "D":
        assert rows[0]["policies"][0]["episodes"] == 2
    if part == "E":
        shares = [row.get("share") or row["metrics"]["share"]["value"] for row in rows if "arm" not in row]
        assert len(shares) == 2
        assert {row["arm"] for row in rows if "arm" in row} == {"td", "rollouts"}
