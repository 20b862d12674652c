"""Updates whose environments are simulators: their rollouts in parts, as the host directs them."""

from __future__ import annotations

import numpy as np

from hmx.reports.bench.measure import POLICY, RANDOM, Rollouts, Updates
from hmx.runs.chunk import Chunk
from hmx.runs.hosted import Host, compile_hosted
from hmx.runs.session import Session
from hmx.runs.signals import SignalGuard
from hmx.runs.training import open_host
from hmx.simulators.spaces import random_rows


class HostedUpdates(Updates):
    """The updates of a run on a simulator, with its workers."""

    def __init__(self, session: Session) -> None:
        host = open_host(session, SignalGuard(), lambda message: None)
        assert host is not None
        self._host: Host = host
        try:
            super().__init__(session)
            self.state, _ = host.begin(self.state)
        except BaseException:
            host.close()
            raise

    def _length(self) -> int:
        return 1

    def _compile(self) -> Chunk:
        session = self.session
        cfg = session.cfg
        return compile_hosted(session.algorithm, self._host, session.abstract, cfg.algo.num_steps, cfg.run.on_nonfinite)

    def close(self) -> None:
        """End the workers."""
        self._host.close()

    def cpu_seconds(self) -> float:
        """Return the processor time of this process and of the workers."""
        return super().cpu_seconds() + self._host.cpu_seconds()

    def rollouts(self) -> tuple[Rollouts, ...]:
        """Return the rollouts: simulators alone, with a message per step, and with the policy."""
        return (
            Rollouts("simulators", "random steps within the workers", self._play_alone),
            Rollouts("environment", RANDOM, self._play_random),
            Rollouts("acting", POLICY, self._collect),
        )

    def _play_alone(self, rollouts: int) -> None:
        self._host.pool.play(rollouts * self._host.num_steps)

    def _play_random(self, rollouts: int) -> None:
        pool, plan = self._host.pool, self._host.plan
        facts, steps = pool.facts, rollouts * self._host.num_steps
        noise = np.random.default_rng(0).random((steps, plan.num_envs, facts.action_dim or facts.num_actions))
        for step in range(steps):
            for group in range(plan.num_groups):
                mine = plan.group(group)
                if step:
                    pool.wait(group)
                pool.at.action[mine] = random_rows(noise[step, mine], facts, pool.at.legal[mine])
                pool.send(group)
        for group in range(plan.num_groups):
            pool.wait(group)

    def _collect(self, rollouts: int) -> None:
        for _ in range(rollouts):
            self._host.collect(self.state)


def make_updates(session: Session) -> Updates:
    """Compile the updates of a session; the caller closes them."""
    return Updates(session) if session.env.spec.simulator is None else HostedUpdates(session)
