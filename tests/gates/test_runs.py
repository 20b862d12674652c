"""A gate of real runs: options, user code, and another checkout of hmx."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

import hmx.errors
from hmx.errors import HmxError
from hmx.gates.campaign import Change, new_gate, try_change
from hmx.gates.records import Attempt, GateRequest, Ledger, find_gate
from hmx.gates.verify import verify_gate
from hmx.gates.worker import PairTrainer
from hmx.registry.load import load

EXAMPLE = Path(__file__).parents[2] / "examples" / "a2c.py"
SIZES = {"env.id": "corridor", "env.num_envs": "4", "algo.num_steps": "8", "run.total_steps": "1600"}


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ledger]:
    """A gate whose baseline is user code; made once, and each test tries something else."""
    folder = tmp_path_factory.mktemp("own")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        shutil.copy(EXAMPLE, "mine.py")
        loaded = load(flags={**SIZES, "algo.name": "./mine.py"}, environ={})
        made = new_gate(folder / "gates" / "own", GateRequest(max_seeds=3, error=0.5, attempts=1), loaded)
        yield made


def tried(gate: Ledger, *sets: str, **flags: str) -> Attempt:
    """Try options, and code by its section."""
    named = {"net.kind" if section == "net" else f"{section}.name": text for section, text in flags.items()}
    _, attempt = try_change(find_gate(gate.folder), Change(sets=sets, flags=named))
    assert attempt.verdict is not None
    return attempt


def edit(*changes: tuple[str, str]) -> None:
    """Write the example with changes."""
    text = EXAMPLE.read_text()
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    Path("mine.py").write_text(text)


def test_code_without_an_effect_is_answered_without_training(own: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PairTrainer, "_values", None)  # nothing may be trained
    edit(("    def init(key):", "    # a comment\n    def init(key):"), ("k_run", "key_of_the_run"))
    attempt = tried(own, algo="./mine.py")
    assert attempt.verdict is not None
    assert (attempt.verdict.outcome, attempt.verdict.pairs) == ("same", ())


def test_an_option_that_changes_no_result_is_answered_without_training(
    own: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(PairTrainer, "_values", None)
    attempt = tried(own, "run.keep=7")
    assert attempt.verdict is not None and attempt.verdict.outcome == "same"


def test_code_with_an_effect_trains_pairs_on_the_same_seeds(own: Ledger) -> None:
    edit(("0.5 * ((value", "0.25 * ((value"))
    attempt = tried(own, algo="./mine.py")
    assert attempt.verdict is not None
    assert attempt.verdict.outcome in ("keep", "worse", "not shown", "undecided")
    gate = find_gate(own.folder)
    runs = {place.name for place in attempt.run(0).root.iterdir()}
    assert runs >= {f"{pair.seed:04d}" for pair in attempt.verdict.pairs}
    assert verify_gate(gate).differences == ()
    # The baseline keeps its own copy of the code.
    assert (gate.attempts[0].folder / "code" / "mine.py").read_text() == EXAMPLE.read_text()
    assert (attempt.folder / "code" / "mine.py").read_text() == Path("mine.py").read_text()


def test_equal_results_of_another_program_are_found_by_the_states(own: Ledger) -> None:
    """A check that never fails leaves other instructions in the program, and equal states."""
    edit(("return hmx.TrainState(", "params = jax.tree.map(lambda x: jnp.where(jnp.isnan(x), 0, x), params)\n        "
          "return hmx.TrainState("))  # fmt: skip
    attempt = tried(own, algo="./mine.py")
    assert attempt.verdict is not None
    assert (attempt.verdict.outcome, attempt.verdict.pairs) == ("same results", ())


def test_code_that_cannot_be_built_has_failed(own: Ledger) -> None:
    edit(("    def init(key):", "    raise ValueError('no such network')\n\n    def init(key):"))
    attempt = tried(own, algo="./mine.py")
    assert attempt.verdict is not None
    assert attempt.verdict.outcome == "failed"
    assert "no such network" in attempt.verdict.reason


def test_two_files_of_code_with_one_name_are_refused(own: Ledger) -> None:
    """Their copies would lie in one folder, and the second would replace the first."""
    edit()
    Path("other").mkdir()
    Path("other/mine.py").write_text("def make(): ...\n")
    with pytest.raises(HmxError, match=r"two files of code have the name mine\.py"):
        tried(own, algo="./mine.py", net="./other/mine.py")


def test_code_whose_loss_is_not_finite_has_failed(own: Ledger) -> None:
    edit(("0.5 * ((value", "jnp.nan * ((value"))
    attempt = tried(own, algo="./mine.py")
    assert attempt.verdict is not None
    assert (attempt.verdict.outcome, attempt.verdict.pairs) == ("failed", ())
    assert "not finite" in attempt.verdict.reason
    assert verify_gate(find_gate(own.folder)).differences == ()


@pytest.mark.parametrize("sets, message", [
    (("env.max_steps=50",), "changes what is measured"),
    (("run.total_steps=3200",), "run.total_steps=3200 instead of 1600 changes what is measured"),
    (("algo.learning_rat=1",), "unknown key"),
])  # fmt: skip
def test_what_cannot_be_compared_is_refused_and_leaves_no_attempt(
    own: Ledger, sets: tuple[str, ...], message: str
) -> None:
    before = len(find_gate(own.folder).attempts)
    with pytest.raises(HmxError, match=message):
        tried(own, *sets)
    assert len(find_gate(own.folder).attempts) == before


def test_a_checkout_with_a_comment_is_the_same_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    loaded = load(flags=SIZES, environ={})
    gate = new_gate(tmp_path / "gates" / "src", GateRequest(max_seeds=3, error=0.5, attempts=1), loaded)
    here = Path(hmx.errors.__file__).parent
    shutil.copytree(here, tmp_path / "branch" / "hmx", ignore=shutil.ignore_patterns("__pycache__"))
    losses = next((tmp_path / "branch" / "hmx" / "algos" / "ppo").glob("loss*.py"))
    losses.write_text(losses.read_text() + "# a comment\n")
    with monkeypatch.context() as patch:
        patch.setattr(PairTrainer, "_values", None)
        _, same = try_change(gate, Change(source=tmp_path / "branch"))
    assert same.verdict is not None and same.verdict.outcome == "same"
    with pytest.raises(HmxError, match="is not a checkout of hmx"):
        try_change(gate, Change(source=tmp_path))


def test_a_metric_that_no_run_reports_is_an_error_of_the_baseline(own: Ledger, tmp_path: Path) -> None:
    edit()
    loaded = load(flags={**SIZES, "algo.name": "./mine.py"}, environ={})
    gate = new_gate(tmp_path / "gates" / "g", GateRequest(metric="nope", maximize=True, at=320), loaded)
    with pytest.raises(HmxError, match="the baseline fails: nope has no value in the last tenth of") as caught:
        try_change(gate, Change(sets=("algo.gamma=0.9",)))
    assert (caught.value.exit_code, caught.value.hint[:11]) == (4, "hmx doctor ")
    assert verify_gate(gate).differences == ()
    _, ended = try_change(gate, Change(abandon=True))
    assert ended.verdict is not None and ended.verdict.reason == "abandoned after 0 pairs"


NEWER = """
import json, re, shutil, sys
given = dict(word.split("=", 1) for word in sys.argv if "=" in word)
place = given["run.root"] + "/" + given["run.name"]
shutil.copytree(place.replace("/{number:04d}/", "/0000/"), place)
lines = open(place + "/metrics.jsonl").read()
open(place + "/metrics.jsonl", "w").write(re.sub('"schema": ?[0-9]+', '"schema": 999', lines))
"""


def test_checkouts_that_this_hmx_cannot_use_have_failed(own: Ledger, tmp_path: Path) -> None:
    """An older one that refuses the configuration, one that trains nothing, and a newer one with other records."""
    package = tmp_path / "other" / "hmx"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    number = len(find_gate(own.folder).attempts)
    for code, reason in (
        ("print('error: config.toml has schema 30, written by a newer hmx')\nraise SystemExit(3)",
         "exit code 3: config.toml has schema 30, written by a newer hmx"),
        ("", "it has not trained "),
        (NEWER.format(number=number + 2), "metrics.jsonl"),
    ):  # fmt: skip
        (package / "__main__.py").write_text(code)
        _, failed = try_change(find_gate(own.folder), Change(source=tmp_path / "other"))
        assert failed.verdict is not None
        assert (failed.verdict.outcome, failed.verdict.pairs) == ("failed", ())
        assert reason in failed.verdict.reason
    assert verify_gate(find_gate(own.folder)).differences == ()


@pytest.mark.thorough
def test_a_checkout_trains_its_side_with_its_own_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    loaded = load(flags=SIZES, environ={})
    gate = new_gate(tmp_path / "gates" / "src", GateRequest(max_seeds=3, error=0.5, attempts=1), loaded)
    here = Path(hmx.errors.__file__).parent
    shutil.copytree(here, tmp_path / "branch" / "hmx", ignore=shutil.ignore_patterns("__pycache__"))
    losses = tmp_path / "branch" / "hmx" / "algos" / "ppo" / "loss.py"
    losses.write_text(losses.read_text() + "\n\nraise ValueError('this checkout is broken')\n")
    gate, broken = try_change(gate, Change(source=tmp_path / "branch"))
    assert broken.verdict is not None
    assert broken.verdict.outcome == "failed"
    assert "this checkout is broken" in broken.verdict.reason
    shutil.copy(here / "algos" / "ppo" / "loss.py", losses)
    rewards = tmp_path / "branch" / "hmx" / "envs" / "small" / "corridor.py"
    rewards.write_text(rewards.read_text().replace("jnp.float32(STEP_COST)", "jnp.float32(0)"))
    gate, changed = try_change(gate, Change(source=tmp_path / "branch"))
    assert changed.verdict is not None
    assert all(pair.candidate > pair.baseline for pair in changed.verdict.pairs)
    assert verify_gate(gate).differences == ()
