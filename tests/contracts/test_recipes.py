"""The recipes of CONTRIBUTING.md work: each is followed in a copy of the tree, and what it adds is used as built in."""

import csv
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from made_runs import flat, write_metrics

ROOT = Path(__file__).parents[2]

ENVIRONMENT = '''
"""A lamp: the right switch lights it."""

import jax.numpy as jnp

from hmx.envs.autoreset import Game, batched
from hmx.envs.protocol import Env, EnvSpec


def make_lamp(max_steps: int, glow: float) -> Env:
    """Build a lamp that pays `glow` for each step in which the right of two switches is pressed."""
    spec = EnvSpec(id="lamp", obs_shape=(1,), num_actions=2, max_steps=max_steps, reward_terms=("light",))
    move = lambda step, action, key: (step + 1, {"light": glow * action.astype(jnp.float32)}, step + 1 == 4)
    legal = lambda step: jnp.ones(2, bool)
    return batched(spec, Game(lambda key: jnp.int32(0), move, lambda step: jnp.ones((1,)), legal))
'''

ALGORITHM_ENTRY = '''
"""What A2C says of itself; no JAX."""

from hmx.algos import own_entry

PLACES = {"make": "hmx.algos.a2c.update:make", "policy_outputs": "hmx.algos.policy_outputs:of_ppo"}
ENTRY = own_entry.ENTRY._replace(name="a2c", own=False, **PLACES)
'''


class Recipe:
    """A section of CONTRIBUTING.md that is followed in a copy of the tree."""

    def __init__(self, tree: Path, title: str) -> None:
        text = (ROOT / "CONTRIBUTING.md").read_text().partition(f"### {title}\n")[2].partition("\n### ")[0]
        self.named = re.findall(r"`(hmx/[\w/<>.]+)`", text)
        self.tree = tree

    def write(self, path: str, text: str) -> None:
        """Add a file in a place that the recipe names."""
        places = [re.sub("<name>", r"\\w+", place) for place in self.named]
        assert any(re.fullmatch(rf"{place}(\w+\.py)?" if place.endswith("/") else place, path) for place in places)
        (self.tree / path).parent.mkdir(exist_ok=True)
        (self.tree / path).write_text(text)

    def insert(self, path: str, before: str, text: str) -> None:
        """Insert lines before the first place of a text in a file that the recipe names."""
        assert path in self.named
        head, found, tail = (self.tree / path).read_text().partition(before)
        assert found
        (self.tree / path).write_text(f"{head}{text}{found}{tail}")


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a copy of hmx with another environment, metric, algorithm and column of a report."""
    tree = tmp_path_factory.mktemp("tree")
    shutil.copytree(ROOT / "hmx", tree / "hmx", ignore=shutil.ignore_patterns("__pycache__"))

    environment = Recipe(tree, "Add an environment")
    environment.write("hmx/envs/small/lamp.py", ENVIRONMENT)
    option = '{"EnvConfig": {"glow": (float, opt(0.5, "reward of light", "reward", ge=0))}}'
    place = '"lamp", f"{_SMALL}.lamp:make_lamp", lambda cfg, _: (cfg.max_steps, cfg.glow)'
    environment.insert(
        "hmx/envs/small/entries.py", ")  # fmt: skip\n\nENTRIES", f"    EnvEntry({place}, options={option}),\n"
    )

    metric = Recipe(tree, "Add a metric")
    row = '("train/advantage_max", "reward", "none", "max", "largest advantage"),\n    '
    metric.insert("hmx/records/metrics_table.py", '("train/entropy"', row)

    algorithm = Recipe(tree, "Add an algorithm")
    update = (ROOT / "examples" / "a2c.py").read_text().replace("options: Options)", "options: Options = Options())")
    shown = "{name: Mean.of(value) for name, value in losses.items()}"
    update = update.replace("import hmx\n", "import hmx\nfrom hmx.types import Max, Mean\n").replace(
        "metrics | losses",
        f'metrics | {shown} | {{"train/advantage_max": Max.of(advantage.advantage_t)}}',
    )
    algorithm.write("hmx/algos/a2c/update.py", update)
    algorithm.write("hmx/algos/a2c/entry.py", ALGORITHM_ENTRY)
    algorithm.insert("hmx/config/option.py", '"dqn"]', '"a2c", ')
    algorithm.insert("hmx/config/option.py", "DQN: ", 'ON_POLICY = (*ON_POLICY, "a2c")\n')

    column = Recipe(tree, "Add a number to a report")
    value = "        worst=float(values.min()) if len(values) else None,\n"
    column.insert("hmx/reports/compare/tasks.py", "        iqm=_iqm(values", value)
    field = '    worst: float | None = num("final value of the worst seed", "metric", column="worst seed")\n'
    column.insert("hmx/reports/compare/findings.py", "    areas: tuple", field)
    column.insert("hmx/reports/compare/document.py", '"std", "auc"', '"worst", ')
    return tree


def run(tree: Path, *command: str) -> str:
    """Run Python in the tree, which then is the hmx that it imports; return what it prints."""
    environ = {**os.environ, "PYTHONPATH": str(tree)}
    done = subprocess.run([sys.executable, *command], cwd=tree, env=environ, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_what_recipes_add_is_offered_and_documented(tree: Path) -> None:
    shutil.copytree(ROOT / "tools", tree / "tools", ignore=shutil.ignore_patterns("__pycache__"))
    code = (
        "import sys; sys.path.insert(0, 'tools'); import reference\n"
        "from hmx.config.fields import FIELDS\n"
        "print(reference.config(), reference.metrics(), *reference.compare())\n"
        "print(FIELDS['env.id'].values, FIELDS['algo.name'].values)\n"
        "assert 'jax' not in sys.modules"
    )
    shown = run(tree, "-c", code)
    assert "| `env.glow` | `0.5` | reward of light | 0 or more | reward |" in shown
    assert "| `train/advantage_max` | reward |  | max | largest advantage |" in shown
    assert "'lamp'" in shown and "'a2c'" in shown
    assert re.search(r"`worst\(A\)`.* final value of the worst seed", shown)


def test_what_recipes_add_trains(tree: Path) -> None:
    command = (
        "-m", "hmx", "train", "--algo", "a2c", "--env", "lamp", "--set", "env.glow=2", "--set", "net.hidden=8",
        "--num-envs", "4", "--set", "algo.num_steps=8", "--steps", "64", "--eval-episodes", "0", "--name", "new",
    )  # fmt: skip
    run(tree, *command)
    records = [json.loads(line) for line in (tree / "runs" / "new" / "metrics.jsonl").read_text().splitlines()]
    assert all(record["train/advantage_max"] > -10 and "train/entropy" in record for record in records)
    light = records[0]["reward/light"]
    assert 0 < light < 2 and light == pytest.approx(records[0]["train/mean_reward"])
    assert "glow = 2.0" in (tree / "runs" / "new" / "run.toml").read_text()


def test_a_column_that_a_recipe_adds_is_in_every_output_and_condition(tree: Path) -> None:
    for name, levels in (("one", (0.1, 0.3)), ("two", (0.5, 0.7))):
        write_metrics(tree / f"{name}.jsonl", flat(*levels))
    command = ("-m", "hmx", "compare", "one.jsonl", "two.jsonl")
    shown = run(tree, *command, "--json", "--csv", "values.csv", "--md", "page.md", "--fail-if", "worst(A) > worst(B)")
    (task,) = json.loads(shown)["tasks"]
    assert [side["worst"] for side in task["sides"]] == pytest.approx([0.1, 0.5])
    with (tree / "values.csv").open() as file:
        values = {row["side"]: float(row["value"]) for row in csv.DictReader(file) if row["figure"] == "worst"}
    assert values == pytest.approx({"A": 0.1, "B": 0.5})
    lines = [line.strip("| ").split(" | ") for line in (tree / "page.md").read_text().splitlines()]
    head, _, one, two, *_ = next(lines[at:] for at, cells in enumerate(lines) if "worst seed" in cells)
    assert [row[head.index("worst seed")] for row in (one, two)] == ["0.1", "0.5"]
