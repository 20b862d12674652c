"""Find the folders of studies and gates, by a name below `studies/` or `gates/`, or by a path."""

from __future__ import annotations

import dataclasses
import os
import re
import shlex
from pathlib import Path

from hmx.config.names import clean_run_name, is_run_name
from hmx.errors import ExitCode, HmxError, nearest


@dataclasses.dataclass(frozen=True)
class Places:
    """Where the folders of one kind are."""

    noun: str  # study or gate
    plural: str  # also the folder for names
    settings: re.Pattern[str]  # names of the files without which a folder is not of this kind

    def is_one(self, folder: Path) -> bool:
        """Return whether a folder is of this kind."""
        return folder.is_dir() and any(self.settings.fullmatch(name) for name in os.listdir(folder))

    def place(self, text: str | Path) -> Path:
        """Return the folder of a new one: a bare name is below the folder for names."""
        path = Path(text)
        return path if path.parent != Path() else Path(self.plural) / path

    def names(self, root: str | Path = "") -> list[str]:
        """Return the sorted names of those in a folder."""
        place = Path(root or self.plural)
        return sorted(one.name for one in place.iterdir() if self.is_one(one)) if place.is_dir() else []

    def find(self, text: str | Path, root: str | Path = "") -> Path:
        """Return the folder of one by its name in `root` or by its path.

        Raises:
            HmxError: there is none (exit code 3).
        """
        for place in (Path(root or self.plural) / text, Path(text)):
            if self.is_one(place):
                return place
        near = nearest(str(text), self.names(root))
        hint = f"did you mean {near}?" if near else f"hmx {self.noun} new NAME makes one"
        raise HmxError(f"there is no {self.noun} {text}", hint, ExitCode.ARTEFACT)

    def check_name(self, folder: Path) -> None:
        """Refuse (exit code 2) a folder whose name is not valid."""
        if not is_run_name(folder.name):
            hint = f"hmx {self.noun} new {shlex.quote(clean_run_name(folder.name))}"
            raise HmxError(f"{folder.name!r} cannot be the name of a {self.noun}", hint)
