"""The checks of `hmx check-env` as an assertion."""

from __future__ import annotations

from hmx.envs.checks.problems import Walk
from hmx.envs.checks.run import run_checks
from hmx.envs.protocol import Env


def check_env(env: Env, **options: int | float | Env) -> Walk:
    """Assert that an environment passes every check, and return what was played."""
    found = run_checks(env, **options)
    assert not found.failed, "\n".join(f"{result.check}: {result.detail}" for result in found.failed)
    return found.walk
