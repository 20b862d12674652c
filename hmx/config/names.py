"""Names that users type: find the known name that was meant, and check names of folders."""

from __future__ import annotations

import re
from collections.abc import Iterable

_RUN_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


def nearest(name: str, known: Iterable[str]) -> str | None:
    """Return the known name that `name` most likely stands for, or None.

    Names are also near if they share initials (`lr` and `learning_rate`), a part (`minibatch` and `num_minibatches`)
    or, for dotted names, the part after the dot.
    """
    from difflib import get_close_matches  # slow to import

    names = list(dict.fromkeys(known))
    wanted = name.strip().lower().replace("-", "_")
    if not wanted:
        return None
    lowered = {n.lower().replace("-", "_"): n for n in reversed(names)}
    if wanted in lowered:
        return lowered[wanted]
    last = wanted.rpartition(".")[2]
    if "." in next(iter(lowered), ""):
        same_last = [n for low, n in lowered.items() if low.rpartition(".")[2] == last]
        if same_last:
            section = get_close_matches(wanted, [n.lower() for n in same_last], n=1, cutoff=0.0)
            return next(n for n in same_last if n.lower() == section[0])
    if close := get_close_matches(wanted, lowered, n=1, cutoff=0.72):
        return lowered[close[0]]
    for low, original in lowered.items():
        if _initials(low.rpartition(".")[2]) == last and len(last) > 1:
            return original
    tails = {low.rpartition(".")[2]: original for low, original in lowered.items()}
    if close := get_close_matches(last, tails, n=1, cutoff=0.6):
        return tails[close[0]]
    if len(last) > 2:
        return next((original for tail, original in tails.items() if last in tail), None)
    return None


def _initials(name: str) -> str:
    return "".join(word[0] for word in name.split("_") if word)


def is_run_name(name: str) -> bool:
    """Return whether `name` is valid for a run folder: letters, digits, `.`, `_`, `-`, and no path."""
    return _RUN_NAME.fullmatch(name) is not None


def clean_run_name(name: str) -> str:
    """Return a valid name for a run folder that resembles `name`."""
    cleaned = re.sub(r"[^A-Za-z0-9._-]+", "-", name).strip("-._")[:100]
    return cleaned or "my-run"
