"""Build the documentation site from the project's Markdown files, and fail on broken links.

python tools/site_pages.py           write it to site/
python tools/site_pages.py --check   build it in a temporary folder, only to find errors
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from html.parser import HTMLParser
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import unquote, urlsplit

import docs

ROOT = docs.ROOT
CONFIG = ROOT / "tools" / "site_pages.toml"
FOLDERS = ("docs", "examples")
FILES = ("LICENSE", "Dockerfile", "CITATION.cff")


def stage(folder: Path) -> None:
    """Write the sources of the site below a folder: the same relative paths as in the project, and generated pages."""
    source = folder / "source"
    for name in FOLDERS:
        shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__"))
    for path in [*ROOT.glob("*.md"), *(ROOT / name for name in FILES)]:
        shutil.copy(path, source)
    notebooks = sorted((source / "examples").glob("*.ipynb"))
    for path in notebooks:
        path.with_suffix(".md").write_text(markdown(json.loads(path.read_text(encoding="utf-8"))), encoding="utf-8")
    for path in source.rglob("*.md"):
        text = path.read_text(encoding="utf-8")
        path.write_text(re.sub(r"\.ipynb(?=[)#])", ".md", text), encoding="utf-8")
    commands = write_commands(source / "docs" / "commands")
    config = CONFIG.read_text(encoding="utf-8")
    for name, pages in {
        "notebooks": [path.with_suffix(".md") for path in notebooks],
        "commands": commands,
        "decisions": index_first(source / "docs" / "adr"),
        "experiments": index_first(source / "docs" / "experiments"),
    }.items():
        config = config.replace(f"@{name}@", ", ".join(json.dumps(str(page.relative_to(source))) for page in pages))
    (folder / "zensical.toml").write_text(config, encoding="utf-8")


def index_first(folder: Path) -> list[Path]:
    """Return the pages of a folder: its README.md, then the others by name."""
    return sorted(folder.glob("*.md"), key=lambda path: (path.name != "README.md", path.name))


def write_commands(folder: Path) -> list[Path]:
    """Write a page per command, with the text of docs/cli.md."""
    import reference

    folder.mkdir()
    pages = []
    for name, text in reference.commands("#").items():
        pages.append(folder / f"{name}.md")
        pages[-1].write_text(text + "\n", encoding="utf-8")
    return pages


def markdown(notebook: dict[str, object]) -> str:
    """Return a notebook as Markdown: its texts and its code."""
    texts = []
    cells = notebook["cells"]
    assert isinstance(cells, list)
    for cell in cells:
        text = "".join(cell["source"])
        texts.append(f"```python\n{text}\n```" if cell["cell_type"] == "code" else text)
    return "\n\n".join(texts) + "\n"


def build(folder: Path) -> list[str]:
    """Build the staged site; return what is wrong with it."""
    command = [sys.executable, "-m", "zensical", "build", "--strict"]
    done = subprocess.run(command, cwd=folder, env={**os.environ, "NO_COLOR": "1"}, capture_output=True, text=True)
    if done.returncode:
        return [re.sub(r"\x1b\[[\d;]*m", "", done.stdout + done.stderr).partition("Traceback")[0].strip()]
    return list(errors_of(folder / "site"))


class Page(HTMLParser):
    """The anchors of a page, what it loads, and the places that its text links to, without the frame of the theme."""

    def __init__(self) -> None:
        super().__init__()
        self.anchors: set[str] = set()
        self.links: list[str] = []
        self.loaded: list[str] = []
        self._in_text = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Collect what an element declares."""
        self._in_text = self._in_text or tag == "article"
        values = {name: value for name, value in attrs if value is not None}
        self.anchors.update(values[name] for name in ("id", "name") if name in values)
        self.loaded += [values["src"]] if "src" in values else []
        self.loaded += [values["href"]] if tag == "link" and "href" in values else []
        if self._in_text:
            self.links += [values[name] for name in ("href", "src") if name in values]

    def handle_endtag(self, tag: str) -> None:
        """Leave the text at its end."""
        self._in_text = self._in_text and tag != "article"


def errors_of(site: Path) -> Iterator[str]:
    """Yield what the builder does not check: links to missing files and anchors, and files of other hosts."""
    pages = {}
    for path in site.rglob("*.html"):
        pages[path] = Page()
        pages[path].feed(path.read_text(encoding="utf-8"))
    for path, page in pages.items():
        for link in page.loaded:
            if urlsplit(link).netloc:
                yield f"{path.relative_to(site)} loads {link}, from another host"
        for link in page.links if path.name != "404.html" else ():
            parts = urlsplit(link)
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            if parts.scheme or parts.netloc:
                continue
            if not target.is_file():
                yield f"{path.relative_to(site)} links to {link}, which does not exist"
            elif target in pages and parts.fragment and unquote(parts.fragment) not in pages[target].anchors:
                yield f"{path.relative_to(site)} links to {link}, which has no such anchor"


def main(words: list[str]) -> int:
    """Build or check the site; return the exit code."""
    if find_spec("zensical") is None:
        print("error: cannot build the site: zensical is not installed\n\nhint: make site installs it", file=sys.stderr)
        return 1
    with tempfile.TemporaryDirectory(prefix="hmx-site-") as name:
        folder = Path(name).resolve()
        stage(folder)
        errors = build(folder)
        for error in errors:
            print(f"error: {error}", file=sys.stderr)
        if errors:
            print("\nhint: change the Markdown files that these pages come from", file=sys.stderr)
            return 1
        pages = len(list((folder / "site").rglob("*.html")))
        if words == ["--check"]:
            print(f"{pages} pages without broken links")
            return 0
        shutil.rmtree(ROOT / "site", ignore_errors=True)
        shutil.copytree(folder / "site", ROOT / "site")
        print(f"wrote site/: {pages} pages; open site/index.html; search needs a server: python -m http.server -d site")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
