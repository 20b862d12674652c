"""The version: said once, in `pyproject.toml`."""

from __future__ import annotations


def version() -> str:
    """Return the version of the installed package, or that of the source tree it runs from."""
    from importlib import metadata

    try:
        return metadata.version("hmx")
    except metadata.PackageNotFoundError:
        import tomllib
        from pathlib import Path

        source = Path(__file__).parents[2] / "pyproject.toml"
        return str(tomllib.loads(source.read_text())["project"]["version"]) if source.exists() else "unknown"
