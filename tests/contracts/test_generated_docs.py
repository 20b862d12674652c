"""Man pages, completions and reference pages say what the code says."""

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
    """Runs the generator's check in a checkout."""
    return subprocess.run([sys.executable, "tools/docs.py", "--check"], cwd=folder, capture_output=True, text=True)


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """A checkout that a test may spoil."""
    for name in ("hmx", "tools", *GENERATED):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("CHANGELOG.md", "pyproject.toml"):
        shutil.copy(ROOT / name, tmp_path)
    return tmp_path


def test_the_committed_files_are_current():
    done = check(ROOT)
    assert done.returncode == 0, f"{done.stderr}\nmake docs writes them anew"


@pytest.mark.parametrize(
    ("source", "old", "new", "stale"),
    [
        ("hmx/config/schema.py", "seed of every random stream", "the seed", {"docs/config.md", "man/hmx-train.1"}),
        ("hmx/cli/resume.py", '"--steps"', '"--until"', {"docs/cli.md", "man/hmx-resume.1"}),
        ("CHANGELOG.md", "## [0.1.0] - 20", "## [0.1.0] - 21", {"man/hmx.1"}),
        ("hmx/records/metrics_table.py", "train/grad_norm", "train/gradient", {"docs/metrics.md"}),
        ("completions/_hmx", "compdef", "comdef", {"completions/_hmx"}),
    ],
)
def test_a_change_of_the_code_makes_them_stale(copy, source, old, new, stale):
    path = copy / source
    assert old in path.read_text()
    path.write_text(path.read_text().replace(old, new))
    done = check(copy)
    assert done.returncode == 1 and "make docs" in done.stderr
    assert stale <= set(re.findall(r"error: (\S+) is out of date", done.stderr))


def test_a_page_of_a_command_that_is_gone_is_found(copy):
    (copy / "man" / "hmx-dance.1").write_text("")
    assert "man/hmx-dance.1" in check(copy).stderr


def test_writing_makes_them_current(copy):
    (copy / "man" / "hmx-dance.1").write_text("")
    (copy / "docs" / "config.md").unlink()
    subprocess.run([sys.executable, "tools/docs.py"], cwd=copy, check=True, capture_output=True)
    assert check(copy).returncode == 0
    assert not (copy / "man" / "hmx-dance.1").exists()


@pytest.mark.skipif(shutil.which("mandoc") is None, reason="mandoc is not installed")
def test_the_man_pages_are_clean_roff():
    pages = sorted(str(path) for path in (ROOT / "man").glob("*.1"))
    done = subprocess.run(["mandoc", "-T", "lint", *pages], capture_output=True, text=True)
    assert done.stdout == "" and done.returncode == 0


@pytest.mark.parametrize("page", sorted((ROOT / "man").glob("*.1")), ids=lambda page: page.name)
def test_man_pages_have_the_sections_that_readers_expect(page):
    heads = re.findall(r"^\.SH (.+)$", page.read_text(), re.MULTILINE)
    wanted = ["NAME", "SYNOPSIS", "DESCRIPTION", "OPTIONS", "EXIT STATUS", "ENVIRONMENT", "SEE ALSO"]
    assert [head for head in heads if head in wanted] == wanted
    # besides, a page has the commands of a group, each with a section of its own
    others = [head for head in heads if head not in (*wanted, "COMMANDS")]
    assert all(f".B hmx {page.stem[4:]} {head.lower()}" in page.read_text() for head in others)
