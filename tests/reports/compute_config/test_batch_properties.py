"""The batch equations on inputs of every size: consistency, repairs that hold, a rollout played out step by step."""

from dataclasses import asdict, replace

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from hmx.config.divisors import all_divisors, divisor_above, divisor_below
from hmx.config.fields import replace as configure
from hmx.config.schema import Config
from hmx.registry.check import known_problems
from hmx.reports.compute_config.cautions import batch_warnings
from hmx.reports.compute_config.derived import derive_batch, size
from hmx.reports.compute_config.fit import batch_fits, exact_fit, is_exact
from hmx.reports.compute_config.inputs import INPUT_FIELDS, LIMIT, BatchInputs, TrainerInputs
from hmx.reports.compute_config.repairs import batch_problems, holds, repairs, suggestions
from hmx.reports.compute_config.trainer import config_of, inputs_of


@st.composite
def small(draw):
    """Inputs small enough to look at every value; about half violate no rule."""
    horizon, groups = draw(st.integers(1, 12)), draw(st.integers(1, 4))
    agents, workers = draw(st.integers(1, 9)), draw(st.integers(1, 3)) * draw(st.sampled_from([groups, groups, 1]))
    made = BatchInputs(
        num_agents=agents,
        num_workers=workers,
        bptt_horizon=horizon,
        async_factor=groups,
        forward_pass_minibatch_target_size=draw(st.integers(1, 60)),
        minibatch_size=horizon * draw(st.integers(1, 20)) + draw(st.sampled_from([0, 0, 0, 1])),
        batch_size=1,
        update_epochs=draw(st.integers(1, 3)),
        total_timesteps=draw(st.integers(1, 10**12)),
        world_size=draw(st.integers(1, 4)),
    )
    batches = st.integers(1, 60).map(lambda k: k * made.minibatch_size)
    return replace(made, batch_size=draw(st.one_of(batches, batches, st.integers(1, 4000))))


@st.composite
def valid(draw):
    """Small inputs that violate no rule."""
    made = draw(small())
    groups, horizon = made.async_factor, max(2, made.bptt_horizon)
    made = replace(made, num_workers=groups * draw(st.integers(1, 3)), bptt_horizon=horizon)
    minibatch = horizon * draw(st.integers(1, 12))
    least = -(-size(made, "total_agents") * horizon // minibatch)
    batch = minibatch * (least + draw(st.integers(0, 30)))
    return replace(made, minibatch_size=minibatch, batch_size=batch)


SIZE = st.one_of(
    st.integers(1, 70),
    st.integers(0, 52).map(lambda k: 2**k),
    st.integers(1, LIMIT),
    st.integers(LIMIT - 3, LIMIT),
)
ANY = st.fixed_dictionaries({name: SIZE for name in INPUT_FIELDS}).map(lambda values: BatchInputs(**values))
PLAUSIBLE = st.fixed_dictionaries({}, optional={name: SIZE for name in INPUT_FIELDS}).map(lambda v: BatchInputs(**v))


@given(st.one_of(small(), valid(), ANY))
def test_configurations_without_problems_have_consistent_sizes(inputs):
    found = batch_problems(inputs)
    assert (not found) == holds(inputs)
    derived = derive_batch(inputs)
    if found:
        assert all(problem.message and problem.values for problem in found)
        return
    sequences, per_minibatch, horizon = derived["segments"], derived["minibatch_segments"], inputs.bptt_horizon
    assert derived["num_minibatches"] * per_minibatch == sequences >= derived["total_agents"]
    assert per_minibatch * horizon == inputs.minibatch_size == derived["samples_per_update"]
    assert derived["stored_agent_steps"] + inputs.batch_size % horizon == inputs.batch_size
    assert derived["mean_reuse"] == pytest.approx(inputs.update_epochs)
    assert derived["envs_per_worker"] * inputs.num_workers == derived["num_envs"]
    assert derived["workers_per_batch"] * derived["envs_per_worker"] == derived["batch_size_envs"]
    assert derived["rollout_collected_agent_steps"] >= derived["stored_agent_steps"]
    assert derived["exact_fit"] == (not exact_fit(inputs)) == is_exact(inputs)
    overshoot = derived["rollout_collected_agent_steps"] > derived["stored_agent_steps"]
    assert overshoot == ("W_ROLLOUT_OVERSHOOT" in [w.code for w in batch_warnings(inputs)])
    if derived["exact_fit"]:
        assert derived["rollout_collected_agent_steps"] == derived["stored_agent_steps"]
        assert not derived["rollout_mixed_rows"]


def trainers(inputs):
    return TrainerInputs(**asdict(inputs))


@given(st.one_of(small(), ANY, PLAUSIBLE), st.booleans())
def test_every_single_fix_is_valid(inputs, for_trainer):
    inputs = trainers(inputs) if for_trainer else inputs
    for problem in batch_problems(inputs):
        for field, value in (*problem.fixes, *suggestions(inputs)):
            changed = replace(inputs, **{field: value})
            assert changed != inputs and batch_problems(changed) == []
    for warning in batch_warnings(inputs):
        for field, value in warning.fixes:
            changed = replace(inputs, **{field: value})
            assert batch_problems(changed) == []
            assert warning.code not in [w.code for w in batch_warnings(changed)]


REACH = {"num_agents": 12, "num_workers": 200, "bptt_horizon": 400, "async_factor": 200, "minibatch_size": 4500}
REACH |= {"batch_size": 4500, "forward_pass_minibatch_target_size": 100}


@settings(max_examples=60)
@given(small())
def test_fixes_are_the_nearest_valid_values(inputs):
    if holds(inputs):
        return
    nearest = repairs(inputs)
    for field, reach in REACH.items():
        step = inputs.minibatch_size if field == "batch_size" else 1
        value, top = getattr(inputs, field), getattr(inputs, field) + reach
        start = -(-(value + 1) // step) * step
        below = [v for v in range(step, value, step) if holds(replace(inputs, **{field: v}))]
        above = [v for v in range(start, top, step) if holds(replace(inputs, **{field: v}))]
        before, after = nearest.get(field, (None, None))
        assert before == (below[-1] if below else None), field
        if above and field != "num_agents":
            assert after == above[0], field
        elif after is not None:
            assert after >= top


@given(valid())
def test_exact_fits_are_exact_and_the_nearest(inputs):
    fits = exact_fit(inputs)
    unit = size(inputs, "total_agents") * inputs.bptt_horizon
    if not fits:
        assert inputs.batch_size // inputs.bptt_horizon * inputs.bptt_horizon % unit == 0
        return
    assert fits["down"].batch_size < inputs.batch_size < fits["up"].batch_size
    assert fits["up"].batch_size - fits["down"].batch_size == unit
    for fit in fits.values():
        assert is_exact(replace(inputs, batch_size=fit.batch_size, minibatch_size=fit.minibatch_size))
        assert fit.num_minibatches * fit.minibatch_size == fit.batch_size
        assert fit.keeps_minibatch == (fit.minibatch_size == inputs.minibatch_size)
        splits = [d * inputs.bptt_horizon for d in all_divisors(fit.batch_size // inputs.bptt_horizon)]
        assert abs(fit.minibatch_size - inputs.minibatch_size) == min(abs(s - inputs.minibatch_size) for s in splits)
    assert batch_fits(inputs)
    assert all(is_exact(replace(inputs, batch_size=batch)) for _, batch in batch_fits(inputs))


def play_rollout(inputs):
    """Groups of agents that take turns, each agent in its own sequence, until every sequence is complete."""
    sequences, horizon, groups = inputs.batch_size // inputs.bptt_horizon, inputs.bptt_horizon, inputs.async_factor
    agents = size(inputs, "total_agents")
    per_group = agents // groups
    written = [[None] * horizon for _ in range(sequences)]
    sequence_of = [agent % sequences for agent in range(agents)]
    filled, trajectory = [0] * agents, [0] * agents
    free, complete, receives = agents % sequences, 0, 0
    while complete < sequences:
        members = range(receives % groups * per_group, (receives % groups + 1) * per_group)
        receives += 1
        for agent in members:
            written[sequence_of[agent]][filled[agent]] = (agent, trajectory[agent])
            filled[agent] += 1
        if filled[members[0]] == horizon:
            complete += per_group
            for place, agent in enumerate(members):
                sequence_of[agent], filled[agent] = (free + place) % sequences, 0
                trajectory[agent] += 1
            free = (free + per_group) % sequences
    return receives, sum(len(set(steps)) > 1 for steps in written)


@given(valid())
@example(BatchInputs(num_agents=3, num_workers=4, batch_size=720, minibatch_size=12, bptt_horizon=3,
                     forward_pass_minibatch_target_size=24, async_factor=4))  # fmt: skip
def test_closed_forms_match_a_simulated_rollout(inputs):
    receives, mixed = play_rollout(inputs)
    assert size(inputs, "rollout_recvs") == receives
    assert size(inputs, "rollout_mixed_rows") == mixed
    derived = derive_batch(inputs)
    assert derived["rollout_collected_agent_steps"] == receives * derived["agents_per_forward"]


@given(valid())
def test_trainer_configuration_round_trip(inputs):
    for fit in exact_fit(inputs).values():
        inputs = replace(inputs, batch_size=fit.batch_size, minibatch_size=fit.minibatch_size)
    exact = replace(inputs, batch_size=inputs.batch_size // inputs.bptt_horizon * inputs.bptt_horizon)
    base = configure(Config(), {"env.id": "rendezvous", "net.kind": "mlp"})
    cfg = config_of(exact, base)
    assert known_problems(cfg) == []
    back = inputs_of(cfg)
    for name in ("num_agents", "batch_size", "minibatch_size", "bptt_horizon", "update_epochs"):
        assert getattr(back, name) == getattr(exact, name)
    one, other = derive_batch(exact), derive_batch(back)
    for name in ("num_envs", "total_agents", "segments", "minibatch_segments", "num_minibatches", "samples_per_update"):
        assert one[name] == other[name]
    assert inputs_of(config_of(back, base)) == back


@given(SIZE, SIZE)
def test_divisors_are_complete(n, wanted):
    assert all(n % d == 0 for d in all_divisors(n))
    below, above = divisor_below(n, wanted), divisor_above(n, wanted)
    assert below is None or (n % below == 0 and below < wanted)
    assert above is None or (n % above == 0 and above > wanted)
    if n <= 70:
        assert list(all_divisors(n)) == [d for d in range(1, n + 1) if n % d == 0]
