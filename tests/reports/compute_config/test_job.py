"""The job of `hmx compute-config`: the reference cases through its JSON, and configurations of `hmx train`."""

import dataclasses
import gzip
import json
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from hmx.config import codec
from hmx.config.fields import replace
from hmx.config.learning import PpoConfig
from hmx.config.schema import Config
from hmx.errors import ExitCode, HmxError
from hmx.records.plain import plain_object
from hmx.registry import derive
from hmx.registry.check import known_problems
from hmx.registry.load import load
from hmx.reports.compute_config import job
from hmx.reports.compute_config.inputs import INPUT_FIELDS
from hmx.reports.compute_config.request import SizesRequest
from hmx.reports.compute_config.source import SizesSource, read_source
from hmx.reports.compute_config.trainer import inputs_of

FILE = json.loads(gzip.decompress((Path(__file__).parent / "batch_cases.json.gz").read_bytes()))
METTA = read_source(preset="metta")


def compute(source, inputs=None, **questions):
    return job.compute_sizes(source, inputs or {}, SizesRequest(**questions))


def sweep(text, **inputs):
    return job.sweep_sizes(METTA, inputs, text, SizesRequest()).results


def codes(problems):
    return [problem.code for problem in problems]


def flat(problems):
    return [{"code": p["code"], **p["values"]} for p in problems]


@pytest.mark.parametrize("case", FILE["cases"], ids=lambda case: case["name"])
def test_reference_case_in_json(case):
    found = plain_object(compute(METTA, case["input"]))
    assert json.loads(json.dumps(found, allow_nan=False)) == found
    assert found["valid"] == case["valid"] == (not case["errors"]) and found["derived"] == case["derived"]
    assert [type(found["derived"][key]) for key in case["derived"] or ()] == [
        *map(type, (case["derived"] or {}).values())
    ]
    assert flat(found["errors"]) == case["errors"]
    assert found["codes"]["errors"] == [e["code"] for e in case["errors"]]
    assert flat(found["warnings"]) == case["warnings"]
    assert found["suggestions"] == case["suggestions"]
    assert found["exact_fit_batch"] == (case.get("exact_fit_batch") or {})


def test_reference_cases_include_valid_and_invalid_inputs():
    computed = [case for case in FILE["cases"] if case["derived"] is not None]
    assert len(FILE["cases"]) > 100 and len(computed) < len(FILE["cases"])


def test_options_override_a_file_and_a_file_overrides_a_preset(tmp_path):
    (tmp_path / "sizes.toml").write_text("[batch]\nnum_agents = 24\nbptt_horizon = 32\n")
    (tmp_path / "mine.toml").write_text("[env]\nid = 'corridor'\nnum_envs = 48\n[algo]\nnum_steps = 10\n")
    table = read_source(config=tmp_path / "sizes.toml")
    assert table.trainer is None and table.inputs == {"num_agents": 24, "bptt_horizon": 32}
    assert compute(table, {"num_agents": 2}).input["num_agents"] == 2
    both = read_source(preset="tiny", config=tmp_path / "sizes.toml")
    assert both.trainer is not None and both.inputs["num_agents"] == 24 and both.inputs["batch_size"] == 256
    trainer = read_source(config=tmp_path / "mine.toml")
    assert trainer.inputs["batch_size"] == 480 and trainer.trainer is not None
    over = read_source(preset="tiny", config=tmp_path / "mine.toml").trainer
    assert (over.env.num_envs, over.algo.learning_rate) == (48, 3e-3)


def test_a_run_is_a_source(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    cfg = load(preset="tiny", sets=["run.name=mine", "run.total_steps=4096"], environ={}).config
    (tmp_path / "runs" / "mine").mkdir(parents=True)
    (tmp_path / "runs" / "mine" / "run.toml").write_text(codec.to_toml(cfg))
    monkeypatch.setenv("HMX_ENV_NUM_ENVS", "7")  # a run has what it has
    for name in ("mine", "runs/mine"):
        source = read_source(run=name)
        assert source.name == "run mine" and source.inputs["batch_size"] == 256
    with pytest.raises(HmxError, match="cannot combine a run with --preset"):
        read_source(preset="tiny", run="mine")
    with pytest.raises(HmxError) as missing:
        read_source(run="yours")
    assert missing.value.exit_code == ExitCode.ARTEFACT


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[batch]\nnum_agents = 3\n[env]\nnum_envs = 4\n", "env.num_envs beside"),
        ("[batch\n", "not valid TOML"),
        ("[env]\nnum_envs = 'many'\n", "must be a whole number"),
        ("[envs]\nnum_envs = 4\n", "unknown section"),
    ],
)
def test_invalid_source_files_are_refused(tmp_path, text, words):
    (tmp_path / "bad.toml").write_text(text)
    with pytest.raises(HmxError, match=words):
        read_source(config=tmp_path / "bad.toml")


def test_a_batch_table_with_bad_values_reports_all_of_them(tmp_path):
    (tmp_path / "bad.toml").write_text("[batch]\nnum_agents = 24.0\nworkers = 3\nbatch_size = inf\nworld_size = true\n")
    found = plain_object(compute(read_source(config=tmp_path / "bad.toml")))
    assert found["codes"]["errors"] == ["E_UNKNOWN_FIELD", *["E_NOT_INT"] * 3]
    assert found["derived"] is None and found["memory"] is None
    json.dumps(found, allow_nan=False)


def test_metta_preset_has_the_published_sizes_and_notes_how_training_differs():
    source = read_source(preset="metta")
    found = compute(source)
    assert found.derived == compute(METTA).derived and not found.trainer
    trained = load(preset="metta", environ={}).config
    sizes = derive.derive(trained)
    assert known_problems(trained) == [] and sizes.horizon == 64
    assert f"{trained.env.num_envs} environments" in found.notes[0] and f"{sizes.agent_steps:,}" in found.notes[0]


trainers = st.builds(
    lambda envs, steps, minibatches, row, agents, total: replace(
        Config(),
        {
            "env.id": "rendezvous", "env.num_envs": envs, "env.num_agents": agents, "algo.num_steps": steps,
            "ppo.num_minibatches": minibatches, "ppo.bptt_horizon": row, "run.total_steps": total,
        },
    ),
    *(st.integers(1, 40), st.integers(1, 30), st.integers(1, 12), st.integers(0, 12), st.integers(1, 4)),
    st.integers(1, 3000),
)  # fmt: skip


@st.composite
def fitting(draw) -> Config:
    """Configurations that run."""
    envs, agents, row, rows = (draw(st.integers(1, most)) for most in (40, 4, 8, 4))
    parts = draw(st.sampled_from([d for d in range(1, 41) if envs * agents * rows % d == 0]))
    sizes = {
        "env.id": "rendezvous", "env.num_envs": envs, "env.num_agents": agents, "algo.num_steps": row * rows,
        "ppo.num_minibatches": parts, "ppo.bptt_horizon": row,
        "run.total_steps": envs * row * rows * draw(st.integers(1, 9)),
    }  # fmt: skip
    return replace(Config(), sizes)


def of(cfg: Config) -> SizesSource:
    return SizesSource(name="a test", inputs=dataclasses.asdict(inputs_of(cfg)), trainer=cfg, hypers=cfg)


@settings(max_examples=300)
@given(trainers)
@example(replace(Config(), {"net.rnn": "lstm"}))
def test_valid_configurations_are_those_that_train_accepts(cfg):
    found = compute(of(cfg))
    assert found.valid == (known_problems(cfg) == [])
    if found.valid:
        sizes = derive.derive(cfg)
        assert found.train == sizes
        assert found.derived["num_envs"] == cfg.env.num_envs
        stored, collected = (found.derived[f"{which}_agent_steps"] for which in ("stored", "rollout_collected"))
        assert stored == collected == found.input["batch_size"] == sizes.agent_steps
        assert found.derived["total_epochs_ceil"] == sizes.num_updates
        assert found.derived["segments"] == sizes.segments
        assert found.derived["minibatch_segments"] == sizes.minibatch_segments
        assert found.derived["samples_per_update"] == sizes.minibatch_size
        assert found.derived["gradient_updates_per_batch"] == sizes.gradient_steps_per_update
        assert found.derived["total_agents"] == cfg.env.num_envs * cfg.env.num_agents
        assert found.derived["exact_fit"]


@settings(max_examples=150)
@given(fitting(), st.sampled_from(["batch_size", "minibatch_size", "bptt_horizon", "num_agents"]), st.data())
def test_options_over_a_configuration_are_valid_or_have_working_fixes(cfg, field, data):
    source = of(cfg)
    assert compute(source).valid
    value = data.draw(st.integers(1, 2 * source.inputs[field]))
    found = compute(source, {field: value})
    for fix_ in found.suggestions:
        if fix_[0] in INPUT_FIELDS:
            assert compute(source, {field: value, **dict([fix_])}).valid
    if found.valid:
        assert found.derived["exact_fit"]


def test_problems_of_a_configuration_name_its_keys():
    cfg = replace(Config(), {"ppo.num_minibatches": 7, "algo.gamma": 2.0})
    found = compute(of(cfg))
    assert [p.code for p in found.errors] == ["E_RANGE", "E_BATCH_SPLIT"]
    assert ("ppo.num_minibatches", 8) in found.suggestions and not found.only_sizes
    assert found.errors[0].values == {"algo.gamma": 2.0}


def test_sizes_out_of_range_are_reported_without_computing(monkeypatch):
    monkeypatch.setenv("HMX_ENV_NUM_ENVS", "0")
    source = read_source(preset="tiny")
    found = compute(source)
    assert [p.code for p in found.errors] == ["E_RANGE"] and found.derived is None


def test_smax_is_sized_without_being_built():
    source = read_source(preset="smax")
    found = compute(source)
    assert found.valid and found.derived["total_agents"] == 3 * 128


def test_wall_clock_at_several_speeds():
    """At 10^10 steps: 138.9 h at 20k steps/s, 69.4 h at 40k, 14.6 h at 190k, 11.1 h at 250k."""
    clock = compute(METTA, {"num_agents": 24}, sps="20e3,40e3,190k,250_000").wall_clock
    assert [round(row.seconds / 3600, 1) for row in clock.at] == [138.9, 69.4, 14.6, 11.1]
    assert clock.at[0].useful_sps == pytest.approx(20e3 / 1.86767578125)
    assert clock.at[0].useful_seconds == pytest.approx(1.86767578125 * 10**10 / 20e3)
    exact = compute(METTA, {"num_agents": 1}, sps="1").wall_clock
    assert exact.overshoot == 1.0 and exact.at[0].useful_seconds == 1e10


@pytest.mark.parametrize(("preset", "limit"), [("metta", 900_000_000), ("tiny", 50_000)])
def test_exceeding_gpu_mem_causes_a_warning_with_valid_fixes(preset, limit):
    source = read_source(preset=preset)
    found = compute(source, gpu_mem=f"{limit}B")
    (over,) = (p for p in found.warnings if p.code == "W_BUFFER_OVER_MEMORY")
    assert found.valid and over.values == {"needed": found.memory.total_bytes, "given": limit} and over.fixes
    for field, value in over.fixes:
        smaller = compute(source, {field: value}, gpu_mem=f"{limit}B")
        assert smaller.memory.total_bytes <= limit and value < found.input[field]
        assert smaller.valid and "W_BUFFER_OVER_MEMORY" not in {p.code for p in smaller.warnings}
    assert "W_BUFFER_OVER_MEMORY" not in {p.code for p in compute(source, gpu_mem="1TB").warnings}


def test_parameters_are_used_only_if_no_network_is_configured():
    one = compute(METTA, parameters=10_000_000).memory
    assert {part.key: part.bytes for part in one.parts}["model_bytes"] == 160_000_000
    with pytest.raises(HmxError, match="--parameters"):
        compute(read_source(preset="tiny"), parameters=5)


def test_sweep_of_any_input():
    found = sweep("num_workers=1,2,3,16,0", num_agents=24)
    assert [result.input["num_workers"] for result in found] == [1, 2, 3, 16, 0]
    assert [result.valid for result in found] == [False, True, False, True, False]
    assert all(result.input["num_agents"] == 24 for result in found)
    for text, words in (("num_agent=1", "no such input"), ("num_agents=", "no values")):
        with pytest.raises(HmxError, match=words):
            sweep(text)
    with pytest.raises(HmxError, match="also given"):
        sweep("num-agents=1", num_agents=2)


def test_large_numbers_are_exact_and_fit_json():
    found = compute(METTA, {"total_timesteps": 2**53 - 1, "batch_size": 2**53 - 2**20})
    assert found.derived["agent_steps_per_batch_seed"] == 3 * (2**53 - 2**20)
    assert "W_STEP_COUNTER_NEEDS_INT64" in {p.code for p in found.warnings}
    json.dumps(plain_object(found), allow_nan=False)


def test_a_configuration_of_train_gets_only_its_own_warnings():
    cfg = replace(
        Config(), {"env.num_envs": 1, "algo.num_steps": 3, "ppo.num_minibatches": 1, "run.total_steps": 2**33}
    )
    found = compute(of(cfg))
    assert found.valid and [p.code for p in found.warnings] == ["W_ROUNDED_UP"]
    plain = compute(METTA, found.input)  # the same sizes where workers take turns
    assert {"W_ONE_ENV_PER_FORWARD", "W_STEP_COUNTER_NEEDS_INT64"} <= {p.code for p in plain.warnings}
    short = compute(of(replace(cfg, {"run.total_steps": 2})))
    assert [p.code for p in short.errors] == ["E_TOO_SHORT"] and short.suggestions


@pytest.mark.parametrize(
    ("weights", "alpha", "warned"), [("max", 0.5, True), ("clip", 0.5, False), ("raw", 1.0, False), ("max", 0.0, False)]
)
def test_scaling_weights_by_their_maximum_causes_a_warning(weights, alpha, warned):
    """They scale the gradient with the number of minibatches."""
    found = compute(of(replace(Config(), {"ppo.prio_alpha": alpha, "ppo.prio_weights": weights})))
    warnings = [problem for problem in found.warnings if problem.code == "W_PRIO_WEIGHTS"]
    assert found.valid and bool(warnings) == warned
    for warning in warnings:
        assert "gradient" in warning.message and ("ppo.prio_weights", "clip") in warning.fixes


def test_published_schedules_are_shown():
    table = job.schedules(load(preset="metta", environ={}).config)
    expected = {
        "learning_rate": ("cosine", 4.57e-4, 2.435e-4, 3e-5),
        "clip_eps": ("logarithmic", 0.1, 0.0744045, 0.05),
        "ent_coef": ("linear", 0.0021, 0.00105, 0.0),
        "clip_vf_eps": ("linear", 0.1, 0.075, 0.05),
    }
    assert list(table) == list(expected)
    for name, (schedule, *values) in expected.items():
        assert table[name].schedule == schedule
        assert [table[name].start, table[name].middle, table[name].end] == pytest.approx(values, rel=1e-6, abs=1e-12)


def test_inactive_schedule_is_not_shown():
    assert "clip_vf_eps" not in job.schedules(Config()) and "prio_beta" not in job.schedules(Config())
    beta = job.schedules(Config(ppo=PpoConfig(prio_alpha=0.5, prio_beta0=0.6)))["prio_beta"]
    assert beta.end == pytest.approx(0.8) and beta.start == 0.6


def test_horizons_match_their_equations():
    metta = load(preset="metta", environ={}).config
    ahead = job.horizons(metta.algo.gamma, metta.ppo.gae_lambda, 64)
    assert round(ahead.reward_steps, 1) == 43.5 and round(ahead.advantage_steps, 2) == 9.52
    assert ahead.bptt_horizon == 64
    forever = job.horizons(1.0, 1.0, 1)
    assert forever.reward_steps is None and forever.advantage_steps is None
