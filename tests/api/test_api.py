"""`import hmx`: what a program of the user gets, and the errors that it gets instead."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import jax
import numpy as np
import pytest
from api_runs import TINY

import hmx

pytestmark = pytest.mark.usefixtures("compiled_once")


def test_import_settings_and_metrics_do_not_load_jax() -> None:
    code = "import sys, hmx; dir(hmx), hmx.Config, hmx.load_config, hmx.load_metrics, hmx.HmxError; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert "hmx.api.configs" in loaded
    assert "jax" not in loaded


def test_the_version_is_that_of_the_command_and_loads_no_jax() -> None:
    code = "import sys, hmx; print(hmx.__version__); print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    version, loaded = done.stdout.splitlines()
    command = subprocess.run([sys.executable, "-m", "hmx", "--version"], capture_output=True, text=True, check=True)
    assert command.stdout == f"hmx {version}\n" and hmx.__version__ == version
    assert not {"jax", "numpy", "typer"} & set(loaded.split())


def test_every_public_name_exists_and_has_a_docstring() -> None:
    assert all(getattr(hmx, name).__doc__ for name in hmx.__all__)
    with pytest.raises(AttributeError, match="no attribute 'trian'"):
        _ = hmx.trian  # type: ignore[attr-defined]


def test_dir_lists_only_public_names() -> None:
    assert dir(hmx) == sorted(hmx.__all__)


def test_values_override_the_preset_and_errors_name_them() -> None:
    config = hmx.load_config({"algo.gamma": 0.5, "net.hidden": [4, 4]}, preset="tiny")
    assert (config.algo.gamma, config.net.hidden) == (0.5, (4, 4))
    with pytest.raises(hmx.HmxError, match=r"env.id = corrido \(values\)") as caught:
        hmx.load_config({"env.id": "corrido"})
    assert caught.value.hint == "'env.id': 'corridor'"
    with pytest.raises(hmx.HmxError, match="preset"):
        hmx.train(config, preset="tiny")


def test_metrics_are_columns_with_nan_where_an_update_has_no_data(place: Path) -> None:
    columns = hmx.load_metrics("first")
    assert columns["update"].tolist() == [1, 2, 3, 4]
    assert columns["env_steps"].dtype == np.int64
    assert columns["train/policy_loss"].shape == (4,)
    assert "corridor" not in columns and not any(value.dtype == object for value in columns.values())
    with pytest.raises(hmx.HmxError, match="there is no run nothere"):
        hmx.load_metrics("nothere")


def test_agent_acts_on_single_observations_and_batches(place: Path) -> None:
    agent = hmx.load_agent("first", trust=True)
    assert repr(agent).startswith("TrainedAgent(run='first', env=") and len(repr(agent)) < 120
    _, first = agent.env.reset(jax.random.split(jax.random.key(0), 3))
    batch = agent.act(first.obs, first.legal)
    assert batch.shape == (3, 1)
    assert agent.act(first.obs[0, 0], first.legal[0, 0]) == batch[0, 0]
    left = np.zeros((3, 1, agent.env.spec.num_actions), bool)
    left[..., 0] = True
    assert (agent.act(first.obs, left, jax.random.key(1)) == 0).all()
    assert (agent.act(first.obs, left.astype(float), jax.random.key(1)) == 0).all()
    for other in (np.where(left, 0.0, -np.inf), np.where(left, np.nan, 0.0), left + 1):
        with pytest.raises(hmx.HmxError, match="cannot act: legal has the number"):
            agent.act(first.obs, other, jax.random.key(1))
    decision, _ = agent.decide(first.obs[:, 0])
    assert decision.probs.shape == (3, agent.env.spec.num_actions)
    with pytest.raises(hmx.HmxError, match=r"obs is \[2\], expected \[..., 8\]"):
        agent.act(np.zeros(2))
    with pytest.raises(hmx.HmxError, match="legal is"):
        agent.act(first.obs, first.legal[:2])
    with pytest.raises(hmx.HmxError, match="there is no agent 1 in first"):
        hmx.load_agent("first", index=1)


def test_evaluate_compare_plot_and_show(place: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    found = hmx.evaluate("first", episodes=8, trust=True)
    assert [row.policy for row in found.policies] == ["sampled", "greedy"]
    hmx.show(found)
    hmx.show(hmx.compare("first", "again=first"))
    printed = capsys.readouterr().out
    assert "greedy" in printed and "again" in printed
    chart = hmx.plot("first", metric="train/policy_loss")
    assert repr(chart) == "Chart('policy loss', 1 curve)"
    chart.save(tmp_path / "chart.html")
    assert '"series":[{"name"' in (tmp_path / "chart.html").read_text()
    assert "srcdoc" in chart._repr_html_()
    with pytest.raises(hmx.HmxError, match="no run reports it"):
        hmx.plot("first", metric="train/nothing")


def test_show_prints_plain_text_in_a_notebook(
    place: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rich would print escapes, after an empty box."""
    displayed: list[object] = []
    monkeypatch.setattr("rich.console._is_jupyter", lambda: True)
    monkeypatch.setattr("rich.jupyter.display", lambda *args: displayed.append(args))
    hmx.show(hmx.evaluate("first", episodes=4, trust=True))
    shown = capsys.readouterr().out
    assert "sampled" in shown and "\x1b" not in shown and not displayed


def test_progress_is_lines_without_a_terminal(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    result = hmx.train({**TINY, "run.name": "shown", "run.total_steps": 64})
    assert result.updates == 1
    assert "compiling" in capsys.readouterr().err


def test_environments_are_built_and_checked_by_name_with_settings() -> None:
    assert hmx.check_env("counting", steps=8).passed
    assert hmx.make_env("corridor", {"env.max_steps": 7}).spec.max_steps == 7
    with pytest.raises(hmx.HmxError, match="unknown environment: corrido"):
        hmx.make_env("corrido")
