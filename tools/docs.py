"""Generate what is derived from the code: man pages, completions, reference pages in docs/ and sizes.json.

python tools/docs.py           write them
python tools/docs.py --check   list those that are out of date, and fail if there are any
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tools")]

# What help looks like depends on the terminal: pin it before the application is made.
for _name in ("FORCE_COLOR", "GITHUB_ACTIONS", "CLICOLOR_FORCE"):
    os.environ.pop(_name, None)
os.environ.update(COLUMNS="100", NO_COLOR="1", TERM="dumb")


COMPLETIONS = {"bash": "hmx.bash", "zsh": "_hmx", "fish": "hmx.fish"}


def generate() -> dict[str, str]:
    """Return the text of every generated file, by path below the root."""
    import api_pages
    import env_sizes
    import manpages
    import reference
    from hmx.cli.shells import SCRIPTS

    pages = {f"man/{name}.1": text for name, text in manpages.pages(ROOT / "CHANGELOG.md").items()}
    scripts = {f"completions/{name}": SCRIPTS[shell] for shell, name in COMPLETIONS.items()}
    docs = {f"docs/{name}.md": text for name, text in reference.pages().items()}
    docs["docs/api.md"] = reference.NOTE + api_pages.page()
    docs["docs/run.schema.json"] = reference.run_schema()
    return {**pages, **scripts, **docs, "hmx/registry/sizes.json": env_sizes.text()}


def stale(files: dict[str, str]) -> list[str]:
    """Return the files that differ from those on disk, and those that are not generated any more."""
    different = [name for name, text in files.items() if _read(ROOT / name) != text]
    orphans = [f"man/{path.name}" for path in sorted((ROOT / "man").glob("*.1")) if f"man/{path.name}" not in files]
    return different + orphans


def main(words: list[str]) -> int:
    """Write or check the files; return the exit code."""
    files = generate()
    old = stale(files)
    if words == ["--check"]:
        for name in old:
            print(f"error: {name} is out of date", file=sys.stderr)
        if old:
            print("\nhint: make docs", file=sys.stderr)
        return 1 if old else 0
    for name in old:
        path = ROOT / name
        if name not in files:
            path.unlink()
            print(f"removed {name}")
            continue
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(files[name], encoding="utf-8")
        print(f"wrote {name}")
    print(f"{len(files)} generated files are current")
    return 0


def _read(path: Path) -> str | None:
    return path.read_text(encoding="utf-8") if path.is_file() else None


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
