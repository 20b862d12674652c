"""What a check of an environment found."""

from __future__ import annotations

from dataclasses import dataclass

from hmx.envs.checks.run import CheckResult
from hmx.records.plain import ShortRepr
from hmx.reports.check_env.request import CheckEnvRequest
from hmx.simulators.checks import PlayFacts

SCHEMA = 2


@dataclass(frozen=True)
class EnvCost:
    """The cost of compiling, stepping and storing an environment, measured with random legal play."""

    num_envs: int  # side by side
    compile_seconds: float  # of a rollout, also if it came from the compilation cache
    steps_per_sec: float  # median, over all environments, resets included
    state_bytes: int  # of one environment
    obs_bytes: int  # of one environment, all agents


@dataclass(frozen=True, kw_only=True, repr=False)
class CheckEnvFindings(ShortRepr):
    """The certificate of an environment: every check, the play, and its cost."""

    schema: int = SCHEMA
    env: str
    passed: bool
    request: CheckEnvRequest
    obs_shape: tuple[int, ...]
    obs_dtype: str
    num_actions: int  # 0 if actions are continuous
    action_dim: int  # 0 if actions are discrete
    num_agents: int
    reward_terms: tuple[str, ...]
    max_steps: int  # 0 for no step limit
    checked_max_steps: int  # step limit of the checked environment, lowered to see truncations
    terminated: int  # episodes in the play
    truncated: int
    checks: tuple[CheckResult, ...]
    cost: EnvCost | None  # None if it was not measured
    simulator: PlayFacts | None = None  # None if it is written in JAX, or a simulator that cannot be played
    warnings: tuple[str, ...] = ()

    @property
    def failed(self) -> tuple[CheckResult, ...]:
        """Return the checks that failed."""
        return tuple(check for check in self.checks if check.status == "failed")
