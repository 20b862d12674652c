"""Exported policies give the probabilities and values of hmx, and the examples of the documentation load them."""

from __future__ import annotations

import re
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from hmx.config.fields import replace
from hmx.config.schema import Config
from hmx.errors import ExitCode, HmxError
from hmx.jobs import export_policy as exports
from hmx.jobs.export_policy import export_policy
from hmx.jobs.requests import PolicyRequest
from hmx.runs.restoring import find
from hmx.runs.session import open_session

ROOT = Path(__file__).parents[2]
PACKAGES = {"safetensors": "safetensors", "stablehlo": "flatbuffers", "onnx": "jax2onnx"}
EXAMPLES = dict(re.findall(r"### (\w+)\n.*?```python\n(.*?)```", (ROOT / "docs" / "export.md").read_text(), re.DOTALL))
SMALL = {"env.num_envs": 8, "net.hidden": (8,), "net.kind": "mlp"}

Batch = tuple[np.ndarray, np.ndarray]


@pytest.fixture
def run(tmp_path: Path) -> Path:
    with tarfile.open(ROOT / "tests" / "data" / "run-schema-2.tar.gz") as archive:
        archive.extractall(tmp_path, filter="data")
    return tmp_path / "corridor"


def needs(to: str) -> None:
    pytest.importorskip(PACKAGES[to])
    if to == "onnx":
        pytest.importorskip("onnxruntime")


def acted(session: Any, state: Any, obs: Any, mask: Any) -> Batch:
    """Probabilities and values as hmx plays; an axis of agents is added where there is one agent."""
    solo = session.env.spec.num_agents == 1
    wide = [jnp.asarray(x)[:, None] if solo else jnp.asarray(x) for x in (obs, mask)]
    decision, _ = session.algorithm.act(state, None, *wide, jnp.zeros(len(obs), bool), jax.random.key(3), True)
    probs, value = np.asarray(decision.probs), np.asarray(decision.value)
    return (probs[:, 0], value[:, 0]) if solo else (probs, value)


def made_state(session: Any) -> Any:
    """A state of random parameters; the environments in it are not real, since a policy reads none of them."""
    rng = np.random.default_rng(1)

    def fill(leaf: Any) -> Any:
        if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
            return jax.random.key(0)
        if jnp.issubdtype(leaf.dtype, jnp.floating):
            return jnp.asarray(rng.uniform(0.1, 0.5, leaf.shape), leaf.dtype)
        return jnp.zeros(leaf.shape, leaf.dtype)

    state = jax.tree.map(fill, session.abstract._replace(actors=None))
    params = jax.tree.map(lambda leaf: jnp.asarray(rng.normal(size=leaf.shape) / 4, leaf.dtype), state.params)
    return state._replace(params=params, actors=session.abstract.actors._replace(obs_stats=None))


def run_stablehlo(data: bytes, obs: Any, mask: Any) -> Batch:
    return jax.export.deserialize(bytearray(data)).call(obs, mask)


def run_onnx(data: bytes, obs: Any, mask: Any) -> Batch:
    import onnxruntime

    return onnxruntime.InferenceSession(data).run(None, {"obs": obs, "mask": mask})


@pytest.mark.parametrize("to", PACKAGES)
def test_the_example_of_the_documentation_loads_the_policy(run: Path, to: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    needs(to)
    export_policy(run, PolicyRequest(to=to), run.parent / f"policy.{to}")
    monkeypatch.chdir(run.parent)
    found: dict[str, Any] = {}
    example = EXAMPLES[{"stablehlo": "StableHLO", "onnx": "ONNX"}.get(to, to)]
    assert len([line for line in example.splitlines() if line]) <= 10
    exec(example, found)
    source = find(run, run.parent)
    session = open_session(source.cfg)
    state, _, _ = source.state(session, None)
    probs, value = acted(session, state, found["obs"], np.ones((3, 2), bool))
    np.testing.assert_allclose(found["probs"], probs, atol=1e-5)
    np.testing.assert_allclose(found["value"], value, atol=1e-5)
    assert np.ptp(probs) > 0.01  # else nothing is shown


@pytest.mark.parametrize(
    "changes",
    [
        {"env.id": "rendezvous", "env.num_agents": 2},
        {"env.id": "frozenlake", "algo.name": "dqn", "replay.capacity": 4096},
        {"env.id": "hackmatrix", "env.obs": "flat", "ppo.value_target": "return_norm"},
    ],
    ids=lambda changes: changes["env.id"],
)
@pytest.mark.parametrize(("to", "play"), [("stablehlo", run_stablehlo), ("onnx", run_onnx)])
def test_a_program_agrees_with_the_agent_on_any_batch(changes: Any, to: str, play: Callable[..., Batch]) -> None:
    needs(to)
    session = open_session(replace(Config(), {**SMALL, **changes}))
    state = made_state(session)
    data = getattr(exports, f"_{to}")(session, state)
    rng = np.random.default_rng(0)
    for batch in (1, 7):
        shapes = exports._inputs(session, batch)
        floats = np.issubdtype(shapes[0].dtype, np.floating)
        raw = rng.normal(size=shapes[0].shape) if floats else rng.integers(0, 2**16, shapes[0].shape)
        obs, mask = raw.astype(shapes[0].dtype), rng.random(shapes[1].shape) < 0.6
        mask[..., 0] = True
        for ours, theirs in zip(acted(session, state, obs, mask), play(data, obs, mask), strict=True):
            np.testing.assert_allclose(theirs, ours, atol=1e-5)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"net.rnn": "gru"}, "cannot export a recurrent policy"),
        ({"env.id": "pendulum", "env.max_steps": 20}, "continuous actions"),
    ],
)
def test_policies_with_other_inputs_than_observation_and_mask_are_refused(
    run: Path, changes: Any, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = find(run, run.parent)
    monkeypatch.setattr(exports, "find", lambda *_: source._replace(cfg=replace(source.cfg, changes)))
    with pytest.raises(HmxError, match=said):
        export_policy(run, PolicyRequest())


def test_an_existing_file_is_replaced_only_with_force(run: Path) -> None:
    needs("safetensors")
    done = export_policy(run, PolicyRequest())
    assert done.output == run / "reports" / "policy.safetensors" and done.update == 4
    done.output.write_text("mine")
    with pytest.raises(HmxError, match="it already exists") as caught:
        export_policy(run, PolicyRequest())
    assert caught.value.exit_code == ExitCode.USAGE and done.output.read_text() == "mine"
    assert export_policy(run, PolicyRequest(force=True, checkpoint=2)).update == 2


def test_packed_observations_are_refused_as_onnx_and_agree_as_stablehlo() -> None:
    session = open_session(replace(Config(), {"env.num_envs": 8, "net.hidden": (8,)}))
    state = made_state(session)
    shapes = exports._inputs(session, 3)
    rng = np.random.default_rng(0)
    obs, mask = rng.integers(0, 2**16, shapes[0].shape).astype(np.uint32), np.ones(shapes[1].shape, bool)
    needs("stablehlo")
    theirs = run_stablehlo(exports._stablehlo(session, state), obs, mask)
    for ours, other in zip(acted(session, state, obs, mask), theirs, strict=True):
        np.testing.assert_allclose(other, ours, atol=1e-5)
    needs("onnx")
    with pytest.raises(HmxError, match="cannot write this policy as ONNX") as caught:
        exports._onnx(session, state)
    assert "env.obs=flat" in caught.value.hint
