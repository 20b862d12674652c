"""Build the gradient reporter of an algorithm."""

from __future__ import annotations

from hmx.algos.gradients.request import ProbeRequest, check
from hmx.algos.gradients.results import Reporter
from hmx.algos.gradients.stored import Stored
from hmx.config.references import imported
from hmx.config.schema import Config
from hmx.envs.protocol import Env
from hmx.errors import HmxError
from hmx.registry.algorithms import find_algorithm
from hmx.registry.check import reported


def make_reporter(cfg: Config, env: Env, request: ProbeRequest, stored: Stored | None = None) -> Reporter:
    """Build a reporter, which keeps its compiled programs; refuse a request that does not fit the run (exit code 2).

    The states of `stored` are the start states, or with `request.replay` its transitions are measured; None resets the
    environment, or takes the buffer of the train state.
    """
    check(request)
    entry = find_algorithm(cfg.algo.name)
    if not entry.reporter:
        hint = f"gradient reports know the losses of {reported()}"
        raise HmxError(f"cannot report on algorithm {entry.name}: its loss is not known to hmx", hint)
    reporter: Reporter = imported(entry.reporter)(cfg, env, request, stored)
    return reporter
