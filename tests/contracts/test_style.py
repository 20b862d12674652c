"""Help, messages, docstrings and docs avoid the words that STYLE.md lists."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]


class Rule(NamedTuple):
    """A pattern that a native reader would not write, what to write instead, and a text that it matches."""

    pattern: str
    better: str
    example: str


FLOOR = r"(?<!noise )\bfloors?\b(?! of)"

RULES = (
    Rule(r"\banew\b", "again", "read anew"),
    Rule(r"\blikewise\b", "also", "refused likewise"),
    Rule(r"\bbesides\b", "also, other than", "besides the score"),
    Rule(r"\b(whoever|somebody|nobody)\b", "the user, a process, no process", "whoever reads this"),
    Rule(r"\bredraws?\b", "bootstrap resamples", "2000 redraws"),
    Rule(r"\b(go|goes|going|went) on\b", "continue, resume", "the run goes on"),
    Rule(r"\b(is|are|was|were) told\b", "is reported", "an error is told"),
    Rule(r"\b(that|which) (is|are) (?-i:none)\b", "that is not a ...", "files that are none"),
    Rule(r"\bin words\b", "with a message", "refused in words"),
    Rule(r"\bmend(s|ed|ing)?\b", "fix, repair", "mends the file"),
    Rule(r"\bwithout a word\b", "without a message", "ends without a word"),
    Rule(r"\bas it were\b", "", "a copy, as it were"),
    Rule(r"\bby chance\b", "p-value, random", "equal by chance"),
    Rule(r"\bdealt\b", "permutation", "runs are dealt to sides"),
    Rule(r"\bstep size\b", "learning rate", "the step size of Adam"),
    Rule(FLOOR, "layer", "Floors: who may import whom"),
    Rule(r"\bwith a memory\b", "recurrent", "a network with a memory"),
    Rule(r"(?<!each )(?<!last )\bof which\b", "whose, and it must", "its first bytes, of which it must have as many"),
    Rule(
        r"(?-i:(^|[.] |- )Of) (several|all|these|those|the|\d[\d,]*)\b",
        "the subject first",
        "Of the instructions, 60 %",
    ),
    Rule(r"[;,] of (several|the options)\b", "the subject first", "the report; of several, damaged ones are left out"),
    Rule(r"^return what\b", "the noun: Return the warnings", "Return what to warn about"),
    Rule(r"\bwhat \w+ (has|have) already\b", "... that X already has", "What wandb has already is not sent"),
    Rule(
        r"(?<!there )\b(is|are|was|were) no (?!more|less|other|different)"
        r"(?!(?!number|parameter|folder|answer|order)\w+er\b)",
        "is not a, never",
        "is no crash",
    ),
    Rule(r"\bno (function|option|test|command) of\b", "functions of ... never", "No function of hmx ends it"),
    Rule(r"\bsomething else\b", "another kind of ..., a different ...", "damaged, or something else"),
    Rule(r"\bis for (trying|a run)\b", "use this only to, requires", "That is for trying"),
    Rule(r"\bin an installation\b", "if you installed", "In an installation without a clone"),
    Rule(r"\bsays? nothing\b", "has no message, does not show", "It says nothing in words"),
    Rule(r"\b(thinks|thought) of (it|its)\b", "view of, value of", "what the policy thinks of it"),
    Rule(r"\bunder way\b", "running, unfinished", "a run under way"),
    Rule(r"\bas far as (its|their|all)\b", "up to", "as far as its records"),
    Rule(r"\bwhere there (is|are) (none|some)\b", "if there is", "0 where there are none"),
    Rule(r"\bof (today|theirs|ours)\b", "current, their, our", "files of today"),
    Rule(r"\balike\b", "equally, the same", "all actions are alike"),
    Rule(r"\band else\b", "and otherwise", "and else truncates"),
    Rule(r"\btrouble\b", "error", "trouble with the disk"),
    Rule(r"\boutside of\b", "outside", "outside of others"),
)

EXCEPTIONS = {
    "STYLE.md": "lists the words",
    "CHANGELOG.md": "released sections keep the wording of their time",
}
"""Files and folders that are not checked, and why."""

ALLOWED = {
    ("hmx/reports/compute_config", FLOOR): "floor() of a published equation",
    ("docs/batch-math.md", FLOOR): "floor() of a published equation",
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


def names_of_tests(path: Path) -> Iterator[tuple[int, str]]:
    """Yield line and name of every test of a module, with spaces."""
    for number, line in enumerate(path.read_text().splitlines(), 1):
        if name := re.match(r"\s*def (test_\w+)", line):
            yield number, name[1].replace("_", " ")


def markdown_texts(path: Path) -> Iterator[tuple[int, str]]:
    """Yield first line and text of every paragraph outside code blocks."""
    code, first, lines = False, 1, []
    for number, line in enumerate([*path.read_text().splitlines(), ""], 1):
        fence = line.lstrip().startswith("```")
        code = code != fence
        if line and not code and not fence:
            lines.append(line)
        elif lines:
            yield first, " ".join(lines)
            lines = []
        first = number + 1 if not lines else first


def findings(name: str, texts: Iterator[tuple[int, str]]) -> list[str]:
    """Return every text of a file that matches a rule, with its line."""
    joined = [(line, " ".join(text.split())) for line, text in texts]
    return [
        f"{name}:{line}: {match[0]!r}, write: {rule.better}"
        for line, text in joined
        for rule in RULES
        if (match := re.search(rule.pattern, text, re.IGNORECASE))
        and not any(name.startswith(prefix) and rule.pattern == pattern for prefix, pattern in ALLOWED)
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
    for path in sorted(ROOT.glob("tests/**/test_*.py")):
        found += findings(str(path.relative_to(ROOT)), names_of_tests(path))
    assert not found, f"{len(found)} words that STYLE.md lists:\n" + "\n".join(found)


def test_every_rule_matches_its_example() -> None:
    for rule in RULES:
        assert re.search(rule.pattern, rule.example, re.IGNORECASE), rule


def test_listed_words_are_found(tmp_path: Path) -> None:
    module = tmp_path / "module.py"
    module.write_text('"""It goes\non anew."""\n# whoever reads this\nx = f"{1} is told"\ndef test_read_anew(): ...\n')
    assert len(findings("module.py", python_texts(module))) == 4
    assert findings("module.py", names_of_tests(module)) == ["module.py:5: 'anew', write: again"]
    page = tmp_path / "page.md"
    page.write_text("A run\ngoes on.\n```\nanew\n```\n\nTwo runs go\non.\n")
    texts = markdown_texts(page)
    assert [line[: line.index(",")] for line in findings("page.md", texts)] == [
        "page.md:1: 'goes on'",
        "page.md:7: 'go on'",
    ]
