"""Rewrite constraints.txt: the installed version of everything hmx, its extras and its test tools depend on.

python tools/constraints.py            write constraints.txt from the environment
python tools/constraints.py --lowest   print the lowest versions that pyproject.toml allows for what hmx itself needs
"""

from __future__ import annotations

import importlib.metadata as metadata
import sys
import tomllib
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[1]


def main(words: list[str]) -> None:
    """Write the pins below the comment at the top of the file, or print the lowest versions."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    if words == ["--lowest"]:
        print("\n".join(lowest(project["dependencies"])))
        return
    roots = [*project["dependencies"], *(line for extra in project["optional-dependencies"].values() for line in extra)]
    path = ROOT / "constraints.txt"
    head = [line for line in path.read_text().splitlines() if line.startswith("#")]
    path.write_text("\n".join([*head, *pins(roots)]) + "\n")
    print(f"wrote {path.name}")


def lowest(requirements: list[str]) -> list[str]:
    """Return `name==version` with the lowest version that each requirement allows."""
    lines = []
    for requirement in map(Requirement, requirements):
        (version,) = (part.version for part in requirement.specifier if part.operator == ">=")
        lines.append(f"{requirement.name}=={version}")
    return lines


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
    main(sys.argv[1:])
