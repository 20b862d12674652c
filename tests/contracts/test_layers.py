"""The import contracts hold, and each of them can fail."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
CONTRACTS = {contract["id"]: contract for contract in PROJECT["tool"]["importlinter"]["contracts"]}
HOST_SIDE = {
    "simulators",
    "cli",
    "console",
    "gates",
    "play",
    "study",
    "render",
    "reports",
    "jobs",
    "runs",
    "records",
    "registry",
    "own",
    "config",
    "stats",
    "errors",
    "__main__",
    "api",
    "gymnasium",
    "toolkit",
}


def lint(folder: Path) -> subprocess.CompletedProcess[str]:
    """Runs import-linter on the copy of hmx in a folder."""
    code = "import sys; sys.path.insert(0, '.'); from importlinter.cli import lint_imports_command; "
    code += "lint_imports_command(['--no-cache', '--no-logo'])"
    return subprocess.run([sys.executable, "-P", "-c", code], cwd=folder, capture_output=True, text=True)


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """A copy of the package that a test may spoil."""
    shutil.copytree(ROOT / "hmx", tmp_path / "hmx", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    return tmp_path


def test_the_contracts_hold(copy):
    done = lint(copy)
    assert done.returncode == 0, done.stdout
    assert f"{len(CONTRACTS)} kept, 0 broken" in done.stdout


FORBIDDEN = [
    ("layers", "api/runs.py", "import hmx.cli.output"),
    ("layers", "records/meta.py", "import hmx.jobs.train"),
    ("layers", "rl/losses.py", "import hmx.envs.hackmatrix.rules.tables"),
    ("layers", "config/schema.py", "import hmx.records.meta"),
    ("plain", "config/schema.py", "import numpy"),
    ("plain", "records/meta.py", "import jax"),
    ("core", "algos/types.py", "import orbax.checkpoint"),
    ("core", "nets/build.py", "import hmx.registry.user_code"),
    ("core", "envs/registry.py", "import hmx.own.environment"),
    ("core", "envs/protocol.py", "import hmx.registry.load"),
    ("core", "envs/hackmatrix/rules/tables.py", "import hmx.records.meta"),
    ("arrays", "rl/losses.py", "import hmx.config.schema"),
    ("rules", "envs/hackmatrix/rules/tables.py", "import hmx.config.schema"),
    ("statistics", "stats/intervals.py", "import jax"),
    ("headless", "jobs/evaluate.py", "import rich"),
    ("headless", "reports/summaries.py", "import typer"),
    ("headless", "runs/sinks.py", "import typer"),
]


def test_each_forbidden_import_is_found(copy):
    for _, module, line in FORBIDDEN:
        with (copy / "hmx" / module).open("a") as file:
            file.write(f"\n{line}\n")
    done = lint(copy)
    assert done.returncode != 0
    sections = re.split(r"^(.+)\n-+\n", done.stdout, flags=re.MULTILINE)
    reported = dict(zip(sections[1::2], sections[2::2], strict=True))
    missed = []
    for contract, module, line in FORBIDDEN:
        name, importer = CONTRACTS[contract]["name"], "hmx." + module.removesuffix(".py").replace("/", ".")
        imported = line.removeprefix("import ")
        imported = imported if imported.startswith("hmx.") else imported.partition(".")[0]
        if f"{importer} -> {imported} (l." not in reported.get(name, "") or f"{name} BROKEN" not in done.stdout:
            missed.append((contract, module, line))
    assert not missed, done.stdout


def test_contributing_shows_every_layer_in_order():
    block = (ROOT / "CONTRIBUTING.md").read_text().split("## Layout")[1].split("```\n")[1]
    assert [line.split("  ")[0] for line in block.splitlines()] == CONTRACTS["layers"]["layers"]


def test_module_outside_all_layers_is_found(copy):
    (copy / "hmx" / "attic.py").write_text("")
    assert lint(copy).returncode != 0


def test_rules_of_the_core_cover_every_numeric_package():
    modules = [path for path in (ROOT / "hmx").iterdir() if path.suffix == ".py" or (path / "__init__.py").exists()]
    present = {path.stem for path in modules}
    numeric = {f"hmx.{name}" for name in present - HOST_SIDE - {"__init__"}}
    assert set(CONTRACTS["core"]["source_modules"]) == numeric


def test_heavy_imports_at_module_level_are_found(copy):
    command = [sys.executable, "-m", "ruff", "check", "--no-cache", "--select", "TID253", "--output-format", "concise"]
    assert subprocess.run([*command, "hmx"], cwd=copy, capture_output=True).returncode == 0
    modules = ["hmx/__main__.py", "hmx/cli/train.py", "hmx/records/meta.py", "hmx/registry/load.py"]
    for module in modules:
        with (copy / module).open("a") as file:
            file.write("\nimport jax\n")
    done = subprocess.run([*command, "hmx"], cwd=copy, capture_output=True, text=True)
    assert done.returncode == 1
    assert sorted(line.partition(":")[0] for line in done.stdout.splitlines() if "TID253" in line) == modules
