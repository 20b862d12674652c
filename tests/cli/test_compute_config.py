"""`hmx compute-config` as a user runs it."""

import csv
import gzip
import io
import json
import re
from pathlib import Path

import pytest
from refusals import refused

from hmx.reports.compute_config.inputs import DEFAULTS

GOLDEN = Path(__file__).parent / "golden"
FILE = Path(__file__).parents[1] / "reports" / "compute_config" / "batch_cases.json.gz"
CASES = json.loads(gzip.decompress(FILE.read_bytes()))["cases"]
METTA = ("--preset", "metta")
FORMS = [
    ([*METTA, "--num-agents", "24"], "compute-config-24.txt", "80"),
    ([*METTA, "--num-agents", "24", "--explain", "--sps", "20000,190000"], "compute-config-explain.txt", "100"),
    (["--preset", "tiny", "--gpu-mem", "1GiB"], "compute-config-tiny.txt", "100"),
    ([*METTA, "--sweep", "num_agents=3,24,257"], "compute-config-sweep.txt", "80"),
]


def rounded(value):
    """Floats to 12 digits: the last bits of a cosine differ between machines."""
    if isinstance(value, float):
        return float(f"{value:.12g}")
    if isinstance(value, dict):
        return {name: rounded(inner) for name, inner in value.items()}
    return [rounded(inner) for inner in value] if isinstance(value, list) else value


def values(text):
    """Name -> value of CSV."""
    return {row["name"]: row["value"] for row in csv.DictReader(io.StringIO(text))}


@pytest.mark.parametrize(("words", "file", "columns"), FORMS, ids=[form[1] for form in FORMS])
def test_text_matches_snapshot(hmx, monkeypatch, words, file, columns):
    """To accept a change: write the new text to the file."""
    monkeypatch.setenv("COLUMNS", columns)
    result = hmx("compute-config", *words)
    assert result.exit_code == 0
    assert result.stdout == (GOLDEN / file).read_text(), GOLDEN / file
    assert max(map(len, result.stdout.splitlines())) <= int(columns)
    assert "\x1b" not in result.stdout and not any(line.endswith(" ") for line in result.stdout.splitlines())


def test_json_matches_snapshot(hmx):
    result = hmx("compute-config", *METTA, "--num-agents", "24", "--sps", "20000", "--gpu-mem", "80GB", "--json")
    assert result.exit_code == 0 and result.stdout.count("\n") == 1
    expected = json.loads((GOLDEN / "compute-config-24.json").read_text())
    assert rounded(json.loads(result.stdout)) == rounded(expected)


def test_24_agents_have_the_published_sizes(hmx):
    found = values(hmx("compute-config", *METTA, "--num-agents", "24", "--csv", "-").stdout)
    expected = {
        "target_batch_size_raw": "170", "target_batch_size": "170", "batch_size_envs": "160", "num_envs": "320",
        "envs_per_worker": "20", "total_agents": "7680", "agents_per_forward": "3840", "segments": "8192",
        "minibatch_segments": "256", "num_minibatches": "32", "gradient_updates_per_batch": "32",
        "total_epochs": "19073", "stored_agent_steps": "524288", "env_steps_per_batch_floor": "21845",
        "samples_per_update": "16384", "obs_bytes_seed": "253755392",
    }  # fmt: skip
    assert {name: found[name] for name in expected} == expected


def test_the_report_starts_with_a_headline_and_full_shows_both_counts(hmx, monkeypatch):
    monkeypatch.setenv("COLUMNS", "100")
    short = hmx("compute-config", *METTA, "--num-agents", "24").stdout
    headline = " ".join(short.split("\n\n")[1].split()).partition(" Note: ")[0]
    assert headline == (
        "320 environments with 24 agents each; 32 minibatches of 16,384 agent steps; about 1.0 GB of memory (704.8 MB "
        "to 1.7 GB); no exact fit: 1.868 steps are collected per step stored."
    )
    assert "W_ROLLOUT_OVERSHOOT" in short and "batch_size 491,520" in short and "(60 minibatches)" in short
    full = hmx("compute-config", *METTA, "--num-agents", "24", "--full").stdout
    text = " ".join(full.split())
    for row in ("per agent 1,638 68.2667", "per batch 12,582,912 524,288", "gradient step 393,216 16,384"):
        assert row in text
    assert "253.8 MB 242.0 MiB" in text and len(short.splitlines()) < 60 < len(full.splitlines())
    exact = " ".join(hmx("compute-config", "--preset", "tiny").stdout.split())
    assert "16 environments; 4 minibatches of 64 agent steps;" in exact and "; exact fit." in exact


def test_every_format_of_one_report(hmx, tmp_path):
    files = ["--html", "sizes.html", "--md", "sizes.md", "--csv", "sizes.csv"]
    result = hmx("compute-config", *METTA, "--num-agents", "24", "--json", *files)
    assert result.exit_code == 0 and json.loads(result.stdout)["derived"]["num_envs"] == 320
    assert "warning: W_ROLLOUT_OVERSHOOT" in result.stderr
    for name in ("sizes.html", "sizes.md"):
        text = (tmp_path / name).read_text()
        assert "320 environments with 24 agents each" in text and "7,680" in text
    assert values((tmp_path / "sizes.csv").read_text())["num_envs"] == "320"


def test_sweep_in_json_and_csv(hmx):
    words = ["compute-config", *METTA, "--batch-size", "524_288", "--sweep", "num-agents=24,257,x"]
    swept = json.loads(hmx(*words, "--json").stdout)
    assert swept["sweep"] == "num_agents"
    listed = swept["results"]
    assert [item["codes"]["errors"] for item in listed] == [[], ["E_SEGMENTS_LT_AGENTS"], ["E_NOT_INT"]]
    rows = list(csv.DictReader(io.StringIO(hmx(*words, "--csv", "-").stdout)))
    assert [(row["num_agents"], row["valid"], row["errors"]) for row in rows] == [
        ("24", "true", ""),
        ("257", "false", "E_SEGMENTS_LT_AGENTS"),
        ("x", "false", "E_NOT_INT"),
    ]
    assert rows[0]["rollout_collected_agent_steps"] == "979200" and rows[2]["segments"] == ""
    assert rows[0]["warnings"] == "W_STEP_COUNTER_NEEDS_INT64 W_ROLLOUT_OVERSHOOT"


def test_csv_has_groups_and_units(hmx):
    result = hmx("compute-config", *METTA, "--csv", "-")
    rows = {row["name"]: row for row in csv.DictReader(io.StringIO(result.stdout))}
    assert rows["batch_size"]["value"] == "524288" and rows["exact_fit"]["value"] == "false"
    assert rows["num_envs"] == {"group": "environments", "name": "num_envs", "value": "2720", "unit": "envs"}
    assert rows["obs_bytes_seed"]["value"] == "253755392"


@pytest.mark.parametrize(
    ("words", "parts"),
    [
        ([*METTA, "--num-agents", "257"], ["E_SEGMENTS_LT_AGENTS", "--batch-size 540672", "--bptt-horizon 32"]),
        (
            [*METTA, "--minibatch-size", "20000"],
            ["2 problems", "E_MINIBATCH_NOT_MULTIPLE_OF_HORIZON", "E_SEGMENTS_NOT_MULTIPLE"],
        ),
        ([*METTA, "--num-agents", "many"], ["E_NOT_INT", "'many'"]),
        ([*METTA, "--num-agents", "24.0"], ["E_NOT_INT", "24.0", "--num-agents 24"]),
        ([*METTA, "--num-agents", "9" * 5000], ["E_TOO_LARGE"]),
        ([*METTA, "--num-workers", "0"], ["E_NOT_POSITIVE", "--num-workers 1", "--num-workers 16"]),
        ([*METTA, "--num-workers", "0", "--batch-size", "x"], ["E_NOT_POSITIVE", "E_NOT_INT", "2 problems"]),
        (["--preset", "quick", "--num-agents", "2"], ["E_NUM_AGENTS", "hackmatrix has one agent"]),
        (["--preset", "tiny", "--batch-size", "280", "--minibatch-size", "70"], ["E_NO_EXACT_FIT", "--batch-size 560"]),
    ],
)
def test_all_problems_are_reported_also_with_json(hmx, words, parts):
    result = hmx("compute-config", *words)
    refused(result, 2, *parts, printed=True)
    told = hmx("compute-config", *words, "--json")
    refused(told, 2, *parts, printed=True)
    found = json.loads(told.stdout)
    assert (
        found["valid"] is False
        and found["errors"]
        and set(found["codes"]["errors"]) <= set(parts) | {p["code"] for p in found["errors"]}
    )


def test_the_command_of_the_specification_prints_the_derived_sizes(hmx):
    """Its table of 24 agents: 170 target environments, 160 per forward pass, 320 in all, 20 per worker, and so on."""
    result = hmx("compute-config", "--num-agents", "24")
    assert result.exit_code == 0 and result.stdout.startswith("Sizes of the Metta training equations\n")
    rows = {line.split("  ")[0]: line.split()[-2] for line in result.stdout.splitlines() if "  " in line}
    expected = {
        "target environments per forward pass": "170", "environments per forward pass": "160", "environments": "320",
        "environments per worker": "20", "steps per environment | per agent": "1,638",
        "agent steps per batch": "12,582,912", "agent steps per gradient step": "393,216",
    }  # fmt: skip
    assert {label: rows[label] for label in expected} == expected


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_reference_case_is_computed_from_its_options_alone(hmx, case):
    """Without a preset. Inputs that the case leaves at their published values are not given, unless all are."""
    given = {name: value for name, value in case["input"].items() if value != DEFAULTS.get(name)}
    given = given or {"num_agents": case["input"]["num_agents"]}
    if any(name not in DEFAULTS or not isinstance(value, int | float) for name, value in given.items()):
        pytest.skip("no option for an unknown input or for a value without a number")
    options = [word for name, value in given.items() for word in (f"--{name.replace('_', '-')}", str(value).lower())]
    result = hmx("compute-config", *options, "--json")
    found = json.loads(result.stdout)
    assert result.exit_code == (0 if case["valid"] else 2) and found["source"] == "the Metta training equations"
    assert found["derived"] == case["derived"]
    assert found["codes"]["errors"] == [error["code"] for error in case["errors"]]


@pytest.mark.parametrize(
    ("words", "source"),
    [
        ([], "hmx train"),
        (["--num-envs", "64"], "hmx train"),
        (["--minibatch-size", "8192"], "the Metta training equations"),
        (["--sweep", "num-agents=3,24"], "the Metta training equations"),
        (["--num-agents", "2", "--env", "rendezvous", "--num-envs", "64"], "hmx train"),
        (["--num-agents", "2", "--set", "env.id=rendezvous"], "hmx train"),
        (["--num-agents", "1", "--preset", "tiny"], "preset tiny"),
    ],
)
def test_inputs_alone_select_the_equations(hmx, monkeypatch, words, source):
    monkeypatch.setattr("hmx.reports.compute_config.source._ask_memory", lambda cfg: None)
    result = hmx("compute-config", *words, "--json")
    found = json.loads(result.stdout)
    assert result.exit_code == 0, result.stderr
    assert found.get("results", [found])[0]["source"] == source


def test_marked_values_are_printed_when_sizes_are_refused(hmx, tmp_path):
    """The report shows the sizes, with the code of each error beside the numbers that it is about."""

    def marked(*words):
        result = hmx("compute-config", *words, "--md", "sizes.md")
        assert result.exit_code == 2 and "Refused: " in (tmp_path / "sizes.md").read_text()
        text = re.sub(r"[*\\]", "", (tmp_path / "sizes.md").read_text())
        lines = [line.strip("| ").split(" | ") for line in text.splitlines() if line.startswith("| ")]
        return {cells[2]: cells[3] for cells in lines if len(cells) > 3 and cells[3].startswith("E_")}

    agents = marked("--num-agents", "257")
    assert agents == dict.fromkeys(("total_agents", "segments"), "E_SEGMENTS_LT_AGENTS")
    assert marked("--num-agents", "many") == {"num_agents": "E_NOT_INT"}
    assert marked("--num-envs", "0") == {"env.num_envs": "E_RANGE"}
    exact = marked("--preset", "tiny", "--batch-size", "280", "--minibatch-size", "70")
    assert exact == dict.fromkeys(("segments", "total_agents"), "E_NO_EXACT_FIT")
    gamma = marked("--preset", "tiny", "--set", "algo.gamma=2")
    assert gamma == {"algo.gamma": "E_RANGE"}


def test_forward_target_has_a_short_name(hmx):
    words = ["compute-config", *METTA, "--json"]
    for name in ("--forward-target", "--forward-pass-minibatch-target-size"):
        assert json.loads(hmx(*words, name, "8_192").stdout)["input"]["forward_pass_minibatch_target_size"] == 8192


def test_without_a_source_the_sizes_are_those_of_train(hmx, monkeypatch):
    monkeypatch.setattr("hmx.reports.compute_config.source._ask_memory", lambda cfg: None)
    plain = json.loads(hmx("compute-config", "--json").stdout)
    assert plain["source"] == "hmx train" and plain["trainer"] and plain["train"]["total_env_steps"] == 4_194_304
    options = ("--env", "corridor", "--num-envs", "48", "--steps", "20k")
    train = json.loads(hmx("train", *options, "--dry-run", "--json").stdout)
    sizes = json.loads(hmx("compute-config", *options, "--json").stdout)
    assert sizes["derived"]["num_envs"] == 48
    assert sizes["train"]["num_updates"] == train["sizes"]["num_updates"]
    other = json.loads(hmx("compute-config", *options, "--set", "algo.num_steps=8", "--json").stdout)
    assert other["derived"]["stored_agent_steps"] == 48 * 8


def test_sources_are_a_run_a_file_or_a_preset(hmx, tmp_path, trained):
    run = json.loads(hmx("compute-config", str(trained / "corridor"), "--json").stdout)
    assert run["source"] == "run corridor" and run["train"]["num_updates"] == 16
    (tmp_path / "sizes.toml").write_text("[batch]\nnum_agents = 24\n")
    sizes = json.loads(hmx("compute-config", "--config", "sizes.toml", "--json").stdout)
    assert sizes["input"]["num_agents"] == 24 and sizes["source"] == "sizes.toml"
    note = hmx("compute-config", "--preset", "metta").stdout
    assert "hmx train --preset metta has the same hyperparameters" in " ".join(note.split())


def test_colour_is_used_only_in_terminals_that_support_it(shell):
    plain = shell("-m", "hmx", "compute-config", *METTA, NO_COLOR="1").stdout
    coloured = shell("-m", "hmx", "compute-config", *METTA, NO_COLOR="", FORCE_COLOR="1", TERM="xterm").stdout
    assert "\x1b[" not in plain and "\x1b[1m" in coloured


@pytest.mark.parametrize("columns", ["40", "60", "80", "120"])
def test_numbers_are_never_truncated(hmx, monkeypatch, columns):
    monkeypatch.setenv("COLUMNS", columns)
    text = hmx("compute-config", *METTA, "--full", "--sps", "20000").stdout
    assert max(map(len, text.splitlines())) <= int(columns)
    for number in ("10,000,000,000", "1,572,864", "1,040,400", "0.0744045", "19,073", "138.9 h"):
        assert number in text


def test_the_docs_explain_every_code_and_key():
    root = Path(__file__).parents[2]
    sources = (root / "hmx" / "reports" / "compute_config").glob("*.py")
    codes = {code for path in sources for code in re.findall(r'"([EW]_[A-Z0-9_]+)"', path.read_text())}
    page = (root / "docs" / "batch-math.md").read_text()
    assert len(codes) > 18 and codes <= set(re.findall(r"`([EW]_[A-Z0-9_]+)`", page))
    keys = set(json.loads((GOLDEN / "compute-config-24.json").read_text()))
    assert keys <= set(re.findall(r"`(\w+)`", page))
