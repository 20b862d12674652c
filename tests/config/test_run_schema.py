"""docs/run.schema.json accepts exactly the values that hmx accepts."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

import pytest

from hmx.config import codec, presets
from hmx.config.codec import from_dict, to_dict, to_toml
from hmx.config.coerce import BadValue, check_range, coerce
from hmx.config.fields import FIELDS

SCHEMA = json.loads((Path(__file__).parents[2] / "docs" / "run.schema.json").read_text())
TYPES = {"string": str, "boolean": bool, "array": list, "object": dict, "number": (int, float), "integer": int}
KEYWORDS = {
    "$schema", "title", "description", "default", "type", "enum", "anyOf", "properties", "additionalProperties",
    "items", "minItems", "minimum", "exclusiveMinimum", "maximum", "multipleOf",
}  # fmt: skip


def accepts(schema: dict, value: object) -> bool:
    """Apply the keywords of draft 4 that the schema uses."""
    assert set(schema) <= KEYWORDS
    if "type" in schema and (
        not isinstance(value, TYPES[schema["type"]]) or (isinstance(value, bool) and schema["type"] != "boolean")
    ):
        return False
    if "enum" in schema and not any(value == one and type(value) is type(one) for one in schema["enum"]):
        return False
    if "anyOf" in schema and not any(accepts(one, value) for one in schema["anyOf"]):
        return False
    if isinstance(value, dict):
        known = schema.get("properties", {})
        closed = schema.get("additionalProperties") is False
        return not (closed and value.keys() - known.keys()) and all(
            accepts(known[name], one) for name, one in value.items() if name in known
        )
    if isinstance(value, list):
        return len(value) >= schema["minItems"] and all(accepts(schema["items"], one) for one in value)
    if isinstance(value, int | float) and schema.get("type") in ("number", "integer"):
        low, high = schema.get("minimum", value), schema.get("maximum", value)
        above = value > low if schema.get("exclusiveMinimum") else value >= low
        return above and value <= high and value % schema.get("multipleOf", value or 1) == 0
    return True


@pytest.mark.parametrize("name", presets.names())
def test_presets_and_the_run_files_made_of_them_satisfy_the_schema(name):
    given = tomllib.loads(presets.text(name))
    assert accepts(SCHEMA, given)
    assert accepts(SCHEMA, tomllib.loads(to_toml(from_dict(given))))


def test_the_schema_has_every_key_with_its_meaning_and_default():
    plain = to_dict(from_dict({}))
    for key, field in FIELDS.items():
        row = SCHEMA["properties"][field.section]["properties"][field.name]
        assert field.doc in row["description"] and field.unit in row["description"], key
        assert row["default"] == plain[field.section][field.name], key


@pytest.mark.parametrize("key", FIELDS)
def test_a_value_satisfies_the_schema_exactly_if_hmx_takes_it(key):
    field = FIELDS[key]
    bounds = [bound + step for bound in (field.ge, field.gt, field.le, 0) if bound is not None for step in (-1, 0, 1)]
    numbers = [0.5, -0.5, 3, 3.0, *bounds]
    row = SCHEMA["properties"][field.section]["properties"][field.name]
    for value in [True, False, "", "x", "1", field.default, *field.choices, *numbers, [], [1, 2], [0], [1.5], ["1"]]:
        value = list(value) if isinstance(value, tuple) else value
        try:
            check_range(field, coerce(field, value))
            taken = True
        except BadValue:
            taken = False
        assert accepts(row, value) == taken, value


def test_unknown_keys_and_sections_are_refused():
    assert accepts(SCHEMA, {"env": {"sha256": "0", "my": {"wind": 1.0}}})
    assert not accepts(SCHEMA, {"env": {"idd": "corridor"}}) and not accepts(SCHEMA, {"environment": {}})
    assert not accepts(SCHEMA, {"schema": codec.SCHEMA + 1}) and not accepts(SCHEMA, {"reward": {"my": {}}})
