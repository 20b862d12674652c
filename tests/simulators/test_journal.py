"""Running episodes in a checkpoint: files with right checksums and impossible content are named."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import walk_sim

from hmx.errors import ExitCode, HmxError
from hmx.simulators import journal
from hmx.simulators.episode import Simulation
from hmx.simulators.journal import Journal, SavedEpisodes
from hmx.simulators.spaces import Facts

FACTS = Facts(
    obs_shape=(4,), obs_dtype="float32", action_parts=(3, 2), action_dim=0, limit=0, has_state=True, render_mode=""
)
SMOOTH = FACTS._replace(action_parts=(), action_dim=2)
GOOD = SavedEpisodes(
    number=np.array([0, 7]), steps=np.array([2, 1]), digest=np.array([5, 6], np.uint32),
    actions=np.array([[0, 1], [2, 0], [1, 1]], np.int32), state_bytes=np.array([0, 3]),
    states=np.array([1, 2, 3], np.uint8),
)  # fmt: skip
BAD: dict[str, Any] = {
    "more environments": GOOD._replace(number=np.array([0, 1, 2])),
    "another type": GOOD._replace(number=np.array([0.0, 7.0])),
    "a negative number": GOOD._replace(number=np.array([0, -7])),
    "negative steps": GOOD._replace(steps=np.array([4, -1])),
    "steps that overflow": GOOD._replace(steps=np.array([2**63 - 1, 2**63 - 1])),
    "states that overflow": GOOD._replace(state_bytes=np.array([2**63 - 1, 2**62])),
    "a matrix of steps": GOOD._replace(steps=np.array([[2, 1]])),
    "a digest of another type": GOOD._replace(digest=np.array([5, 6])),
    "fewer parts of actions": GOOD._replace(actions=np.array([[0], [2], [1]], np.int32)),
    "actions of another type": GOOD._replace(actions=GOOD.actions.astype(np.float32)),
    "actions without dimensions": GOOD._replace(actions=np.array(3, np.int32)),
    "an action that does not exist": GOOD._replace(actions=np.array([[0, 1], [3, 0], [1, 1]], np.int32)),
    "a negative action": GOOD._replace(actions=np.array([[0, 1], [-1, 0], [1, 1]], np.int32)),
    "fewer bytes": GOOD._replace(states=np.array([1, 2], np.uint8)),
}


def test_running_episodes_are_read_as_they_were_written(tmp_path: Path) -> None:
    GOOD.write(tmp_path)
    read = journal.read(tmp_path, FACTS, 2)
    assert all(np.array_equal(one, other) for one, other in zip(read, GOOD, strict=True))


@pytest.mark.parametrize("saved", BAD.values(), ids=BAD)
def test_impossible_episodes_are_refused_and_their_file_is_named(saved: SavedEpisodes, tmp_path: Path) -> None:
    saved.write(tmp_path)
    with pytest.raises(HmxError, match=f"{tmp_path}/episodes.npz is damaged: ") as caught:
        journal.read(tmp_path, FACTS, 2)
    assert caught.value.exit_code == ExitCode.ARTEFACT


def test_an_action_that_is_not_a_number_is_refused(tmp_path: Path) -> None:
    saved = GOOD._replace(actions=np.array([[0.5, 1.5], [0, 0], [0, 0]], np.float32))
    saved.write(tmp_path)
    assert journal.read(tmp_path, SMOOTH, 2).actions.dtype == np.float32
    saved.actions[1, 0] = np.nan
    saved.write(tmp_path)
    with pytest.raises(HmxError, match="it has an impossible action"):
        journal.read(tmp_path, SMOOTH, 2)


def test_episodes_of_different_lengths_are_restored_and_others_begin_again(open_pool: Any) -> None:
    """The second environment began a new episode after one step of the first."""
    pool, random = open_pool(workers=1, each=2), np.random.default_rng(0)
    pool.reset()
    kept = Journal(pool)

    def play(steps: int) -> None:
        actions = random.integers(0, 2, (steps, 2, 1)).astype(np.int32)
        for row in actions:
            pool.at.action[:] = row
            pool.send(0)
            pool.wait(0)
        kept.commit(actions)

    play(1)
    pool.at.number[1] += 1
    pool.reset([1])
    play(2)
    play(2)
    saved = kept.saved(at_rest=False)
    assert saved.steps.tolist() == [5, 4] and saved.number.tolist() == [0, 1]
    other = open_pool(workers=1, each=2)
    restored = Journal(other)
    assert restored.restore(saved, pool.at.obs.copy(), pool.at.legal.copy()) == []
    assert all(np.array_equal(one, same) for one, same in zip(restored.saved(at_rest=False), saved, strict=True))
    np.testing.assert_array_equal(other.at.obs, pool.at.obs)

    forged = saved._replace(digest=saved.digest + np.array([0, 1], np.uint32))
    assert restored.restore(forged, pool.at.obs.copy(), pool.at.legal.copy()) == [1], "shows the same in the end"
    assert other.at.number.tolist() == [0, 2] and restored.saved(at_rest=False).steps.tolist() == [5, 0]


def test_rewards_count_in_what_an_episode_has_shown() -> None:
    class Paid(walk_sim.Walk):
        def step(self, action: Any) -> Any:
            obs, reward, *rest = super().step(action)
            return obs, 2.0 * reward, *rest

    digests = []
    for kind in (walk_sim.Walk, Paid):
        simulation = Simulation(kind(walk_sim.Options()))
        simulation.begin(3)
        simulation.step(np.array([1], np.int32))
        digests.append(simulation.digest)
    assert digests[0] != digests[1]
