"""Help, messages, docstrings and docs avoid the words that STYLE.md lists."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]

WORDS = {
    r"\banew\b": "again",
    r"\blikewise\b": "also",
    r"\bbesides\b": "also",
    r"\b(whoever|somebody|nobody)\b": "the user, a process, no process",
    r"\bredraws?\b": "bootstrap resamples",
    r"\b(go|goes|going|went) on\b": "continue, resume",
    r"\b(is|are|was|were) told\b": "is reported",
    r"\bthat is none\b": "no ...",
    r"\bin words\b": "with a message",
    r"\bmend(s|ed|ing)?\b": "fix, repair",
    r"\bwithout a word\b": "without a message",
    r"\bas it were\b": "",
    r"\bby chance\b": "p-value, random",
    r"\bdealt\b": "permutation",
    r"\bstep size\b": "learning rate",
    r"(?<!noise )\bfloors?\b(?! of)": "layer",
    r"\bwith a memory\b": "recurrent",
}
"""Pattern -> what to write instead."""

EXCEPTIONS = {
    "STYLE.md": "lists the words",
    "docs/adr": "decisions keep the wording of their time",
    "CHANGELOG.md": "released sections keep the wording of their time",
}
"""Files and folders that are not checked, and why."""

ALLOWED = {
    ("hmx/sizing", r"(?<!noise )\bfloors?\b(?! of)"): "floor() of a published equation",
    ("docs/batch-math.md", r"(?<!noise )\bfloors?\b(?! of)"): "floor() of a published equation",
}
"""(Path prefix, pattern) -> why it is allowed there."""


def python_texts(path: Path) -> Iterator[tuple[int, str]]:
    """Yield line and text of every string and comment of a module."""
    source = path.read_text()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.lineno, node.value
    for number, line in enumerate(source.splitlines(), 1):
        if comment := re.search(r"(?:^|\s)#\s(.*)", line):
            yield number, comment[1]


def markdown_texts(path: Path) -> Iterator[tuple[int, str]]:
    """Yield line and text of every line outside code blocks."""
    code = False
    for number, line in enumerate(path.read_text().splitlines(), 1):
        if line.lstrip().startswith("```"):
            code = not code
        elif not code:
            yield number, line


def findings(name: str, texts: Iterator[tuple[int, str]]) -> list[str]:
    """Return every listed word of a file, with its line."""
    return [
        f"{name}:{line}: {found[0]!r}, write: {better}"
        for line, text in texts
        for pattern, better in WORDS.items()
        if (found := re.search(pattern, text, re.IGNORECASE))
        and not any(name.startswith(prefix) and pattern == other for prefix, other in ALLOWED)
    ]


def files() -> list[Path]:
    """Return every file that people read."""
    paths = [*ROOT.glob("hmx/**/*.py"), *ROOT.glob("tools/*.py"), *ROOT.glob("benchmarks/*.py")]
    paths += [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("hmx/**/*.md")]
    return [path for path in sorted(paths) if not str(path.relative_to(ROOT)).startswith(tuple(EXCEPTIONS))]


def test_texts_avoid_listed_words() -> None:
    found = []
    for path in files():
        texts = python_texts(path) if path.suffix == ".py" else markdown_texts(path)
        found += findings(str(path.relative_to(ROOT)), texts)
    assert not found, f"{len(found)} words that STYLE.md lists:\n" + "\n".join(found)


def test_listed_words_are_found(tmp_path: Path) -> None:
    module = tmp_path / "module.py"
    module.write_text('"""It goes on anew."""\n# whoever reads this\nx = f"{1} is told"\n')
    assert len(findings("module.py", python_texts(module))) == 4
    page = tmp_path / "page.md"
    page.write_text("A run goes on.\n```\nanew\n```\n")
    assert findings("page.md", markdown_texts(page)) == ["page.md:1: 'goes on', write: continue, resume"]
