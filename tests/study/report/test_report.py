"""The report of a study: which trial is best, how sure that is, what mattered, and what to do next."""

from __future__ import annotations

import csv
import io
import json
import math
from dataclasses import replace

import pytest
from made_studies import make_study, peak
from rich.console import Console
from typer.testing import CliRunner

import hmx
from hmx.cli.app import app
from hmx.errors import HmxError
from hmx.records.plain import plain_object
from hmx.render.blocks import Paragraph
from hmx.render.csv import csv_text
from hmx.render.html import page
from hmx.render.markdown import markdown
from hmx.render.terminal import print_document
from hmx.reports.compare.findings import Verdict
from hmx.reports.compare.job import compare
from hmx.reports.compare.request import CompareRequest
from hmx.reports.compare.sentence import conclusion
from hmx.study.folder import read_study
from hmx.study.records import Objective
from hmx.study.report import figures
from hmx.study.report.advice import advice
from hmx.study.report.document import document
from hmx.study.report.findings import TrialFacts
from hmx.study.report.job import study_report, with_front
from hmx.study.report.numbers import table
from hmx.study.report.options import importance, place
from hmx.study.space import parse_space

RATE = "algo.learning_rate"
(RATES,) = parse_space([f"{RATE}=1e-4..1e-2:log"])


@pytest.fixture(scope="module")
def findings(searched):
    """The findings of the study of two rungs."""
    return study_report(searched)


def text_of(findings) -> str:
    """The report as Markdown, which has everything that a terminal shows."""
    return markdown(document(findings))


def with_settings(findings, **changes):
    """The findings with other settings of the study."""
    return replace(findings, settings=replace(findings.settings, **changes))


def commands(findings) -> str:
    """All commands of the advice."""
    return "\n".join(one.command for one in findings.advice)


def trial(number, rungs, rate=1e-3, **given) -> TrialFacts:
    """A trial with results."""
    facts = TrialFacts(
        trial=number, label="", values={RATE: rate}, rungs=rungs, env_steps=1, cpu_seconds=None, failed=""
    )
    return replace(facts, **given)


def test_best_is_the_highest_confirmed_figure(searched, findings) -> None:
    confirmed = {done.trial: done.objective for done in read_study(searched).confirmations}
    assert [one.trial for one in findings.finalists] == sorted(confirmed, key=confirmed.get, reverse=True)
    best = findings.finalists[0]
    assert (best.confirmed_seeds, best.tuned_seeds) == (10, 3)
    assert best.confirmed.low < confirmed[best.trial] < best.confirmed.high
    assert f"Best: {best.name} " in text_of(findings)


def test_rank_in_the_search_is_reported_for_the_best_on_fresh_seeds(findings) -> None:
    best, *others = findings.finalists
    text = text_of(replace(findings, finalists=(others[-1], best), pairs=()))
    expected = 1 + [one.trial for one in findings.ranked].index(others[-1].trial)
    assert expected > 1 and f"It ranked {expected} of 30 trials in the search" in text


def test_overstated_is_tuned_less_confirmed(findings) -> None:
    for one in findings.finalists:
        assert one.overstated.value == pytest.approx(one.tuned.value - one.confirmed.value, abs=1.0)
        assert one.overstated.low < one.overstated.value < one.overstated.high


def test_the_size_of_the_difference_and_the_speed_follow_the_best_trial(findings) -> None:
    """In the sentence of `hmx compare`, before how the best trial was chosen."""
    best, sentence = [block.text for block in document(findings).blocks if isinstance(block, Paragraph)][1:3]
    assert best.startswith("Best: trial ") and sentence == conclusion(findings.pairs[0])


def test_cpu_time_on_fresh_seeds_is_that_of_the_confirming_runs(findings) -> None:
    assert [one.confirmed_cpu_seconds for one in findings.finalists] == [600.0] * 3
    assert "30.0 min of CPU time on fresh seeds" in text_of(findings)


def test_overstated_is_positive_where_fewer_steps_are_too_optimistic(tmp_path) -> None:
    objective = Objective(measure="steps_to", threshold=1.0)
    folder = make_study(
        tmp_path / "steps",
        lambda values: 1000.0,
        trials=20,
        noise=100.0,
        objective=objective,
        confirm=1,
        confirm_seeds=40,
    )
    (best,) = study_report(folder).finalists
    assert best.tuned.value < best.confirmed.value and best.overstated.value > 0


def test_finalists_are_compared_by_the_rules_of_compare(searched, findings) -> None:
    sides = tuple(f"{searched}/confirm/{one.trial:04d}" for one in findings.finalists)
    pairs = compare(CompareRequest(sides=sides)).tasks[0].pairs
    assert [pair.verdict.outcome for pair in findings.pairs] == [pair.verdict.outcome for pair in pairs[:2]]
    assert [pair.a for pair in findings.pairs] == [findings.finalists[0].name] * 2


def test_fewer_steps_to_a_threshold_are_better(tmp_path) -> None:
    steps = Objective(measure="steps_to", threshold=1.0)
    folder = make_study(tmp_path / "steps", lambda v: 1e6 * v[RATE], trials=12, noise=1.0, objective=steps, confirm=2)
    found = study_report(folder)
    best, other = found.finalists
    assert best.confirmed.value < other.confirmed.value
    assert found.pairs[0].verdict.better == best.name and found.indistinct == []


def test_finalists_that_differ_by_noise_cannot_be_distinguished(tmp_path) -> None:
    found = study_report(make_study(tmp_path / "noise", lambda values: 1.0, trials=12, noise=0.1, confirm=3))
    assert set(found.indistinct) == {one.name for one in found.finalists[1:]}
    assert "Cannot be distinguished from it: trial" in text_of(found)


def test_unconfirmed_figures_are_called_too_optimistic(tmp_path) -> None:
    found = study_report(make_study(tmp_path / "few", peak, trials=4))
    assert found.finalists[0].confirmed is None and "too optimistic" in text_of(found)
    assert f"hmx study add {tmp_path}/few --confirm 10 && hmx study work" in commands(found)


def test_unfinished_search_asks_for_workers_and_not_for_more_trials(tmp_path) -> None:
    folder = make_study(tmp_path / "few", peak, trials=4)
    hmx.extend_study(folder, trials=36)
    assert commands(study_report(folder)) == f"hmx study work {folder}"


def test_option_with_effect_matters_and_others_do_not(findings) -> None:
    by_key = {one.key: one for one in findings.importance}
    assert by_key[RATE].judgement == "matters" and by_key[RATE].share.low > 0.5
    assert by_key["ppo.ent_coef"].judgement == "cannot tell"
    assert findings.importance[0].key == RATE


def test_few_trials_rank_no_option(tmp_path) -> None:
    found = study_report(make_study(tmp_path / "few", peak, trials=9))
    assert {one.judgement for one in found.importance} == {"too few trials"}
    assert "Too few trials" in text_of(found) and "--trials 10" in commands(found)


def test_a_higher_rung_counts_as_better_than_a_higher_result() -> None:
    # The returns at the last rung are lower, as under a schedule: only the rungs show that high rates are better.
    trials = [trial(i, (1.0,) if i < 15 else (1.0, 0.1 + 0.01 * i), rate=10 ** (-4 + i / 15)) for i in range(30)]
    (found,) = importance([RATES], trials, True)
    assert found.judgement == "matters" and found.share.value > 0.8
    (flat,) = importance([RATES], [replace(one, rungs=one.rungs[:1]) for one in trials], True)
    assert flat.share is None


@pytest.mark.parametrize("higher", [True, False])
def test_a_result_without_objective_stands_below_any_other_of_its_rung(higher) -> None:
    unknown, poor = trial(1, (1.0, None)), trial(2, (1.0, -1e9 if higher else 1e9))
    assert trial(3, (1.0,)).standing(higher) < unknown.standing(higher) < poor.standing(higher)


def test_a_result_without_objective_is_the_worst_and_one_without_result_is_left_out() -> None:
    diverged = [trial(i, (None,) if i >= 12 else (1.0,), rate=10 ** (-4 + i / 12)) for i in range(24)]
    (found,) = importance([RATES], diverged, True)
    assert found.judgement == "matters"
    (found,) = importance([RATES], [replace(one, rungs=()) for one in diverged], True)
    assert found.judgement == "too few trials"


@pytest.mark.parametrize(
    ("space", "value", "at"),
    [
        (f"{RATE}=1e-4..1e-2:log", 1e-3, 0.5),
        ("algo.gamma=0.9..1", 0.925, 0.25),
        ("algo.num_steps=8..16", 16, 1.0),
        ("net.hidden=64,64|32|16", [32], 0.5),
        ("net.hidden=64,64|32|16", [8], None),
    ],
)
def test_place_of_a_value_in_its_range(space, value, at) -> None:
    found = place(parse_space([space])[0], value)
    assert found == (at if at is None else pytest.approx(at))


def test_best_values_at_the_end_of_a_range_suggest_a_wider_one(tmp_path) -> None:
    rising = make_study(tmp_path / "edge", lambda values: math.log10(values[RATE]), trials=30)
    assert f"--trials 30 --space {RATE}=0.0001..0.1:log" in commands(study_report(rising))
    falling = make_study(tmp_path / "low", lambda values: -math.log10(values[RATE]), trials=30)
    assert f"--space {RATE}=1e-05..0.01:log" in commands(study_report(falling))


def test_a_range_of_an_option_that_may_not_matter_is_not_widened(tmp_path) -> None:
    found = study_report(make_study(tmp_path / "edge", lambda values: math.log10(values[RATE]), trials=30))
    unsure = tuple(replace(one, judgement="cannot tell") for one in found.importance)
    assert "--space" not in str(list(advice(replace(found, importance=unsure))))


def test_a_range_is_not_widened_beyond_what_the_option_allows(tmp_path) -> None:
    space = ["ppo.ent_coef=0..0.05"]
    found = study_report(make_study(tmp_path / "edge", lambda v: -v["ppo.ent_coef"], space=space, trials=30))
    assert found.importance[0].judgement == "matters" and "--space" not in commands(found)


def test_best_values_inside_the_range_suggest_no_wider_one(findings) -> None:
    assert "--space" not in commands(findings)


def test_a_cheaper_configuration_that_cannot_be_distinguished_is_named(findings) -> None:
    best, other, third = findings.finalists
    pairs = tuple(replace(pair, verdict=Verdict("not distinguishable", "")) for pair in findings.pairs)
    cheap = replace(findings, pairs=pairs, finalists=(
        replace(best, cpu_seconds=100.0), replace(other, cpu_seconds=50.0), replace(third, cpu_seconds=99.0),
    ))  # fmt: skip
    assert f"{other.name} cannot be distinguished from {best.name} and takes 50%" in str(list(advice(cheap)))
    better = replace(cheap, pairs=tuple(replace(pair, verdict=Verdict("better", "")) for pair in pairs))
    assert "takes 50%" not in str(list(advice(better)))


def test_pareto_front_has_the_trials_that_nothing_cheaper_beats() -> None:
    given = [trial(i, (value,), cpu_seconds=seconds) for i, (seconds, value) in enumerate(
        [(10.0, 1.0), (20.0, 3.0), (30.0, 2.0), (40.0, 4.0), (40.0, 3.5), (None, 9.0)])]  # fmt: skip
    assert [one.trial for one in with_front(given, True) if one.front] == [0, 1, 3]
    assert [one.trial for one in with_front(given, False) if one.front] == [0]


def test_a_grid_is_compared_as_compare_does(tmp_path) -> None:
    folder = make_study(
        tmp_path / "grid", peak, space=[f"{RATE}=1e-4|1e-3|1e-2"], trials=3, seeds=4, noise=0.5, runs=True,
    )  # fmt: skip
    found = study_report(folder)
    assert found.is_list
    expected = compare(CompareRequest(sides=tuple(f"trial-{n}={folder}/trials/{n:04d}" for n in range(1, 4))))
    assert found.comparison == expected
    assert "Configuration differences" in text_of(found)


def test_report_of_a_study_without_results_says_what_to_run(tmp_path) -> None:
    found = study_report(make_study(tmp_path / "new", peak, trials=0))
    assert found.finalists == () and "hmx study work" in commands(found)
    page(document(found))


def test_report_of_trials_that_all_diverged_is_written(tmp_path) -> None:
    found = study_report(make_study(tmp_path / "nan", lambda values: math.nan, trials=12))
    assert found.finalists == () and len(found.ranked) == 12
    assert "No trial has a value" in text_of(found)
    page(document(found))


def test_runs_that_cannot_be_read_leave_the_rest_of_the_report(tmp_path) -> None:
    found = study_report(make_study(tmp_path / "bare", peak, trials=12))
    assert found.comparison is None and "cannot be compared" in found.warnings[0]
    assert found.finalists and "Warning: the runs cannot be compared" in text_of(found)


def test_json_has_every_finding(findings) -> None:
    found = json.loads(json.dumps(plain_object(findings)))
    assert {"finalists", "pairs", "importance", "advice", "trials", "comparison"} <= found.keys()
    assert found["finalists"][0]["confirmed"]["value"] == findings.finalists[0].confirmed.value


def test_csv_has_a_row_per_trial_with_exact_values(findings) -> None:
    rows = list(csv.DictReader(io.StringIO(csv_text(table(findings)))))
    assert len(rows) == 30
    assert [float(row[RATE]) for row in rows] == [one.values[RATE] for one in findings.trials]
    assert [float(row["objective"]) for row in rows] == [one.objective for one in findings.trials]
    assert sum(row["confirmed_low"] != "" for row in rows) == 3


def test_terminal_text_fits_80_columns_in_ascii(findings) -> None:
    out = io.StringIO()
    print_document(document(findings), Console(file=out, width=80, highlight=False))
    lines = [line for line in out.getvalue().splitlines() if not line.startswith("    hmx ")]  # commands to copy
    assert max(map(len, lines)) <= 80


def test_page_has_a_plot_per_option(findings) -> None:
    text = page(document(findings))
    for title in ("Results over trials", "Configurations", "learning_rate", "ent_coef", "hidden"):
        assert f"<h3>{title}</h3>" in text
    assert text.count('<figure class="plot') == 6


def test_parallel_coordinates_draw_every_trial_and_colour_the_best(findings) -> None:
    plot = figures.parallel(findings)
    coloured = [series for series in plot.series if series.colour >= 0]
    assert [series.name for series in coloured] == [f"trial {one.trial}" for one in findings.ranked[:5]]
    assert len([series for series in plot.series if series.thin]) == 25
    assert coloured[0].y[-1] == 1.0  # its rank


def test_far_worse_results_lie_outside_a_plot_and_are_counted(tmp_path) -> None:
    found = study_report(make_study(tmp_path / "far", lambda v: peak(v) if v[RATE] < 5e-3 else -1e6, trials=30))
    plot = figures.results(found)
    far = sum(one.objective == -1e6 for one in found.trials)
    assert far and f"{far} trials far below are not shown" in plot.caption and plot.y.low > -1000


def test_many_trials_are_thinned_out_in_parallel_coordinates(findings) -> None:
    many = replace(findings, trials=tuple(trial(i, (float(i),)) for i in range(1, 2001)))
    many = with_settings(many, space=(RATES,))
    lines = [series for series in figures.parallel(many).series if series.thin]
    assert 100 <= len(lines) <= 200


def test_command_writes_every_format(searched, tmp_path) -> None:
    files = [tmp_path / name for name in ("report.html", "report.md", "trials.csv")]
    words = [
        word for option, file in zip(("--html", "--md", "--csv"), files, strict=True) for word in (option, str(file))
    ]
    done = CliRunner().invoke(app, ["study", "report", str(searched), *words, "--json"], prog_name="hmx")
    assert done.exit_code == 0
    assert json.loads(done.stdout)["finalists"]
    assert [file.read_text()[:9] for file in files] == ["<!doctype", "# Study l", "trial,alg"]


def test_python_function_reports_and_show_prints_it(searched, capsys) -> None:
    hmx.show(hmx.study_report("lr", root=searched.parent))
    assert "Best: trial" in capsys.readouterr().out
    with pytest.raises(HmxError, match="there is no study missing"):
        hmx.study_report("missing", root=searched.parent)
