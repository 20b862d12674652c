"""Scenario files: a position of HackMatrix as JSON."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from hmx.errors import ExitCode, HmxError

_NEEDED = 'a scenario is a JSON object with at least a player, as {"player": {"row": 0, "col": 0}}'


def read_scenario(path: Path) -> dict[str, Any]:
    """The position in a file: the object itself, or the one under its key `position`.

    What the position says is judged by `hmx.game.scenario.from_dict`.

    Raises:
        HmxError: no such file, not readable, not JSON, or not an object.
    """
    try:
        data = json.loads(path.read_text(encoding="utf-8-sig"))
    except FileNotFoundError:
        raise HmxError(f"there is no scenario file {path}", "check the path", ExitCode.ARTEFACT) from None
    except UnicodeDecodeError:
        raise HmxError(f"{path} is not a text file in UTF-8", _NEEDED) from None
    except json.JSONDecodeError as error:
        where = f"line {error.lineno}, column {error.colno}"
        raise HmxError(f"{path} is not JSON: {error.msg}, in {where}", _NEEDED) from None
    except OSError as error:
        words = (error.strerror or str(error)).lower()
        raise HmxError(
            f"cannot read {path}: {words}", "check the path and its permissions", ExitCode.ARTEFACT
        ) from None
    position = data.get("position", data) if isinstance(data, dict) else data
    if not isinstance(position, dict):
        raise HmxError(f"{path} holds no position", _NEEDED)
    return position
