"""Modules that a user's code imports: only their text runs, and only if the user has trusted it."""

from __future__ import annotations

import importlib.util
import os
import py_compile
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from hmx.errors import HmxError
from hmx.registry import trust, user_code
from hmx.registry.own_modules import is_installed

KEY = "net.kind"
FILES = {
    "pack/__init__.py": "",
    "pack/mod.py": "from pack.part import number\ndef make():\n    return number()\n",
    "pack/part/__init__.py": "from ._inner import number\n",
    "pack/part/_inner.py": "def number():\n    return 1\n",
    "game.py": "from helper import number\ndef make():\n    return number()\n",
    "helper.py": "def number():\n    return 1\n",
}
IMPORTED = [("pack.mod:make", name) for name in FILES if name.startswith("pack/")] + [("./game.py", "helper.py")]


@pytest.fixture
def new_process(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Forget what was imported and named, as a new process does."""

    def forget() -> None:
        monkeypatch.setattr(trust, "_allowed", [])
        monkeypatch.setattr(user_code, "_modules", {})
        for name in [name for name in sys.modules if name.partition(".")[0] in ("pack", "helper")]:
            del sys.modules[name]

    return forget


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, new_process: Callable[[], None]) -> Iterator[Path]:
    """A folder with a package and a file that imports another."""
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(exist_ok=True, parents=True)
        (tmp_path / name).write_text(text)
    new_process()
    yield tmp_path
    new_process()


def compiled_otherwise(file: Path) -> None:
    """Put another program into the `__pycache__` of a file, which Python takes for its compiled form."""
    other = file.with_name("other_program")
    other.write_text(file.read_text().replace("return", "return 5 +") + "\nraise SystemExit('compiled')\n")
    mode = py_compile.PycInvalidationMode.UNCHECKED_HASH
    py_compile.compile(str(other), importlib.util.cache_from_source(str(file)), invalidation_mode=mode)


@pytest.mark.parametrize(("reference", "name"), IMPORTED)
@pytest.mark.parametrize("on_path", [False, True])
def test_a_compiled_file_never_runs(
    place: Path, reference: str, name: str, on_path: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if on_path:  # as with `python -m hmx`
        monkeypatch.syspath_prepend(place)
    compiled_otherwise(place / name)
    user_code.allow(reference, KEY)
    assert user_code.build(reference, KEY) == 1


@pytest.mark.parametrize(("reference", "name"), IMPORTED)
def test_a_changed_module_is_refused_until_the_user_names_the_code_again(
    place: Path, reference: str, name: str, new_process: Callable[[], None]
) -> None:
    user_code.allow(reference, KEY)
    assert user_code.build(reference, KEY) == 1
    new_process()
    assert user_code.build(reference, KEY) == 1
    new_process()
    (place / name).write_text((place / name).read_text() + "\n# changed\n")
    with pytest.raises(HmxError, match=rf"cannot run .*{name}: .*you have not trusted its code") as found:
        user_code.build(reference, KEY)
    assert "--trust-env" in found.value.hint
    with trust.trusting(True):
        assert user_code.build(reference, KEY) == 1
    new_process()
    assert user_code.build(reference, KEY) == 1


def test_a_module_without_source_is_not_found(place: Path) -> None:
    helper = place / "helper.py"
    py_compile.compile(str(helper), str(place / "helper.pyc"))
    helper.unlink()
    user_code.allow("./game.py", KEY)
    with pytest.raises(HmxError, match="No module named 'helper'"):
        user_code.build("./game.py", KEY)


def test_a_later_import_of_the_package_is_checked(place: Path) -> None:
    (place / "pack/mod.py").write_text("def make():\n    from pack.part import _inner\n    return _inner.number()\n")
    user_code.allow("pack.mod:make", KEY)
    function = user_code.load("pack.mod:make", KEY)
    compiled_otherwise(place / "pack/part/_inner.py")
    assert function() == 1


def test_files_beside_the_code_do_not_replace_installed_packages(place: Path) -> None:
    (place / "helper.py").write_text("import wave\ndef number():\n    return 1 if wave.open else 2\n")
    (place / "wave.py").write_text("open = None\n")
    sys.modules.pop("wave", None)
    user_code.allow("./game.py", KEY)
    assert user_code.build("./game.py", KEY) == 1


def test_packages_in_folders_without_init_are_found(place: Path) -> None:
    (place / "pack/__init__.py").unlink()
    user_code.allow("pack.mod:make", KEY)
    compiled_otherwise(place / "pack/mod.py")
    assert user_code.build("pack.mod:make", KEY) == 1


def test_installed_code_is_left_to_python(place: Path) -> None:
    assert is_installed(Path(os.__file__).resolve()) and is_installed(Path(pytest.__file__).resolve())
    assert not is_installed(place / "game.py")
    user_code.allow("json.decoder:JSONDecoder", KEY)
    assert user_code.load("json.decoder:JSONDecoder", KEY).__module__ == "json.decoder"


def test_code_that_is_too_large_is_not_read(place: Path) -> None:
    os.truncate(place / "game.py", 5 << 30)
    assert user_code.sha256("./game.py", KEY) == ""
    with trust.trusting(True), pytest.raises(HmxError, match=r"cannot load network ./game.py: 5,368,709,120 bytes"):
        user_code.build("./game.py", KEY)
