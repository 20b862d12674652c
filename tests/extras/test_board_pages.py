"""`hmx board`: its pages, whom it answers, and how it stops."""

from __future__ import annotations

import re
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from made_runs import flat, make_run
from typer.testing import CliRunner

from hmx.cli.app import app
from hmx.jobs.requests import ListRequest
from hmx.jobs.runs import list_runs
from hmx.records.curves import small_curve
from hmx.records.jsonl import MetricsWriter
from hmx.records.lock import RunLock
from hmx.records.paths import RunPaths
from hmx.reports.summaries import RUN_COLUMNS

pytest.importorskip("uvicorn")
pytest.importorskip("starlette")

EVIL = "<img src=x onerror=alert(1)> \"x\" & 'y'"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    make_run(tmp_path / "one", flat(0.5))
    make_run(tmp_path / "alive", {0: [i / 10 for i in range(8)]}, state="running", changes={"run.total_steps": 4096})
    shutil.copytree(tmp_path / "one", tmp_path / EVIL)
    return tmp_path


@pytest.fixture
def client(root: Path) -> Any:
    pytest.importorskip("httpx2")
    from starlette.testclient import TestClient

    from hmx.cli.board_pages import application

    return TestClient(application(root), base_url="http://127.0.0.1:8420")


def test_list_shows_state_speed_curve_and_time_left(client: Any, root: Path) -> None:
    with RunLock(RunPaths(root, "alive")):
        (alive,) = list_runs(root, ListRequest(match="alive")).runs
        page = client.get("/").text
    curve = small_curve(RunPaths(root, "alive").metrics)
    assert alive.seconds_left == (4096 - 8 * 256) / 1024 and curve[0] == 0.0 and curve[-1] == 0.7
    row = next(line for line in page.splitlines() if 'href="/runs?run=alive"' in line)
    assert "running" in row and "2.05k of 4.10k" in row and "▁" in row and "1.02k" in row and "0:02" in row
    assert "<main data-live>" in page


def rows(page: str) -> list[str]:
    return re.findall(r'href="/runs\?run=(\w+)"', page)


def test_list_has_environment_and_algorithm_and_is_filtered_and_sorted(client: Any, root: Path) -> None:
    shutil.rmtree(root / EVIL)
    make_run(root / "lake", flat(0.9), changes={"env.id": "frozenlake", "algo.name": "dqn"})
    page = client.get("/").text
    line = next(line for line in page.splitlines() if 'href="/runs?run=lake"' in line)
    assert ">frozenlake</td>" in line and ">dqn</td>" in line
    assert rows(client.get("/?match=LAKE").text) == ["lake"] and rows(client.get("/?match=dqn").text) == ["lake"]
    assert rows(client.get("/?sort=run").text) == ["alive", "lake", "one"]
    assert rows(client.get("/?sort=run&reverse=1").text) == ["one", "lake", "alive"]
    assert rows(client.get("/?sort=return").text) == ["lake", "alive", "one"]
    assert rows(client.get("/?sort=<b>").text) and "No run matches" in client.get("/?match=nosuch").text
    again = re.search(r'aria-sort="ascending"><a href="([^"]*)">return', client.get("/?sort=return&match=a").text)
    assert again and again[1] == "/?sort=return&amp;match=a&amp;reverse=1"


def test_age_of_an_ended_run_is_that_of_its_end(root: Path) -> None:
    old = {run.name: run.age or 0.0 for run in list_runs(root).runs}
    (root / "one" / "reports").mkdir(exist_ok=True)
    (root / "one" / "reports" / "report.html").write_text("new")
    now = {run.name: run.age or 0.0 for run in list_runs(root).runs}
    assert now["one"] >= old["one"] > 3600


def test_a_page_of_a_running_run_updates_and_two_runs_share_one(client: Any, root: Path) -> None:
    with RunLock(RunPaths(root, "alive")):
        page, part = (client.get(f"/runs?run=alive{part}") for part in ("", "&part=main"))
        assert part.text == page.text[page.text.index("<main data-live>") : page.text.index("</main>") + 7]
        assert "connect-src 'self'" in part.headers["content-security-policy"]
        assert client.get("/?part=main").text.startswith("<main data-live>")
        refused = client.get("/runs?run=alive&part=main", headers={"Host": "evil.example"})
    assert refused.status_code == 400
    one = client.get("/runs?run=one").text
    assert "<main>" in one and "fetch(" not in one and "connect-src" not in one
    assert client.get("/runs?run=alive&part=main").text.startswith("<main>"), "the open page stops asking"
    both = client.get("/runs?run=one&run=alive").text
    assert "one" in both and "alive" in both and both.count("<main>") == 1


def test_hostile_names_are_escaped(client: Any) -> None:
    for page in (
        client.get("/"),
        client.get("/?part=main"),
        client.get("/runs", params={"run": EVIL}),
        client.get("/runs?run=<b>no"),
    ):
        assert (
            not re.search(r"<(img|b)\b", page.text) and "default-src 'none'" in page.headers["content-security-policy"]
        )
    assert "&lt;img src=x" in client.get("/").text


@pytest.mark.parametrize("name", ["", "nosuch", "../one", "one/run.toml", "/etc"])
def test_only_runs_of_the_folder_are_shown(client: Any, name: str) -> None:
    assert client.get("/runs", params={"run": name}).status_code == 404


@pytest.mark.parametrize("address", ["/runs?run=nosuch", "/nosuch"])
def test_a_missing_page_links_to_the_list(client: Any, address: str) -> None:
    page = client.get(address)
    assert page.status_code == 404 and '<a href="/">all runs</a>' in page.text and "There is no" in page.text
    assert "default-src 'none'" in page.headers["content-security-policy"]


def test_the_list_names_its_folder_and_its_curves_share_a_scale(client: Any, root: Path) -> None:
    make_run(root / "high", {0: [9.0 + i / 10 for i in range(8)]})
    page = client.get("/").text
    assert f"Runs in {root}" in page and "<th>return over training</th>" in page and "share a scale" in page
    marks = {
        name: re.search(rf'href="/runs\?run={name}".*<td class="curve">([▁-█]*)</td></tr>', page)[1]
        for name in ("alive", "high")
    }
    assert marks == {"alive": "▁" * 8, "high": "█" * 8}


def test_another_host_or_method_is_refused(client: Any) -> None:
    assert client.get("/", headers={"Host": "evil.example"}).status_code == 400
    assert client.get("/", headers={"Host": "localhost:1234"}).status_code == 200  # as through a tunnel
    assert client.post("/").status_code == 405


def test_two_hundred_runs_take_less_than_a_second_of_cpu_time(tmp_path: Path) -> None:
    one = make_run(tmp_path / "000", {0: [i / 10 for i in range(200)]})
    for number in range(1, 200):
        shutil.copytree(one, tmp_path / f"{number:03d}")
    begun = time.process_time()
    runs = list_runs(tmp_path).runs
    assert len([small_curve(RunPaths(tmp_path, run.name).metrics) for run in runs]) == 200
    assert time.process_time() - begun < 1.0


def test_board_serves_localhost_until_interrupted_and_reports_a_port_in_use(root: Path) -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        port = listener.getsockname()[1]
        words = [sys.executable, "-m", "hmx", "board", "--root", str(root), "--port"]
        taken = subprocess.run([*words, str(port)], capture_output=True, text=True)
    assert taken.returncode == 2 and f"cannot listen on port {port}: it is in use" in taken.stderr
    assert "hint: --port 0" in taken.stderr
    with subprocess.Popen([*words, "0"], stderr=subprocess.PIPE, text=True) as server:
        try:
            assert server.stderr is not None
            address = re.search(r"http://127\.0\.0\.1:\d+/", server.stderr.readline())
            assert address is not None
            with urllib.request.urlopen(address[0]) as answer:
                assert answer.status == 200
            server.send_signal(signal.SIGINT)
            assert server.wait(60) == 0 and server.stderr.read() == ""
        finally:
            server.kill()


def test_a_run_without_a_training_return_shows_its_evaluations(client: Any, root: Path) -> None:
    """From random play to the newest evaluation, before every training game has ended once."""
    run = make_run(root / "young", {}, changes={"run.total_steps": 4096})
    with MetricsWriter(run / "metrics.jsonl") as writer:
        for update, value in [(1, -3.5), (2, None), (3, 2.0)]:
            measured = {} if value is None else {"eval/return": value, "eval/random_return": -4.0}
            writer.write({"update": update, "env_steps": update * 256, "seed": 0, **measured})
    (young,) = list_runs(root, ListRequest(match="young")).runs
    assert small_curve(run / "metrics.jsonl") == (-4.0, -3.5, 2.0) and young.last_return == 2.0
    row = next(line for line in client.get("/").text.splitlines() if 'href="/runs?run=young"' in line)
    assert '<td class="right">+2.00</td>' in row and "▁▁█" in row


@pytest.mark.parametrize("sort", [column.name for column, _ in RUN_COLUMNS])
def test_the_board_and_the_terminal_show_the_same_columns_values_and_order(
    client: Any, root: Path, monkeypatch: pytest.MonkeyPatch, sort: str
) -> None:
    make_run(root / "young", {}, changes={"algo.name": "dqn"})
    monkeypatch.setenv("COLUMNS", "200")
    shutil.rmtree(root / EVIL)
    with RunLock(RunPaths(root, "alive")):
        page = client.get(f"/?sort={sort}").text
        words = ["runs", "list", "--root", str(root), "--sort", "name" if sort == "run" else sort, "--md", "-"]
        head, _, *lines = CliRunner().invoke(app, words).stdout.splitlines()
    heads = [re.sub("<.*?>", "", text) for text in re.findall("<th.*?>(.*?)</th>", page)]
    assert heads == ["", *(text.strip() for text in head.split("|")[1:-1]), "return over training"]
    boxed = [re.findall("<td.*?>(.*?)</td>", line) for line in page.splitlines() if 'type="checkbox"' in line]
    shown = [[re.sub("<.*?>", "", text) for text in cells[1:-1]] for cells in boxed]
    ages = re.compile(r"^\d+(\.\d+)? (s|min|h)$")  # a second may pass
    assert [[ages.sub("age", text) for text in cells] for cells in shown] == [
        [ages.sub("age", text.strip().strip("*")) for text in line.split("|")[1:-1]] for line in lines
    ]
    assert len(shown) == 3 and "2.05k of 4.10k" in {text for cells in shown for text in cells}
