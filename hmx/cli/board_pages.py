"""The pages of `hmx board`: a list of runs, and the report of one run or several, which update while they train."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from html import escape
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple
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
from hmx.render.quantities import age, clock, short, signed, sparkline
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
        asked = request.query_params
        order = asked.get("sort", "age")
        view = _View(order if order in _ORDERS else "age", asked.get("match", ""), "reverse" in asked)
        return _response(_list_page(_chosen(live_runs(root), view), root, view), request)

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


_Order = Callable[[LiveRun], tuple[bool, float | str]]


def _number(value: float | None) -> tuple[bool, float]:
    """Return the key that sorts missing values last."""
    return value is None, 0.0 if value is None else value


# Columns by name; those with an order sort the list: texts and ages upwards, other numbers from the highest.
_ORDERS: Mapping[str, _Order] = MappingProxyType({
    "run": lambda run: (False, run.row.name), "environment": lambda run: (False, run.env),
    "algorithm": lambda run: (False, run.algorithm), "state": lambda run: (False, run.row.state),
    "steps": lambda run: _number(-run.row.env_steps),
    "return": lambda run: _number(None if run.row.last_return is None else -run.row.last_return),
    "steps/s": lambda run: _number(None if run.row.steps_per_sec is None else -run.row.steps_per_sec),
    "remaining": lambda run: _number(run.seconds_left), "age": lambda run: _number(run.row.age),
})  # fmt: skip
_CURVE = "return over training"
_COLUMNS = ("", "run", "environment", "algorithm", "state", "steps", "return", "steps/s", "remaining", "age", _CURVE)
_SPARE = {"environment", "algorithm", "steps", "steps/s", "remaining", "age"}  # columns that a phone leaves out


def _chosen(runs: Sequence[LiveRun], view: _View) -> list[LiveRun]:
    """Return the runs whose name, environment, algorithm or state contains the text, in order."""
    texts = ((run, f"{run.row.name} {run.env} {run.algorithm} {run.row.state}".lower()) for run in runs)
    return sorted(
        (run for run, text in texts if view.match.lower() in text), key=_ORDERS[view.sort], reverse=view.reverse
    )


def _list_page(runs: Sequence[LiveRun], root: Path, view: _View) -> str:
    frame = page(Document(f"Runs in {root.resolve()}", ()), live=True)
    heads = "".join(_head(name, view) for name in _COLUMNS)
    curves: dict[str, list[float]] = {}
    for run in runs:
        curves.setdefault(run.env, []).extend(run.curve)
    rows = "\n".join(f"<tr>{''.join(_cells(run, curves[run.env]))}</tr>" for run in runs)
    table = f"<table><thead><tr>{heads}</tr></thead><tbody>{rows}</tbody></table>"
    box = (
        f'<input name="match" value="{escape(view.match)}" aria-label="Filter" placeholder="name, environment, state">'
    )
    kept = "".join(f'<input type="hidden" name="{name}" value="{escape(str(value))}">' for name, value in (
        ("sort", view.sort), *([("reverse", 1)] if view.reverse else []),
    ))  # fmt: skip
    search = f'<form action="/"><p>{box} {kept}<button>Filter</button></p></form>'
    note = '<p class="note">Curves of one environment share a scale.</p>' if any(curves.values()) else ""
    none = "" if runs else "<p>No run matches.</p>" if view.match else "<p>There are no runs yet.</p>"
    form = (
        f'<form action="/runs"><div class="scroll">{table}</div>{note}{none}<p><button>Side by side</button></p></form>'
    )
    return frame.replace("</main>", f"{search}{form}</main>", 1)


def _head(name: str, view: _View) -> str:
    if name not in _ORDERS:
        return f"<th>{name}</th>"
    spare = ' class="spare"' if name in _SPARE else ""
    order = f' aria-sort="{"descending" if view.reverse else "ascending"}"' if name == view.sort else ""
    return f'<th{spare}{order}><a href="{view.address(name)}">{name}</a></th>'


def _cells(run: LiveRun, scale: Sequence[float]) -> Iterator[str]:
    """Yield the cells of a row; the lowest and highest value of `scale` are the ends of its curve."""
    row = run.row
    name, tone = safe(row.name), {"running": "good", "crashed": "bad", "failed": "bad"}.get(row.state, "")
    total = f" of {short(run.total_steps)}" if run.total_steps else ""
    yield f'<td><input type="checkbox" name="run" value="{escape(row.name)}" aria-label="{name}"></td>'
    yield f'<td><a href="/runs?{escape(urlencode({"run": row.name}))}">{name}</a></td>'
    yield f'<td class="spare">{safe(run.env)}</td><td class="spare">{safe(run.algorithm)}</td>'
    yield f'<td class="{tone}">{row.state}</td><td class="right spare">{short(row.env_steps)}{total}</td>'
    newest = row.last_return if row.last_return is not None or not run.curve else run.curve[-1]
    yield f'<td class="right">{signed(newest)}</td>'
    yield f'<td class="right spare">{short(row.steps_per_sec) if row.steps_per_sec else ""}</td>'
    yield f'<td class="right spare">{"" if run.seconds_left is None else clock(run.seconds_left)}</td>'
    yield f'<td class="right spare">{"" if row.age is None else age(row.age)}</td>'
    yield f'<td class="curve">{sparkline(run.curve, 24, scale=scale)}</td>'
