"""Networks and algorithms of the user: what names them, when they may run, and what is wrong with them."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from hmx.config import references
from hmx.errors import HmxError
from hmx.registry import trust, user_code
from hmx.registry.load import load

KEY = "net.kind"


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of the user's, where nothing is trusted."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setattr(trust, "_allowed", [])
    return tmp_path


def test_only_named_and_unchanged_code_runs(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (place / "mine.py").write_text("def make():\n    return 1\n")
    with pytest.raises(HmxError, match="you have not trusted its code"):
        user_code.build("./mine.py", KEY)
    load(sets=["net.kind=./mine.py"], environ={})
    monkeypatch.setattr(trust, "_allowed", [])  # another process
    digest = user_code.sha256("./mine.py", KEY)
    assert user_code.build("./mine.py:make", KEY) == 1
    (place / "mine.py").write_text("def make():\n    return 2\n")
    with pytest.raises(HmxError, match="you have not trusted its code"):
        user_code.build("./mine.py", KEY)
    with trust.trusting(True):
        assert user_code.build("./mine.py", KEY) == 2
    with pytest.raises(user_code.CodeChanged, match="has changed since the run began"):
        user_code.check_unchanged("./mine.py", KEY, digest)
    monkeypatch.setattr(trust.Permissions, "accept_change", True)
    user_code.check_unchanged("./mine.py", KEY, digest)


def test_code_named_only_by_a_file_is_refused(place: Path) -> None:
    (place / "mine.py").write_text("make = 1")
    (place / "other.toml").write_text('[net]\nkind = "./mine.py"\n')
    load(file="other.toml", environ={})
    assert not trust._allowed
    load(file="other.toml", environ={}, sets=["net.kind=./mine.py"])
    assert len(trust._allowed) == 1


@pytest.mark.parametrize(
    ("reference", "source", "words"),
    [
        ("./mien.py", "", "there is no file ./mien.py"),
        ("no.such.module:make", "", "there is no module no.such.module"),
        ("notebook:make", "", "was defined in a notebook"),
        ("./mine.py", "x = 1\ny = x +", r"SyntaxError: .*\n  .*mine.py:2, in <module>: y = x \+"),
        ("./mine.py", "import nothere_at_all", r"No module named 'nothere_at_all'\n  .*mine.py:1"),
        ("./mine.py", "def f():\n    raise KeyError('k')\nf()", r"KeyError: 'k'\n  .*mine.py:3.*\n  .*mine.py:2, in f"),
        ("./mine.py", "import sys\nsys.exit(3)", "SystemExit: 3"),
        ("./mine.py:maek", "def make(): ...", "no function maek; it has make"),
        ("./mine.py:maek", "class C: ...\ndef make(): ...", "no function maek; it has make"),
        ("./mine.py", "make = 1", "no function make; it defines none"),
        (
            "./mine.py",
            "def make(): return 1 / 0",
            r"cannot build network ./mine.py: Zero.*\n.*mine.py:1, in make",
        ),
    ],
)
def test_every_mistake_has_one_clear_error(place: Path, reference: str, source: str, words: str) -> None:
    (place / "mine.py").write_text(source)
    with trust.trusting(True), pytest.raises(HmxError, match=words) as caught:
        user_code.build(reference, KEY)
    assert caught.value.hint and caught.value.exit_code == 2


def test_what_code_prints_goes_to_standard_error(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (place / "mine.py").write_text("print('imported')\ndef make():\n    print('built')\n    return 1\n")
    with trust.trusting(True):
        user_code.build("./mine.py", KEY)
    assert capsys.readouterr() == ("", "imported\nbuilt\n")


def test_references_have_short_names() -> None:
    names = [references.name_of(text) for text in ("ppo", "./a/net.py", "./net.py:wide", "pack.nets:make", "a.b:c")]
    assert names == ["ppo", "net", "net-wide", "nets", "b-c"]


def test_functions_of_this_process_can_be_used() -> None:
    text = user_code.adopt(sample)
    assert user_code.build(text, KEY, 3) == 4
    assert user_code.open_module(text, "env.id", "")[0].sample is sample
    with pytest.raises(HmxError, match="not a function at module level"):
        user_code.adopt(lambda: 1)


def sample(number: int) -> int:
    """Return the next number."""
    return number + 1


def test_packages_register_algorithms_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    point = EntryPoint("next", f"{__name__}:sample", user_code.GROUPS["algo.name"])
    monkeypatch.setattr(EntryPoint, "load", lambda self: sample)
    monkeypatch.setattr(user_code, "registered", lambda key: [point])
    assert load(sets=["algo.name=next"], environ={}).config.algo.name == "next"
    assert user_code.build("next", "algo.name", 1) == 2
    monkeypatch.setattr(user_code, "registered", lambda key: [point] * 2)
    with pytest.raises(HmxError, match=r"algorithm next has several owners: .*:sample of a package, "):
        user_code.build("next", "algo.name", 1)
    with pytest.raises(HmxError, match="there is no algorithm other"):
        user_code.build("other", "algo.name", 1)


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("./game.py", True), ("runs/game.py:make", True), ("package.module:make", True), ("gymnax/CartPole-v1", False),
        ("gymnasium/ale_py:ALE/Pong-v5", False), ("cells", False),
    ],
)  # fmt: skip
def test_a_reference_names_a_file_or_a_module(text: str, code: bool) -> None:
    assert references.is_reference(text) is code


def test_names_that_are_neither_known_nor_code_are_refused() -> None:
    with pytest.raises(HmxError, match="is not one of auto, mlp, cells, cnn, or a file of your own"):
        load(sets=["net.kind=mpl"], environ={})


ADDING = """
import sys
from hmx.registry.trust import remember
print(flush=True)
input()
for i in range(20):
    remember(f"{sys.argv[1]}/{i}.py", "0" * 64)
"""


def test_processes_that_trust_code_at_the_same_time_lose_no_entry() -> None:
    pipe = subprocess.PIPE
    processes = [
        subprocess.Popen([sys.executable, "-P", "-c", ADDING, str(i)], stdin=pipe, stdout=pipe) for i in range(6)
    ]
    for process in processes:  # which then begin together
        process.stdout.readline()
    for process in processes:
        process.stdin.write(b"\n")
        process.stdin.flush()
    for process in processes:
        process.communicate()
    assert sorted(trust.remembered()) == sorted([f"{i}/{j}.py", "0" * 64] for i in range(6) for j in range(20))
