"""The project's own files keep their promises: README, Makefile, package, image."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest
import typer
import yaml

from hmx.cli.app import app
from hmx.config import presets
from hmx.errors import ExitCode

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
INSTALL = (ROOT / "docs" / "install.md").read_text()
AGENTS = (ROOT / "AGENTS.md").read_text()
CONTRIBUTING = (ROOT / "CONTRIBUTING.md").read_text()
MAKEFILE = (ROOT / "Makefile").read_text()
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
WHEEL = PROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]
LINK = re.compile(r"\]\(([^)#]+)\)")
LINES = (ROOT / "constraints.txt").read_text().splitlines()
PINS = dict(line.split("==") for line in LINES if line and not line.startswith("#"))


def targets() -> set[str]:
    """The targets that the Makefile declares."""
    return set(re.search(r"^\.PHONY: (.+)$", MAKEFILE, re.MULTILINE)[1].split())


@pytest.mark.parametrize("text", [README, CONTRIBUTING], ids=["README", "CONTRIBUTING"])
def test_every_make_command_in_the_documents_exists(text):
    named = set(re.findall(r"(?:^|`)make ([a-z-]+)", text, re.MULTILINE))
    assert named and named <= targets()


def test_the_two_commands_of_the_readme_come_first():
    assert re.findall(r"^make (\w+)$", README, re.MULTILINE)[:2] == ["train", "test"]


def test_the_first_command_of_the_readme_comes_within_16_lines():
    before = README[: README.index("```sh")]
    assert len(before.splitlines()) <= 16


def test_the_readme_activates_the_environment_before_its_first_hmx_command():
    activation = README.index("\n. .venv/bin/activate\n")
    assert activation < re.search(r"^hmx ", README, re.MULTILINE).start()
    assert ".venv/bin/hmx" not in README


def test_every_extra_for_users_is_in_the_page_about_installing():
    extras = {name for name in PROJECT["project"]["optional-dependencies"] if not name.startswith("test")}
    table = INSTALL[INSTALL.index("| extra | for |") :].partition("\n\n")[0]
    assert extras == set(re.findall(r"`([a-z]+)`", table.replace("`hmx", "hmx")))


def test_every_command_in_the_readme_exists():
    named = set(re.findall(r"(?:`|^)hmx ([a-z][a-z-]+)", README, re.MULTILINE))
    assert {"watch", "doctor", "report", "new-env"} < named <= set(typer.main.get_command(app).commands)


def test_the_readme_stays_short():
    assert len(README.split()) < 1000


@pytest.mark.parametrize("option", sorted(set(re.findall(r"(--[a-z-]+)", README)) - {"--build-arg", "--init", "--rm"}))
def test_every_option_in_the_readme_exists(option):
    reference = (ROOT / "docs" / "cli.md").read_text()
    assert option in reference


def test_links_in_the_documents_exist():
    for text in (path.read_text() for path in ROOT.glob("*.md")):
        for target in re.findall(r"\]\((?!https?:)([^)#]+)\)", text):
            assert (ROOT / target).exists(), target


def test_train_runs_the_main_command_and_ci_runs_the_checks():
    assert re.search(r"^train: .*\n(?:\t.*\n)*?\t@\$\(BIN\)/hmx train", MAKEFILE, re.MULTILINE)
    assert re.search(r"^check: static test$", MAKEFILE, re.MULTILINE)
    script = ROOT / ".ci" / "run"
    assert script.stat().st_mode & 0o111 and re.search(r"^make .*\bcheck\b.* VENV=", script.read_text(), re.MULTILINE)


def test_pins_name_versions_and_no_addresses():
    text = (ROOT / "constraints.txt").read_text()
    assert "://" not in text and "@" not in text
    assert all(re.fullmatch(r"[\w.+!-]+", version) for version in PINS.values())


def test_all_dependencies_are_pinned():
    asked = [*PROJECT["project"]["dependencies"], *PROJECT["project"]["optional-dependencies"]["test"]]
    pinned = {name.lower().replace("_", "-") for name in PINS}
    missing = {re.match(r"[A-Za-z0-9_-]+", line)[0].lower().replace("_", "-") for line in asked} - pinned
    assert not missing


def test_changelog_has_the_version():
    assert f"## [{PROJECT['project']['version']}]" in (ROOT / "CHANGELOG.md").read_text()


def test_citation_has_the_fields_of_its_format_and_the_released_version():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert {"cff-version", "message", "title", "authors"} <= set(citation) and citation["cff-version"] == "1.2.0"
    project, released = PROJECT["project"], f"## [{citation['version']}] - {citation['date-released']}"
    assert (citation["version"], citation["license"]) == (project["version"], project["license"])
    assert [author["name"] for author in citation["authors"]] == [author["name"] for author in project["authors"]]
    assert released in (ROOT / "CHANGELOG.md").read_text()


def test_every_command_for_agents_parses():
    skills = [path.read_text() for path in sorted((ROOT / "skills").glob("*/SKILL.md"))]
    texts = re.sub(r'"\$\([^)]*\)"', "7", "\n".join((AGENTS, *skills)))  # what a shell puts in
    lines = re.findall(r"^ *(?:if )?hmx (.+)$", texts, re.MULTILINE) + re.findall(r"`hmx ([^`]*--[^`]+)`", texts)
    commands = [shlex.split(line.partition(" > ")[0].replace("COMMAND --help", "")) for line in lines]
    assert len(AGENTS.splitlines()) <= 120 and len(commands) > 30 and len(skills) == 4
    root = typer.main.get_command(app)
    for words in (words for words in commands if words and words[0] != "--version"):
        command, context = root, root.make_context("hmx", ["--help"], resilient_parsing=True)
        while words and words[0] in getattr(command, "commands", {}):
            command = command.commands[words.pop(0)]
        command.make_context("hmx", words, parent=context)  # raises if it does not parse


def test_exit_codes_for_agents_are_those_of_the_program():
    codes = {int(code) for row in re.findall(r"^\| ([\d, ]+) \|", AGENTS, re.MULTILINE) for code in row.split(", ")}
    assert codes == {int(code) for code in ExitCode}


def test_wheel_contains_the_documented_files(tmp_path):
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    (wheel,) = tmp_path.glob("*.whl")
    archive = zipfile.ZipFile(wheel)
    share = f"hmx-{PROJECT['project']['version']}.data/data/share"
    commands = ["", *(f"-{name}" for name in typer.main.get_command(app).commands)]
    wanted = {f"{share}/man/man1/hmx{name}.1" for name in commands}
    wanted |= {f"{share}/doc/hmx/{path.relative_to(ROOT)}" for path in (ROOT / "docs").rglob("*.*")}
    wanted |= {f"{share}/doc/hmx/{name}" for name in ("README.md", "CHANGELOG.md")}
    wanted |= {f"{share}/doc/hmx/examples/{name}" for name in ("a2c.py", "rnd.py", "1-first-agent.ipynb")}
    wanted |= {f"hmx/config/presets/{name}.toml" for name in presets.names() if name != presets.DEFAULT}
    wanted |= {
        f"{share}/bash-completion/completions/hmx",
        f"{share}/zsh/site-functions/_hmx",
        f"{share}/fish/vendor_completions.d/hmx.fish",
        "hmx/py.typed",
    }
    assert wanted <= set(archive.namelist())
    assert not [name for name in archive.namelist() if name.startswith("tests/")]
    (metadata,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
    text = archive.read(metadata).decode()
    assert "make train" in text and "Classifier: Programming Language :: Python :: 3.13" in text
    assert not [link for link in LINK.findall(text) if not link.startswith("https://")]
    assert any(not link.startswith("https://") for link in LINK.findall(README))  # else the line above shows nothing


def test_image_trains_and_contains_its_sources():
    instructions = re.findall(r"^([A-Z]+) (.+)$", (ROOT / "Dockerfile").read_text(), re.MULTILINE)
    told = dict(instructions)
    assert (told["ENTRYPOINT"], told["CMD"]) == ('["hmx"]', '["train"]')
    kept = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    shared = {source.partition("/")[0] for source in WHEEL["shared-data"]}
    needed = {*WHEEL["packages"], *shared, "tools", "README.md", "LICENSE", "constraints.txt", "pyproject.toml"}
    assert needed <= kept and all((ROOT / name).exists() for name in kept)


def test_the_pods_of_kubernetes_fit_the_image():
    image = (ROOT / "Dockerfile").read_text()
    pods = (ROOT / "docs" / "hosts" / "kubernetes.yaml").read_text()
    folder, user = (
        re.search(r"^WORKDIR (.+)$", image, re.MULTILINE)[1],
        re.search(r"^USER (\d+):", image, re.MULTILINE)[1],
    )
    assert f"workingDir: {folder}\n" in pods and f"mountPath: {folder}/runs\n" in pods
    assert f"runAsUser: {user}\n" in pods and f"fsGroup: {user}\n" in pods


@pytest.mark.skipif(shutil.which("hadolint") is None, reason="hadolint is not installed")
def test_the_dockerfile_is_clean():
    done = subprocess.run(["hadolint", str(ROOT / "Dockerfile")], capture_output=True, text=True)
    assert done.stdout == "" and done.returncode == 0
