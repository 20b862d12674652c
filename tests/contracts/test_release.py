"""The release script changes the version everywhere, and refuses what cannot be released."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import release

ROOT = Path(__file__).parents[2]


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """The files that a release changes."""
    for name in ("pyproject.toml", "CITATION.cff", "CHANGELOG.md"):
        shutil.copy(ROOT / name, tmp_path)
    return tmp_path


def test_prepare_writes_version_and_date(project: Path) -> None:
    entries = release.section((project / "CHANGELOG.md").read_text(), "Unreleased")
    release.prepare("7.0.1", "2030-01-02", project)
    assert release.current_version(project) == "7.0.1"
    citation, changelog = (project / "CITATION.cff").read_text(), (project / "CHANGELOG.md").read_text()
    assert 'version: "7.0.1"' in citation and 'date-released: "2030-01-02"' in citation
    assert "## [Unreleased]\n\n## [7.0.1] - 2030-01-02\n" in changelog
    assert release.section(changelog, "Unreleased") == "" and release.section(changelog, "7.0.1") == entries != ""


@pytest.mark.parametrize("version", ["0.0.9", "0.1.0", "1.0", "1.0.0rc1", "v2.0.0"])
def test_prepare_refuses_versions_that_are_not_newer(project: Path, version: str) -> None:
    with pytest.raises(release.Refusal, match="cannot release"):
        release.prepare(version, "2030-01-02", project)
    assert (project / "pyproject.toml").read_bytes() == (ROOT / "pyproject.toml").read_bytes()


def test_prepare_refuses_an_empty_changelog(project: Path) -> None:
    release.prepare("7.0.0", "2030-01-02", project)
    with pytest.raises(release.Refusal, match="no entry"):
        release.prepare("7.0.1", "2030-01-03", project)
