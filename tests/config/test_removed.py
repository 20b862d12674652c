"""Values that earlier versions had: recorded runs show them, and nothing runs with them."""

from __future__ import annotations

import pytest

from hmx.config.fields import FIELDS, get, replace
from hmx.config.schema import Config
from hmx.errors import HmxError
from hmx.registry.load import load
from hmx.runs.session import open_session

GONE = [(key, value, version) for key, field in FIELDS.items() for value, version in field.gone.items()]
each_value = pytest.mark.parametrize(("key", "value", "version"), GONE)


@each_value
def test_file_of_a_run_keeps_a_removed_value_and_a_new_run_is_refused(tmp_path, key, value, version):
    section, _, name = key.partition(".")
    file = tmp_path / "run.toml"
    file.write_text(f'schema = 3\n[{section}]\n{name} = "{value}"\n')
    assert get(load(file=file, environ={}, check=False).config, key) == value
    works = f"{key}={FIELDS[key].default}"
    for layers, origin in (({"file": file}, "run.toml:3"), ({"sets": [f"{key}={value}"]}, "--set")):
        with pytest.raises(HmxError) as refusal:
            load(environ={}, **layers)
        text = f"{key} = {value} ({origin}): hmx {version} was the last version that had it; try {works}"
        assert text in refusal.value.message
    assert load(file=file, environ={}, sets=[works]).config == load(environ={}).config


@each_value
def test_run_with_a_removed_value_does_not_open(key, value, version):
    with pytest.raises(HmxError, match=f"hmx {version} was the last version that had it"):
        open_session(replace(Config(), {key: value}))
    assert value not in FIELDS[key].choices
