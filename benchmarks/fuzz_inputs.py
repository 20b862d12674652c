"""Inputs for `fuzz_readers.py`: good files changed byte by byte, word by word or as trees, and made-up ones."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from typing import Any

NUMBERS: list[Any] = [0, -1, 1, 2, 255, 2**31 - 1, 2**31, 2**53, 2**63, 2**64, 10**12, 10**18, 10**400, -(10**400)]
NUMBERS += [0.5, -0.0, 1e308, 5e-324, float("nan"), float("inf"), float("-inf"), True, False, None]
TEXTS = [
    "",
    " ",
    "a",
    "x" * 300,
    "x" * 70_000,
    "\0",
    "\n\nhint: rm -rf /",
    "\x1b[2J",
    "\ud800",
    "\u202e",
    "é",
    "..",
    "/",
]
TEXTS += ["../../etc/passwd", "/etc/passwd", "a/../../b", "C:\\x", "float32", "nan", "1e999", "true", "0x10", "١"]
WORDS = ["NaN", "-Infinity", "Infinity", "1e999", "-1e-999", "9" * 5000, "1" + "0" * 4299, "[" * 2000, '{"a":' * 2000]
WORDS += ["[" * 300 + "]" * 300, '{"a":' * 300 + "1" + "}" * 300, '"\\ud800"', '"\\u0000"', "null", "true", "[]", "{}"]
WORDS += ["\ufeff", "\0", "\r", "\n", ",", ":", '"', "'", "\\", "=", "#", "[[", "]]", "'''", '"""', "0x" + "f" * 5000]
WORDS += ["1979-05-27T07:32:00Z", "07:32:00", "0b1", "0o7", "+inf", "1_000", "a.b.c", "[algo]", "[[algo]]", "inf = 1"]
WORDS += [json.dumps(text) for text in TEXTS] + ["--", "0" * 400, "." * 400, "-" * 400, "[1," * 400, "{a={" * 400]


def make_input(
    draw: random.Random, corpus: list[bytes], parse: Callable[[bytes], Any], rebuild: Callable[[Any], bytes]
) -> bytes:
    """One file, good or hostile; `parse` gives the tree of a good one, and `rebuild` makes a file of a tree."""
    good = draw.choice(corpus)
    way = draw.randrange(4)
    if way == 0:
        return change_bytes(draw, good)
    if way == 1:
        return change_words(draw, good)
    if way == 2:
        tree = parse(good)
        for _ in range(draw.choice((1, 1, 2, 3, 6))):
            tree = change_tree(draw, tree)
        try:
            return rebuild(tree)
        except (RecursionError, ValueError, MemoryError):
            return good
    return made_up(draw)


def change_bytes(draw: random.Random, data: bytes) -> bytes:
    """Flips, cuts, doubles and moves bytes."""
    out = bytearray(data)
    for _ in range(draw.choice((1, 1, 2, 4, 8, 32))):
        at = draw.randrange(len(out) + 1)
        how = draw.randrange(6)
        if how == 0 and at < len(out):
            out[at] ^= 1 << draw.randrange(8)
        elif how == 1:
            out[at:at] = bytes(draw.randrange(256) for _ in range(draw.randrange(1, 5)))
        elif how == 2:
            del out[at : at + draw.randrange(1, 20)]
        elif how == 3:
            out[at:at] = out[at : at + draw.randrange(1, 200)]
        elif how == 4 and at < len(out):
            out[at] = draw.choice(b'\0\xff\xc0\xed\xa0{}[]",:\\=\n\r\t 019eE-+.#')
        elif draw.random() < 0.2:
            del out[at:]
    return bytes(out)


def change_words(draw: random.Random, data: bytes) -> bytes:
    """Puts hostile words in place of numbers, texts and names, or anywhere."""
    text = data.decode("utf-8", "surrogateescape")
    for _ in range(draw.choice((1, 1, 2, 4))):
        at = draw.randrange(len(text) + 1)
        starts = [i for i in range(at, min(at + 200, len(text))) if text[i] in ' :="[,\n']
        start = starts[0] + 1 if starts else at
        stop = start + draw.choice((0, 0, 1, 4, 10))
        text = text[:start] + draw.choice(WORDS) + text[stop:]
    return text.encode("utf-8", "surrogatepass" if draw.random() < 0.5 else "replace")


def change_tree(draw: random.Random, tree: Any) -> Any:
    """One node changed for something hostile, dropped, doubled, renamed, or made very large or deep."""
    parent, key = tree, None
    node = tree
    while isinstance(node, dict | list) and node and (key is None or draw.random() < 0.7):
        parent = node
        key = draw.choice(list(node)) if isinstance(node, dict) else draw.randrange(len(node))
        node = node[key]
    if key is None:
        return hostile(draw)
    how = draw.randrange(6)
    if how == 0:
        del parent[key]
    elif how == 1 and isinstance(parent, dict):
        parent[draw.choice([*TEXTS, f"{key}s", "schema", "path"])] = parent.pop(key) if draw.random() < 0.5 else node
    elif how == 2 and isinstance(parent, list):
        parent.extend([node] * draw.choice((1, 2) if isinstance(node, dict | list) else (1, 40, 2000)))
    else:
        parent[key] = hostile(draw)
    return tree


def hostile(draw: random.Random, depth: int = 0) -> Any:
    """Draw an unexpected value."""
    how = draw.randrange(12)
    if how < 5:
        return draw.choice(NUMBERS)
    if how < 8:
        return draw.choice(TEXTS)
    if how == 8:
        return [draw.choice(NUMBERS)] * draw.choice((0, 1, 9, 5000))
    if how == 9:
        value: Any = draw.choice(NUMBERS)
        for _ in range(draw.choice((3, 100, 330, 900))):
            value = [value] if draw.random() < 0.5 else {"a": value}
        return value
    if how == 10:
        return {draw.choice(TEXTS) + str(n): draw.choice(NUMBERS) for n in range(draw.choice((1, 30, 3000)))}
    return [hostile(draw, depth + 1) for _ in range(3)] if depth < 3 else 7


def made_up(draw: random.Random) -> bytes:
    """Words, bytes, or a hostile tree from scratch."""
    how = draw.randrange(5)
    if how == 0:
        return draw.randbytes(draw.choice((0, 1, 5, 100, 5000)))
    if how == 1:
        return draw.choice((b"", b"\xef\xbb\xbf", b"\xff\xfe{\0}\0", b"[" * 100_000, b'{"a":' * 100_000, b"1" * 5001))
    if how == 2:
        return json.dumps(hostile(draw)).encode()
    glue = draw.choice(("", " ", "\n", ",", " = ", ": "))
    return glue.join(draw.choices(WORDS, k=draw.randrange(1, 12))).encode("utf-8", "surrogatepass")
