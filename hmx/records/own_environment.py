"""The environment of a user that a run names, and the copy of its file that the run keeps."""

from __future__ import annotations

import contextlib
import difflib
from pathlib import Path

from hmx.config.files import Unreadable, read_plain
from hmx.config.references import names_code
from hmx.config.schema import EnvConfig
from hmx.config.textfile import quoted
from hmx.errors import counted
from hmx.records import atomic
from hmx.records.meta import Meta
from hmx.records.paths import RunPaths
from hmx.registry.environments import find_source
from hmx.registry.user_code import CodeChanged, code_file

_SHOWN_LINES = 12  # of the difference between two versions of an environment
_MAX_COMPARED = 1 << 16  # bytes of each version: the time of a comparison grows faster than its size


def environment_facts(env: EnvConfig) -> dict[str, str]:
    """Return the entry of meta.json for an environment of the user's: its id, path and SHA-256."""
    source = find_source(env.id)
    if source is None or not (source.own or names_code(env.id)) or not env.sha256:
        return {}
    reference = env.id if source.origin != "package" else f"{source.target}:{source.attribute}"
    return {"id": env.id, "path": str(code_file(reference, "env.id")), "sha256": env.sha256}


def keep_environment(meta: Meta, paths: RunPaths) -> None:
    """Copy the user's environment file into the run folder, so that later changes can be shown.

    Raises:
        OSError: it cannot be written.
    """
    if meta.environment:
        atomic.write_bytes(paths.environment, read_plain(Path(meta.environment["path"])))


def with_lines(problem: CodeChanged, paths: RunPaths | None) -> CodeChanged:
    """Return the error with the lines that have changed, if the run has kept the file."""
    if paths is None:
        return problem
    with contextlib.suppress(OSError, UnicodeDecodeError, Unreadable):
        texts = (read_plain(file, _MAX_COMPARED).decode() for file in (paths.environment, problem.path))
        before, now = (text.splitlines() for text in texts)
        lines = [line for line in difflib.unified_diff(before, now, n=0, lineterm="") if line[:3] not in ("---", "+++")]
        shown = [quoted(line) for line in lines[:_SHOWN_LINES]]
        more = [f"and {counted(len(lines) - _SHOWN_LINES, 'more line')}"] if len(lines) > _SHOWN_LINES else []
        text = "".join(f"\n  {line}" for line in (*shown, *more))
        return CodeChanged(problem.path, problem.before, problem.now, text)
    return problem
