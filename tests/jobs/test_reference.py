"""Runs with a reference policy: it is kept in the run folder, and training with it resumes to the same bits."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from new_runs import plan, train

from hmx.config.schema import Config, EnvConfig
from hmx.errors import ExitCode, HmxError
from hmx.jobs.export_policy import export_policy
from hmx.jobs.fork import fork
from hmx.jobs.requests import ForkRequest, PolicyRequest
from hmx.jobs.resume import resume
from hmx.records.frozen import read_config
from hmx.records.layout import find_run
from hmx.records.verify import verify
from hmx.reports.grad_report.job import grad_report
from hmx.reports.grad_report.request import GradReportRequest
from hmx.runs import checkpoint
from hmx.runs.memory import run_memory
from hmx.runs.restoring import restore
from hmx.runs.session import open_session
from hmx.runs.warm_start import _other_spaces

MakeConfig = Callable[..., Config]
Lines = Callable[[Path], list[dict[str, Any]]]
pytestmark = pytest.mark.usefixtures("compiled_once")

RECURRENT_CONTINUOUS = {"env__id": "pendulum", "env__max_steps": 5, "net__rnn": "gru", "net__rnn_hidden": 4}
GUMBEL = {"algo__name": "gumbel", "gumbel__num_simulations": 2}
REQUEST = GradReportRequest(groups=4, per_group=2, buckets=2)


def base(make_config: MakeConfig, **more: Any) -> Path:
    return train(make_config(3, run__name="base", run__seed=4, algo__learning_rate=0.1, **more)).run


def near(make_config: MakeConfig, updates: int = 6, **more: Any) -> Config:
    keys = {"ppo__ref": "base", "ppo__ref_kl_coef": 0.3, **more}
    return make_config(updates, run__name=keys.pop("name", "near"), **keys)


def arrays(run: Path, update: int) -> dict[str, np.ndarray[Any, Any]]:
    """What a checkpoint contains."""
    paths = find_run(run)
    state = restore(open_session(read_config(paths)), paths, update).state
    return checkpoint.snapshot(state).leaves


def equal(one: dict[str, Any], other: dict[str, Any]) -> bool:
    return one.keys() == other.keys() and all(np.array_equal(leaf, other[name]) for name, leaf in one.items())


def test_policy_stays_close_to_its_reference(make_config: MakeConfig, lines: Lines) -> None:
    """The same run with a large coefficient ends much closer to the reference than one that only measures."""
    run = base(make_config)
    last = {}
    for coef in (0.0, 30.0):
        cfg = near(
            make_config, 8, name=f"c{coef:g}", ppo__ref_kl_coef=coef, run__init_from="base", algo__learning_rate=0.02
        )
        records = lines(train(cfg).run)
        assert all("train/ref_kl" in record for record in records)
        assert all(record.get("train/ref_kl_coef", 0.0) == coef for record in records)
        last[coef] = records[-1]["train/ref_kl"]
    assert 0.0 < last[30.0] < 0.2 * last[0.0]
    assert read_config(find_run(run.parent / "c0")).ppo.ref == str(run / "checkpoints" / "3")


@pytest.mark.parametrize("more", [RECURRENT_CONTINUOUS, GUMBEL], ids=["recurrent, continuous", "gumbel"])
def test_policy_that_does_not_learn_stays_at_divergence_0(
    more: dict[str, Any], make_config: MakeConfig, lines: Lines
) -> None:
    """The reference reads what the policy reads: from its own RNN carry, in every rollout."""
    base(make_config, **more)
    cfg = near(make_config, 4, run__init_from="base", **{**more, "algo__learning_rate": 0.0})
    found = [record["train/ref_kl"] for record in lines(train(cfg).run)]
    assert max(map(abs, found)) < 1e-7


def test_reference_has_its_own_statistics_of_observations(make_config: MakeConfig, lines: Lines) -> None:
    """They are frozen, so even a policy that does not learn leaves its reference as its own statistics go on."""
    keys = {"env__id": "cartpole-discrete", "env__max_steps": 0, "ppo__obs_norm": "network"}
    base(make_config, **keys)
    cfg = near(make_config, 4, run__init_from="base", **{**keys, "algo__learning_rate": 0.0})
    first, *later = [record["train/ref_kl"] for record in lines(train(cfg).run)]
    assert abs(first) < 1e-7 and min(later) > 1e-5


@pytest.mark.parametrize("more", [{}, GUMBEL], ids=["ppo", "gumbel"])
def test_coefficient_0_trains_the_same_bits_as_no_reference(
    more: dict[str, Any], make_config: MakeConfig, deterministic: Lines
) -> None:
    base(make_config, **more)
    measured = train(near(make_config, 4, name="measured", ppo__ref_kl_coef=0.0, **more)).run
    plain = train(make_config(4, run__name="plain", **more)).run
    one = {name: leaf for name, leaf in arrays(measured, 4).items() if "reference" not in name}
    assert equal(one, arrays(plain, 4))
    records = [{k: v for k, v in record.items() if k != "train/ref_kl"} for record in deterministic(measured)]
    assert records == deterministic(plain)


def test_resumed_run_equals_an_uninterrupted_one_without_the_reference_run(
    make_config: MakeConfig, watcher: Any, deterministic: Lines
) -> None:
    run = base(make_config, **RECURRENT_CONTINUOUS)
    keys = {"ppo__ref_kl_schedule": "linear", "ppo__ref_kl_end": 0.5, **RECURRENT_CONTINUOUS}
    whole = train(near(make_config, name="whole", **keys)).run
    cfg = near(make_config, name="cut", **keys)
    cut = train(cfg, sinks=[watcher(stop_at=3)])
    assert cut.updates < 6
    shutil.rmtree(run)
    assert resume(cut.run).updates == 6
    assert equal(arrays(cut.run, 6), arrays(whole, 6))
    assert deterministic(cut.run) == deterministic(whole)
    coefs = [record["train/ref_kl_coef"] for record in deterministic(whole)]
    assert coefs == pytest.approx([0.3 * (1 - 0.5 * done / 6) for done in range(6)])


def test_run_is_complete_without_the_reference_run(
    make_config: MakeConfig, tmp_path: Path, deterministic: Lines
) -> None:
    """Fork, gradient report, verification and export need its folder only; checkpoints do not repeat the reference."""
    run = base(make_config)
    result = train(near(make_config, run__checkpoint_every=1))
    shutil.rmtree(run)
    paths = find_run(result.run)
    assert verify(paths).damage == ()
    assert not any(name.startswith("learner/reference") for name in arrays(result.run, 6))

    other = fork(result.run, ForkRequest(at=4, name="fork"))
    assert verify(find_run(other.run)).damage == ()
    assert equal(arrays(other.run, 6), arrays(result.run, 6))
    assert [r for r in deterministic(other.run) if r["update"] > 4] == [
        r for r in deterministic(result.run) if r["update"] > 4
    ]

    report = grad_report(result.run, REQUEST).reports[0]
    assert report.coefs["kl"] == 0.3 and report.whole.components["kl"].norm > 0.0
    assert not any("no KL term" in note for note in report.notes)
    assert export_policy(result.run, PolicyRequest(to="safetensors", output=tmp_path / "policy")).update == 6


def test_missing_damaged_or_foreign_reference_is_refused(make_config: MakeConfig) -> None:
    base(make_config)
    paths = find_run(train(near(make_config, 4)).run)
    good = paths.reference.read_bytes()
    train(near(make_config, 4, name="other"))
    strange = find_run(paths.root / "other").reference.read_bytes()
    at = good.index(b"NUMPY", good.index(b"dense_0/kernel.npy")) + 140  # in its numbers
    cases = {
        "damaged": good[:at] + bytes([good[at] ^ 1]) + good[at + 1 :],
        "another run": strange,
        "missing": None,
    }
    for what, content in cases.items():
        paths.reference.unlink(missing_ok=True)
        if content is not None:
            paths.reference.write_bytes(content)
        assert [damage.path for damage in verify(paths).damage] == ["reference.npz"], what
        with pytest.raises(HmxError, match=r"reference") as caught:
            resume(paths.folder, changes={"run.total_steps": 6 * 32})
        assert caught.value.exit_code == ExitCode.ARTEFACT and "copy of the run" in caught.value.hint
    paths.reference.write_bytes(good)
    assert verify(paths).damage == ()
    assert resume(paths.folder, changes={"run.total_steps": 6 * 32}).updates == 6


def test_checkpoints_outside_their_run_need_it_for_a_report(make_config: MakeConfig, tmp_path: Path) -> None:
    base(make_config)
    run = train(near(make_config, 4)).run
    shutil.copytree(run / "checkpoints", tmp_path / "apart")
    with pytest.raises(HmxError, match="outside the folder of their run") as caught:
        grad_report(tmp_path / "apart", REQUEST)
    assert caught.value.exit_code == ExitCode.ARTEFACT and caught.value.hint == "give the folder of the run"


@pytest.mark.parametrize(
    ("other", "words"),
    [
        ({"env__id": "pendulum", "env__max_steps": 0}, "shape [8] in corridor, where it played, but [3] in pendulum"),
        ({"env__id": "frozenlake"}, "shape [8] in corridor, where it played, but"),
        ({"net__hidden": (9,)}, "cannot keep close to base: its params/"),
        ({"net__activation": "tanh"}, "net.activation was relu and is tanh"),
    ],
)
def test_reference_that_does_not_fit_is_refused(other: dict[str, Any], words: str, make_config: MakeConfig) -> None:
    base(make_config)
    with pytest.raises(HmxError) as caught:
        plan(near(make_config, 2, **other))
    assert words in caught.value.message
    assert caught.value.exit_code == ExitCode.USAGE and caught.value.hint


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({}, ""),
        (
            {"action_parts": (3, 3)},
            "the parts of an action have [] choices in here, where it played, but [3, 3] in here",
        ),
        ({"num_actions": 0, "action_dim": 3}, "there are 6 discrete actions in here, where it played, but 0 in here"),
        ({"obs_dtype": np.uint32}, "observations are float32 in here, where it played, but uint32 in here"),
    ],
)
def test_other_actions_with_the_same_outputs_do_not_fit(change: dict[str, Any], words: str) -> None:
    """Six logits can be one choice of six, two of three, or the means and deviations of three numbers."""
    spec = open_session(Config(env=EnvConfig(id="corridor"))).env.spec._replace(id="here", num_actions=6)
    assert _other_spaces(spec, spec._replace(**change)) == words


def test_each_seed_keeps_close_to_its_own_reference(make_config: MakeConfig, lines: Lines) -> None:
    base(make_config, run__num_seeds=2)
    keys = {"run__num_seeds": 2, "run__init_from": "base", "algo__learning_rate": 0.0}
    found = [record["train/ref_kl"] for record in lines(train(near(make_config, 2, **keys)).run)]
    assert len(found) == 4 and max(map(abs, found)) < 1e-7
    with pytest.raises(HmxError, match="has 2 seeds, this run 1") as caught:
        plan(near(make_config, 2))
    assert caught.value.hint == "--seeds 2 keeps each seed close to one of them"


def test_options_of_a_reference_follow_the_rules_of_others(make_config: MakeConfig) -> None:
    """The reference is fixed for the life of a run, like what it starts from; the coefficient may change."""
    base(make_config)
    paths = find_run(train(near(make_config, 2)).run)
    with pytest.raises(HmxError, match=r"ppo\.ref: .* cannot become"):
        resume(paths.folder, changes={"ppo.ref": "", "run.total_steps": 4 * 32})
    changes = {"ppo.ref_kl_coef": "0.1", "run.total_steps": 4 * 32}
    assert resume(paths.folder, changes=changes).updates == 4
    assert read_config(paths).ppo.ref_kl_coef == 0.1
    for keys, words in (
        ({"ppo__ref": ""}, "there is no reference policy"),
        ({"ppo__obs_norm": "env"}, "a reference policy needs its own statistics"),
        ({"algo__name": "dqn"}, "dqn does not read it"),
    ):
        with pytest.raises(HmxError, match=words) as caught:
            plan(near(make_config, 2, **keys))
        assert caught.value.exit_code == ExitCode.USAGE
    assert any(
        "measured, but not penalised" in text for text in plan(near(make_config, 2, ppo__ref_kl_coef=0.0)).warnings
    )


def test_memory_of_a_run_counts_its_reference(make_config: MakeConfig) -> None:
    """As many parameters again; checkpoints do not grow."""
    base(make_config, net__hidden=(64,))
    more, less = (
        plan(near(make_config, 2, net__hidden=(64,), **keys))
        for keys in ({}, {"ppo__ref": "", "ppo__ref_kl_coef": 0.0})
    )
    assert more.memory is not None and less.memory is not None
    part = {part.key: part.bytes for part in more.memory.parts}["reference_bytes"]
    assert part == 4 * more.memory.parameters == more.state_bytes - less.state_bytes
    assert more.checkpoint_bytes == less.checkpoint_bytes
    session = open_session(near(make_config, 2, net__hidden=(64,)))
    assert run_memory(session) == more.memory
    assert more.files["reference"].endswith("near/reference.npz") and "reference" not in less.files
