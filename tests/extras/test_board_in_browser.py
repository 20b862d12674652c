"""Pages of `hmx board` in a real browser while a run trains; skipped where there is no Chromium."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from html import unescape
from pathlib import Path
from typing import Any

import pytest
from made_runs import make_run, write_metrics

from hmx.records.lock import RunLock
from hmx.records.paths import RunPaths
from hmx.render import html
from hmx.render.blocks import Document

pytest.importorskip("uvicorn")
pytest.importorskip("starlette")

BROWSER = next(
    (found for name in ("chromium", "chromium-browser", "google-chrome") if (found := shutil.which(name))), ""
)
EVIL = "<img src=x onerror=document.title='evil'> & 'y'"
CURVE = [i / 100 for i in range(60)]

RUN_SCRIPT = """
const found = {}, query = name => document.querySelector(name);
addEventListener("error", event => { found.error = event.message; });
const key = name => query(".chart").dispatchEvent(new KeyboardEvent("keydown", { key: name, bubbles: true }));
setTimeout(async () => {
  const chart = query(".chart"), opened = query("details");
  const zoomed = () => !chart.nextElementSibling.querySelector("button").hidden;
  opened.open = true;
  key("ArrowRight"); key("+");
  scrollTo(0, 500);
  const canvases = document.querySelectorAll("canvas").length;
  await fetch("/grow");
  setTimeout(() => {
    found.kept = [chart.isConnected, zoomed(), scrollY, opened.isConnected && opened.open];
    found.canvases = document.querySelectorAll("canvas").length - canvases;
    key("0");
    setTimeout(() => {
      for (let i = 0; i < 200; i++) key("ArrowRight");
      found.values = query(".values").textContent;
      found.title = document.title; found.images = document.querySelectorAll("main img").length;
      found.live = query("main").hasAttribute("data-live");
      found.status = query("[role=status]").textContent;
      const out = { id: "found", textContent: JSON.stringify(found) };
      document.body.append(Object.assign(document.createElement("pre"), out));
    }, 100);
  }, 7000);
}, 300);
"""
LIST_SCRIPT = """
const found = {}, boxes = () => [...document.querySelectorAll("input[type=checkbox]")];
addEventListener("error", event => { found.error = event.message; });
setTimeout(async () => {
  found.before = boxes().length;
  boxes()[0].checked = true; found.name = boxes()[0].value;
  await fetch("/grow");
  setTimeout(() => {
    found.after = boxes().length;
    found.checked = boxes().filter(box => box.checked).map(box => box.value);
    found.first = boxes()[0].value; found.text = document.querySelector("main").textContent;
    found.title = document.title; found.images = document.querySelectorAll("main img").length;
    const out = { id: "found", textContent: JSON.stringify(found) };
    document.body.append(Object.assign(document.createElement("pre"), out));
  }, 7000);
}, 300);
"""


@contextmanager
def served(root: Path, grow: Any) -> Iterator[str]:
    """Serve the board, with a page that lets the run grow."""
    import uvicorn
    from starlette.responses import PlainTextResponse
    from starlette.routing import Route

    from hmx.cli.board_pages import application

    app = application(root)
    app.routes.append(Route("/grow", lambda request: PlainTextResponse(str(grow()))))
    server = uvicorn.Server(uvicorn.Config(app, port=0, log_level="warning"))
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        while not server.started:
            thread.join(0.05)
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join()


def browse(address: str, profile: Path, script: str, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Open a page whose script also drives it, and return what that found."""
    from hmx.cli import board_pages as live_pages

    def driven(document: Document, live: bool = False) -> str:
        return html.page(document, live).replace("</body>", f"<script>{script}</script></body>")

    monkeypatch.setattr(live_pages, "page", driven)
    words = ("--headless", "--no-sandbox", "--disable-gpu", "--virtual-time-budget=12000", "--dump-dom")
    command = [BROWSER, *words, f"--user-data-dir={profile}", address]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    text = re.search(r'<pre id="found">(.*?)</pre>', done.stdout, re.DOTALL)
    assert text is not None, done.stdout[-1000:] + done.stderr[-2000:]
    found: dict[str, Any] = json.loads(unescape(text[1]))
    assert "error" not in found and "evil" not in found["title"].replace(EVIL, "") and not found["images"]
    return found


@pytest.fixture
def root(tmp_path: Path) -> Path:
    if not BROWSER:
        pytest.skip("no Chromium")
    make_run(tmp_path / "runs" / EVIL, {0: CURVE[:30]}, state="running", changes={"run.total_steps": 128 * 256})
    return tmp_path / "runs"


def test_page_shows_new_updates_and_keeps_zoom_scroll_and_open_sections(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from urllib.parse import urlencode

    paths = RunPaths(root, EVIL)

    def grow() -> Path:
        paths.metrics.unlink()
        return write_metrics(paths.metrics, {0: CURVE})

    with RunLock(paths), served(root, grow) as address:
        found = browse(f"{address}/runs?{urlencode({'run': EVIL})}", tmp_path / "profile", RUN_SCRIPT, monkeypatch)
    assert found["kept"] == [True, True, 500, True] and not found["canvases"]
    assert found["live"] and not found["status"]
    assert found["values"] == "environment steps per seed 15.36k · reward 0.59", "the last of the new updates"


def test_list_shows_new_runs_and_keeps_the_selection(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def grow() -> Path:
        return make_run(root / "another", {0: CURVE[:9]}, state="running")

    with RunLock(RunPaths(root, EVIL)), served(root, grow) as address:
        found = browse(f"{address}/", tmp_path / "profile", LIST_SCRIPT, monkeypatch)
    assert (found["before"], found["after"]) == (1, 2)
    assert found["name"] == EVIL and found["checked"] == [EVIL] and "another" in found["text"]
