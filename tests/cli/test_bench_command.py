"""`hmx bench` as a user runs it."""

from __future__ import annotations

import json

from refusals import refused

from hmx.errors import ExitCode

WORDS = ("bench", "--preset", "tiny", "--env", "counting", "--num-envs", "8", "--seconds", "1")


def test_result_is_printed_and_saved(hmx, tmp_path):
    done = hmx(*WORDS, "--metrics", "--json", "--html", "page.html", "--csv", "phases.csv")
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    assert (found["schema"], found["kind"], found["env"]) == (2, "hmx bench", "counting")
    assert found["config"]["env.num_envs"] == 8
    assert found["verdict"].startswith("Training spends ")
    page = (tmp_path / "page.html").read_text()
    assert found["verdict"].split(".")[0] in page and "The reward, action and event metrics take" in page
    assert [line.partition(",")[0] for line in (tmp_path / "phases.csv").read_text().splitlines()] == [
        "phase", "compile", "environment", "acting", "update", "saving", "logging",
    ]  # fmt: skip
    assert found["metrics"] is not None and "measuring ..." in done.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == ["page.html", "phases.csv"]


def test_an_environment_that_cannot_be_built_is_one_error(hmx, tmp_path):
    (tmp_path / "game.py").write_text("def reset(key, options):\n    raise ValueError('no coins')\n")
    refused(hmx("bench", "--env", "./game.py"), ExitCode.USAGE, "game.py")
