"""Runs of every published schema can be resumed; files of later versions are refused."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from folders import contents

from hmx.errors import ExitCode, HmxError
from hmx.jobs import runs
from hmx.jobs.evaluate import evaluate
from hmx.jobs.resume import plan, resume
from hmx.play.scenario import read_scenario
from hmx.records import checkpoints, jsonl
from hmx.records import meta as metas
from hmx.records.artefact import sealed
from hmx.records.frozen import read_config
from hmx.records.paths import RunPaths
from hmx.runs.checkpoint import to_host
from hmx.runs.restoring import restore
from hmx.runs.session import open_session

pytestmark = pytest.mark.usefixtures("compiled_once")
OLD = pytest.mark.parametrize("schema", [1, 2])


@pytest.fixture
def folder(unpack: Callable[[int, Path], RunPaths], tmp_path: Path) -> Callable[[int], RunPaths]:
    return lambda schema: unpack(schema, tmp_path / "runs")


@OLD
def test_an_old_run_is_verified_and_not_rewritten(schema: int, folder: Any) -> None:
    paths = folder(schema)
    before = contents(paths.folder)
    manifest = checkpoints.read_manifest(paths.checkpoint(4))
    assert (manifest.schema, manifest.update, manifest.env_steps) == (schema, 4, 64)
    found = runs.verify(paths.folder)
    assert (found.damage, found.notes, found.intact) == ((), (), (2, 4))
    (row,) = runs.list_runs(paths.root).runs
    assert (row.state, row.update, row.env_steps) == ("interrupted", 4, 64)
    planned = plan(paths.folder)
    assert (planned.update, planned.total_updates, planned.warnings) == (4, 8, ())
    assert contents(paths.folder) == before


def test_the_state_of_schema_1_is_migrated(folder: Any) -> None:
    paths = folder(1)
    session = open_session(read_config(paths))
    state = to_host(restore(session, paths).state)
    saved = {leaf.path: leaf for leaf in checkpoints.read_manifest(paths.checkpoint(4)).leaves}
    flat = {path.removeprefix("actors/").removeprefix("learner/") for path in state}
    first_episodes = {path for path in flat if path.startswith("first/")}
    assert flat - set(saved) - first_episodes == {"reset", "agent_done"}
    assert set(saved) - flat == {"env_steps"}
    assert "first/running" in first_episodes
    assert not any(state[f"actors/{path}"].any() for path in first_episodes)  # zeros: every episode counts at its end
    reset, agent_done = state["actors/reset"], state["actors/agent_done"]
    assert not reset.any() and not agent_done.any()
    assert (reset.shape, agent_done.shape) == ((2,), (2, 1))
    assert state["update"] == 4
    # Four updates have moved every parameter away from zero, where biases begin.
    assert all(np.abs(leaf).sum() > 0 for name, leaf in state.items() if name.startswith("params/"))


@OLD
def test_an_old_run_is_evaluated_and_resumed_to_its_end(schema: int, folder: Any) -> None:
    paths = folder(schema)
    found = evaluate(paths.folder, episodes=4, policies=("sampled",))
    assert (found.checkpoint, found.warnings) == (4, ())
    result = resume(paths.folder)
    assert (result.state, result.first_update, result.updates) == ("finished", 4, 8)
    assert [record["update"] for record in jsonl.read(paths.metrics)] == list(range(1, 9))
    meta = metas.read(paths.meta)
    assert (meta.schema, meta.update, len(meta.resumes)) == (metas.SCHEMA, 8, 1)
    assert runs.verify(paths.folder).damage == ()
    newest = checkpoints.read_manifest(paths.checkpoint(8))
    assert newest.schema == checkpoints.SCHEMA
    assert newest.metrics == jsonl.Marker(paths.metrics).mark()


@pytest.mark.parametrize(("old", "new"), [("gamma = 0.99", "gamma = 0.98"), ("slip = 0.1", ""), ("ppo", "PPO")])
def test_changed_configuration_of_schema_1_is_detected(old: str, new: str, folder: Any) -> None:
    paths = folder(1)
    text = paths.config.read_text()
    assert old in text
    paths.config.write_text(text.replace(old, new))
    with pytest.raises(HmxError, match=r"run\.toml (has changed|is damaged)") as caught:
        plan(paths.folder)
    assert caught.value.exit_code == ExitCode.ARTEFACT
    assert [place.path for place in runs.verify(paths.folder).damage] == ["run.toml"]


def test_changed_shape_of_schema_1_is_detected(folder: Any) -> None:
    """Even where both the file and the digest of it were written anew."""
    paths = folder(1)
    paths.config.write_text(paths.config.read_text().replace('activation = "relu"', 'activation = "tanh"'))
    data = json.loads(paths.meta.read_text())
    paths.meta.write_text(json.dumps({**data, "config_digest": ""}))
    for update in (2, 4):
        file = paths.checkpoint(update) / "manifest.json"
        file.write_text(json.dumps({**json.loads(file.read_text()), "config_digest": ""}))
    with pytest.raises(HmxError, match="has changed the network, the environment or the number of seeds"):
        plan(paths.folder)


def _manifest(paths: RunPaths) -> None:
    file = paths.checkpoint(4) / "manifest.json"
    data = json.loads(file.read_text())
    del data["sha256"]
    file.write_text(sealed({**data, "schema": checkpoints.SCHEMA + 1}))


def _meta(paths: RunPaths) -> None:
    paths.meta.write_text(sealed({"schema": metas.SCHEMA + 1, "something": "new"}))


def _metrics(paths: RunPaths) -> None:
    paths.metrics.write_text(paths.metrics.read_text().replace('"schema":1', f'"schema":{jsonl.SCHEMA + 1}'))


def _config(paths: RunPaths) -> None:
    paths.config.write_text(re.sub(r"^schema = \d+", "schema = 99", paths.config.read_text()))


@pytest.mark.parametrize(
    ("change", "name", "code", "evaluates"),
    [
        (_manifest, "manifest.json", ExitCode.ARTEFACT, False),
        (_meta, "meta.json", ExitCode.ARTEFACT, True),
        (_metrics, "metrics.jsonl", ExitCode.ARTEFACT, True),
        (_config, "run.toml", ExitCode.USAGE, False),
    ],
)
def test_files_of_a_later_version_are_refused_and_unchanged(
    change: Callable[[RunPaths], None], name: str, code: ExitCode, evaluates: bool, folder: Any
) -> None:
    paths = folder(2)
    change(paths)
    before = contents(paths.folder)
    with pytest.raises(HmxError, match=f"{name}.* has schema .*written by a newer hmx") as caught:
        resume(paths.folder)
    assert caught.value.exit_code == code
    assert "upgrade hmx" in caught.value.hint
    if not evaluates:
        with pytest.raises(HmxError, match="written by a newer hmx") as caught:
            evaluate(paths.folder, episodes=1)
        assert caught.value.exit_code == code
    assert contents(paths.folder) == before
    assert any("written by a newer hmx" in place.what for place in runs.verify(paths.folder).damage)


def test_report_of_a_later_version_is_reported(folder: Any) -> None:
    paths = folder(2)
    (paths.reports / "evaluation.json").write_text(sealed({"schema": 99}))
    (found,) = runs.verify(paths.folder).damage
    assert found.path == "reports/evaluation.json"
    assert "has schema 99, written by a newer hmx" in found.what


def test_scenario_without_schema_is_read_as_schema_1(tmp_path: Path) -> None:
    file = tmp_path / "scenario.json"
    for position in ({"player": {"row": 0, "col": 0}}, {"schema": 1, "player": {"row": 0, "col": 0}}):
        file.write_text(json.dumps(position))
        assert read_scenario(file) == {"player": {"row": 0, "col": 0}}
    for text, words, code in (
        ('{"schema": 2}', "has schema 2, written by a newer hmx", ExitCode.ARTEFACT),
        ('{"schema": 2, "position": {}}', "has schema 2, written by a newer hmx", ExitCode.ARTEFACT),
        ('{"schema": "1"}', "schema must be a whole number", ExitCode.USAGE),
        ('{"schema": 0}', "schema must be a whole number", ExitCode.USAGE),
    ):
        file.write_text(text)
        with pytest.raises(HmxError, match=words) as caught:
            read_scenario(file)
        assert caught.value.exit_code == code
