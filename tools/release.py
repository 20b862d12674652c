"""Prepare a release, and build and try out what is uploaded. Nothing is published.

python tools/release.py prepare 0.2.0   write the version and the date into the project, for review and commit
python tools/release.py build           build the commit twice into dist/, compare, install in an empty environment, try
"""

from __future__ import annotations

import datetime
import hashlib
import io
import os
import re
import subprocess
import sys
import tarfile
import tempfile
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SMOKE = (
    ("--version",),
    ("train", "--preset", "tiny", "--steps", "4096", "--name", "smoke", "--eval-episodes", "10", "--json"),
    ("resume", "smoke", "--steps", "8192", "--json"),
    ("evaluate", "smoke", "--episodes", "10", "--json"),
    ("doctor", "smoke", "--json"),
    ("runs", "verify", "smoke"),
)
STATISTICS = "from hmx import stats; import sys; print(stats.runs_needed(0.9)); sys.exit('jax' in sys.modules)"


class Refusal(Exception):
    """A release that cannot be made, and why."""


def main(words: list[str]) -> int:
    """Run a step; return the exit code."""
    try:
        match words:
            case ["prepare", version]:
                prepare(version, datetime.datetime.now(datetime.UTC).date().isoformat())
            case ["build"]:
                build()
            case _:
                raise Refusal(f"cannot read the command line\n\n{__doc__}")
    except Refusal as refusal:
        print(f"error: {refusal}", file=sys.stderr)
        return 1
    return 0


def prepare(version: str, date: str, root: Path = ROOT) -> None:
    """Write a new version into pyproject.toml and CITATION.cff, and name and date the changelog's new section."""
    old = current_version(root)
    if not re.fullmatch(r"\d+\.\d+\.\d+", version) or parts(version) <= parts(old):
        raise Refusal(f"cannot release {version}: it must be three numbers, above {old}")
    changelog = (root / "CHANGELOG.md").read_text(encoding="utf-8")
    if not section(changelog, "Unreleased"):
        raise Refusal("cannot release: CHANGELOG.md has no entry below [Unreleased]")
    replace_once(root / "CHANGELOG.md", "## [Unreleased]\n", f"## [Unreleased]\n\n## [{version}] - {date}\n")
    replace_once(root / "pyproject.toml", f'version = "{old}"\n', f'version = "{version}"\n')
    replace_once(root / "CITATION.cff", f'version: "{old}"\n', f'version: "{version}"\n')
    citation = (root / "CITATION.cff").read_text(encoding="utf-8")
    replace_once(root / "CITATION.cff", re.findall(r"date-released: .*\n", citation)[0], f'date-released: "{date}"\n')
    print(f"wrote version {version} of {date}; now run make docs and make check, review, and commit")


def build() -> None:
    """Build the committed state twice, compare the files, install the wheel in an empty environment, and try it."""
    if output("git", "status", "--porcelain"):
        raise Refusal("cannot build: the working tree has changes; commit or remove them")
    version = current_version(ROOT)
    notes = section((ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), version)
    if not notes:
        raise Refusal(f"cannot build: CHANGELOG.md has no section of {version}")
    with tempfile.TemporaryDirectory(prefix="hmx-release-") as name:
        folder = Path(name).resolve()
        first, second = (archives(folder / place) for place in ("first", "second"))
        if first != second:
            raise Refusal(f"two builds of the same commit differ: {sorted(set(first.items()) ^ set(second.items()))}")
        try_out(folder, next((folder / "first" / "dist").glob("*.whl")), version)
        dist = ROOT / "dist"
        dist.mkdir(exist_ok=True)
        for file in (folder / "first" / "dist").iterdir():
            (dist / file.name).write_bytes(file.read_bytes())
    sums = "".join(f"{digest}  {file}\n" for file, digest in first.items())
    (dist / "SHA256SUMS").write_text(sums, encoding="utf-8")
    (dist / "NOTES.md").write_text(notes + "\n", encoding="utf-8")
    print(f"{sums}wrote dist/ of hmx {version}; nothing was published")


def archives(folder: Path) -> dict[str, str]:
    """Build sdist and wheel of the commit in a new folder, and a wheel from the sdist; return their SHA-256."""
    source = folder / "source"
    with tarfile.open(fileobj=io.BytesIO(output("git", "archive", "HEAD"))) as archive:
        archive.extractall(source, filter="data")
    environ = {**os.environ, "SOURCE_DATE_EPOCH": output("git", "log", "-1", "--format=%ct").decode().strip()}
    command = [sys.executable, "-m", "hatchling", "build"]
    run(*command, "-d", str(folder / "dist"), folder=source, environ=environ)
    built = {file.name: sha256(file) for file in sorted((folder / "dist").iterdir())}
    with tarfile.open(next((folder / "dist").glob("*.tar.gz"))) as archive:
        archive.extractall(folder / "unpacked", filter="data")
    (unpacked,) = (folder / "unpacked").iterdir()
    run(*command, "-t", "wheel", "-d", str(folder / "again"), folder=unpacked, environ=environ)
    for file in (folder / "again").iterdir():
        if sha256(file) != built[file.name]:
            raise Refusal(f"{file.name} built from the sdist differs from the one built from the commit")
    return built


def try_out(folder: Path, wheel: Path, version: str) -> None:
    """Install the wheel with the pinned versions in an empty environment, and train, resume and evaluate with it."""
    print(f"installing {wheel.name} in an empty environment (a few minutes) ...", flush=True)
    environment = folder / "environment"
    run(sys.executable, "-m", "venv", str(environment), folder=folder)
    pip = (str(environment / "bin" / "python"), "-m", "pip", "-qq", "--disable-pip-version-check", "install")
    run(*pip, "--constraint", str(ROOT / "constraints.txt"), str(wheel), folder=folder)
    environ = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "HMX_"))}
    environ["XDG_CACHE_HOME"] = str(folder / "cache")
    for words in SMOKE:
        printed = run(str(environment / "bin" / "hmx"), *words, folder=folder, environ=environ)
        print(f"hmx {' '.join(words)}: ok", flush=True)
        if words == ("--version",) and printed.decode().strip() != f"hmx {version}":
            raise Refusal(f"the wheel calls itself {printed.decode().strip()}, not hmx {version}")
    run(str(environment / "bin" / "python"), "-c", STATISTICS, folder=folder, environ=environ)


def current_version(root: Path) -> str:
    """Return the version in pyproject.toml."""
    return str(tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"])


def parts(version: str) -> tuple[int, ...]:
    """Return the numbers of a version."""
    return tuple(map(int, version.split(".")))


def section(changelog: str, name: str) -> str:
    """Return the text below a heading of the changelog, such as `Unreleased` or `0.1.0`; empty if it is missing."""
    _, found, rest = changelog.partition(f"\n## [{name}]")
    return rest.partition("\n")[2].partition("\n## [")[0].strip() if found else ""


def replace_once(path: Path, old: str, new: str) -> None:
    """Replace a text that a file has exactly once."""
    text = path.read_text(encoding="utf-8")
    if text.count(old) != 1:
        raise Refusal(f"cannot change {path.name}: it has {old.strip()!r} {text.count(old)} times, not once")
    path.write_text(text.replace(old, new), encoding="utf-8")


def sha256(file: Path) -> str:
    """Return the hash of a file."""
    return hashlib.sha256(file.read_bytes()).hexdigest()


def output(*command: str) -> bytes:
    """Return the output of a command that runs in the project."""
    return run(*command, folder=ROOT)


def run(*command: str, folder: Path, environ: dict[str, str] | None = None) -> bytes:
    """Run a command and return what it prints; refuse if it fails."""
    done = subprocess.run(command, cwd=folder, env=environ, capture_output=True)
    if done.returncode:
        raise Refusal(f"{' '.join(command)} failed with {done.returncode}:\n{done.stderr.decode()[-2000:]}")
    return done.stdout


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
