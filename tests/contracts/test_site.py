"""The documentation site has every page in its order, and its check finds broken links; `make static` builds it."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

import site_pages

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def staged(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sources of the site."""
    folder = tmp_path_factory.mktemp("site")
    site_pages.stage(folder)
    return folder


def pages(nav: object) -> Iterator[str]:
    """Yield the pages of a navigation in their order."""
    if isinstance(nav, str):
        yield nav
    for entry in nav.values() if isinstance(nav, dict) else nav if isinstance(nav, list) else ():
        yield from pages(entry)


def test_every_document_is_in_the_navigation_once(staged: Path) -> None:
    nav = tomllib.loads((staged / "zensical.toml").read_text())["project"]["nav"]
    listed = list(pages(nav))
    assert [next(iter(entry)) for entry in nav] == [
        "Start", "Tutorials", "How-to", "Reference", "Explanations", "Experiments",
    ]  # fmt: skip
    source = staged / "source"
    documents = {str(path.relative_to(source)) for path in source.rglob("*.md")}
    assert len(listed) == len(set(listed)) and set(listed) == documents - {"examples/README.md"}


def test_each_command_has_a_page_with_its_options(staged: Path) -> None:
    page = (staged / "source" / "docs" / "commands" / "train.md").read_text()
    assert page.startswith("# hmx train\n") and "| `--seeds N` |" in page
    assert "## hmx runs tail" in (staged / "source" / "docs" / "commands" / "runs.md").read_text()


def test_notebooks_are_pages_with_their_code(staged: Path) -> None:
    page = (staged / "source" / "examples" / "1-first-agent.md").read_text()
    assert page.startswith("# ") and "```python\nimport jax\n\nimport hmx\n```" in page
    assert ".ipynb)" not in (staged / "source" / "README.md").read_text()


@pytest.mark.parametrize(
    ("html", "error"),
    [
        ('<article><a href="other.html#there">x</a><img src="picture.svg"></article>', None),
        ('<article><a href="https://example.org/">x</a></article>', None),
        ('<nav><a href="none">x</a></nav><article>text</article>', None),
        ('<article><a href="missing.html">x</a></article>', "links to missing.html, which does not exist"),
        ('<article><img src="missing.svg"></article>', "links to missing.svg, which does not exist"),
        ('<article><a href="folder/">x</a></article>', "links to folder/, which does not exist"),
        ('<article><a href="other.html#gone">x</a></article>', "links to other.html#gone, which has no such anchor"),
        ('<article><a href="#gone">x</a></article>', "links to #gone, which has no such anchor"),
        ('<script src="https://example.org/x.js"></script>', "loads https://example.org/x.js, from another host"),
        ('<link href="//example.org/x.css">', "loads //example.org/x.css, from another host"),
    ],
)
def test_broken_links_and_files_of_other_hosts_are_found(tmp_path: Path, html: str, error: str | None) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "picture.svg").touch()
    (tmp_path / "other.html").write_text('<article><h2 id="there">There</h2></article>')
    (tmp_path / "page.html").write_text(html)
    assert list(site_pages.errors_of(tmp_path)) == ([f"page.html {error}"] if error else [])


def test_a_missing_builder_is_named_with_the_command_that_installs_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(site_pages, "find_spec", lambda name: None)
    assert site_pages.main(["--check"]) == 1
    assert capsys.readouterr().err == (
        "error: cannot build the site: zensical is not installed\n\nhint: make site installs it\n"
    )
