"""Conditions on the figures of a comparison, such as `P(A>B) < 0.4 or difference_high(A, B) < 0`.

A figure is a name with sides, and perhaps a task, in parentheses. Figures and numbers combine with `+ - * /`,
comparisons, `not`, `and`, `or` and parentheses. A condition is parsed and interpreted, never executed.
"""

from __future__ import annotations

import ast
import operator
import re
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from hmx.config.textfile import quoted
from hmx.errors import ExitCode, HmxError, nearest

MAX_LENGTH = 1000
MAX_DEPTH = 50

_FIGURE = re.compile(r"(?!(?:and|or|not)\b)\b[A-Za-z_]\w*\s*\([^()]*\)", re.ASCII)
_PERCENT = re.compile(r"(\d[\d_.]*)%", re.ASCII)
_STRAY = re.compile(r"(?<![\w.])(?!(?:and|or|not)\b)[A-Za-z_]\w*|[^\w\s.+*/()<>=!-]+", re.ASCII)
_HINT = 'for example --fail-if "P(A>B) < 0.4" or --fail-if "difference_high(A, B) < 0 and seeds(A) >= 5"'
_EXPECTED = 'expected a comparison such as "P(A>B) < 0.4"'

_COMPARE: dict[type[ast.cmpop], Callable[[float, float], bool]] = {
    ast.Lt: operator.lt, ast.LtE: operator.le, ast.Gt: operator.gt, ast.GtE: operator.ge, ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
}  # fmt: skip
_CALCULATE: dict[type[ast.operator], Callable[[float, float], float | None]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: lambda a, b: a / b if b else None,
}  # fmt: skip

Figures = Mapping[str, float | None]


class Condition(NamedTuple):
    """A parsed condition; names in `tree` are those of `figures`, in the order of the text."""

    text: str
    tree: ast.expr
    figures: tuple[str, ...]


def parse(text: str) -> Condition:
    """Parse a condition; refuse any other text."""
    if len(text) > MAX_LENGTH:
        raise HmxError(f"--fail-if is longer than {MAX_LENGTH:,} characters", "split it into several --fail-if")
    written: list[str] = []

    def placeholder(match: re.Match[str]) -> str:
        written.append(match[0])
        return f" figure_{len(written) - 1} "

    rest = _FIGURE.sub(" ", text)
    if stray := _STRAY.search(_PERCENT.sub("0", rest)):
        raise _wrong(text, f'expected a number or a figure such as iqm(A), got "{quoted(stray[0], 20)}"')
    source = " ".join(_PERCENT.sub(r"(\1/100)", _FIGURE.sub(placeholder, text)).split())
    if not source:
        raise _wrong(text, f"{_EXPECTED}, got nothing")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            tree = ast.parse(source, mode="eval").body
            depth = _depth(tree)
    except SyntaxError as problem:
        raise _wrong(text, f"{_EXPECTED}: {problem.msg.partition('.')[0]}") from None
    except (MemoryError, RecursionError, ValueError):
        raise _wrong(text, "too complex") from None
    if depth > MAX_DEPTH:
        raise _wrong(text, "nested too deeply")
    condition = Condition(text.strip(), tree, tuple(written))
    _Interpreter(condition, {}).truth(tree)
    return condition


def decide(
    condition: Condition, figures: Figures, letters: Mapping[str, str]
) -> tuple[bool | None, dict[str, float | None]]:
    """Return whether the condition holds, None if that depends on an unknown figure, and the figures it uses."""
    used: dict[str, float | None] = {}
    for written in condition.figures:
        key = canonical(written, letters)
        if key not in figures:
            near = nearest(key, figures)
            hint = f"did you mean {near}?" if near else _HINT
            raise HmxError(f"unknown figure {quoted(written)}: this comparison has none of that name", hint)
        used[written] = figures[key]
    return _Interpreter(condition, used).truth(condition.tree), used


def check(condition: Condition, figures: Figures, letters: Mapping[str, str]) -> str:
    """Return the reason why the check fails, "" if it passes; an unknown decisive figure fails it."""
    truth, used = decide(condition, figures, letters)
    if truth is False:
        return ""
    shown = ", ".join(f"{quoted(name)} is {'unknown' if v is None else f'{v:.6g}'}" for name, v in used.items())
    return f"{quoted(condition.text)} {'cannot be decided' if truth is None else 'holds'}: {shown}"


def failure(reasons: Sequence[str]) -> HmxError:
    """Return the error that ends a command whose checks failed."""
    return HmxError("\n".join(reasons), "the report above lists the figures", ExitCode.CHECK_FAILED)


def canonical(figure: str, letters: Mapping[str, str]) -> str:
    """Return a figure as listed: sides by their letters, and one space after each comma."""
    name, _, inner = figure.partition("(")
    parts = [part.strip() for part in inner.removesuffix(")").split(",")]
    shown = [">".join(letters.get(side.strip(), side.strip()) for side in part.split(">")) for part in parts]
    return f"{name.strip()}({', '.join(shown)})"


def _depth(node: ast.AST) -> int:
    return 1 + max(map(_depth, ast.iter_child_nodes(node)), default=0)


def _wrong(text: str, why: str) -> HmxError:
    return HmxError(f"cannot read --fail-if {quoted(text) or repr(text)}: {why}", _HINT)


class _Interpreter:
    """Evaluates a condition; every other kind of expression is refused, for any figures."""

    def __init__(self, condition: Condition, values: Figures) -> None:
        self._text = condition.text
        self._values = {f"figure_{i}": values.get(name) for i, name in enumerate(condition.figures)}

    def truth(self, node: ast.expr) -> bool | None:
        if isinstance(node, ast.BoolOp):
            found = [self.truth(part) for part in node.values]
            decisive = isinstance(node.op, ast.Or)
            return decisive if decisive in found else None if None in found else not decisive
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            inner = self.truth(node.operand)
            return None if inner is None else not inner
        if isinstance(node, ast.Compare):
            if len(node.ops) > 1:
                raise _wrong(self._text, "comparisons cannot be chained; join two with and")
            compare = _COMPARE.get(type(node.ops[0]))
            a, b = self.value(node.left), self.value(node.comparators[0])
            if compare is None:
                raise _wrong(self._text, _EXPECTED)
            return None if a is None or b is None else compare(a, b)
        self.value(node)
        raise _wrong(self._text, f"{_EXPECTED}, got a bare value")

    def value(self, node: ast.expr) -> float | None:
        if isinstance(node, ast.Name):
            return self._values[node.id]
        if isinstance(node, ast.Constant) and type(node.value) in (int, float):
            return float(str(node.value))  # an integer of any size
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub | ast.UAdd):
            inner = self.value(node.operand)
            return -inner if inner is not None and isinstance(node.op, ast.USub) else inner
        if isinstance(node, ast.BinOp) and type(node.op) in _CALCULATE:
            a, b = self.value(node.left), self.value(node.right)
            return None if a is None or b is None else _CALCULATE[type(node.op)](a, b)
        raise _wrong(self._text, "expected a number, a figure such as iqm(A), or + - * / of these")
