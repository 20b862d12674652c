"""Make the README of a built package: the project's own without its relative links, which lead nowhere from there."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface


class WheelReadme(MetadataHookInterface):
    """Fill in `readme` when hatchling builds."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Replace each relative link and picture by its text."""
        text = Path(self.root, "README.md").read_text(encoding="utf-8")
        text = re.sub(r"!?\[([^]]+)\]\((?!https?:)[^)]+\)", r"\1", text)
        metadata["readme"] = {"content-type": "text/markdown", "text": text}
