"""Build the gradient reporter of an algorithm."""

from __future__ import annotations

from hmx.algos.dqn.gradients import make_q_reporter
from hmx.algos.gradients.request import ProbeRequest, check
from hmx.algos.gradients.results import Reporter
from hmx.algos.gradients.stored import Stored
from hmx.algos.ppo.gradients import make_ppo_reporter
from hmx.config.option import REPORTED
from hmx.config.schema import Config
from hmx.envs.protocol import Env
from hmx.errors import HmxError


def make_reporter(cfg: Config, env: Env, request: ProbeRequest, stored: Stored | None = None) -> Reporter:
    """Build a reporter, which keeps its compiled programs; refuse a request that does not fit the run (exit code 2).

    The states of `stored` are the start states, or with `request.replay` its transitions are measured; None resets the
    environment, or takes the buffer of the train state.
    """
    check(request)
    if cfg.algo.name not in REPORTED:
        hint = f"gradient reports know the losses of {' and '.join(REPORTED)}"
        raise HmxError(f"cannot report on algorithm {cfg.algo.name}: its loss is not known to hmx", hint)
    make = make_q_reporter if cfg.algo.name == "dqn" else make_ppo_reporter
    return make(cfg, env, request, stored)
