"""Read the position that a game of HackMatrix starts from."""

from __future__ import annotations

import json
from pathlib import Path

from hmx.config.files import words
from hmx.config.textfile import quoted, read_text
from hmx.errors import ExitCode, HmxError
from hmx.records.artefact import check_schema

_SCHEMA = 1  # schema of a scenario without a schema number

_NEEDED = 'a scenario is a JSON object with at least a player, as {"player": {"row": 0, "col": 0}}'


def read_scenario(path: Path) -> dict[str, object]:
    """Read the position in a file; `hmx.envs.hackmatrix.rules.scenario.from_dict` checks it.

    Raises:
        HmxError: no such file, not readable, or of a newer schema (exit code 3); too long, not JSON, or not an
            object (2).
    """
    try:
        data = json.loads(read_text(path))
    except OSError as error:
        hint = "check the path and its permissions; docs/scenarios/first-siphon.json is an example"
        raise HmxError(f"cannot read {path}: {words(error)}", hint, ExitCode.ARTEFACT) from None
    except UnicodeDecodeError:
        raise HmxError(f"{path} is not a text file in UTF-8", _NEEDED) from None
    except (ValueError, RecursionError) as error:  # JSONDecodeError is a ValueError
        raise HmxError(f"{path} is not JSON: {error}", _NEEDED) from None
    if isinstance(data, dict):
        number = data.pop("schema", _SCHEMA)
        if type(number) is not int or number < 1:
            message = f"{path}: schema must be a whole number, not {quoted(repr(number))}"
            raise HmxError(message, f'write "schema": {_SCHEMA}')
        check_schema(number, _SCHEMA, str(path))
    position = data.get("position", data) if isinstance(data, dict) else data
    if not isinstance(position, dict):
        raise HmxError(f"cannot read the scenario: {path} holds no position", _NEEDED)
    return position
