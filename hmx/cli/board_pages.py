"""The pages of `hmx board`: a list of runs, and the report of one run or several, which update while they train."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape
from pathlib import Path
from urllib.parse import urlencode

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route

from hmx.errors import HmxError
from hmx.jobs.runs import LiveRun, live_runs
from hmx.records.layout import list_runs
from hmx.render.blocks import Document, Paragraph
from hmx.render.html import NO_REQUESTS, page, safe
from hmx.render.quantities import clock, duration, short, signed, sparkline
from hmx.reports.report.document import document
from hmx.reports.report.job import run_report
from hmx.reports.report.request import ReportRequest

MOST = 8  # runs on one page

# Other sites can reach this server through their own name that resolves to 127.0.0.1, but not under these names.
_HOSTS = ["127.0.0.1", "localhost"]
_HEADERS = {
    "Content-Security-Policy": f"{NO_REQUESTS}; connect-src 'self'; "
    "form-action 'self'; frame-ancestors 'none'; base-uri 'none'",
    "Cache-Control": "no-store",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}


def application(root: Path) -> Starlette:
    """Return the server of the runs below a folder; it only reads."""

    def index(request: Request) -> Response:
        return _response(_list_page(live_runs(root), root), request)

    def runs(request: Request) -> Response:
        names = list(dict.fromkeys(request.query_params.getlist("run")))
        unknown = [name for name in names if name not in list_runs(root)]
        if not names or unknown or len(names) > MOST:
            problem = f"There is no run {unknown[0]}." if unknown else f"Choose one to {MOST} runs."
            return _problem(problem, 404)
        try:
            findings = run_report(ReportRequest(runs=tuple(names), root=root, num_episodes=0))
        except HmxError as problem:
            return _problem(problem.message, 500)
        text = page(document(findings), live=any(run.state == "running" for run in findings.runs))
        return _response(text.replace("<h1>", '<p><a href="/">all runs</a></p><h1>', 1), request)

    hosts = Middleware(TrustedHostMiddleware, allowed_hosts=_HOSTS, www_redirect=False)
    return Starlette(routes=[Route("/", index), Route("/runs", runs)], middleware=[hosts])


def _response(text: str, request: Request) -> Response:
    """Return a page, or only its content for an open page that updates itself."""
    if request.query_params.get("part") == "main":
        text = text[text.index("<main") : text.index("</main>") + len("</main>")]
    return HTMLResponse(text, headers=_HEADERS)


def _problem(text: str, status: int) -> Response:
    return HTMLResponse(page(Document("hmx board", (Paragraph(text, "bad"),))), status, _HEADERS)


def _list_page(runs: Sequence[LiveRun], root: Path) -> str:
    frame = page(Document(f"Runs in {root}", ()), live=True)
    names = ("", "run", "state", "steps", "return", "", "steps/s", "remaining", "age")
    heads = "".join(f"<th>{name}</th>" for name in names)
    rows = "\n".join(f"<tr>{''.join(_cells(run))}</tr>" for run in runs)
    table = f"<table><thead><tr>{heads}</tr></thead><tbody>{rows}</tbody></table>"
    form = f'<form action="/runs"><div class="scroll">{table}</div><p><button>Side by side</button></p></form>'
    return frame.replace("</main>", f"{form}</main>", 1)


def _cells(run: LiveRun) -> Iterator[str]:
    row = run.row
    name, tone = safe(row.name), {"running": "good", "crashed": "bad", "failed": "bad"}.get(row.state, "")
    total = f" of {short(run.total_steps)}" if run.total_steps else ""
    yield f'<td><input type="checkbox" name="run" value="{escape(row.name)}" aria-label="{name}"></td>'
    yield f'<td><a href="/runs?{escape(urlencode({"run": row.name}))}">{name}</a></td>'
    yield f'<td class="{tone}">{row.state}</td><td class="right">{short(row.env_steps)}{total}</td>'
    yield f'<td class="right">{signed(row.last_return)}</td><td>{sparkline(run.curve, 24)}</td>'
    yield f'<td class="right">{short(row.steps_per_sec) if row.steps_per_sec else ""}</td>'
    yield f'<td class="right">{"" if run.seconds_left is None else clock(run.seconds_left)}</td>'
    yield f'<td class="right">{"" if row.age is None else duration(row.age)}</td>'
