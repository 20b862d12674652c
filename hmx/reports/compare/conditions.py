"""Conditions on the figures of a comparison, such as `P(A>B) < 0.4 or difference_high(A, B) < 0`.

A figure is a name with sides, and perhaps a task, in brackets. Around figures and numbers stand `+ - * /`,
comparisons, `not`, `and`, `or` and brackets. Nothing is ever run as code.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping
from typing import NamedTuple

from hmx.config.names import nearest
from hmx.config.textfile import quoted
from hmx.errors import ExitCode, HmxError

MAX_LENGTH = 1000
_MAX_DEPTH = 40
_TOKEN = re.compile(
    r"\s*(?:(?P<figure>[A-Za-z_]\w*\s*\([^()]*\))|(?P<number>(?:\d[\d_]*\.?\d*|\.\d+)(?:[eE][+-]?\d+)?%?)"
    r"|(?P<word>[A-Za-z_]\w*)|(?P<sign><=|>=|==|!=|[<>+*/()-]))"
)
_COMPARE: dict[str, Callable[[float, float], bool]] = {
    "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge, "==": operator.eq, "!=": operator.ne,
}  # fmt: skip
_HINT = 'for example: --fail-if "P(A>B) < 0.4", or --fail-if "difference_high(A, B) < 0 and seeds(A) >= 5"'

Figures = Mapping[str, float | None]
Truth = bool | None
_Number = Callable[[Figures], float | None]
_Test = Callable[[Figures], Truth]


class Condition(NamedTuple):
    """A condition that can be asked again and again: True, False, or None where a figure is not known."""

    text: str
    holds: _Test
    figures: tuple[str, ...]  # as written


def parse(text: str) -> Condition:
    """The condition that a text says.

    Raises:
        HmxError: it is none.
    """
    return _Parser(text).parse()


def canonical(figure: str, letters: Mapping[str, str]) -> str:
    """A figure as it is listed: names of sides by their letters, one blank after each comma."""
    name, _, inner = figure.partition("(")
    parts = [part.strip() for part in inner.removesuffix(")").split(",")]
    shown = [">".join(letters.get(side.strip(), side.strip()) for side in part.split(">")) for part in parts]
    return f"{name.strip()}({', '.join(shown)})"


def decide(condition: Condition, figures: Figures, letters: Mapping[str, str]) -> tuple[Truth, dict[str, float | None]]:
    """Whether the condition holds, and the figures it asks for.

    Args:
        condition: the condition.
        figures: by canonical name.
        letters: name of a side -> its letter.

    Raises:
        HmxError: it asks for a figure that there is not.
    """
    used: dict[str, float | None] = {}
    for written in condition.figures:
        key = canonical(written, letters)
        if key not in figures:
            near = nearest(key, figures)
            hint = f"did you mean {near}?" if near else _HINT
            raise HmxError(f"there is no figure {quoted(written)} in this comparison", hint)
        used[written] = figures[key]
    return condition.holds(used), used


def check(condition: Condition, figures: Figures, letters: Mapping[str, str]) -> str:
    """Why the check fails, "" where it does not; a figure that is not known fails it if the answer hangs on it.

    Raises:
        HmxError: see `decide`.
    """
    truth, used = decide(condition, figures, letters)
    if truth is False:
        return ""
    shown = ", ".join(
        f"{quoted(name)} is {'not known' if value is None else f'{value:.6g}'}" for name, value in used.items()
    )
    return f"{quoted(condition.text)} {'cannot be decided' if truth is None else 'holds'}: {shown}"


def failure(reasons: list[str]) -> HmxError:
    """The error that ends a command whose checks failed."""
    return HmxError("\n".join(reasons), "the figures are in the report above", ExitCode.CHECK_FAILED)


class _Part(NamedTuple):
    """What a part of the text is: a number, or else a test."""

    number: _Number | None = None
    test: _Test | None = None


class _Parser:
    """Recursive descent; each level returns a function of the figures."""

    def __init__(self, text: str) -> None:
        self._text, self._tokens, self._at, self._depth = text, [("", "")], 0, 0
        self._figures: list[str] = []

    def parse(self) -> Condition:
        if len(self._text) > MAX_LENGTH:
            raise HmxError(f"--fail-if is longer than {MAX_LENGTH:,} characters", "give it several times")
        self._tokens = [*self._scan(), ("", "")]
        test = self._test(self._either())
        if self._kind:
            raise self._wrong(f"{quoted(self._word)} is one too many")
        return Condition(self._text.strip(), test, tuple(dict.fromkeys(self._figures)))

    def _scan(self) -> list[tuple[str, str]]:
        found, at, text = [], 0, self._text.rstrip()
        while at < len(text):
            match = _TOKEN.match(text, at)
            if match is None or match.lastgroup is None:
                raise self._wrong(f"cannot read {quoted(text[at:].strip(), 20)}")
            found.append((match.lastgroup, match[match.lastgroup]))
            at = match.end()
        return found

    @property
    def _kind(self) -> str:
        return self._tokens[self._at][0]

    @property
    def _word(self) -> str:
        return self._tokens[self._at][1]

    def _take(self, *words: str) -> str:
        """The next token if it is one of these."""
        word = self._word
        if self._kind in ("word", "sign") and word in words:
            self._at += 1
            return word
        return ""

    def _wrong(self, why: str) -> HmxError:
        return HmxError(f"--fail-if {quoted(self._text) or repr('')}: {why}", _HINT)

    def _either(self) -> _Part:
        part = self._both()
        while self._take("or"):
            part = _Part(test=_either(self._test(part), self._test(self._both())))
        return part

    def _both(self) -> _Part:
        part = self._negation()
        while self._take("and"):
            part = _Part(test=_both(self._test(part), self._test(self._negation())))
        return part

    def _negation(self) -> _Part:
        if not self._take("not"):
            return self._comparison()
        self._deeper()
        test = self._test(self._negation())
        self._depth -= 1
        return _Part(test=lambda figures: None if (truth := test(figures)) is None else not truth)

    def _comparison(self) -> _Part:
        part = self._sum()
        sign = self._take(*_COMPARE)
        if not sign:
            return part
        left, right, compare = self._number(part), self._number(self._sum()), _COMPARE[sign]
        if self._kind == "sign" and self._word in _COMPARE:
            raise self._wrong("a chain of comparisons; join two with and")

        def test(figures: Figures) -> Truth:
            a, b = left(figures), right(figures)
            return None if a is None or b is None else compare(a, b)

        return _Part(test=test)

    def _sum(self) -> _Part:
        part = self._product()
        while sign := self._take("+", "-"):
            act = operator.add if sign == "+" else operator.sub
            part = _Part(_apply(act, self._number(part), self._number(self._product())))
        return part

    def _product(self) -> _Part:
        part = self._factor()
        while sign := self._take("*", "/"):
            act = operator.mul if sign == "*" else _divide
            part = _Part(_apply(act, self._number(part), self._number(self._factor())))
        return part

    def _factor(self) -> _Part:
        self._deeper()
        kind, word = self._kind, self._word
        if self._take("-"):
            part = _Part(_apply(operator.mul, lambda figures: -1.0, self._number(self._factor())))
        elif self._take("("):
            part = self._either()
            if not self._take(")"):
                raise self._wrong("a bracket is not closed")
        elif kind == "number":
            self._at += 1
            number = float(word.rstrip("%").replace("_", "")) / (100 if word.endswith("%") else 1)
            part = _Part(lambda figures: number)
        elif kind == "figure":
            self._at += 1
            self._figures.append(word)
            part = _Part(lambda figures: figures[word])
        else:
            given = f"{quoted(word)} is" if word else "there is nothing"
            raise self._wrong(f"{given} where a figure or a number is needed")
        self._depth -= 1
        return part

    def _test(self, part: _Part) -> _Test:
        if part.test is None:
            raise self._wrong("a figure on its own is no condition: compare it with something")
        return part.test

    def _number(self, part: _Part) -> _Number:
        if part.number is None:
            raise self._wrong("a condition is no number")
        return part.number

    def _deeper(self) -> None:
        self._depth += 1
        if self._depth > _MAX_DEPTH:
            raise self._wrong("nested too deeply")


def _either(one: _Test, other: _Test) -> _Test:
    def test(figures: Figures) -> Truth:
        a, b = one(figures), other(figures)
        return True if a or b else None if a is None or b is None else False

    return test


def _both(one: _Test, other: _Test) -> _Test:
    def test(figures: Figures) -> Truth:
        a, b = one(figures), other(figures)
        return False if a is False or b is False else None if a is None or b is None else True

    return test


def _apply(act: Callable[[float, float], float | None], one: _Number, other: _Number) -> _Number:
    def value(figures: Figures) -> float | None:
        a, b = one(figures), other(figures)
        return None if a is None or b is None else act(a, b)

    return value


def _divide(a: float, b: float) -> float | None:
    return a / b if b else None
