"""Studies in memory, for the decisions that need no files."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from hmx.config.schema import Config
from hmx.study.records import Promotion, RungResult, Study, StudySettings, Trial, trial_folder
from hmx.study.space import parse_space


@pytest.fixture(scope="module")
def one_process(shared_programs: Any) -> Iterator[None]:
    """Share compiled programs between the workers of a module, and with runs of other modules."""
    from hmx.runs import programs
    from hmx.study import worker

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(programs, "MOST", 50)
        patch.setattr(worker, "Programs", lambda: shared_programs)
        yield


class Made:
    """Makes studies and trials in memory."""

    @staticmethod
    def result(rung: int, objective: float | None, failed: str = "") -> RungResult:
        return RungResult(
            rung=rung, update=rung + 1, env_steps=100, per_seed=(objective,), objective=objective, failed=failed
        )

    @classmethod
    def trial(
        cls, number: int, objectives: Sequence[float | None] = (), promoted: int = 0, refused: str = "",
        revision: int = 1, values: dict[str, object] | None = None,
    ) -> Trial:  # fmt: skip
        return Trial(
            number=number, values=values or {}, sampler="random", revision=revision, refused=refused,
            folder=trial_folder(Path("s"), number),
            rungs=tuple(cls.result(rung, objective) for rung, objective in enumerate(objectives)),
            promotions=tuple(Promotion(rung=rung, seen="") for rung in range(1, promoted + 1)),
        )  # fmt: skip

    @staticmethod
    def study(made: Sequence[Trial] = (), /, *history: dict[str, object], **settings: object) -> Study:
        """Return a study; each of `history` has the changes of a later revision."""
        given = {"space": parse_space(["algo.gamma=0.9..0.99", "ppo.update_epochs=1..8"]), "trials": 9, **settings}
        revisions = [StudySettings(**given)]
        for number, changes in enumerate(history, 2):
            revisions.append(dataclasses.replace(revisions[-1], revision=number, **changes))
        return Study(
            folder=Path("s"), history=tuple(revisions), configs={"base": Config()}, trials=tuple(made),
            confirmations=(),
        )  # fmt: skip


@pytest.fixture(scope="session")
def made() -> type[Made]:
    return Made
