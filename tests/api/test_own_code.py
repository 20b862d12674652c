"""Networks and algorithms of the user: they train, resume and report as hmx's own, and run only when trusted."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from api_runs import TINY
from typer.testing import CliRunner

import hmx
from hmx.algos.policy_outputs import make_policy_outputs
from hmx.cli.app import app
from hmx.config import codec
from hmx.config.fields import replace
from hmx.records.frozen import digest_of_file
from hmx.records.paths import RunPaths
from hmx.registry import trust, user_code
from hmx.registry.load import load
from hmx.reports.compute_config.source import read_source
from hmx.runs import checkpoint
from hmx.runs.session import open_session

NET = """
import flax.linen as nn

def make(cfg, spec, value_width):
    return Small(spec.num_actions, value_width)

class Small(nn.Module):
    num_actions: int
    value_width: int

    @nn.compact
    def __call__(self, obs):
        x = nn.tanh(nn.Dense(4)(obs))
        logits = nn.Dense(self.num_actions)(x)
        return (logits, nn.Dense(self.value_width, name="value_head")(x)) if self.value_width else logits
"""


class Wide(nn.Module):
    """A network with one action too many."""

    actions: int

    @nn.compact
    def __call__(self, obs: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Return logits and values."""
        return nn.Dense(self.actions + 1)(obs), nn.Dense(1)(obs)


def wide(cfg, spec, value_width):
    return Wide(spec.num_actions)


def loops(cfg, env):
    """An algorithm whose update counts in another type than its init."""
    made = hmx.Algorithm(*hmx_a2c(cfg, env)[:4])
    return made._replace(update=lambda state, hypers: (state._replace(update=jnp.float32(1)), {}))


def hmx_a2c(cfg, env):

    return user_code.build("./a2c.py", "algo.name", cfg, env)


def not_an_algorithm(cfg, env):
    return "a2c"


def fails(cfg, env):
    raise ZeroDivisionError("no agents")


def leaves(run: Path) -> dict[str, np.ndarray]:
    paths = RunPaths(run.parent, run.name)
    session = open_session(load(file=paths.config, environ={}).config)
    return checkpoint.to_host(checkpoint.restore(paths.checkpoint(4), session.abstract))


def test_example_learns_the_corridor(place: Path) -> None:
    more = {"env.num_envs": 32, "env.max_steps": 100, "algo.num_steps": 16, "run.total_steps": 51_200}
    more |= {"run.updates_per_chunk": 100, "algo.name": "./a2c.py", "algo.learning_rate": 0.02, "run.name": "learns"}
    result = hmx.train({**TINY, **more, "run.eval_episodes": 64, "run.num_seeds": 5}, progress=False)
    random, *trained = result.evaluation
    assert np.median([row.return_mean for row in trained]) > 0.85 > random.return_mean + 0.2


def test_example_resumes_bit_for_bit(place: Path) -> None:
    half = {**TINY, "algo.name": "./a2c.py", "run.name": "half", "run.total_steps": 128}
    hmx.train(half, progress=False)
    resumed = hmx.resume("half", {"run.total_steps": 256}, progress=False)
    assert (resumed.first_update, resumed.updates) == (2, 4)
    whole, again = leaves(place / "runs" / "first"), leaves(resumed.run)
    assert whole.keys() == again.keys()
    assert all(np.array_equal(whole[name], again[name]) for name in whole)


def test_a_run_does_not_run_its_code_unless_trusted(place: Path) -> None:
    shutil.copytree(place / "runs" / "first", place / "runs" / "stranger")
    planted = place / "a2c.py"
    text = planted.read_text()
    planted.write_text(f"{text}\nopen('executed', 'w').close()\n")
    try:
        for words in (["runs", "list"], ["runs", "verify", "stranger"], ["compare", "first", "stranger"]):
            assert CliRunner().invoke(app, words).exit_code == 0
        for read in (hmx.evaluate, hmx.load_agent, hmx.resume):
            with pytest.raises(hmx.HmxError, match="has changed since the run began"):
                read("stranger", trust=True)
        assert not (place / "executed").exists()
    finally:
        planted.write_text(text)
    for read in (hmx.evaluate, hmx.load_agent, hmx.resume):
        with pytest.raises(hmx.HmxError, match="you have not trusted its code"):
            read("stranger")
    assert hmx.load_agent("stranger", trust=True).update == 4
    shutil.rmtree(place / "runs" / "stranger")


def test_own_network_trains_with_both_algorithms_and_is_recorded(place: Path) -> None:
    (place / "small.py").write_text(NET)
    values = {**TINY, "net.kind": "./small.py", "run.name": "net", "run.total_steps": 64}
    result = hmx.train(values, progress=False)
    config = load(file=result.run, environ={}).config
    assert len(config.net.sha256) == 64 and not config.algo.sha256
    records = [json.loads(line) for line in (result.run / "metrics.jsonl").read_text().splitlines()]
    assert records and not any("train/dormant_units" in record for record in records)
    q_values = {**values, "algo.name": "dqn", "ppo.num_minibatches": 8, "replay.capacity": 64, "dqn.learn_starts": 8}
    learned = open_session(hmx.load_config(q_values)).abstract.params
    assert jax.tree.map(lambda leaf: leaf.shape, learned)["Dense_1"]["kernel"] == (4, 2)


@pytest.mark.parametrize(
    ("key", "function", "words"),
    [
        ("net.kind", wide, r"returns \[N, 3\], \[N, 1\] instead of \[N, 2\], \[N, 1\]"),
        ("algo.name", not_an_algorithm, "make returned str"),
        ("algo.name", fails, r"ZeroDivisionError: no agents\n.*in fails: raise"),
        ("algo.name", loops, r"update changes its state: update is float32\[\], but was int32\[\]"),
    ],
)
def test_bad_code_is_refused_with_one_clear_error(place: Path, key: str, function: object, words: str) -> None:
    values = {**TINY, key: function, "run.name": "bad"}
    with pytest.raises(hmx.HmxError, match=words):
        hmx.load_config({"algo.name": "./a2c.py"})  # trusted, for `loops`
        hmx.train(values, force=True, progress=False)


def test_reports_work_or_explain_the_refusal(place: Path) -> None:
    result = CliRunner().invoke(app, ["grad-report", "first", "--trust-env"])
    assert result.exit_code == 2 and "its loss is not known" in result.stderr
    assert not trust.Permissions.trust  # it holds for one command
    config = load(file=place / "runs" / "first", environ={}).config
    with pytest.raises(hmx.HmxError, match="is not part of hmx"):
        read_source(run=place / "runs" / "first")
    session = open_session(config)
    outputs = make_policy_outputs(config, session.env)
    state = session.algorithm.init(jax.random.key(0))
    obs, legal = state.actors.obs, jnp.ones_like(state.actors.legal)
    decision, _ = session.algorithm.act(state, None, obs, legal, jnp.ones(8, bool), jax.random.key(1))
    assert np.allclose(jax.nn.softmax(outputs.outputs(state, obs)), decision.probs, atol=1e-6)
    assert np.allclose(outputs.value(state, obs, legal), decision.value[:, 0])
    with pytest.raises(hmx.HmxError, match="gradient reports are of ppo and dqn"):
        hmx.train(replace(config, {"run.grad_report_every": 1}))


OPTIONS = """
from dataclasses import dataclass
import a2c, flax.linen as nn

@dataclass(frozen=True)
class Options:
    width: int = 4

@dataclass(frozen=True)
class Weights:
    vf_coef: float = 0.5

class Wide(nn.Module):
    sizes: tuple

    @nn.compact
    def __call__(self, obs):
        x = nn.tanh(nn.Dense(self.sizes[0])(obs))
        return nn.Dense(self.sizes[1])(x), nn.Dense(self.sizes[2])(x)

def net(cfg, spec, value_width, options):
    return Wide((options.width, spec.num_actions, value_width))

def algo(cfg, env, options: Weights):
    return a2c.make(cfg, env, a2c.Options(vf_coef=options.vf_coef))
"""


def own_options(place: Path, **values: object) -> dict[str, object]:
    (place / "mine.py").write_text(OPTIONS)
    return {**TINY, "net.kind": "./mine.py:net", "algo.name": "./mine.py:algo", **values}


def test_networks_and_algorithms_declare_options_like_environments(place: Path) -> None:
    values = own_options(place, **{"net.my.width": "6", "run.name": "options", "run.total_steps": 128})
    result = hmx.train(values, progress=False)
    config = load(file=result.run, environ={}).config
    assert (config.net.my, config.algo.my) == ((("width", 6),), (("vf_coef", 0.5),))
    session = open_session(config)
    shapes = jax.tree.map(lambda leaf: leaf.shape, session.abstract.params)
    assert shapes["Dense_0"]["kernel"][1] == 6 and digest_of_file(codec.to_toml(config)) == codec.digest(config)
    assert hmx.resume("options", {"run.total_steps": 256}, progress=False).first_update == 2
    with pytest.raises(hmx.HmxError, match=r"algo.my.vf_coef: 0.5 cannot become 1"):
        hmx.resume("options", {"algo.my.vf_coef": 1}, progress=False)


def test_an_option_reaches_the_algorithm_and_is_shown(place: Path) -> None:
    run = hmx.train(own_options(place, **{"algo.my.vf_coef": 0.0, "run.name": "no-values"}), progress=False).run
    moments = leaves(place / run)
    assert not moments["opt_state/1/nu/Dense_2/kernel"].any()  # values have no gradient
    assert moments["opt_state/1/nu/Dense_1/kernel"].any()
    words = ["train", "--dry-run", "--algo", "./a2c.py", "--env", "corridor", "--set", "algo.my.ent_coef=0.5"]
    shown = CliRunner().invoke(app, words)
    rows = [line.split() for line in shown.stdout.splitlines()]
    assert ["algo.my.ent_coef", "0.5", "--set"] in rows and ["algo.my.vf_coef", "0.5"] in rows


@pytest.mark.parametrize(
    ("values", "words"),
    [
        (
            {"net.my.widht": 3},
            "net.my.widht = 3: ./mine.py:net has no such option; it has width; did you mean net.my.w",
        ),
        ({"net.my.width": "many"}, "net.my.width = many: must be a whole number; try net.my.width=4"),
        ({"algo.my.width": 3}, "algo.my.width = 3: ./mine.py:algo has no such option; it has vf_coef"),
        ({"net.kind": "mlp", "net.my.width": 3}, "mlp declares no options of its own"),
        ({"algo.name": "ppo", "algo.my.vf_coef": 1}, "ppo declares no options of its own"),
    ],
)
def test_unknown_and_wrong_options_are_refused(place: Path, values: dict[str, object], words: str) -> None:
    with pytest.raises(hmx.HmxError) as caught:
        hmx.train(own_options(place, **values), force=True, progress=False)
    assert words in caught.value.message and caught.value.exit_code == 2
