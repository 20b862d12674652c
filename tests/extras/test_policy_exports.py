"""Programs of every format act as hmx does, and the loaders of the examples and of the documentation run them."""

from __future__ import annotations

import importlib.util
import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from exported_policies import RECURRENT, made_state, played, small_session
from walk_sim import Options

from hmx.errors import HmxError
from hmx.jobs.export_policy import export_policy
from hmx.jobs.exported import formats
from hmx.jobs.exported.agreement import measure
from hmx.jobs.exported.contract import CONTRACT, PolicyOrigin, make_contract
from hmx.jobs.exported.formats import FORMATS
from hmx.jobs.exported.program import make_program
from hmx.jobs.requests import PolicyRequest
from hmx.registry import user_code
from hmx.runs.restoring import Run

ROOT = Path(__file__).parents[2]
GUIDE = (ROOT / "docs" / "export.md").read_text()
PACKAGES = {"safetensors": "safetensors", "stablehlo": "flatbuffers", "onnx": "jax2onnx"}
ABOUT = {"run": "made"}
NODE = shutil.which("node")
IMPORT = 'require("onnxruntime-node")'
RUNS_NODE = NODE is not None and subprocess.run([NODE, "-e", IMPORT], capture_output=True).returncode == 0


def example(heading: str, number: int, language: str = "python") -> str:
    """A block of code below a heading of the guide."""
    section = GUIDE.partition(f"### {heading}\n")[2].partition("\n### ")[0]
    return re.findall(rf"```{language}\n(.*?)```", section, re.DOTALL)[number]


@pytest.fixture
def run(unpack: Any, tmp_path: Path) -> Any:
    return unpack(2, tmp_path).folder


def needs(to: str) -> None:
    pytest.importorskip(PACKAGES[to])
    if to == "onnx":
        pytest.importorskip("onnxruntime")


def expected(run: Path, obs: np.ndarray) -> list[np.ndarray]:
    """Action, probabilities and value of the run's policy where every action is legal."""
    source = Run.find(run, run.parent)
    session = source.open()
    return played(session, source.policy(session).state, [{"obs": obs, "mask": np.ones((len(obs), 2), bool)}])[0]


@pytest.mark.parametrize(("heading", "to"), [("StableHLO", "stablehlo"), ("safetensors", "safetensors")])
def test_the_example_of_the_documentation_loads_the_policy(
    run: Path, heading: str, to: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    needs(to)
    export_policy(run, PolicyRequest(to=to, output=run.parent / f"policy.{to}"))
    monkeypatch.chdir(run.parent)
    names: dict[str, Any] = {}
    code = example(heading, 0)
    assert len([line for line in code.splitlines() if line]) <= 10
    exec(code, names)
    _, probs, value = expected(run, names["obs"])
    np.testing.assert_allclose(names["probs"], probs, atol=1e-5)
    np.testing.assert_allclose(names["value"], value, atol=1e-5)
    assert np.ptp(probs) > 0.01  # else nothing is shown


def test_the_documentation_shows_the_loaders_of_the_examples() -> None:
    assert example("ONNX", 0) == (ROOT / "examples" / "load_policy.py").read_text()
    assert example("ONNX", 0, "js") == (ROOT / "examples" / "load_policy.cjs").read_text()


def test_the_examples_that_use_the_loaders_run(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    needs("onnx")
    export_policy(run, PolicyRequest(to="onnx", output=run.parent / "policy.onnx"))
    monkeypatch.chdir(run.parent)
    monkeypatch.syspath_prepend(ROOT / "examples")
    names: dict[str, Any] = {}
    exec(example("ONNX", 1), names)
    _, probs, value = expected(run, np.zeros((1, 8), np.float32))
    np.testing.assert_allclose(names["outputs"]["probs"], probs[0], atol=1e-5)
    if not RUNS_NODE:
        pytest.skip("node with onnxruntime-node (NODE_PATH) is not installed")
    shutil.copy(ROOT / "examples" / "load_policy.cjs", run.parent)
    script = example("ONNX", 1, "js").replace(".data,", ".data.join(),").replace(".data)", ".data.join())")
    (run.parent / "use.cjs").write_text(script)
    said = subprocess.run([str(NODE), "use.cjs"], capture_output=True, text=True, check=True).stdout.split()
    _, probs, value = expected(run, np.ones((1, 8), np.float32))
    np.testing.assert_allclose([float(x) for x in said[1].split(",")], probs[0], atol=1e-5)
    np.testing.assert_allclose(float(said[2]), value[0], atol=1e-5)


@pytest.mark.parametrize(
    "changes",
    [
        RECURRENT,
        {"env.id": "cartpole", "net.rnn": "lstm", "net.shared_torso": False, "ppo.obs_norm": "env"},
        {"env.id": "recall", "net.rnn": "gru"},
        {"env.id": "rendezvous", "env.num_agents": 2},
        {"env.id": "frozenlake", "algo.name": "dqn", "replay.capacity": 4096},
        {"env.id": "corridor", "algo.name": "gumbel"},
        {"env.id": "hackmatrix", "env.obs": "flat", "net.kind": "mlp", "ppo.value_target": "return_norm"},
        {"env.id": "hackmatrix"},
    ],
    ids=lambda changes: "-".join(str(value) for value in changes.values()),
)
@pytest.mark.parametrize("to", FORMATS)
def test_a_file_agrees_with_the_policy(changes: Any, to: str) -> None:
    needs(to)
    session = small_session(changes)
    state = made_state(session)
    program = make_program(session, state)
    file = FORMATS[to](program, session, state, ABOUT)
    agreement = measure(program, file.call, state.actors.obs_stats)
    agreement.check()
    assert agreement.largest_difference < 1e-4
    assert bool(agreement.sequences) == (session.cfg.net.rnn != "none")


IMAGES = """
import jax.numpy as jnp
ACTIONS = 3
def reset(key):
    return jnp.int32(0), jnp.zeros((10, 9, 2), jnp.uint8)
def step(state, action, key):
    return state + 1, jnp.zeros((10, 9, 2), jnp.uint8), 0.0, False
"""


@pytest.mark.parametrize("to", ["stablehlo", "onnx"])
def test_a_file_that_reads_images_agrees_with_the_policy(tmp_path: Path, to: str) -> None:
    needs(to)
    (tmp_path / "images.py").write_text(IMAGES)
    user_code.allow(str(tmp_path / "images.py"), "env.id")
    session = small_session({"env.id": str(tmp_path / "images.py")})
    state = made_state(session)
    program = make_program(session, state)
    assert program.inputs[0].shape == (10, 9, 2) and program.inputs[0].dtype == "uint8"
    agreement = measure(program, FORMATS[to](program, session, state, ABOUT).call, None)
    agreement.check()
    assert agreement.largest_difference < 1e-4


@pytest.mark.parametrize("to", ["stablehlo", "onnx"])
def test_a_file_leaves_out_the_network_of_a_critic_and_its_hidden_state(to: str) -> None:
    needs(to)
    walk = str(ROOT / "tests" / "walk_sim.py")
    user_code.allow(walk, "env.id")
    more = {"net.shared_torso": False, "net.rnn": "gru", "net.rnn_hidden": 8, "net.value_hidden": (512,)}
    options = {f"env.my.{name}": value for name, value in Options(obs="parts").__dict__.items()}
    session = small_session({"env.id": walk, "env.max_steps": 0, **more, **options})
    state = made_state(session)
    program = make_program(session, state)
    assert [port.name for port in program.inputs] == ["obs", "mask", "reset", "hidden_0"]
    assert [port.name for port in program.outputs] == ["action", "probs", "next_hidden_0"]
    file = FORMATS[to](program, session, state, ABOUT)
    measure(program, file.call, None).check()
    weights = 4 * sum(leaf.size for leaf in jax.tree.leaves(state.params))
    assert len(file.data) < weights


@pytest.fixture(scope="module")
def recurrent(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A recurrent policy of continuous actions as ONNX with its contract, four steps, and what hmx does in them."""
    needs("onnx")
    session = small_session(RECURRENT)
    state = made_state(session)
    program = make_program(session, state)
    folder = tmp_path_factory.mktemp("policy")
    (folder / "policy.onnx").write_bytes(FORMATS["onnx"](program, session, state, ABOUT).data)
    origin = PolicyOrigin(run="made", run_id="", agent=0, update=0, config_digest="", weights_sha256="")
    (folder / CONTRACT).write_text(make_contract("", origin, session.env.spec, program, None).to_text())
    obs = np.random.default_rng(0).normal(size=(4, 1, 3)).astype(np.float32)
    steps = [{"obs": row, "reset": np.array([i == 0])} for i, row in enumerate(obs)]
    wanted = [[2.0 * float(action[0, 0]), float(value[0])] for action, value in played(session, state, steps)]
    return folder, obs[:, 0].tolist(), wanted


def test_the_python_loader_plays_an_episode_of_a_recurrent_policy(recurrent: Any) -> None:
    folder, obs, wanted = recurrent
    spec = importlib.util.spec_from_file_location("load_policy", ROOT / "examples" / "load_policy.py")
    loader = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loader)
    state, act = loader.load(folder / "policy.onnx")
    for row, (action, value) in zip(obs, wanted, strict=True):
        outputs, state = act(state, obs=row)
        np.testing.assert_allclose([outputs["action"][0], outputs["value"]], [action, value], rtol=1e-4)


@pytest.mark.skipif(not RUNS_NODE, reason="node with onnxruntime-node (NODE_PATH) is not installed")
def test_the_javascript_loader_plays_an_episode_of_a_recurrent_policy(recurrent: Any) -> None:
    folder, obs, wanted = recurrent
    script = f"""
        const {{ load }} = require({json.dumps(str(ROOT / "examples" / "load_policy.cjs"))});
        load({json.dumps(str(folder / "policy.onnx"))}).then(async ({{ start, act }}) => {{
          let state = start, outputs;
          for (const obs of {json.dumps(obs)}) {{
            [outputs, state] = await act(state, {{ obs }});
            console.log(outputs.action.data[0], outputs.value.data[0]);
          }}
        }});
    """
    said = subprocess.run([str(NODE), "-e", script], capture_output=True, text=True, check=True).stdout
    np.testing.assert_allclose([[float(x) for x in line.split()] for line in said.splitlines()], wanted, rtol=1e-4)


def test_a_broken_onnx_file_is_not_written(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    needs("onnx")

    def broken(program: Any, session: Any, state: Any, about: Any) -> Any:
        head = {**state.params["policy_head"], "kernel": 1.1 * state.params["policy_head"]["kernel"]}
        changed = state._replace(params={**state.params, "policy_head": head})
        return formats.to_onnx(make_program(session, changed), session, changed, about)

    monkeypatch.setitem(FORMATS, "onnx", broken)
    with pytest.raises(HmxError, match="the file does not agree with it: probs differs"):
        export_policy(run, PolicyRequest(to="onnx"))
    assert not (run / "reports").exists() or not list((run / "reports").glob("*.onnx"))


def test_an_operation_that_the_converter_does_not_know_is_named() -> None:
    needs("onnx")
    session = small_session({"env.id": "pendulum"})
    program = make_program(session, made_state(session))
    with pytest.raises(HmxError, match=r"cannot write this policy as ONNX: .*pure_callback") as caught:
        strange = program._replace(call=lambda obs: (jax.pure_callback(np.sin, obs, obs), obs.sum(-1)))
        FORMATS["onnx"](strange, session, made_state(session), ABOUT)
    assert "--to stablehlo" in caught.value.hint


def test_bfloat16_is_refused_as_onnx() -> None:
    session = small_session({"env.id": "corridor", "net.compute_dtype": "bfloat16"})
    state = made_state(session)
    with pytest.raises(HmxError, match="onnxruntime does not compute in bfloat16") as caught:
        FORMATS["onnx"](make_program(session, state), session, state, ABOUT)
    assert "--to stablehlo" in caught.value.hint


def test_an_existing_file_is_replaced_only_with_force(run: Path) -> None:
    done = export_policy(run, PolicyRequest())
    done.output.write_text("mine")
    with pytest.raises(HmxError, match="it already exists"):
        export_policy(run, PolicyRequest())
    assert done.output.read_text() == "mine"
    assert export_policy(run, PolicyRequest(force=True, checkpoint=2)).update == 2
