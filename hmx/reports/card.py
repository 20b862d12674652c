"""The model card of a run for the Hugging Face Hub: front matter that the Hub reads, and Markdown."""

from __future__ import annotations

import json
import math
import shlex
from collections.abc import Callable, Iterator
from pathlib import Path

from hmx.config.names import clean_run_name
from hmx.config.textfile import quoted
from hmx.errors import counted
from hmx.jobs.evaluation import RANDOM
from hmx.records.paths import DEFAULT_ROOT
from hmx.render.blocks import Block, Document, Heading, Paragraph, facts
from hmx.reports.report.findings import RunFacts
from hmx.reports.report.job import run_report
from hmx.reports.report.request import ReportRequest
from hmx.reports.summaries import TRAINED, policies

_NOT_SHOWN = ("run.root", "run.name")


def model_card(
    run: str | Path, repo: str, render: Callable[[Document], str], license_id: str = "", root: str = DEFAULT_ROOT
) -> str:
    """Return the card of a run.

    Args:
        run: name or path.
        repo: `OWNER/NAME` of the model.
        render: writes a document as Markdown.
        license_id: licence in the Hub's spelling, such as mit; empty for none.
        root: runs folder, for names.

    Raises:
        HmxError: there is no such run (exit code 3).
    """
    (found,) = run_report(ReportRequest(runs=(str(run),), root=Path(root), num_episodes=0)).runs
    head = "\n".join(_front(found, repo, license_id))
    text = render(Document(repo, tuple(_blocks(found, license_id))))
    name = clean_run_name(repo.partition("/")[2])
    use = f"hmx runs pull {shlex.quote(repo)} runs/{name}\nhmx evaluate {name}\nhmx watch {name}"
    return f"---\n{head}\n---\n\n{text}\n## Use\n\n```sh\n{use}\n```\n"


def _front(run: RunFacts, repo: str, license_id: str) -> Iterator[str]:
    """Yield the lines of the metadata; JSON texts are YAML."""
    yield "library_name: hmx"
    tags = ("reinforcement-learning", "deep-reinforcement-learning", "hmx", run.env, run.algorithm)
    yield f"tags: {json.dumps(list(filter(None, tags)))}"
    if license_id:
        yield f"license: {json.dumps(license_id)}"
    trained = [row.return_mean for row in run.evaluation if row.policy != RANDOM]
    if trained and run.env:
        yield "model-index:"
        yield f"- name: {json.dumps(repo.partition('/')[2])}"
        yield "  results:"
        yield "  - task: {type: reinforcement-learning, name: reinforcement-learning}"
        yield f"    dataset: {{name: {json.dumps(run.env)}, type: {json.dumps(run.env)}}}"
        yield "    metrics:"
        mean = json.dumps(math.fsum(trained) / len(trained))
        yield f"    - {{type: mean_reward, name: mean_reward, value: {mean}, verified: false}}"


def _blocks(run: RunFacts, license_id: str) -> Iterator[Block]:
    seeds = len(run.agents)
    by = f"hmx {run.meta.versions.get('hmx', '')}".strip() if run.meta is not None else "hmx"
    yield Paragraph(
        f"Trained on {quoted(run.env)} with {quoted(run.algorithm)} by {by}: {run.env_steps:,} environment steps"
        f"{' for each of ' + counted(seeds, 'seed') if seeds > 1 else ''}."
    )
    if run.evaluation:
        yield Heading("Evaluation")
        yield policies(run.evaluation, TRAINED)
        episodes = ", ".join(f"{count:,}" for count in sorted({row.episodes for row in run.evaluation}))
        yield Paragraph(
            f"Mean return of {episodes} episodes of each agent at the end of training, with a 95 % bootstrap interval "
            "over episodes. mean_reward above is the mean over the trained agents."
        )
    else:
        yield Paragraph("It was not evaluated.")
    if changed := [row for row in run.settings if row.changed and row.key not in _NOT_SHOWN]:
        yield Heading("Settings that differ from the defaults")
        yield facts(tuple((row.key, quoted(row.value, 300)) for row in changed))
    yield Heading("Licence")
    yield Paragraph(f"{license_id}." if license_id else "None is given.")
