"""Install packages with pip, and show what it does: `python tools/install.py REQUIREMENT... [pip option...]`.

In a terminal one line changes while packages are collected and installed; elsewhere there is a line for each phase.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections import deque

PIP = [sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "--progress-bar", "off"]

_SHOWN = 40  # lines of a failed installation


def main(words: list[str]) -> int:
    """Run pip with these arguments, and return its exit code; if it fails, show its last lines."""
    live = sys.stdout.isatty()
    collected, shown, latest = 0, "", deque[str](maxlen=_SHOWN)
    with subprocess.Popen([*PIP, *words], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as pip:
        for line in pip.stdout or ():
            latest.append(line)
            first, _, rest = line.strip().partition(" ")
            if first == "Collecting":
                collected += 1
                name = re.split(r"[^\w.-]", rest, maxsplit=1)[0]
                text = f"collecting packages: {collected}, {name}" if live else "collecting packages ..."
            elif line.startswith("Installing collected packages"):
                text = f"installing {len(line.split(','))} packages ..."
            else:
                continue
            if text != shown:
                print(f"\r\x1b[K  {text}" if live else f"  {text}", end="" if live else "\n", flush=True)
                shown = text
    if live and shown:
        print("\r\x1b[K", end="", flush=True)
    if pip.returncode:
        sys.stderr.write("".join(latest))
    return pip.returncode


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except KeyboardInterrupt:
        sys.exit(130)
