"""What a configuration without problems says of its sizes is what the trainer makes of them."""

import jax
import jax.numpy as jnp
from hypothesis import given, settings
from hypothesis import strategies as st
from training import build

from hmx.config.divisors import all_divisors
from hmx.config.learning import PpoConfig
from hmx.config.schema import AlgoConfig, Config, EnvConfig, NetConfig, RunConfig
from hmx.registry import derive
from hmx.registry.check import known_problems
from hmx.reports.compute_config.derived import derive_batch
from hmx.reports.compute_config.repairs import batch_problems
from hmx.reports.compute_config.trainer import inputs_of


@st.composite
def configurations(draw):
    """Small trainers of every kind; some of them have problems."""
    num_envs, num_steps = draw(st.integers(1, 6)), draw(st.integers(1, 12))
    return Config(
        run=RunConfig(total_steps=draw(st.integers(1, 500))),
        env=EnvConfig(
            id=draw(st.sampled_from(["corridor", "rendezvous"])), num_envs=num_envs, num_agents=draw(st.integers(1, 3))
        ),
        net=NetConfig(hidden=(4,), rnn=draw(st.sampled_from(["none", "gru", "lstm"])), rnn_hidden=3),
        algo=AlgoConfig(num_steps=num_steps),
        ppo=PpoConfig(
            bptt_horizon=draw(st.sampled_from([0, *all_divisors(num_steps), num_steps + 1])),
            num_minibatches=draw(st.sampled_from([*all_divisors(num_envs * num_steps), 5])),
            update_epochs=draw(st.integers(1, 2)),
            prio_alpha=draw(st.sampled_from([0.0, 0.5])),
            advantage=draw(st.sampled_from(["gae", "vtrace"])),
            row_end=draw(st.sampled_from(["bootstrap", "mask", "zero"])),
        ),
    )


@settings(max_examples=8, deadline=None)
@given(configurations())
def test_valid_configuration_builds_a_trainer_of_its_sizes(cfg):
    if known_problems(cfg):
        return
    sizes, inputs = derive.derive(cfg), inputs_of(cfg)
    assert batch_problems(inputs) == []
    printed = derive_batch(inputs)
    assert (printed["segments"], printed["minibatch_segments"]) == (sizes.segments, sizes.minibatch_segments)
    assert printed["stored_agent_steps"] == sizes.agent_steps
    assert printed["gradient_updates_per_batch"] == sizes.gradient_steps_per_update

    algorithm = build(cfg)
    state = jax.eval_shape(algorithm.init, jax.eval_shape(lambda: jax.random.key(0)))
    hypers = {name: jax.ShapeDtypeStruct((), jnp.float32) for name in algorithm.hypers(0)}
    rows = jax.eval_shape(algorithm.experience, state, hypers)
    assert rows["action"].shape == (sizes.horizon, sizes.segments)
    assert rows["sequence_weight"].shape == (sizes.segments,)
    after, metrics = jax.eval_shape(algorithm.update, state, hypers)
    assert jax.tree.map(lambda x: (x.shape, x.dtype), after) == jax.tree.map(lambda x: (x.shape, x.dtype), state)
    assert "train/total_loss" in metrics
