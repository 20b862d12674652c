"""Interactive pages in a real browser, without a network; skipped where there is no Chromium."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from html import unescape
from pathlib import Path

import pytest

from hmx.render.blocks import (
    Animation,
    AnimationFrame,
    Axis,
    Document,
    Picture,
    Plot,
    Reference,
    Series,
    Shape,
)
from hmx.render.html import page

BROWSER = next(
    (found for name in ("chromium", "chromium-browser", "google-chrome") if (found := shutil.which(name))), ""
)
EVIL = "</script><b>evil</b>"
X, X2 = (0.0, 10.0, 20.0), (0.0, 1.0, 4.0)
PLOT = Plot(
    "Return", Axis("steps", format="count"), Axis("reward"),
    (
        Series("one", X, (0.0, 0.5, 1.0), low=(-0.1, 0.4, 0.9), high=(0.1, 0.6, 1.1), x2=X2),
        Series("one", X, (0.0, None, 0.9), thin=True, x2=X2),
        Series(EVIL, (0.0, 15.0), (0.25, 0.75), colour=1, x2=(0.0, 2.0)),
    ),
    references=(Reference("x", 10.0, "resumed"),), x2=Axis("minutes"),
)  # fmt: skip
STACK = Plot(
    "Terms", Axis("steps"), Axis("reward"),
    (Series("goal", X, (1.0, 2.0, 3.0), "area"), Series("cost", X, (-1.0, -1.0, -2.0), "area", colour=1)),
)  # fmt: skip
BELOW = Plot(
    "Below zero", Axis("steps"), Axis("reward", low=-5.0, high=-1.0),
    (Series("", X, (-3.0, -3.0, -3.0), low=(-3.5, -3.5, -3.5), high=(-2.5, -2.5, -2.5)),),
)  # fmt: skip
BARS = Plot(
    "Shares", Axis("bucket"), Axis("share", format="percent"),
    (
        Series("a", (0.0, 1.0), (0.7, 0.2), "bars"), Series("b", (0.0, 1.0), (0.5, None), "bars", colour=1),
        Series("c", (0.0,), (-0.2,), "bars", colour=2),
    ), categories=("low", "high"),
)  # fmt: skip
DOTS = Plot(
    "Points", Axis("time", "log", "duration"), Axis("return"),
    (Series("d", (60.0, 600.0), (0.5, 1.0), "dots", low=(0.0, 0.9), high=(1.0, 1.1), labels=("my label", "other")),),
)  # fmt: skip
PLAYED = Animation(
    "Best", tuple(
        AnimationFrame(Picture("board", "", 9, 9, (Shape("rect", 0, 0, 9, 9), Shape("text", 4, 4, text=f"step-{i}"))),
                       (("action", f"go {i}"),), (("left", 0.25), ("right", 0.75)))
        for i in range(3)
    ),
)  # fmt: skip

SCRIPT = """
const found = {}, text = query => document.querySelector(query).textContent;
addEventListener("error", event => { found.error = event.message; });
const key = (element, name) => element.dispatchEvent(new KeyboardEvent("keydown", { key: name, bubbles: true }));
setTimeout(() => {
  const chart = document.querySelector(".chart");
  found.canvases = document.querySelectorAll("canvas").length;
  found.tables = document.querySelectorAll("figure table").length;
  const rows = (canvas, at, is) => {
    const data = canvas.getContext("2d").getImageData(Math.round(canvas.width * at), 0, 1, canvas.height).data;
    const shown = [...Array(canvas.height).keys()].filter(y => is(data[4 * y], data[4 * y + 1], data[4 * y + 2]));
    return shown.length && [shown[0], shown[shown.length - 1] + 1, shown.length];
  };
  const bars = document.querySelectorAll("canvas")[3];
  found.bars = {
    a: rows(bars, 0.3, (r, g, b) => b > 150 && r < 60), b: rows(bars, 0.3, (r, g, b) => r > 180 && b < 40),
    c: rows(bars, 0.3, (r, g, b) => g > 140 && r < 60), none: rows(bars, 0.75, (r, g, b) => r > 180 && b < 40),
  };
  const marks = document.querySelectorAll(".chart")[4];
  key(marks, "ArrowRight");
  const third = document.querySelectorAll("canvas")[2], middle = Math.round(third.width * 0.7);
  const column = third.getContext("2d").getImageData(middle, 0, 1, third.height).data;
  const blue = [...Array(third.height).keys()].filter(y => column[4 * y + 2] > column[4 * y] + 20);
  found.band = [blue.length, blue[blue.length - 1] - blue[0] + 1].map(size => size / third.height);
  found.label = chart.getAttribute("aria-label");
  key(chart, "ArrowRight"); key(chart, "ArrowRight");
  setTimeout(() => {
    found.values = text(".values");
    found.dot = document.querySelectorAll(".values")[4].textContent;
    document.querySelector(".legend button").click();
    found.pressed = [...document.querySelectorAll(".legend button")].map(b => b.getAttribute("aria-pressed"));
    key(chart, "ArrowRight");
    document.querySelectorAll("input[type=radio]")[1].click();
    setTimeout(() => key(chart, "+"), 50);
    setTimeout(() => {
      found.zoomed = !chart.nextElementSibling.querySelector("button").hidden;
      document.querySelectorAll("input[type=radio]")[0].click();
      const player = document.querySelector(".player");
      found.first = text(".player svg"); key(player, "End");
      found.last = text(".player svg"); found.facts = text(".player dl"); found.shares = text(".player .bars");
      found.slider = player.querySelector("input").value;
      found.injected = document.querySelectorAll("main b").length;
      found.wide = document.documentElement.scrollWidth - innerWidth;
      const out = { id: "found", textContent: JSON.stringify(found) };
      document.body.append(Object.assign(document.createElement("pre"), out));
    }, 200);
  }, 100);
}, 100);
"""


def test_pages_work_in_a_browser_without_a_network(tmp_path: Path) -> None:
    if not BROWSER:
        pytest.skip("no Chromium")
    text = page(Document("Run", (PLOT, STACK, BELOW, BARS, DOTS, PLAYED))).replace(
        "</body>", f"<script>{SCRIPT}</script></body>"
    )
    file = tmp_path / "page.html"
    file.write_text(text)
    words = ("--headless", "--no-sandbox", "--disable-gpu", "--virtual-time-budget=4000", "--dump-dom")
    done = subprocess.run(
        [BROWSER, *words, f"--user-data-dir={tmp_path}", file.as_uri()], capture_output=True, text=True, timeout=120
    )
    found_text = re.search(r'<pre id="found">(.*?)</pre>', done.stdout, re.DOTALL)
    assert found_text is not None, done.stderr[-2000:]
    found = json.loads(unescape(found_text[1]))
    assert "error" not in found
    assert found["canvases"] == 5 and found["tables"] == 0
    (a_top, a_end, a_size), (b_top, b_end, b_size), (c_top, _, c_size) = (found["bars"][name] for name in "abc")
    assert abs(b_end - a_top) <= 2 and abs(c_top - a_end) <= 2 and b_top < a_top  # stacked, c below 0
    assert abs(b_size / a_size - 5 / 7) < 0.03 and abs(c_size / a_size - 2 / 7) < 0.03 and not found["bars"]["none"]
    assert found["dot"] == "time 1 min · my label"
    assert found["label"] == f"Return: reward over steps; one, {EVIL}" and found["injected"] == 0
    assert all(0.15 < share < 0.25 for share in found["band"])  # a quarter of an axis of 0.8 of the height
    assert found["values"] == f"steps 10 · one 0.5 [0.4, 0.6] · {EVIL} 0.25"
    assert found["pressed"] == ["false", "true"] + ["true"] * 5
    assert found["zoomed"] and found["wide"] <= 0
    assert found["first"] == "step-0" and found["last"] == "step-2" and found["slider"] == "2"
    assert found["facts"] == "actiongo 2" and found["shares"] == "left 25%right 75%"
