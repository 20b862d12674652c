"""All public names that need JAX, for `hmx.__getattr__`."""

from hmx.agents.types import Algorithm, Decision, TrainState
from hmx.api.agent import TrainedAgent, check_env, load_agent, make_env
from hmx.api.chart import Chart, plot
from hmx.api.runs import compare, evaluate, resume, show, train
from hmx.env.protocol import Env, EnvSpec
from hmx.nets.build import Net, NetOutput
from hmx.types import Timestep

__all__ = [
    "TrainedAgent",
    "Algorithm",
    "Chart",
    "Decision",
    "Env",
    "EnvSpec",
    "Net",
    "NetOutput",
    "Timestep",
    "TrainState",
    "check_env",
    "compare",
    "evaluate",
    "load_agent",
    "make_env",
    "plot",
    "resume",
    "show",
    "train",
]
