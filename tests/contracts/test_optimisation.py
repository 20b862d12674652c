"""Tests compile with less optimisation; those marked `long_run`, `optimised` or `thorough` run apart, with more."""

from __future__ import annotations

import importlib.metadata
import os
import subprocess
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import pytest

HERE = Path(__file__)
QUICK = "xla_cpu_use_fusion_emitters=false" in os.environ.get("XLA_FLAGS", "")

_VERSION = importlib.metadata.version("jaxlib")

turned = jax.jit(lambda x: x[::-1])


def is_optimised() -> bool:
    """Whether XLA wraps a single operation into a fusion, which it does only to emit it as it emits fusions."""
    return "wrapped_reverse" in turned.lower(jnp.ones(3)).compile().as_text()


def test_unmarked_test_compiles_with_less_optimisation_unless_flags_are_given() -> None:
    assert is_optimised() == (not QUICK)


@pytest.mark.optimised
def test_marked_test_compiles_as_users_do() -> None:
    assert is_optimised()


@pytest.mark.long_run
def test_long_run_compiles_with_some_optimisation() -> None:
    assert "optimization_level=0" not in os.environ.get("XLA_FLAGS", "")


@pytest.mark.thorough
def test_thorough_test_runs_where_all_tests_compile_as_users_do() -> None:
    assert is_optimised()


@pytest.mark.parametrize(
    ("flags", "options", "outcome"),
    [
        ({}, [], "1 passed, 3 skipped" if _VERSION.startswith("0.10.") else "4 passed"),  # see tests/conftest.py
        ({}, ["--only-long-runs"], "1 passed, 3 deselected"),
        ({"XLA_FLAGS": ""}, ["--only-optimised"], "1 passed, 3 deselected"),
    ],
)
def test_marked_tests_run_only_where_code_is_compiled_as_they_need(
    flags: dict[str, str], options: list[str], outcome: str
) -> None:
    env = {name: value for name, value in os.environ.items() if name != "XLA_FLAGS"} | flags
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", *options]
    chosen = [f"{HERE}::test_unmarked_test_compiles_with_less_optimisation_unless_flags_are_given"]
    chosen.append(f"{HERE}::test_marked_test_compiles_as_users_do")
    chosen.append(f"{HERE}::test_long_run_compiles_with_some_optimisation")
    chosen.append(f"{HERE}::test_thorough_test_runs_where_all_tests_compile_as_users_do")
    done = subprocess.run([*command, *chosen], env=env, capture_output=True, text=True, cwd=HERE.parents[2])
    assert outcome in done.stdout, done.stdout + done.stderr
