"""Schedules against reference cases, at their ends, and outside."""

import json
import math
from pathlib import Path
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hmx.config.learning import Schedule
from hmx.config.schedules import prio_beta, progress, value
from hmx.reports.compute_config.derived import derive_batch
from hmx.reports.compute_config.inputs import BatchInputs

CASES = json.loads((Path(__file__).parent / "schedule_cases.json").read_text())

EXACT = {"rel": 1e-12, "abs": 1e-18}

NAMES = {
    "cosine_lr": "cosine",
    "linear_entropy": "linear",
    "linear_vf_clip": "linear",
    "seed_logarithmic_clip": "exponential",
    "upstream_logarithmic_clip": "logarithmic",
    "upstream_logarithmic_d10": "logarithmic",
    "upstream_exponential": "exponential",
}

VALUES = [case for case in CASES["schedules"] if "value" in case]


def ends(case):
    """Start, end and rate of a case; those that only vary the length of the run leave them out."""
    same = next(c for c in VALUES if c["kind"] == case["kind"] and "initial_value" in c)
    start, end, rate = (case.get(k, same.get(k)) for k in ("initial_value", "min_value", "decay_rate"))
    # The class that the case was made with decays by rate ** p = exp(p ln rate).
    return start, end, -math.log(rate) if case["kind"] == "upstream_exponential" else rate or 0.1


@pytest.mark.parametrize("case", VALUES, ids=lambda case: case["id"])
def test_case(case):
    start, end, rate = ends(case)
    done = progress(case["epoch"], case["total_epochs"])
    assert done == min(case["progress"], 1.0)
    assert value(NAMES[case["kind"]], start, end, done, rate) == pytest.approx(case["value"], **EXACT)


@pytest.mark.parametrize("case", [c for c in CASES["schedules"] if c["kind"] == "progress_definition"])
def test_progress_in_agent_steps_ends_where_the_run_does(case):
    by_steps = progress(case["epochs_run"] * case["collected_agent_steps_per_epoch"], 10_000_000_000)
    by_epochs = progress(case["epochs_run"], case["seed_total_epochs"])
    assert by_steps == case["final_progress_step_based"]
    assert by_epochs == min(case["final_progress_epoch_based"], 1.0)
    assert value("cosine", 4.57e-4, 3e-5, by_steps) == pytest.approx(case["final_lr_step_based"], **EXACT)
    assert value("cosine", 4.57e-4, 3e-5, by_epochs) == pytest.approx(case["final_lr_epoch_based"], **EXACT)


@pytest.mark.parametrize("case", CASES["beta"])
def test_beta(case):
    done = progress(case["epoch"], case["total_epochs"])
    got = prio_beta(case["prio_beta0"], case["prio_alpha"], done)
    assert got == pytest.approx(case["seed_beta_clamped"], **EXACT)
    assert prio_beta(case["prio_beta0"], 1.0, done) == pytest.approx(case["per_paper_beta"], **EXACT)


@pytest.mark.parametrize("case", CASES["coverage"])
def test_coverage(case):
    minibatches, epochs = case["num_minibatches"], case["update_epochs"]
    inputs = BatchInputs(batch_size=256 * minibatches, minibatch_size=256, bptt_horizon=1, update_epochs=epochs)
    covered = derive_batch(inputs)["expected_coverage_independent_minibatches"]
    assert covered == pytest.approx(case["expected_coverage_independent"], **EXACT)
    assert 1.0 - covered == pytest.approx(case["never_seen"], rel=1e-9, abs=1e-15)
    assert covered == pytest.approx(case["monte_carlo"], rel=0.01)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("constant", [4.0, 4.0, 4.0, 4.0, 4.0]),
        ("linear", [4.0, 4.0, 3.0, 2.0, 2.0]),
        ("cosine", [4.0, 4.0, 3.0, 2.0, 2.0]),
        ("logarithmic", [4.0, 4.0, 4.0 - 2.0 * math.log(1.5) / math.log(2.0), 2.0, 2.0]),
        ("exponential", [4.0, 4.0, 4.0 * math.exp(-0.5), 2.0, 2.0]),
    ],
)
def test_values_inside_and_outside(name, expected):
    rate = 1.0
    got = [value(name, 4.0, 2.0, p, rate) for p in (-1.0, 0.0, 0.5, 1.0, 2.0)]
    assert got == pytest.approx(expected)


def test_the_warm_up_rises_from_0_and_the_schedule_follows():
    got = [value("linear", 4.0, 2.0, p, warmup=0.2) for p in (-1.0, 0.0, 0.1, 0.2, 0.6, 1.0, 2.0)]
    assert got == pytest.approx([0.0, 0.0, 2.0, 4.0, 3.0, 2.0, 2.0])
    assert [value("cosine", 4.0, 2.0, p, warmup=1.0) for p in (0.0, 0.5, 1.0)] == [0.0, 2.0, 4.0]


def test_unknown_name_is_refused():
    with pytest.raises(KeyError):
        value("sawtooth", 1.0, 0.0, 0.5)


def test_progress_is_clamped_and_takes_any_size():
    assert [progress(n, 10) for n in (-5, 0, 5, 10, 15)] == [0.0, 0.0, 0.5, 1.0, 1.0]
    assert progress(10**400, 2 * 10**400) == 0.5
    assert progress(0, 0) == 1.0


SHARE = st.floats(0.0, 1.0)
NUMBER = st.floats(0.0, 1e6)
ARGUMENTS = st.tuples(st.sampled_from(get_args(Schedule)), NUMBER, NUMBER, st.floats(1e-3, 1e3), SHARE)


@given(ARGUMENTS)
def test_both_ends_are_reached(arguments):
    name, start, end, rate, warmup = arguments
    size = pytest.approx(0.0, abs=1e-9 * max(start, end, 1.0))
    first = value(name, start, end, warmup, rate, warmup)
    last = value(name, start, end, 1.0, rate, warmup)
    if name != "exponential":
        assert first - start == size
    if warmup < 1.0:
        aim = {"constant": start, "exponential": max(end, start * math.exp(-rate))}.get(name, end)
        assert last - aim == size
    assert value(name, start, end, 0.0, rate, warmup) == (0.0 if warmup else value(name, start, end, 0.0, rate))


@given(ARGUMENTS, st.floats(-5.0, 5.0))
def test_schedule_is_constant_outside_the_run(arguments, p):
    name, start, end, rate, warmup = arguments
    assert value(name, start, end, p, rate, warmup) == value(name, start, end, min(max(p, 0.0), 1.0), rate, warmup)


@given(ARGUMENTS, SHARE, SHARE)
def test_schedule_is_monotonic_after_the_warm_up(arguments, one, other):
    name, start, end, rate, _ = arguments
    early, late = (value(name, start, end, p, rate) for p in sorted((one, other)))
    slack = 1e-9 * max(start, end, 1.0)
    low, high = min(start, end) - slack, max(start, end) + slack
    assert low <= early <= high and low <= late <= high
    assert late <= early + slack if end <= start else late >= early - slack


@given(SHARE, SHARE, st.floats(-5.0, 5.0), st.floats(-5.0, 5.0))
def test_beta_only_grows_and_stays_a_share(beta0, alpha, one, other):
    early, late = (prio_beta(beta0, alpha, p) for p in sorted((one, other)))
    assert beta0 - 1e-12 <= early <= late + 1e-12 <= 1.0 + 1e-9
    assert prio_beta(beta0, alpha, 1.0) == pytest.approx(beta0 + (1.0 - beta0) * alpha)
