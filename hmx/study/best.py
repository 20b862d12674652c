"""`hmx study best`: the configuration to train next."""

from __future__ import annotations

import dataclasses
import shlex
from pathlib import Path

from hmx.config.fields import FIELDS, replace
from hmx.config.schema import Config
from hmx.errors import ExitCode, HmxError
from hmx.records.plain import JsonResult
from hmx.study.folder import read_study
from hmx.study.records import Study, Trial
from hmx.study.space import with_values
from hmx.study.status import RankedTrial, ranked_trial


@dataclasses.dataclass(frozen=True, kw_only=True)
class BestTrial(JsonResult):
    """The best trial of a study, and its configuration."""

    study: Path
    best: RankedTrial
    run: Path
    config: Config = dataclasses.field(metadata={"json": False})


def best_trial(folder: str | Path) -> BestTrial:
    """Return the best trial: by its objective on fresh seeds where that is known, otherwise by that of the search.

    Raises:
        HmxError: no trial has a result yet (exit code 3).
    """
    study = read_study(folder)
    trial = _choose(study)
    config = with_values(study.configs, trial.values)
    if not config.run.eval_episodes:  # trials are not evaluated, but a run usually is
        config = replace(config, {"run.eval_episodes": FIELDS["run.eval_episodes"].default})
    return BestTrial(study=study.folder, best=ranked_trial(study, trial), run=trial.folder, config=config)


def _choose(study: Study) -> Trial:
    order = study.settings.objective.order
    confirmed = [one for one in study.confirmations if one.objective is not None]
    if confirmed:
        return study.by_number[min(confirmed, key=lambda one: order(one.objective)).trial]
    ranked = [trial for trial in study.best() if trial.objective is not None]
    if not ranked:
        raise HmxError(
            f"{study.folder} has no result yet", f"hmx study work {shlex.quote(str(study.folder))}", ExitCode.ARTEFACT
        )
    return ranked[0]
