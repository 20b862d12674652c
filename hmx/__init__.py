"""hmx: train reinforcement-learning agents in JAX, and see why they learn.

The names below are the public interface; docs/python.md explains them. Everything that a user can do something about
raises `HmxError`. `import hmx` loads no JAX: a name loads what it needs when it is first used.
"""

from __future__ import annotations

TYPE_CHECKING = False  # the command imports this file before it handles Ctrl-C, so `typing` and all else come later
if TYPE_CHECKING:
    from hmx.algos.types import Algorithm, Decision, TrainState
    from hmx.api.agent import TrainedAgent, check_env, load_agent, make_env
    from hmx.api.chart import Chart, plot
    from hmx.api.configs import load_config, load_metrics
    from hmx.api.gates import adopt_attempt, gate, gate_status, new_gate, verify_gate
    from hmx.api.runs import compare, evaluate, fork, resume, show, train
    from hmx.api.studies import (
        best_config,
        extend_study,
        new_study,
        read_study,
        run_study,
        study_report,
        study_status,
        verify_study,
    )
    from hmx.config.schema import Config
    from hmx.envs.protocol import Env, EnvSpec, Quantity
    from hmx.errors import HmxError
    from hmx.nets.build import Net, NetOutput
    from hmx.types import Timestep

    __version__: str

__all__ = [
    "TrainedAgent",
    "Algorithm",
    "Chart",
    "Config",
    "Decision",
    "Env",
    "EnvSpec",
    "HmxError",
    "Net",
    "NetOutput",
    "Quantity",
    "Timestep",
    "TrainState",
    "adopt_attempt",
    "best_config",
    "check_env",
    "compare",
    "evaluate",
    "extend_study",
    "fork",
    "gate",
    "gate_status",
    "load_agent",
    "load_config",
    "load_metrics",
    "make_env",
    "new_gate",
    "new_study",
    "plot",
    "read_study",
    "resume",
    "run_study",
    "show",
    "study_report",
    "study_status",
    "train",
    "verify_gate",
    "verify_study",
]


def __getattr__(name: str) -> object:
    """Import a public name when it is first used."""
    if name == "__version__":
        from hmx.config.extras import version

        return globals().setdefault(name, version())
    if name == "errors":  # its module, which every other one imports
        from hmx import errors

        return errors
    if name not in __all__:
        raise AttributeError(f"module 'hmx' has no attribute {name!r}")
    from hmx.api import configs

    home: object = configs
    if not hasattr(configs, name):  # all other names need JAX
        from hmx import types as timesteps
        from hmx.algos import types
        from hmx.api import agent, chart, gates, runs, studies
        from hmx.envs import protocol
        from hmx.nets import build

        home = next(
            module
            for module in (runs, studies, gates, chart, agent, types, protocol, build, timesteps)
            if hasattr(module, name)
        )
    value = globals()[name] = getattr(home, name)
    return value


def __dir__() -> list[str]:
    """Return the public names."""
    return sorted(__all__)
