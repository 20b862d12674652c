"""Exported policies act as the original, in the units of the environment; a file that does not agree is not written."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from exported_policies import RECURRENT, made_state, played, small_session

from hmx.envs.checks.problems import contradictions
from hmx.envs.protocol import EnvSpec, Quantity
from hmx.errors import ExitCode, HmxError
from hmx.jobs.export_policy import export_policy
from hmx.jobs.exported import contract as contracts
from hmx.jobs.exported.agreement import LIMIT, measure
from hmx.jobs.exported.contract import PolicyOrigin, describe_normalisation, make_contract
from hmx.jobs.exported.program import PolicyProgram, Port, action_quantities, make_program, within_limits
from hmx.jobs.requests import PolicyRequest
from hmx.runs import weights


@pytest.fixture
def run(unpack: Any, tmp_path: Path) -> Any:
    return unpack(2, tmp_path).folder


@pytest.fixture(scope="module")
def recurrent() -> Any:
    """A policy with a hidden state, a normaliser and actions in newton metres: session, state and program."""
    session = small_session(RECURRENT)
    state = made_state(session)
    return session, state, make_program(session, state)


# The program


def test_a_recurrent_policy_of_continuous_actions_is_a_program_with_its_hidden_state_outside(recurrent: Any) -> None:
    session, state, program = recurrent
    rng = np.random.default_rng(0)
    resets = ([True, True, True], [False, False, True], [False, True, False])
    steps = [{"obs": rng.normal(size=(3, 3)).astype(np.float32), "reset": np.array(reset)} for reset in resets]
    call, hidden = jax.jit(program.call), np.ones((3, 8), np.float32)  # ignored at first
    for step, (action, value) in zip(steps, played(session, state, steps), strict=True):
        outputs = call(step["obs"], step["reset"], hidden)
        np.testing.assert_allclose(outputs[0], 2.0 * action, rtol=1e-5)  # the torque, in units of 2 Nm
        np.testing.assert_allclose(outputs[1], value, rtol=1e-5)
        hidden = np.asarray(outputs[2])
    assert [port.name for port in program.inputs] == ["obs", "reset", "hidden_0"]
    assert [port.name for port in program.outputs] == ["action", "value", "next_hidden_0"]


@pytest.mark.parametrize(
    ("obs_norm", "names"), [("none", ["obs"]), ("network", ["obs"]), ("env", ["obs", "reset"])], ids=str
)
def test_reset_is_an_input_only_if_the_policy_depends_on_it(obs_norm: str, names: list[str]) -> None:
    session = small_session({"env.id": "pendulum", "ppo.obs_norm": obs_norm})
    assert [port.name for port in make_program(session, made_state(session)).inputs] == names


def test_actions_are_scaled_to_the_limits_and_never_pass_them() -> None:
    limits = (Quantity("valve", "", -0.2, 2.8), Quantity("heat", "W", -3.0, 11.0))
    action = jnp.array([[-1.0, -5.0], [0.0, 0.0], [1.0, 2.0]])
    wanted = np.array([[-0.2, -3.0], [1.3, 4.0], [2.8, 11.0]], np.float32)
    scaled = np.asarray(within_limits(action, limits))
    np.testing.assert_allclose(scaled, wanted, rtol=1e-6)
    assert (scaled >= wanted[0]).all() and (scaled <= wanted[2]).all()  # -0.2 is rounded to less without a clip


def test_actions_without_described_limits_are_unchanged() -> None:
    spec = EnvSpec("mine", (2,), action_dim=3)
    action = jnp.linspace(-1.0, 1.0, 9).reshape(3, 3)
    np.testing.assert_array_equal(within_limits(action, action_quantities(spec)), action)


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        (EnvSpec("mine", (2,), action_dim=2, action_quantities=(Quantity("force", "N", -1.0, 1.0),)), "1 of 2 numbers"),
        (EnvSpec("mine", (2,), action_dim=1, action_quantities=(Quantity("force", "N", 0.0),)), "no limits for force"),
        (EnvSpec("mine", (2,), action_dim=1, obs_quantities=(Quantity("place"),)), "1 of 2 numbers of an observation"),
    ],
)
def test_descriptions_that_do_not_fit_the_spec_are_reported(spec: EnvSpec, said: str) -> None:
    assert [problem for problem in contradictions(spec) if said in problem]


# The comparison


def memory(
    *, scale: float = 1.0, keep: bool = True, reads_reset: bool = True, drift: float = 0.0
) -> Callable[..., Any]:
    """A recurrent policy whose action is the sum of the observations of its episode, or a version with an error.

    A `drift` is too small to see in one step.
    """

    def call(obs: Any, reset: Any, hidden: Any) -> Any:
        before = jnp.where(reset[:, None] & reads_reset, 0.0, hidden)
        after = (before + obs) * (1.0 + drift)
        return scale * jnp.tanh(after), after.sum(-1), after if keep else before

    return call


def program_of(call: Callable[..., Any]) -> PolicyProgram:
    inputs = (Port("obs", (2,), "float32", ""), Port("reset", (), "bool", ""), Port("hidden_0", (2,), "float32", ""))
    outputs = (Port("action", (2,), "float32", ""), Port("value", (), "float32", ""))
    hidden = Port("next_hidden_0", (2,), "float32", "")
    return PolicyProgram(inputs, (*outputs, hidden), (np.zeros(2, np.float32),), call)


def test_a_policy_agrees_with_itself_over_sequences() -> None:
    agreement = measure(program_of(memory()), memory(), None)
    agreement.check()
    assert (agreement.inputs, agreement.sequences, agreement.other_actions) == (1000, 40, 0)
    assert agreement.largest_difference < 1e-6


@pytest.mark.parametrize(
    "broken",
    [
        memory(scale=1.01),
        memory(keep=False),
        memory(reads_reset=False),
        memory(drift=LIMIT / 2),
        lambda *inputs: [array[:1] for array in memory()(*inputs)[:2]] + [memory()(*inputs)[2]],
        lambda *inputs: [jnp.nan * array for array in memory()(*inputs)],
    ],
    ids=["scaled", "forgets", "ignores reset", "drifts", "another shape", "not finite"],
)
def test_a_program_that_differs_is_refused(broken: Callable[..., Any]) -> None:
    agreement = measure(program_of(memory()), broken, None)
    assert agreement.largest_difference > LIMIT
    with pytest.raises(HmxError, match="on 1,000 random inputs the file does not agree with it") as caught:
        agreement.check()
    assert caught.value.exit_code == ExitCode.CHECK_FAILED


def chooses(shift: float, flips: int = 0) -> Callable[..., Any]:
    """A policy of two actions that compares a number with `shift`; `flips` choices are wrong."""

    def call(obs: Any, mask: Any) -> Any:
        del mask
        first = (obs[:, 0] > shift) ^ (jnp.arange(obs.shape[0]) < flips)
        return first.astype(jnp.int32), jnp.stack([~first, first], -1).astype(jnp.float32), obs[:, 0]

    return call


@pytest.mark.parametrize(("flips", "agrees"), [(0, True), (10, True), (11, False)])
def test_few_choices_between_equal_actions_may_differ(flips: int, agrees: bool) -> None:
    inputs = (Port("obs", (1,), "float32", ""), Port("mask", (2,), "bool", ""))
    outputs = (Port("action", (), "int32", ""), Port("probs", (2,), "float32", ""), Port("value", (), "float32", ""))
    agreement = measure(PolicyProgram(inputs, outputs, (), chooses(0.0)), chooses(0.0, flips), None)
    assert (agreement.other_actions, agreement.largest_difference) == (flips, 0.0)
    if agrees:
        return agreement.check()
    with pytest.raises(HmxError, match="another action for 11 inputs"):
        agreement.check()


def test_random_masks_allow_a_choice_of_every_part_of_an_action() -> None:
    masks = []

    def recorded(mask: Any) -> Any:
        masks.append(mask)
        return (jnp.ones(len(mask)),)

    inputs, outputs = (Port("mask", (3,), "bool", "", parts=(2, 1)),), (Port("value", (), "float32", ""),)
    measure(PolicyProgram(inputs, outputs, (), lambda mask: (jnp.ones(len(mask)),)), recorded, None)
    (mask,) = masks
    assert mask[:, :2].any(axis=1).all() and mask[:, 2].all() and not mask[:, :2].all()


def test_a_policy_that_returns_nan_is_refused() -> None:
    def call(*inputs: Any) -> Any:
        return [jnp.nan * array for array in memory()(*inputs)]

    with pytest.raises(HmxError, match="not finite"):
        measure(program_of(call), call, None)


# The contract


def test_the_contract_describes_units_rates_normalisation_and_the_hidden_state(recurrent: Any) -> None:
    session, state, program = recurrent
    stats = describe_normalisation(state.actors.obs_stats, 0, 10.0, False)
    origin = PolicyOrigin(run="a  [b]", run_id="", agent=0, update=4, config_digest="", weights_sha256="")
    text = make_contract("0.1.0", origin, session.env.spec, program, stats).to_text()
    read = json.loads(text)
    assert read["origin"]["run"] == "a  [b]" and read["steps_per_second"] == 20.0
    (torque,) = read["outputs"][0]["quantities"]
    assert torque == {"name": "torque", "unit": "N m", "low": -2.0, "high": 2.0}
    assert [number["unit"] for number in read["inputs"][0]["quantities"]] == ["", "", "rad/s"]
    assert read["hidden"] == [{"input": "hidden_0", "output": "next_hidden_0", "initial": [0.0] * 8}]
    norm, raw = read["normalisation"], state._replace(actors=state.actors._replace(obs_stats=None))
    obs, rest = np.array([[0.3, -0.2, 1.5]], np.float32), (np.ones(1, bool), np.zeros((1, 8), np.float32))
    by_hand = ((obs - np.array(norm["mean"])) / np.array(norm["std"])).astype(np.float32)
    without = jax.jit(make_program(session, raw).call)(by_hand, *rest)
    np.testing.assert_allclose(jax.jit(program.call)(obs, *rest)[0], without[0], rtol=1e-5)
    assert "[0.0, 0.0," in text  # a list of numbers is on one line


def test_repeated_actions_lower_the_step_rate() -> None:
    spec = small_session({"env.id": "cartpole", "env.action_repeat": 4}).env.spec
    assert spec.step_seconds == pytest.approx(0.08)


# The command's job


def test_export_writes_the_policy_and_its_contract(run: Path, tmp_path: Path) -> None:
    done = export_policy(run, PolicyRequest())
    assert done.output == run / "reports" / "policy.safetensors" and done.update == 4
    read = json.loads(done.contract.read_text())
    assert done.contract == run / "reports" / "contract.json"
    assert read["origin"]["run"] == "corridor" and read["origin"]["update"] == 4
    assert [port["name"] for port in read["outputs"]] == list(done.outputs) == ["action", "probs", "value"]
    assert read["outputs"][0]["names"] == ["left", "right"]
    again = export_policy(run, PolicyRequest(output=tmp_path / "policy.safetensors"))
    assert again.contract.read_text() == done.contract.read_text()
    assert done.agreement.largest_difference < 1e-6 and done.agreement.inputs == 1000


def test_a_file_that_does_not_agree_is_not_written(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written = weights.to_bytes

    def broken(session: Any, state: Any, about: Any) -> bytes:
        head = {**state.params["policy_head"], "kernel": 1.1 * state.params["policy_head"]["kernel"]}
        return written(session, state._replace(params={**state.params, "policy_head": head}), about)

    monkeypatch.setattr(weights, "to_bytes", broken)
    before = sorted(run.rglob("*"))
    with pytest.raises(HmxError, match="the file does not agree with it: probs differs") as caught:
        export_policy(run, PolicyRequest())
    assert caught.value.exit_code == ExitCode.CHECK_FAILED and sorted(run.rglob("*")) == before


def test_the_contract_of_another_policy_is_replaced_only_with_force(run: Path) -> None:
    export_policy(run, PolicyRequest(checkpoint=2))
    kept = (run / "reports" / contracts.CONTRACT).read_text()
    with pytest.raises(HmxError, match="it describes another policy") as caught:
        export_policy(run, PolicyRequest(output=run / "reports" / "newest.safetensors"))
    assert caught.value.exit_code == ExitCode.USAGE and not (run / "reports" / "newest.safetensors").exists()
    assert (run / "reports" / contracts.CONTRACT).read_text() == kept
    export_policy(run, PolicyRequest(force=True, output=run / "reports" / "newest.safetensors"))
    assert json.loads((run / "reports" / contracts.CONTRACT).read_text())["origin"]["update"] == 4


def test_a_policy_cannot_have_the_name_of_its_contract(run: Path) -> None:
    with pytest.raises(HmxError, match=r"contract\.json: the description of the policy has this name"):
        export_policy(run, PolicyRequest(output=run / contracts.CONTRACT))


def test_an_exported_policy_has_the_hash_of_its_run(run: Path, tmp_path: Path) -> None:
    folder = tmp_path / "exported"
    folder.mkdir()
    (folder / "run.toml").write_bytes((run / "run.toml").read_bytes())
    of_run = json.loads(export_policy(run, PolicyRequest(output=folder / "policy.safetensors")).contract.read_text())
    of_policy = json.loads(
        export_policy(folder, PolicyRequest(output=tmp_path / "again.safetensors")).contract.read_text()
    )
    assert of_policy["origin"]["weights_sha256"] == of_run["origin"]["weights_sha256"]
