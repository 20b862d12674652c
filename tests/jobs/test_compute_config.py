"""The job behind `hmx compute-config`: the reference cases through its JSON, and the configurations of a trainer."""

import dataclasses
import gzip
import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hmx.config import codec, derive
from hmx.config.fields import replace
from hmx.config.load import load
from hmx.config.schema import Config
from hmx.errors import ExitCode, HmxError
from hmx.reports.sizes.job import Asks, Source, compute_config, fix, read_source, sweep
from hmx.sizing import batch

FILE = json.loads(gzip.decompress((Path(__file__).parents[1] / "config" / "batch_cases.json.gz").read_bytes()))
DEFAULTS = read_source()


def flat(problems):
    return [{"code": p["code"], **p["values"]} for p in problems]


@pytest.mark.parametrize("case", FILE["cases"], ids=lambda case: case["name"])
def test_a_case_reads_off_the_json(case):
    found = compute_config(DEFAULTS, case["input"]).to_json()
    assert json.loads(json.dumps(found, allow_nan=False)) == found
    assert found["valid"] == case["valid"] and found["derived"] == case["derived"]
    assert flat(found["errors"]) == case["errors"]
    assert found["codes"]["errors"] == [e["code"] for e in case["errors"]]
    assert sorted(map(str, flat(found["warnings"]))) == sorted(map(str, case["warnings"]))
    assert sorted(map(str, found["suggestions"])) == sorted(map(str, case["suggestions"]))
    assert found["exact_fit_batch"] == case.get("exact_fit_batch")


def test_sources_and_what_is_laid_over_them(tmp_path):
    (tmp_path / "sizes.toml").write_text("[batch]\nnum_agents = 24\nbptt_horizon = 32\n")
    (tmp_path / "mine.toml").write_text("[env]\nid = 'corridor'\nnum_envs = 48\n[algo]\nnum_steps = 10\n")
    table = read_source(config=tmp_path / "sizes.toml")
    assert table.trainer is None and table.raw == {"num_agents": 24, "bptt_horizon": 32}
    assert compute_config(table, {"num_agents": 2}).inputs["num_agents"] == 2
    both = read_source(preset="tiny", config=tmp_path / "sizes.toml")
    assert both.trainer is not None and both.raw["num_agents"] == 24 and both.raw["batch_size"] == 256
    trainer = read_source(config=tmp_path / "mine.toml")
    assert trainer.raw["batch_size"] == 480 and trainer.trainer is not None
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
        assert source.name == "run mine" and source.raw["batch_size"] == 256
    assert fix(source).config.run.name == ""  # the name is taken
    with pytest.raises(HmxError, match="--preset cannot be given with it"):
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
def test_files_that_are_no_source(tmp_path, text, words):
    (tmp_path / "bad.toml").write_text(text)
    with pytest.raises(HmxError, match=words):
        read_source(config=tmp_path / "bad.toml")


def test_a_table_with_values_that_are_no_inputs(tmp_path):
    (tmp_path / "bad.toml").write_text("[batch]\nnum_agents = 24.0\nworkers = 3\nbatch_size = inf\nworld_size = true\n")
    found = compute_config(read_source(config=tmp_path / "bad.toml")).to_json()
    assert found["codes"]["errors"] == ["E_UNKNOWN_FIELD", *["E_NOT_INT"] * 3]
    assert found["derived"] is None and found["memory"] is None
    json.dumps(found, allow_nan=False)


def test_the_metta_preset_has_the_published_sizes_and_tells_how_the_trainer_differs():
    source = read_source(preset="metta")
    found = compute_config(source)
    assert found.derived == compute_config(DEFAULTS).derived and not found.trainer
    trained = load(preset="metta", environ={}).config
    sizes = derive.derive(trained)
    assert derive.problems(trained) == [] and sizes.horizon == 64
    assert f"{trained.env.num_envs} environments" in found.notes[0] and f"{sizes.agent_steps:,}" in found.notes[0]


trainers = st.builds(
    lambda envs, steps, minibatches, row, agents, total: replace(
        Config(),
        {
            "env.id": "rendezvous", "env.num_envs": envs, "env.num_agents": agents, "algo.num_steps": steps,
            "algo.num_minibatches": minibatches, "algo.bptt_horizon": row, "run.total_steps": total,
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
        "algo.num_minibatches": parts, "algo.bptt_horizon": row,
        "run.total_steps": envs * row * rows * draw(st.integers(1, 9)),
    }  # fmt: skip
    return replace(Config(), sizes)


def of(cfg: Config) -> Source:
    return Source("a test", dataclasses.asdict(batch.inputs_of(cfg)), cfg, cfg)


@settings(max_examples=300)
@given(trainers)
def test_what_is_valid_here_is_what_the_trainer_takes(cfg):
    found = compute_config(of(cfg))
    assert found.valid == (derive.problems(cfg) == [])
    if found.valid:
        sizes = derive.derive(cfg)
        assert found.train == sizes._asdict()
        assert found.derived["stored_agent_steps"] == sizes.agent_steps
        assert found.derived["segments"] == sizes.segments
        assert found.derived["minibatch_segments"] == sizes.minibatch_segments
        assert found.derived["samples_per_update"] == sizes.minibatch_size
        assert found.derived["gradient_updates_per_batch"] == sizes.gradient_steps_per_update
        assert found.derived["total_agents"] == cfg.env.num_envs * cfg.env.num_agents
        assert found.derived["exact_fit"]


@settings(max_examples=150)
@given(fitting(), st.sampled_from(["batch_size", "minibatch_size", "bptt_horizon", "num_agents"]), st.data())
def test_options_over_a_trainer_end_valid_or_with_repairs_that_are(cfg, field, data):
    source = of(cfg)
    assert compute_config(source).valid
    value = data.draw(st.integers(1, 2 * source.raw[field]))
    found = compute_config(source, {field: value})
    for name, works in found.suggestions:
        if name in batch.INPUT_FIELDS:
            assert compute_config(source, {field: value, name: works}).valid
    fixed = fix(source, {field: value}).config
    assert derive.problems(fixed) == []
    if found.valid:
        assert found.derived["exact_fit"] and derive.derive(fixed)._asdict() == found.train


def test_a_broken_trainer_is_told_in_its_own_keys():
    cfg = replace(Config(), {"algo.num_minibatches": 7, "algo.gamma": 2.0})
    found = compute_config(Source("a test", dataclasses.asdict(batch.inputs_of(cfg)), cfg, cfg))
    assert [p.code for p in found.errors] == ["E_RANGE", "E_BATCH_SPLIT"]
    assert ("algo.num_minibatches", 8) in found.suggestions and not found.only_sizes
    assert found.to_json()["errors"][0]["values"] == {"algo.gamma": 2.0}
    with pytest.raises(HmxError, match=r"algo\.gamma"):
        fix(of(cfg))


def test_sizes_that_cannot_be_computed_with(monkeypatch):
    monkeypatch.setenv("HMX_ENV_NUM_ENVS", "0")
    source = read_source(preset="tiny")
    found = compute_config(source)
    assert [p.code for p in found.errors] == ["E_RANGE"] and found.derived is None
    with pytest.raises(HmxError, match=r"env\.num_envs"):
        fix(source)


def test_the_nearest_configuration_trains(tmp_path):
    fixed = fix(DEFAULTS, {"num_agents": 257, "total_timesteps": 5})
    (tmp_path / "fixed.toml").write_text(fixed.to_toml())
    cfg = load(file=tmp_path / "fixed.toml", environ={}).config
    assert cfg == fixed.config and derive.problems(cfg) == []
    assert cfg.env.num_agents == 257 and cfg.env.id == "rendezvous" and cfg.algo.gamma == 0.977
    assert batch.is_exact(batch.inputs_of(cfg))
    assert any(line.startswith("env.id: hackmatrix -> rendezvous") for line in fixed.changes)
    alone = fix(DEFAULTS, {"num_agents": 1})
    assert alone.config.env.id == "hackmatrix" and alone.changes == ("No size had to change.",)


def test_a_battle_of_smax_keeps_its_agents_and_is_sized_without_being_built():
    source = read_source(preset="smax")
    found = compute_config(source)
    assert found.valid and found.memory is not None and found.derived["total_agents"] == 3 * 128
    assert (fix(source).config.env.id, fix(source).config.env.num_agents) == ("smax/3m", 3)
    with pytest.raises(HmxError, match="smax/3m has 3 agents"):
        fix(source, {"num_agents": 4, "batch_size": 4 * 128 * 64})


def test_a_fix_needs_whole_numbers():
    with pytest.raises(HmxError, match="E_NOT_INT: num_agents"):
        fix(DEFAULTS, {"num_agents": "many"})


def test_hours_at_a_speed():
    """At 10^10 steps: 138.9 h at 20k steps/s, 69.4 h at 40k, 14.6 h at 190k, 11.1 h at 250k."""
    clock = compute_config(DEFAULTS, {"num_agents": 24}, Asks(sps=(20e3, 40e3, 190e3, 250e3))).wall_clock
    assert [round(row["seconds"] / 3600, 1) for row in clock["at"]] == [138.9, 69.4, 14.6, 11.1]
    assert clock["at"][0]["useful_sps"] == pytest.approx(20e3 / 1.86767578125)
    assert clock["at"][0]["useful_seconds"] == pytest.approx(1.86767578125 * 10**10 / 20e3)
    exact = compute_config(DEFAULTS, {"num_agents": 1}, Asks(sps=(1.0,))).wall_clock
    assert exact["overshoot"] == 1.0 and exact["at"][0]["useful_seconds"] == 1e10


@pytest.mark.parametrize(("preset", "limit"), [(None, 900_000_000), ("tiny", 40_000), ("quick", 25_000_000)])
def test_a_run_that_is_too_large_for_the_memory(preset, limit):
    source = read_source(preset=preset)
    found = compute_config(source, asks=Asks(gpu_memory=limit))
    (over,) = (p for p in found.warnings if p.code == "W_BUFFER_OVER_MEMORY")
    assert found.valid and over.values == {"needed": found.memory.total, "given": limit} and over.fixes
    for field, value in over.fixes:
        smaller = compute_config(source, {field: value}, Asks(gpu_memory=limit))
        assert smaller.memory.total <= limit and value < found.inputs[field]
        assert smaller.valid and "W_BUFFER_OVER_MEMORY" not in {p.code for p in smaller.warnings}
    assert "W_BUFFER_OVER_MEMORY" not in {p.code for p in compute_config(source, asks=Asks(gpu_memory=10**12)).warnings}


def test_parameters_count_where_no_network_is_known():
    one = compute_config(DEFAULTS, asks=Asks(parameters=10_000_000)).memory
    assert one.to_json()["model_bytes"] == 160_000_000
    with pytest.raises(HmxError, match="--parameters"):
        compute_config(read_source(preset="tiny"), asks=Asks(parameters=5))


def test_a_sweep_of_any_input():
    found = sweep(DEFAULTS, "num_workers", [1, 2, 3, 16, 0], {"num_agents": 24})
    assert [result.inputs["num_workers"] for result in found] == [1, 2, 3, 16, 0]
    assert [result.valid for result in found] == [False, True, False, True, False]
    assert all(result.inputs["num_agents"] == 24 for result in found)
    for field, values, words in (("num_agent", [1], "no such input"), ("num_agents", [], "no values")):
        with pytest.raises(HmxError, match=words):
            sweep(DEFAULTS, field, values)
    with pytest.raises(HmxError, match="given too"):
        sweep(DEFAULTS, "num_agents", [1], {"num_agents": 2})


def test_no_number_is_too_long():
    found = compute_config(DEFAULTS, {"total_timesteps": 2**53 - 1, "batch_size": 2**53 - 2**20})
    assert found.derived["agent_steps_per_batch_seed"] == 3 * (2**53 - 2**20)
    assert "W_STEP_COUNTER_NEEDS_INT64" in {p.code for p in found.warnings}
    json.dumps(found.to_json(), allow_nan=False)


def test_a_trainer_is_warned_of_what_concerns_it():
    cfg = replace(
        Config(), {"env.num_envs": 1, "algo.num_steps": 3, "algo.num_minibatches": 1, "run.total_steps": 2**33}
    )
    found = compute_config(of(cfg))
    assert found.valid and [p.code for p in found.warnings] == ["W_ROUNDED_UP"]
    plain = compute_config(DEFAULTS, found.inputs)  # the same sizes where workers take turns
    assert {"W_ONE_ENV_PER_FORWARD", "W_STEP_COUNTER_NEEDS_INT64"} <= {p.code for p in plain.warnings}
    short = compute_config(of(replace(cfg, {"run.total_steps": 2})))
    assert [p.code for p in short.errors] == ["E_TOO_SHORT"] and short.suggestions
