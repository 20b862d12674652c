"""The `hmx` command: `python -m hmx` and the entry point are the same."""

from __future__ import annotations

from hmx.cli.app import app


def main() -> None:
    """Run the command line and end the process with its exit code."""
    app(prog_name="hmx")


if __name__ == "__main__":
    main()
