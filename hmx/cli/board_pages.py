"""The pages of `hmx board`: a list of runs, and the report of one run or several, which update while they train."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlencode

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route

from hmx.errors import HmxError
from hmx.jobs.requests import ListRequest
from hmx.jobs.runs import RunRow, list_runs
from hmx.records import layout
from hmx.records.curves import small_curve
from hmx.records.paths import RunPaths
from hmx.render.blocks import Column, Document, Paragraph, as_cell
from hmx.render.html import NO_REQUESTS, page, safe, side, table_cell
from hmx.render.quantities import sparkline
from hmx.reports.report.document import document
from hmx.reports.report.job import run_report
from hmx.reports.report.request import ReportRequest
from hmx.reports.summaries import RUN_COLUMNS

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
        asked = request.query_params
        order = asked.get("sort", "age")
        known = any(order == column.name for column, _ in RUN_COLUMNS)
        view = _View(order if known else "age", asked.get("match", ""), "reverse" in asked)
        return _response(_list_page(_chosen(root, view), root, view), request)

    def runs(request: Request) -> Response:
        names = list(dict.fromkeys(request.query_params.getlist("run")))
        unknown = [name for name in names if name not in layout.list_runs(root)]
        if not names or unknown or len(names) > MOST:
            problem = f"There is no run {unknown[0]}." if unknown else f"Choose one to {MOST} runs."
            return _problem(problem, 404)
        try:
            findings = run_report(ReportRequest(runs=tuple(names), root=root, num_episodes=0))
        except HmxError as problem:
            return _problem(problem.message, 500)
        text = page(document(findings), live=any(run.state == "running" for run in findings.runs))
        return _response(_linked(text), request)

    def missing(request: Request, problem: Exception) -> Response:
        return _problem("There is no such page.", 404)

    hosts = Middleware(TrustedHostMiddleware, allowed_hosts=_HOSTS, www_redirect=False)
    return Starlette(
        routes=[Route("/", index), Route("/runs", runs)], middleware=[hosts], exception_handlers={404: missing}
    )


def _response(text: str, request: Request) -> Response:
    """Return a page, or only its content for an open page that updates itself."""
    if request.query_params.get("part") == "main":
        text = text[text.index("<main") : text.index("</main>") + len("</main>")]
    return HTMLResponse(text, headers=_HEADERS)


def _linked(text: str) -> str:
    """Return a page with a link to the list above its title."""
    return text.replace("<h1>", '<p><a href="/">all runs</a></p><h1>', 1)


def _problem(text: str, status: int) -> Response:
    return HTMLResponse(_linked(page(Document("hmx board", (Paragraph(text, "bad"),)))), status, _HEADERS)


class _View(NamedTuple):
    """Which runs are shown, and in which order."""

    sort: str
    match: str
    reverse: bool

    def address(self, sort: str) -> str:
        """Return the address of the list in another order; the same order again is reversed."""
        given = {"sort": sort, "match": self.match}
        given |= {"reverse": "1"} if sort == self.sort and not self.reverse else {}
        return escape(f"/?{urlencode(given)}")


_CURVE = "return over training"


def _chosen(root: Path, view: _View) -> list[RunRow]:
    """Return the runs whose name, environment, algorithm or state contains the text, in order."""
    sort: Any = "name" if view.sort == "run" else view.sort
    runs = list_runs(root, ListRequest(sort=sort, reverse=view.reverse)).runs
    texts = (f"{run.name} {run.env} {run.algorithm} {run.state}".lower() for run in runs)
    return [run for run, text in zip(runs, texts, strict=True) if view.match.lower() in text]


def _list_page(runs: Sequence[RunRow], root: Path, view: _View) -> str:
    frame = page(Document(f"Runs in {root.resolve()}", ()), live=True)
    heads = "".join(_head(column, view) for column, _ in RUN_COLUMNS)
    curves = [small_curve(RunPaths(root, run.name).metrics) for run in runs]
    scales: dict[str, list[float]] = {}
    for run, curve in zip(runs, curves, strict=True):
        scales.setdefault(run.env, []).extend(curve)
    rows = "\n".join(
        f"<tr>{''.join(_cells(run, curve, scales[run.env]))}</tr>" for run, curve in zip(runs, curves, strict=True)
    )
    table = f"<table><thead><tr><th></th>{heads}<th>{_CURVE}</th></tr></thead><tbody>{rows}</tbody></table>"
    box = (
        f'<input name="match" value="{escape(view.match)}" aria-label="Filter" placeholder="name, environment, state">'
    )
    kept = "".join(f'<input type="hidden" name="{name}" value="{escape(str(value))}">' for name, value in (
        ("sort", view.sort), *([("reverse", 1)] if view.reverse else []),
    ))  # fmt: skip
    search = f'<form action="/"><p>{box} {kept}<button>Filter</button></p></form>'
    note = '<p class="note">Curves of one environment share a scale.</p>' if any(curves) else ""
    none = "" if runs else "<p>No run matches.</p>" if view.match else "<p>There are no runs yet.</p>"
    form = (
        f'<form action="/runs"><div class="scroll">{table}</div>{note}{none}<p><button>Side by side</button></p></form>'
    )
    return frame.replace("</main>", f"{search}{form}</main>", 1)


def _head(column: Column, view: _View) -> str:
    order = f' aria-sort="{"descending" if view.reverse else "ascending"}"' if column.name == view.sort else ""
    return f'<th{side(column)}{order}><a href="{view.address(column.name)}">{column.name}</a></th>'


def _cells(run: RunRow, curve: Sequence[float], scale: Sequence[float]) -> Iterator[str]:
    """Yield the cells of a row; the lowest and highest value of `scale` are the ends of its curve."""
    yield f'<td><input type="checkbox" name="run" value="{escape(run.name)}" aria-label="{safe(run.name)}"></td>'
    for column, show in RUN_COLUMNS:
        address = f"/runs?{urlencode({'run': run.name})}" if column.name == "run" else ""
        yield table_cell(as_cell(show(run)), column, address)
    yield f'<td class="curve">{sparkline(curve, 24, scale=scale)}</td>'
