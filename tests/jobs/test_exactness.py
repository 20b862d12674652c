"""A run that stops at the end of any chunk and goes on from its checkpoint ends in the same bits as one that never did.

Parameters, optimiser, keys, environments, memories and accumulators are all leaves of the state. The programs are
compiled once per case; `test_resume_job.py` shows the same through whole commands.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hmx.config import presets
from hmx.config.schema import Config
from hmx.runs import checkpoint
from hmx.runs.chunk import Chunk, compile_chunk
from hmx.runs.loop import Loop, init_state
from hmx.runs.saving import Saver
from hmx.runs.session import Session, open_session
from hmx.runs.signals import SignalGuard
from hmx.runs.sinks import SinkGroup

MakeConfig = Callable[..., Config]

UPDATES = 5
CLOCK = {"elapsed", "wall_time", "train/steps_per_sec", "train/steps_per_cpu_sec"}

MEMORY = {"env__id": "recall", "env__recall_delay": 3, "net__rnn_hidden": 4, "ppo__bptt_horizon": 4}
EVERYTHING = {
    "ppo__advantage": "vtrace",
    "ppo__prio_alpha": 0.6,
    "algo__lr_schedule": "cosine",
    "algo__lr_warmup": 0.3,
    "ppo__clip_schedule": "logarithmic",
    "ppo__clip_end": 0.5,
    "ppo__clip_vf_eps": 0.2,
    "ppo__value_target": "return_norm",
}

REPLAY = {
    "algo__name": "dqn", "ppo__update_epochs": 4, "ppo__num_minibatches": 8, "dqn__learn_starts": 32,
    "dqn__batch_size": 8, "dqn__n_step": 2, "replay__capacity": 48, "replay__mixing": "additive",
    "replay__target_ess": 0.7, "replay__survey_every": 2, "score__every": 2, "score__transitions": 6,
    "score__rollouts": 2, "score__horizon": 3,
}  # fmt: skip

SIZES = ("replay.capacity", "replay.survey_every", "score.every", "score.transitions", "score.chunk")
CONSEQUENCE = {
    key.replace(".", "__"): value
    for key, value in presets.values("consequence").items()
    if key.startswith(("replay.", "score.")) and key not in SIZES
} | {"replay__target_ess": 0.0, "dqn__n_step": 1}

CONTINUOUS = {
    "env__id": "pendulum",
    "env__reset_on_done": "first",
    "env__full_reset_every": 2,
    "net__shared_torso": False,
    "ppo__advantage": "brax",
    "ppo__advantage_when": "minibatch",
    "ppo__episode_end": "mask",
    "ppo__bptt_horizon": 4,
    "ppo__obs_norm": "network",
    "ppo__obs_norm_update": "before_sgd",
}

CASES: dict[str, tuple[int, dict[str, Any]]] = {
    "feed-forward": (1, {}),
    "continuous actions, statistics of observations, resets": (1, CONTINUOUS),
    "lstm, two seeds, three updates a chunk, schedules, priorities, statistics of the value, two agents": (
        2,
        {
            **MEMORY,
            **EVERYTHING,
            "net__rnn": "lstm",
            "run__updates_per_chunk": 3,
            "env__id": "rendezvous",
            "env__num_agents": 2,
        },
    ),
    "learning from search, gru, two seeds": (
        2,
        {**MEMORY, "algo__name": "gumbel", "gumbel__num_simulations": 3, "net__rnn": "gru"},
    ),
    "replay, two seeds, three updates a chunk": (2, {**REPLAY, "run__updates_per_chunk": 3}),
    "replay and scores of the preset consequence": (1, {**REPLAY, **CONSEQUENCE}),
}


class Recorder:
    """Keeps the records, and a checkpoint of every chunk's end on disk."""

    def __init__(self, session: Session, chunk: Chunk, folder: Path) -> None:
        self.session, self.chunk, self.folder = session, chunk, folder

    def run(self, state: Any, first: int = 0) -> tuple[Any, list[dict[str, Any]]]:
        records: list[dict[str, Any]] = []

        class Keep(SinkGroup):
            def records(self, new: Any) -> None:
                records.extend({k: v for k, v in record.items() if k not in CLOCK} for record in new)

        def prepare(state: Any, update: int, score: float | None) -> Callable[[], Any]:
            copy = checkpoint.snapshot(state)
            return lambda: checkpoint.write(self.folder, copy, update, None)

        def never(*given: Any) -> Any:
            raise AssertionError("an update was refused")

        cfg, sizes = self.session.cfg, self.session.sizes
        with SignalGuard() as guard:
            hypers = self.session.algorithm.hypers
            loop = Loop(self.chunk, hypers, Keep([]), guard, Saver(prepare), never, cfg.run.seed, sizes.batch_size, 1)
            return loop.run(state, first, UPDATES).state, records


def differences(a: Any, b: Any) -> list[str]:
    x, y = checkpoint.to_host(a), checkpoint.to_host(b)
    assert list(x) == list(y)
    return [name for name in x if x[name].dtype != y[name].dtype or x[name].tobytes() != y[name].tobytes()]


SLOW = {
    "replay, two seeds, three updates a chunk",
    "lstm, two seeds, three updates a chunk, schedules, priorities, statistics of the value, two agents",
}


@pytest.mark.parametrize(
    "case", [pytest.param(case, marks=[pytest.mark.slow] if case in SLOW else []) for case in CASES]
)
def test_run_stopped_at_any_chunk_resumes_to_the_same_bits(case: str, make_config: MakeConfig, tmp_path: Path) -> None:
    seeds, values = CASES[case]
    cfg = make_config(UPDATES, run__num_seeds=seeds, **values)
    session = open_session(cfg)
    length = session.sizes.updates_per_chunk
    chunk = compile_chunk(session.algorithm, session.abstract, length, seeds)
    recorder = Recorder(session, chunk, tmp_path / "checkpoints")
    end, records = recorder.run(init_state(session.algorithm, cfg.run.seed, seeds))
    assert len(records) == UPDATES * seeds

    stops = list(range(length, UPDATES, length))
    assert stops
    for stop in stops:
        back = checkpoint.restore(tmp_path / "checkpoints" / str(stop), session.abstract)
        again, rest = recorder.run(back, stop)
        assert differences(end, again) == [], f"after stopping at update {stop}"
        assert rest == records[stop * seeds :]
    assert chunk.traces == 1


def test_result_does_not_depend_on_chunk_length(make_config: MakeConfig, tmp_path: Path) -> None:
    ends = []
    for length in (1, 3):
        cfg = make_config(UPDATES, run__updates_per_chunk=length)
        session = open_session(cfg)
        chunk = compile_chunk(session.algorithm, session.abstract, length)
        recorder = Recorder(session, chunk, tmp_path / str(length))
        ends.append(recorder.run(init_state(session.algorithm, 0, 1)))
    for end, records in ends[1:]:
        assert differences(ends[0][0], end) == []
        assert records == ends[0][1]
