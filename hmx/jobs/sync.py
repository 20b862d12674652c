"""`hmx runs sync`: the records of a run that has ended, sent to Weights & Biases afterwards."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from hmx.errors import ExitCode, HmxError, one_line
from hmx.records import jsonl
from hmx.records.frozen import known_meta, read_config
from hmx.records.layout import find_run
from hmx.records.lock import check_free
from hmx.records.paths import RunPaths
from hmx.records.plain import JsonResult
from hmx.registry.derive import derive
from hmx.runs.signals import interruptible
from hmx.runs.sinks import Record, RunInfo
from hmx.runs.wandb_sink import Mode, finish_runs, open_runs, sendable, tear_down


class WandbRun(NamedTuple):
    """A run on Weights & Biases; `url` is None offline."""

    seed: int
    id: str
    url: str | None


@dataclasses.dataclass(frozen=True, kw_only=True)
class SyncResult(JsonResult):
    """The records that were sent."""

    run: Path
    project: str
    sent: int  # records, over all seeds
    there: int  # records that wandb already had
    wandb_runs: tuple[WandbRun, ...]


def sync(run: str | Path, *, project: str | None = None, mode: Mode = "online") -> SyncResult:
    """Send metrics.jsonl of a run to wandb, under the ids that training with wandb gives it.

    The id is derived from the creation time of the run in meta.json, or in its copy in a checkpoint. Without either,
    the id is new. Records already in wandb are skipped, so a second call sends nothing and an interrupted one continues
    where it stopped. `offline` writes files for `wandb sync` below the run folder.

    Raises:
        HmxError: the run is still training, or there is no package or no login (exit code 2); no such run, or
            one whose records are damaged (3); wandb cannot be reached (1).
    """
    paths = find_run(run)
    check_free(paths)
    cfg, meta = read_config(paths), known_meta(paths)
    project, sizes = project or cfg.run.wandb_project, derive(cfg)
    # Without meta.json, the time of the first record distinguishes runs of the same name.
    first = meta.created if meta else str(next(jsonl.read(paths.metrics), {}).get("wall_time", ""))
    info = RunInfo(
        name=paths.name,
        path=paths.folder,
        config=cfg,
        created=first,
        first_update=0,
        total_updates=sizes.num_updates,
        steps_per_update=sizes.batch_size,
        num_seeds=cfg.run.num_seeds,
    )
    code = 1 if meta and meta.state == "failed" else 0
    # In another thread, so that Ctrl-C works while waiting for the network.
    return interruptible(lambda: _send(paths, info, jsonl.read(paths.metrics), project, mode, code))


def _send(
    paths: RunPaths, info: RunInfo, records: Iterable[Record], project: str, mode: Mode, exit_code: int
) -> SyncResult:
    sent = there = 0
    try:
        runs = open_runs(info, mode, project)
        # wandb takes steps in rising order only, so it already has all earlier ones.
        first = {seed: int(getattr(opened, "starting_step", 0)) for seed, opened in runs.items()}
        for record in records:
            seed, step = int(record["seed"]), int(record["env_steps"])
            if seed not in runs:
                raise _damaged(paths, f"a record of seed {seed}, which the run does not have")
            if step < first[seed]:
                there += 1
                continue
            runs[seed].log(sendable(record), step=step)
            sent += 1
        addresses = tuple(WandbRun(seed, str(opened.id), opened.url or None) for seed, opened in runs.items())
        finish_runs(runs, exit_code)
    except HmxError:
        raise
    except (KeyError, TypeError) as error:
        raise _damaged(paths, f"a record without {error}") from error
    except Exception as error:  # wandb's own errors derive from nothing else
        hint = "the records stay in the run folder: try again later; what has arrived is not sent twice"
        raise HmxError(f"wandb took no more records: {one_line(error)}", hint, ExitCode.UNEXPECTED) from error
    finally:
        tear_down()
    return SyncResult(run=paths.folder, project=project, sent=sent, there=there, wandb_runs=addresses)


def _damaged(paths: RunPaths, what: str) -> HmxError:
    return HmxError(f"{paths.metrics} is damaged: {what}", "hmx runs verify says what else is", ExitCode.ARTEFACT)
