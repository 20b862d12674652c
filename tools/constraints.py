"""Rewrite constraints.txt: the installed version of everything hmx, its extras and its test tools depend on."""

from __future__ import annotations

import importlib.metadata as metadata
import tomllib
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[1]


def main() -> None:
    """Write the pins, below the comment at the top of the file."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    roots = [*project["dependencies"], *(line for extra in project["optional-dependencies"].values() for line in extra)]
    path = ROOT / "constraints.txt"
    head = [line for line in path.read_text().splitlines() if line.startswith("#")]
    path.write_text("\n".join([*head, *pins(roots)]) + "\n")
    print(f"wrote {path.name}")


def pins(roots: list[str]) -> list[str]:
    """Return `name==version` for these requirements and all that they require, sorted by name."""
    found: dict[str, str] = {}
    seen: set[tuple[str, frozenset[str]]] = set()
    todo = [Requirement(line) for line in roots]
    while todo:
        wanted = todo.pop()
        mark = (canonicalize_name(wanted.name), frozenset(wanted.extras))
        if mark in seen:
            continue
        seen.add(mark)
        installed = metadata.distribution(wanted.name)
        found[installed.metadata["Name"]] = installed.version
        for line in installed.requires or []:
            needed = Requirement(line)
            extras = wanted.extras or {""}
            if needed.marker is None or any(needed.marker.evaluate({"extra": extra}) for extra in extras):
                todo.append(needed)
    return [f"{name}=={found[name]}" for name in sorted(found, key=str.lower)]


if __name__ == "__main__":
    main()
