"""Man pages, completions and reference pages follow from the code."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
GENERATED = ("man", "completions", "docs")


def check(folder: Path) -> subprocess.CompletedProcess[str]:
    """Run the generator's check in a checkout."""
    return subprocess.run([sys.executable, "tools/docs.py", "--check"], cwd=folder, capture_output=True, text=True)


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """Make a checkout that a test may change."""
    for name in ("hmx", "tools", *GENERATED):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("CHANGELOG.md", "pyproject.toml"):
        shutil.copy(ROOT / name, tmp_path)
    return tmp_path


# file, text in it, what replaces the text, and the files that are stale then
CHANGES = [
    ("hmx/config/schema.py", "random seed", "the seed", {"docs/config.md", "man/hmx-train.1"}),
    ("hmx/play/request.py", "number of episodes", "how many episodes", {"docs/cli.md", "man/hmx-watch.1"}),
    ("CHANGELOG.md", "## [0.1.0] - 20", "## [0.1.0] - 21", {"man/hmx.1"}),
    ("hmx/records/metrics_table.py", "train/grad_norm", "train/gradient", {"docs/metrics.md"}),
    ("completions/_hmx", "compdef", "comdef", {"completions/_hmx"}),
]


def test_changes_make_generated_files_stale_and_make_docs_updates_them(copy):
    for source, old, new, _ in CHANGES:
        path = copy / source
        assert old in path.read_text()
        path.write_text(path.read_text().replace(old, new))
    (copy / "man" / "hmx-dance.1").write_text("")  # the page of a command that was removed
    (copy / "docs" / "api.md").unlink()
    done = check(copy)
    assert done.returncode == 1 and "make docs" in done.stderr
    stale = set(re.findall(r"error: (\S+) is out of date", done.stderr))
    assert set().union(*(files for *_, files in CHANGES)) <= stale
    assert "docs/compare.md" not in stale, "nothing that it derives from was changed"
    assert "man/hmx-dance.1" in done.stderr and "docs/api.md" in done.stderr
    subprocess.run([sys.executable, "tools/docs.py"], cwd=copy, check=True, capture_output=True)
    assert check(copy).returncode == 0
    assert not (copy / "man" / "hmx-dance.1").exists() and (copy / "docs" / "api.md").exists()


@pytest.mark.skipif(shutil.which("mandoc") is None, reason="mandoc is not installed")
def test_the_man_pages_are_clean_roff():
    pages = sorted(str(path) for path in (ROOT / "man").glob("*.1"))
    done = subprocess.run(["mandoc", "-T", "lint", *pages], capture_output=True, text=True)
    assert done.stdout == "" and done.returncode == 0


@pytest.mark.parametrize("page", sorted((ROOT / "man").glob("*.1")), ids=lambda page: page.name)
def test_man_pages_have_the_usual_sections_and_examples(page):
    sections = dict(re.findall(r"^\.SH (.+)\n((?:(?!\.SH ).*\n)*)", page.read_text(), re.MULTILINE))
    usual = ["NAME", "SYNOPSIS", "DESCRIPTION", "OPTIONS", "EXIT STATUS", "ENVIRONMENT", "FILES", "EXAMPLES"]
    usual.append("SEE ALSO")
    assert [heading for heading in sections if heading in usual] == usual
    assert all(sections[heading].strip() for heading in usual)
    assert re.search(rf"^{page.stem.replace('-', ' ', 1)}\b".replace("-", r"\\-"), sections["EXAMPLES"], re.MULTILINE)
    # Other sections: the commands of hmx, and in the page of a group one section for each of its commands.
    others = [heading for heading in sections if heading not in (*usual, "COMMANDS")]
    assert all(f".B hmx {page.stem[4:]} {heading.lower()}" in page.read_text() for heading in others)
