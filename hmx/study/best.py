"""`hmx study best`: the configuration to train next."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from hmx.config.fields import FIELDS, replace
from hmx.config.schema import Config
from hmx.errors import ExitCode, HmxError
from hmx.records.plain import JsonResult
from hmx.study.folder import read_study
from hmx.study.space import with_values
from hmx.study.state import Standing, standing
from hmx.study.status import RankedTrial, ranked_trial


@dataclasses.dataclass(frozen=True, kw_only=True)
class BestTrial(JsonResult):
    """The best trial of a study, and its configuration."""

    study: Path
    standing: Standing
    best: RankedTrial
    run: Path
    config: Config = dataclasses.field(metadata={"json": False})


def best_trial(folder: str | Path) -> BestTrial:
    """Return the trial to use: the best on fresh seeds, or the first of the search if the study has none.

    Raises:
        HmxError: that is not decided yet, or the study has failed (exit code 3).
    """
    study = read_study(folder)
    now = standing(study)
    if now.choice is None:
        message = f"{study.folder} {'has failed' if now.state == 'failed' else 'has no best trial yet'}: {now.reason}"
        raise HmxError(message, f"{now.next.text}: {now.next.command}", ExitCode.ARTEFACT)
    trial = study.by_number[now.choice]
    config = with_values(study.configs, trial.values)
    # Trials are evaluated only where that is needed, but a run usually is.
    keys = ["run.evaluations"] if config.run.eval_episodes else ["run.evaluations", "run.eval_episodes"]
    config = replace(config, {key: FIELDS[key].default for key in keys})
    return BestTrial(study=study.folder, standing=now, best=ranked_trial(study, trial), run=trial.folder, config=config)
