"""Check a simulator in a worker process, and measure its cost."""

from __future__ import annotations

from hmx.config.schema import EnvConfig
from hmx.envs.checks.run import CheckResult
from hmx.envs.protocol import EnvSpec
from hmx.registry.workers import WorkerPlan
from hmx.reports.check_env.findings import CheckEnvFindings
from hmx.reports.check_env.request import CheckEnvRequest
from hmx.simulators.checks import CHECKS, SimulatorChecks
from hmx.simulators.episode import CHECKING
from hmx.simulators.pool import SimulatorFailed, WorkerPool


def check_simulator(env: EnvConfig, spec: EnvSpec, request: CheckEnvRequest) -> CheckEnvFindings:
    """Check a simulator with two instances in a worker of its own."""
    assert spec.simulator is not None
    recipe, facts, _ = spec.simulator
    plan = WorkerPlan(num_workers=1, envs_per_worker=2, num_groups=1)
    hints = {name: hint for name, (_, hint) in CHECKS.items()}
    checked, printed = SimulatorChecks({}, {}), None
    try:
        with WorkerPool(recipe, None, plan, seed=request.seed, stream=CHECKING, timeout=env.worker_timeout) as pool:
            checked = pool.check(request.steps)
            printed = pool.printed()
    except SimulatorFailed as error:
        if "two instances" in error.message:
            checked.problems["spaces"] = error.message
        else:
            checked.problems["interface"] = error.message
            hints["interface"] = "correct the simulator, which ends with this error"
    if printed is not None:
        checked.problems["output"] = f"it prints: {printed[1]}"
    play = checked.play
    return CheckEnvFindings(
        env=env.id,
        passed=not checked.problems,
        request=request,
        obs_shape=facts.obs_shape,
        obs_dtype=facts.obs_dtype,
        num_actions=facts.num_actions,
        action_dim=facts.action_dim,
        num_agents=spec.num_agents,
        reward_terms=spec.reward_terms,
        max_steps=spec.max_steps,
        checked_max_steps=spec.max_steps,
        terminated=play.terminated if play else 0,
        truncated=play.truncated if play else 0,
        checks=tuple(_result(name, checked, hint) for name, hint in hints.items()),
        cost=None,
        simulator=play,
    )


def _result(name: str, checked: SimulatorChecks, hint: str) -> CheckResult:
    if name in checked.problems:
        return CheckResult(name, "failed", checked.problems[name], hint)
    if name in checked.skipped or checked.play is None:
        return CheckResult(name, "skipped", checked.skipped.get(name, "the simulator cannot be played"))
    return CheckResult(name, "passed")
