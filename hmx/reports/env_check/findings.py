"""What `hmx check-env` finds; `hmx.records.plain` makes JSON of it."""

from __future__ import annotations

from dataclasses import dataclass

from hmx.env.checks.run import CheckResult
from hmx.reports.env_check.request import CheckEnvRequest

SCHEMA = 1


@dataclass(frozen=True)
class EnvCost:
    """What an environment costs to compile, to step and to store, measured with random legal play."""

    env: str
    num_envs: int  # side by side
    compile_seconds: float  # of a rollout, also if it came from the compilation cache
    steps_per_sec: float  # median, over all environments, resets included
    state_bytes: int  # of one environment
    obs_bytes: int  # of one environment, all agents


@dataclass(frozen=True, kw_only=True)
class CheckEnvFindings:
    """The certificate of an environment: every check, what was played, and its cost beside that of HackMatrix."""

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
    costs: tuple[EnvCost, ...]
    warnings: tuple[str, ...] = ()

    @property
    def failed(self) -> tuple[CheckResult, ...]:
        """Return the checks that failed."""
        return tuple(check for check in self.checks if check.status == "failed")
