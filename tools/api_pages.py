"""Generate docs/api.md: the public names of hmx, hmx.stats and hmx.toolkit, with signatures and docstrings."""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import re
import textwrap
from collections.abc import Callable, Iterator
from typing import Any, ForwardRef

MODULES = {
    "hmx": "Import it with `import hmx`. [Python](python.md) has examples.",
    "hmx.stats": "Statistics of plain numbers, without JAX. [Statistics in Python](stats.md) has examples.",
    "hmx.toolkit": "Parts for algorithms of your own. [Python](python.md#your-own-algorithm) has examples.",
}
_WIDTH = 110  # of a signature on one line
_SECTIONS = ("Args", "Returns", "Raises", "Attributes", "Yields")


def page() -> str:
    """Return the Markdown of the page."""
    lines = ["# Python API", "", "Every public name, from its docstring."]
    for name, text in MODULES.items():
        module = importlib.import_module(name)
        lines += ["", f"## {name}", "", text]
        for member in module.__all__:
            lines += ["", *_entry(f"{name}.{member}", getattr(module, member))]
    return re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).rstrip() + "\n"


def _entry(name: str, value: Any) -> Iterator[str]:
    yield f"### {name}"
    yield ""
    if inspect.isclass(value):
        yield from _class(name, value)
    elif callable(value):
        yield from _code(signature(name.rpartition(".")[2], value))
        yield from docstring(value)
    elif inspect.ismodule(value):
        yield from docstring(value)
    else:
        raise TypeError(f"cannot document {name}, a {type(value).__name__}")


def _class(name: str, value: type) -> Iterator[str]:
    fields = _fields(value)
    if fields:
        yield from _code(f"class {name.rpartition('.')[2]}:\n" + "\n".join(f"    {line}" for line in fields))
    yield from docstring(value)
    for member, function in vars(value).items():
        if member.startswith("_") or not function.__doc__:
            continue
        if inspect.isfunction(function):
            yield from (f"#### {name}.{member}", "", *_code(signature(member, function)), *docstring(function))
        elif isinstance(function, property):
            yield from (f"#### {name}.{member}", "", *docstring(function))


def _fields(value: type) -> list[str]:
    if dataclasses.is_dataclass(value):
        names = [field.name for field in dataclasses.fields(value)]
    else:
        names = list(getattr(value, "_fields", ()))
    notes = {name: note for base in reversed(value.__mro__) for name, note in inspect.get_annotations(base).items()}
    return [f"{name}: {_annotation(notes[name])}" for name in names if not name.startswith("_")]


def signature(name: str, function: Callable[..., Any]) -> str:
    """Return the signature of a function on one line, or on a line per parameter if it is long."""
    try:
        found = inspect.signature(function)
    except (TypeError, ValueError):
        return f"{name}(...)"
    words = []
    previous: Any = inspect.Parameter.POSITIONAL_OR_KEYWORD
    for parameter in found.parameters.values():
        if parameter.kind is parameter.KEYWORD_ONLY and previous is parameter.POSITIONAL_OR_KEYWORD:
            words.append("*")
        previous = parameter.kind
        words.append(_parameter(parameter))
    words = [word for word in words if word != "self"]
    result = "" if found.return_annotation is found.empty else f" -> {_annotation(found.return_annotation)}"
    line = f"{name}({', '.join(words)}){result}"
    return line if len(line) <= _WIDTH else f"{name}(\n    " + ",\n    ".join(words) + f",\n){result}"


def _parameter(parameter: inspect.Parameter) -> str:
    stars = {"VAR_POSITIONAL": "*", "VAR_KEYWORD": "**"}.get(parameter.kind.name, "")
    text = stars + parameter.name
    if parameter.annotation is not parameter.empty:
        text += f": {_annotation(parameter.annotation)}"
    if parameter.default is not parameter.empty:
        value = parameter.default
        text += " = " + (value.__name__ if inspect.isfunction(value) or inspect.isclass(value) else repr(value))
    return text


def _annotation(note: Any) -> str:
    if isinstance(note, ForwardRef):
        note = note.__forward_arg__
    return note if isinstance(note, str) else str(getattr(note, "__name__", note))


def _code(text: str) -> list[str]:
    return ["```python", text, "```", ""]


def docstring(value: Any) -> Iterator[str]:
    """Yield a docstring of Google's form as Markdown: sections become lists."""
    text = inspect.getdoc(value) or ""
    for paragraph in re.split(r"\n\n", text):
        head, _, body = paragraph.partition("\n")
        if head.rstrip(":") in _SECTIONS and head.endswith(":"):
            yield from (f"*{head}*", "", *_items(textwrap.dedent(body)), "")
        elif paragraph.startswith("- "):
            yield from (*(" ".join(item.split()) for item in re.split(r"\n(?=- )", paragraph)), "")
        else:
            yield from (" ".join(paragraph.split()), "")


def _items(body: str) -> Iterator[str]:
    for item in re.split(r"\n(?! )", body):
        text = " ".join(item.split())
        name, colon, meaning = text.partition(": ")
        yield f"- `{name}`: {meaning}" if colon and re.fullmatch(r"[\w*, ]+", name) else f"- {text}"
