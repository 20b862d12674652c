"""`hmx.new_study` and the functions of a study, without training."""

from __future__ import annotations

from pathlib import Path

import pytest

import hmx


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A study without trials."""
    space = {"algo.learning_rate": "1e-4..1e-2:log", "net.hidden": [(8,), (16, 16)], "net.activation": ["tanh", "relu"]}
    hmx.new_study(tmp_path / "s", space, preset="tiny", search={"trials": 5, "confirm": 0})
    return tmp_path / "s"


def test_study_has_the_space_and_options_that_were_given(folder: Path) -> None:
    settings = hmx.read_study(folder).settings
    assert settings.trials == 5
    assert [one.choices for one in settings.space] == [(), ([8], [16, 16]), ("tanh", "relu")]
    assert (folder / "configs" / "base.toml").is_file()


def test_study_is_extended_and_its_status_read(folder: Path) -> None:
    hmx.extend_study(folder, trials=3, space={"algo.gamma": [0.9, 0.99]})
    status = hmx.study_status(folder)
    assert (status.settings.trials, status.states, status.finished) == (8, {}, False)
    assert hmx.read_study(folder).settings.space[-1].key == "algo.gamma"
    assert hmx.verify_study(folder).differences == ()


def test_status_and_verification_are_shown_as_on_the_command_line(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    hmx.show(hmx.study_status(folder))
    hmx.show(hmx.verify_study(folder))
    shown = capsys.readouterr().out
    assert "0 of 5 proposed" in shown
    assert "Study s matches its record" in shown


def test_unknown_option_of_a_search_is_refused(tmp_path: Path) -> None:
    with pytest.raises(hmx.HmxError, match="unknown option trails"):
        hmx.new_study(tmp_path / "s", {"algo.gamma": [0.9, 0.99]}, search={"trails": 5})
    assert not (tmp_path / "s").exists()


def test_study_without_results_has_no_best_configuration(folder: Path) -> None:
    with pytest.raises(hmx.HmxError, match="has no best trial yet: no trial has begun"):
        hmx.best_config(folder)


def test_a_first_rung_that_may_be_too_short_is_warned_of(tmp_path: Path) -> None:
    values = {"env.id": "corridor", "env.max_steps": 1000, "run.total_steps": 8192}
    with pytest.warns(UserWarning, match="rung 0 trains .* steps per environment, the step limit is 1,000") as seen:
        hmx.new_study(tmp_path / "s", {"algo.gamma": [0.9, 0.99]}, values, preset="tiny", search={"rungs": 2})
    assert seen[0].filename == __file__  # it names the line of the user
