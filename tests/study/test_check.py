"""Records of a study from a stranger: each is read, or refused with one error that names the file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from made_studies import small_study

from hmx.errors import ExitCode, HmxError
from hmx.records.artefact import SEAL, sealed
from hmx.study.folder import read_study
from hmx.study.records import CONFIRMED, PROPOSAL
from hmx.study.state import standing
from hmx.study.status import study_status
from hmx.study.verify import verify_study

FILES = {
    "trial": f"trials/0001/{PROPOSAL}", "rung": "trials/0001/rung-0.json", "promote": "trials/0001/promote-1.json",
    "confirm": f"confirm/0001/{CONFIRMED}", "result": "confirm/0001/rung-0.json",
}  # fmt: skip


@pytest.fixture
def study(tmp_path: Path) -> Path:
    """A study with a file of every kind."""
    return small_study(tmp_path / "study", trials=2)


def change(path: Path, **fields: Any) -> None:
    data = json.loads(path.read_text()) | fields
    data.pop(SEAL)
    path.write_text(sealed(data))


def use(study: Path) -> None:
    """Do with a study what commands do without training."""
    found = read_study(study)
    standing(found)
    study_status(study)
    verify_study(study)


def test_a_good_study_is_read(study: Path) -> None:
    use(study)
    assert len(read_study(study).confirmations) == 1


@pytest.mark.parametrize(
    ("name", "fields"),
    [
        ("trial", {"seen": ["1-99999999999"]}), ("trial", {"seen": ["5-1"]}), ("trial", {"seen": ["x"]}),
        ("trial", {"seen": ["0"]}), ("trial", {"seen": ["1,1"]}), ("trial", {"seen": ["1-2,2"]}),
        ("trial", {"seen": [""] * 9_000}), ("trial", {"number": 2}), ("trial", {"revision": 0}),
        ("trial", {"revision": 10**400}), ("trial", {"values": {}}), ("trial", {"values": {"x": 1}}),
        ("trial", {"values": {"algo.learning_rate": "0.001", "net.activation": "tanh"}}),
        ("trial", {"values": {"algo.learning_rate": 5.0, "net.activation": "tanh"}}),
        ("trial", {"values": {"algo.learning_rate": True, "net.activation": "tanh"}}),
        ("trial", {"values": {"algo.learning_rate": 0.001, "net.activation": ["tanh"]}}),
        ("trial", {"rungs": []}), ("trial", {"promotions": []}), ("trial", {"folder": "x"}),
        ("rung", {"rung": 1}), ("rung", {"rung": 10**400}), ("rung", {"per_seed": []}),
        ("rung", {"per_seed": [1] * 10_001}),
        ("promote", {"rung": 2}), ("promote", {"seen": "1-99999999999"}), ("promote", {"seen": "1,"}),
        ("confirm", {"rungs": []}), ("confirm", {"trial": 7}), ("confirm", {"trial": 2}), ("confirm", {"seeds": []}),
        ("confirm", {"seeds": [1, 1]}), ("confirm", {"seeds": [2**40]}), ("confirm", {"seeds": [*range(10_001)]}),
        ("confirm", {"seen": "9-1"}), ("result", {"per_seed": [1.0]}), ("result", {"rung": 3}),
    ],
)  # fmt: skip
def test_a_record_that_does_not_fit_is_refused(study: Path, name: str, fields: dict[str, Any]) -> None:
    path = study / FILES[name]
    change(path, **fields)
    with pytest.raises(HmxError) as caught:
        use(study)
    assert caught.value.exit_code == ExitCode.ARTEFACT
    assert str(path) in caught.value.message and len(caught.value.message) < 1000


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("eta = 2", "eta = 0", "eta must be between 2 and 100, not 0"),
        ("sampler_seed = 0", f"sampler_seed = {2**31}", "sampler_seed must be between 0 and"),
        ("trials = 2", f"trials = {'9' * 400}", "trials must be between"),
        ("rungs = [0.5, 1.0]", "rungs = []", "the number of rungs must be between 1 and 10"),
        ("rungs = [0.5, 1.0]", f"rungs = {[(i + 1) / 20_001 for i in range(20_001)]}", "the number of rungs must be"),
        ("rungs = [0.5, 1.0]", "rungs = [0.5]", "rungs must rise"),
        ("rungs = [0.5, 1.0]", "rungs = [1.0, 0.5, 1.0]", "rungs must rise"),
        ("eta = 2", f"eta = 2\nx = {'[' * 5000}{']' * 5000}", "cannot read"),
        ('measure = "final"', 'measure = "steps_to"', "the measure steps_to and its threshold do not fit"),
        ('"net.activation" = "tanh|relu"', '"net.activation" = "tanh|x"', "cannot read"),
        ('sampler = "random"', 'sampler = "grid"', "a grid has no ranges"),
        ('configs = []', 'configs = ["base", "../x"]', "the configuration ../x is missing"),
        ("confirm_seeds = 2", "confirm_seeds = 99999", "confirm_seeds must be between 0 and 10,000"),
    ],
)  # fmt: skip
def test_impossible_settings_are_refused(study: Path, old: str, new: str, said: str) -> None:
    path = study / "study.1.toml"
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))
    with pytest.raises(HmxError) as caught:
        use(study)
    assert caught.value.exit_code == ExitCode.ARTEFACT
    assert said in caught.value.message and str(study) in caught.value.message and len(caught.value.message) < 1000


def test_a_missing_revision_is_named(study: Path) -> None:
    (study / "study.3.toml").write_text((study / "study.1.toml").read_text())
    with pytest.raises(HmxError, match="revision 2 is missing"):
        read_study(study)
    (study / "study.3.toml").rename(study / "study.2.toml")
    assert len(read_study(study).history) == 2
    (study / "study.2.toml").write_text((study / "study.1.toml").read_text().replace("eta = 2", "eta = 3"))
    with pytest.raises(HmxError, match="revision 2 has other rungs, eta or objective"):
        read_study(study)
