"""The batch equations against reference cases, and the problems, repairs and warnings of other inputs."""

import gzip
import json
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from hmx.config.schema import Config
from hmx.registry.check import known_problems
from hmx.reports.compute_config.cautions import batch_warnings, low_use
from hmx.reports.compute_config.derived import derive_batch, formulas, size
from hmx.reports.compute_config.fit import batch_fits, exact_fit, is_exact
from hmx.reports.compute_config.inputs import DEFAULTS, INPUT_FIELDS, LIMIT, BatchInputs, TrainerInputs, read_inputs
from hmx.reports.compute_config.repairs import batch_problems, holds, suggestions
from hmx.reports.compute_config.trainer import config_of

FILE = json.loads(gzip.decompress((Path(__file__).parent / "batch_cases.json.gz").read_bytes()))


def flat(found):
    return [{"code": problem.code, **problem.values} for problem in found]


def codes(found):
    return [problem.code for problem in found]


def test_defaults_match_the_equations():
    assert asdict(BatchInputs()) == FILE["meta"]["defaults"] == DEFAULTS
    assert all(f.metadata["doc"] and f.metadata["unit"] for f in INPUT_FIELDS.values())


@pytest.mark.parametrize(
    ("changes", "expected", "fixes"),
    [
        (
            {"num_agents": 257},
            ["E_SEGMENTS_LT_AGENTS"],
            "batch_size=540672 bptt_horizon=32 async_factor=1 num_workers=14 num_agents=256",
        ),
        ({"bptt_horizon": 128}, ["E_SEGMENTS_LT_AGENTS"], "batch_size=983040 bptt_horizon=64 async_factor=1"),
        (
            {"minibatch_size": 20_000},
            ["E_MINIBATCH_NOT_MULTIPLE_OF_HORIZON", "E_SEGMENTS_NOT_MULTIPLE"],
            "minibatch_size=16384 minibatch_size=32768",
        ),
        (
            {"minibatch_size": 20_480},
            ["E_SEGMENTS_NOT_MULTIPLE"],
            "minibatch_size=16384 minibatch_size=32768 batch_size=532480 batch_size=512000",
        ),
        (
            {"batch_size": 32},
            ["E_BATCH_LT_HORIZON", "E_MINIBATCH_GT_BATCH"],
            "batch_size=491520",
        ),
        (
            {"minibatch_size": 20_000, "num_workers": 3},
            ["E_MINIBATCH_NOT_MULTIPLE_OF_HORIZON", "E_SEGMENTS_NOT_MULTIPLE", "E_WORKERS_NOT_MULTIPLE_OF_ASYNC"],
            "",
        ),
        ({"num_workers": 1}, ["E_WORKERS_NOT_MULTIPLE_OF_ASYNC"], "async_factor=1 num_workers=2"),
    ],
)
def test_problems_have_fixes_that_repair_them(changes, expected, fixes):
    inputs = BatchInputs(**{"num_agents": 24, **changes})
    assert codes(batch_problems(inputs)) == expected
    assert " ".join(f"{field}={value}" for field, value in suggestions(inputs)) == fixes


def test_fixes_are_the_nearest_on_both_sides_and_include_the_forward_target():
    assert ("bptt_horizon", 64) in batch_problems(BatchInputs(num_agents=24, bptt_horizon=63))[0].fixes
    fixes = batch_problems(BatchInputs(num_agents=24, bptt_horizon=48))[0].fixes
    assert [value for field, value in fixes if field == "bptt_horizon"] == [32, 64]
    fixes = batch_problems(BatchInputs(num_agents=24, forward_pass_minibatch_target_size=8192))[0].fixes
    assert ("forward_pass_minibatch_target_size", 4223) in fixes
    assert holds(BatchInputs(num_agents=24, forward_pass_minibatch_target_size=4223))
    assert not holds(BatchInputs(num_agents=24, forward_pass_minibatch_target_size=4224))


def test_messages_have_the_fields_and_the_numbers():
    words = batch_problems(BatchInputs(num_agents=257))[0].message
    for piece in ("num_agents 257", "async_factor 2", "8,224 agents", "batch_size 524,288", "bptt_horizon 64", "8,192"):
        assert piece in words


def test_a_horizon_of_one_step_is_refused_except_for_the_trainer():
    assert codes(batch_problems(BatchInputs(bptt_horizon=1))) == ["E_HORIZON_TOO_SHORT"]
    inputs = TrainerInputs(bptt_horizon=1)
    assert batch_problems(inputs) == []
    uneven = replace(inputs, num_agents=24, minibatch_size=1024, num_workers=1, async_factor=1)
    assert batch_warnings(uneven)[-1].fixes == (("batch_size", 522_240),)
    broken = replace(inputs, minibatch_size=16_385)
    fixes = batch_problems(broken)[0].fixes
    assert fixes and all(holds(replace(broken, **{field: value})) for field, value in fixes)


@pytest.mark.parametrize(
    ("value", "code", "fix"),
    [
        (24.0, "E_NOT_INT", 24),
        (24.5, "E_NOT_INT", 3),
        (float("nan"), "E_NOT_INT", 3),
        (True, "E_NOT_INT", 3),
        ("24", "E_NOT_INT", 24),
        ("1_024", "E_NOT_INT", 1024),
        ("9" * 5000, "E_NOT_INT", 3),
        ("many", "E_NOT_INT", 3),
        ([24], "E_NOT_INT", 3),
        (0, "E_NOT_POSITIVE", 1),
        (-(10**5000), "E_NOT_POSITIVE", 1),
        (LIMIT + 1, "E_TOO_LARGE", 3),
        (10**5000, "E_TOO_LARGE", 3),
    ],
    ids=range(13),
)
def test_non_integer_values_are_refused_with_a_fix(value, code, fix):
    found = read_inputs({"num_agents": value})
    assert codes(found) == [code]
    assert found[0].fixes[0] == ("num_agents", fix) and "num_agents" in found[0].message
    assert len(found[0].message) < 200
    json.dumps(flat(found), allow_nan=False)


def test_all_bad_values_are_reported_at_once_and_by_kind():
    raw = {"num_agents": LIMIT + 1, "num_workers": None, "batch_size": 0, "minibatch_size": 1.0, "bptt_horizn": 3}
    found = read_inputs(raw)
    assert codes(found) == ["E_UNKNOWN_FIELD", "E_NOT_INT", "E_NOT_INT", "E_NOT_POSITIVE", "E_TOO_LARGE"]
    assert "bptt_horizon" in found[0].message and "--num-workers" in found[1].message


def test_every_number_up_to_the_limit_is_accepted():
    inputs = read_inputs({"total_timesteps": LIMIT, "num_agents": 1})
    assert derive_batch(inputs)["total_epochs"] == LIMIT // 524_288
    huge = BatchInputs(**dict.fromkeys(INPUT_FIELDS, LIMIT))
    assert derive_batch(huge)["agent_steps_per_batch_seed"] == LIMIT**2


@pytest.mark.parametrize(
    ("agents", "ratio", "down", "up"),
    [
        (3, 1.9844, (522_240, 16_320, 32), (1_044_480, 16_320, 64)),
        (6, 1.9611, (516_096, 16_128, 32), (1_032_192, 16_384, 63)),
        (24, 1.8677, (491_520, 16_384, 30), (983_040, 16_384, 60)),
        (48, 1.8677, (491_520, 16_384, 30), (983_040, 16_384, 60)),
        (96, 1.4941, (393_216, 16_384, 24), (786_432, 16_384, 48)),
        (100, 1.5564, (409_600, 16_384, 25), (819_200, 16_384, 50)),
    ],
)
def test_overshoot_reports_batches_that_fit(agents, ratio, down, up):
    inputs = BatchInputs(num_agents=agents)
    assert derive_batch(inputs)["rollout_overshoot_ratio"] == pytest.approx(ratio, abs=5e-5)
    assert [tuple(fit)[:3] for fit in exact_fit(inputs).values()] == [down, up]
    warning = batch_warnings(inputs)[-1]
    assert warning.code == "W_ROLLOUT_OVERSHOOT" and f"batch_size {down[0]:,}" in warning.message
    assert ("batch_size", down[0]) in warning.fixes or down[1] != 16_384


@pytest.mark.parametrize(("agents", "batches"), [(24, [491_520, 983_040]), (6, [1_032_192]), (3, [4_177_920])])
def test_batches_of_whole_minibatches_that_fit(agents, batches):
    inputs = BatchInputs(num_agents=agents)
    assert batch_fits(inputs) == tuple(("batch_size", batch) for batch in batches)
    assert all(is_exact(replace(inputs, batch_size=batch)) for batch in batches)


def test_mixed_sequences_are_not_counted_in_a_large_buffer():
    assert derive_batch(BatchInputs(num_agents=24, batch_size=2_097_152))["rollout_mixed_rows"] is None


def test_missing_sequences_are_one_error_with_a_warning_about_dropped_steps():
    inputs = BatchInputs(bptt_horizon=1_000_000)
    assert codes(batch_problems(inputs)) == ["E_BATCH_LT_HORIZON", "E_MINIBATCH_LT_HORIZON"]
    dropped = [w.values for w in batch_warnings(inputs) if w.code == "W_BATCH_NOT_MULTIPLE_OF_HORIZON"]
    assert dropped == [{"dropped_steps": 524_288}]


def test_rollout_that_stores_all_its_steps_has_no_overshoot():
    """Three of four groups fill a buffer of one-step sequences exactly, although not every agent has one."""
    inputs = TrainerInputs(
        num_agents=1, num_workers=2, async_factor=2, forward_pass_minibatch_target_size=4, batch_size=12,
        minibatch_size=4, bptt_horizon=1,
    )  # fmt: skip
    derived = derive_batch(inputs)
    assert not derived["exact_fit"] and derived["rollout_overshoot_ratio"] == 1.0
    assert "W_ROLLOUT_OVERSHOOT" not in codes(batch_warnings(inputs))


@pytest.mark.parametrize(
    ("code", "changes", "fixes"),
    [
        ("W_BATCH_NOT_MULTIPLE_OF_MINIBATCH", {"batch_size": 524_300}, "batch_size=524288 batch_size=540672"),
        ("W_BATCH_NOT_MULTIPLE_OF_HORIZON", {"batch_size": 524_300}, "batch_size=524288 batch_size=540672"),
        (
            "W_FORWARD_OVER_TARGET",
            {"num_agents": 1500, "bptt_horizon": 4},
            "num_workers=2 forward_pass_minibatch_target_size=24000",
        ),
        (
            "W_ONE_ENV_PER_FORWARD",
            {"num_agents": 4096, "num_workers": 1, "async_factor": 1, "bptt_horizon": 16},
            "num_workers=2 forward_pass_minibatch_target_size=8192",
        ),
        (
            "W_TOTAL_LT_BATCH",
            {"num_agents": 1, "total_timesteps": 500_000, "forward_pass_minibatch_target_size": 1024},
            "batch_size=491520 total_timesteps=524288",
        ),
        (
            "W_TOO_MANY_SEGMENTS_FOR_F32_SAMPLER",
            {"num_agents": 1, "batch_size": 2**26, "bptt_horizon": 2},
            "batch_size=33554432",
        ),
        ("W_ROLLOUT_OVERSHOOT", {"num_agents": 24}, "batch_size=491520 batch_size=983040"),
        ("W_ROLLOUT_OVERSHOOT", {"num_agents": 6}, "batch_size=1032192"),
        ("W_STEP_COUNTER_NEEDS_INT64", {}, ""),
    ],
)
def test_warnings_have_fixes_that_avoid_them(code, changes, fixes):
    inputs = BatchInputs(**changes)
    assert batch_problems(inputs) == []
    warning = next(w for w in batch_warnings(inputs) if w.code == code)
    assert " ".join(f"{field}={value}" for field, value in warning.fixes) == fixes
    for field, value in warning.fixes:
        changed = replace(inputs, **{field: value})
        assert holds(changed) and code not in codes(batch_warnings(changed))


def test_a_forward_pass_far_below_its_target_is_noted():
    note = low_use(BatchInputs(num_agents=129))
    assert "2,064 agents" in note and "4,096" in note
    assert low_use(BatchInputs(num_agents=24, num_workers=64)) == ""  # 3,072, three quarters


def test_single_size_equals_the_value_of_the_table():
    inputs = BatchInputs(num_agents=24)
    whole = {name: value for name, value in derive_batch(inputs).items() if type(value) is int}
    assert {name: size(inputs, name) for name in whole} == whole


def test_formulas_have_labels_and_units():
    assert all(row.label for row in formulas().values())
    assert [name for name, row in formulas().items() if not row.unit] == ["floor_applied", "exact_fit"]


def test_a_run_is_never_shorter_than_one_update():
    cfg = config_of(BatchInputs(num_agents=1, total_timesteps=1), Config())
    assert cfg.run.total_steps == cfg.env.num_envs * cfg.algo.num_steps
    assert known_problems(cfg) == []
