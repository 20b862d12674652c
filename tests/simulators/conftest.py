"""A simulator in plain Python, and the workers that step it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import walk_sim

from hmx.registry import user_code
from hmx.registry.workers import WorkerPlan
from hmx.simulators.pool import WorkerPool
from hmx.simulators.recipe import Recipe
from hmx.simulators.spaces import facts_of

WALK = str(Path(__file__).parents[1] / "walk_sim.py")


def recipe(**options: Any) -> Recipe:
    """How the simulator of the tests is made."""
    user_code.allow(WALK, "env.id")
    return Recipe("walk", reference=WALK, attribute="make", my=tuple(options.items()))


@pytest.fixture
def open_pool() -> Iterator[Callable[..., WorkerPool]]:
    """Open pools that the test need not close."""
    with ExitStack() as stack:

        def open_pool(
            workers: int = 2, each: int = 1, groups: int = 1, timeout: float = 60.0, **options: Any
        ) -> WorkerPool:
            made = recipe(**options)
            plan = WorkerPlan(workers, each, groups)
            facts = facts_of(walk_sim.make(walk_sim.Options(**options)))
            return stack.enter_context(WorkerPool(made, facts, plan, seed=3, stream=0, timeout=timeout))

        yield open_pool
