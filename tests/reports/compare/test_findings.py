"""The findings as a whole: JSON, figures, conditions, and files with arbitrary content."""

from __future__ import annotations

import json
import math
import shutil
import subprocess
import sys

import pytest
from compared import as_json, compare, noticed
from hypothesis import given, settings
from hypothesis import strategies as st
from made_runs import RETURN, TINY, flat, make_run, write_metrics

from hmx.config import codec
from hmx.config.fields import replace
from hmx.config.schema import Config
from hmx.errors import ExitCode, HmxError
from hmx.records.artefact import REPORT_SCHEMA, write_sealed
from hmx.records.meta import Resume
from hmx.render.blocks import Paragraph
from hmx.reports.compare.document import document
from hmx.reports.compare.findings import Verdict
from hmx.reports.compare.job import DIAGNOSTICS
from hmx.reports.compare.numbers import TABLE, table
from hmx.reports.compare.request import CompareRequest
from hmx.reports.compare.sentence import conclusion
from hmx.reports.compare.tasks import judge
from hmx.stats.estimate import Estimate


def test_the_same_seed_gives_the_same_findings(tmp_path):
    sides = [make_run(tmp_path / name, flat(*levels)) for name, levels in (("a", range(9)), ("b", range(1, 8)))]
    first, again, other = (compare(*sides, samples=200, seed=seed) for seed in (0, 0, 1))
    assert first == again and first.tasks != other.tasks


def test_json_is_plain_and_finite(tmp_path, good):
    curves = {0: [math.nan] * 4, 1: [1.0] * 4}
    other = make_run(tmp_path / "other", curves, changes={"env.id": "recall"})
    text = json.dumps(as_json(compare(good, other, "tiny")), allow_nan=False)
    body = json.loads(text)
    assert body["schema"] == 2 and [side["letter"] for side in body["sides"]] == ["A", "B", "C"]
    assert list(body) == [
        "schema", "metric", "direction", "level", "samples", "seed", "sides", "notices", "config", "tasks", "overall",
        "speed", "diagnostics", "warnings", "losses", "figures", "failed",
    ]  # fmt: skip
    assert body["tasks"][0]["sides"][0]["iqm"]["low"] <= body["figures"]["iqm(A, corridor)"]
    assert body["figures"]["iqm(A, corridor)"] == pytest.approx(0.92)


def test_the_side_that_learns_faster_is_named_even_if_both_end_equal(tmp_path):
    def curves(slope):
        return {seed: [min(slope * update, 10) / 10 + seed / 1000 for update in range(30)] for seed in range(5)}

    fast, slow = (make_run(tmp_path / name, curves(slope)) for name, slope in (("fast", 5), ("slow", 1)))
    (pair,) = compare(slow, fast).tasks[0].pairs
    assert pair.verdict.outcome == "not distinguishable" and pair.faster == "B"
    assert pair.area_difference is not None and pair.area_difference.high < 0
    text = " ".join(block.text for block in document(compare(slow, fast)).blocks if isinstance(block, Paragraph))
    assert "B learns faster: its area under the curve differs by +0.1" in text
    assert compare(fast, fast).tasks[0].pairs[0].faster == ""


def sentences(findings):
    return [block.text for block in document(findings).blocks if isinstance(block, Paragraph)]


def rising(end, updates, sign=1):
    """Returns five seeds that reach `end` after `updates` of 40, from 0."""
    return {seed: [sign * (end + seed / 1e5) * min(update / updates, 1) for update in range(40)] for seed in range(5)}


def test_the_first_sentence_has_both_ends_the_size_and_who_gets_there_sooner(tmp_path):
    late = make_run(tmp_path / "late", rising(0.902, 30))
    early = make_run(tmp_path / "early", rising(0.9, 10))
    found = compare(late, early)
    (pair,) = found.tasks[0].pairs
    assert pair.verdict.better == "A" and pair.sooner == "B" and pair.times_p_value == pytest.approx(2 / 252)
    assert pair.ends == pytest.approx((0.90202, 0.90002)) and pair.share == pytest.approx(0.002 / 0.90204)
    assert (pair.range.low, pair.range.high) == (0.0, pytest.approx(0.90204))
    assert [time.value for time in pair.times] == [0.81, 0.81]
    first, second = (time.steps for time in pair.times)
    assert first / second == pytest.approx(2.7, abs=0.3)
    assert sentences(found)[0].startswith(
        "A late vs B early: A ends at 0.902 and B at 0.9, a difference of 0.2% of the range from the start of training "
        f"to the best seed of all sides, and B reaches 0.81 sooner, after {second:,.0f} steps against {first:,.0f}. "
        "A is better. P(A better) = 1"
    )
    turned = compare(early, late).tasks[0].pairs[0]
    assert (turned.sooner, turned.share, turned.times) == ("A", pytest.approx(-pair.share), pair.times[::-1])
    assert pair.turned().ends == turned.ends
    assert found.figures["share(A, B)"] == -found.figures["share(B, A)"] == pair.share


def test_a_probability_without_an_interval_stays_out_of_the_sentence(tmp_path):
    one, other = (make_run(tmp_path / name, {0: rising(end, 20)[0]}) for name, end in (("a", 1.0), ("b", 0.8)))
    found = compare(one, other)
    assert found.tasks[0].pairs[0].improvement.low is None
    assert "ot distinguishable" in sentences(found)[0] and "P(" not in sentences(found)[0]


def test_the_size_is_a_share_of_the_range_from_random_play_if_that_is_known(tmp_path):
    sides = [make_run(tmp_path / name, rising(end, 20), evaluated={0: end}, random=-1.0)
             for name, end in (("a", 1.0), ("b", 0.8))]  # fmt: skip
    (pair,) = compare(*sides).tasks[0].pairs
    assert pair.share == pytest.approx(0.2 / 2.0, abs=1e-3)
    assert "a difference of 10% of the range from random play to the best seed of all sides" in conclusion(pair)
    given = compare(*sides, ranges=(("corridor", 0.0, 4.0),)).tasks[0].pairs[0]
    assert "a difference of 5.0% of the range given by --range" in conclusion(given)


def test_where_less_is_better_the_lower_end_is_ahead(tmp_path):
    def falling(end, updates):
        return {seed: [2 - (2 - end) * min(u / updates, 1) - seed / 1e5 for u in range(40)] for seed in range(5)}

    sides = [make_run(tmp_path / str(end), falling(end, updates)) for end, updates in ((1.0, 10), (0.5, 30))]
    (pair,) = compare(*sides, better="down").tasks[0].pairs
    assert pair.share == pytest.approx(-1 / 3, abs=1e-3) and (pair.verdict.better, pair.sooner) == ("B", "A")
    assert "a difference of 33% of the range from the start of training" in conclusion(pair)
    assert "and A reaches 1.1 sooner, after " in conclusion(pair)


def test_equal_ends_and_speeds_are_said_to_be_equal(tmp_path):
    one, other = (make_run(tmp_path / name, flat(0.5, 0.5, 0.5, 0.5)) for name in ("one", "other"))
    (pair,) = compare(one, other).tasks[0].pairs
    assert conclusion(pair) == "A and B end at 0.5. Not distinguishable (4 vs 4 seeds)."
    sides = [make_run(tmp_path / name, rising(0.9, 20)) for name in ("x", "y")]
    (pair,) = compare(*sides).tasks[0].pairs
    assert pair.sooner == "" and "and neither is shown to reach 0.81 sooner. Not" in conclusion(pair)


def test_seeds_are_counted_where_most_of_a_side_never_reach_the_level(tmp_path):
    good = make_run(tmp_path / "good", rising(1.0, 10))
    few = {seed: [0.8 * (seed < 2) * max(0, (update - 30) / 9) for update in range(40)] for seed in range(5)}
    (pair,) = compare(good, make_run(tmp_path / "few", few)).tasks[0].pairs
    assert pair.sooner == "A" and pair.times[1].steps is None
    assert "sooner, in 5 of 5 seeds against 2 of 5. " in conclusion(pair)


def test_figures_are_named_with_and_without_the_task(good, bad):
    found = compare(good, bad).figures
    assert found["P(A>B)"] == found["P(A>B, corridor)"] == 1.0 and found["P(B>A)"] == 0.0
    assert found["difference(A, B)"] == pytest.approx(0.38) and found["difference(B, A)"] == pytest.approx(-0.38)
    assert found["difference_low(A, B)"] == pytest.approx(-found["difference_high(B, A)"])
    assert found["better(A, B)"] == 1.0 and found["better(B, A)"] == 0.0
    assert found["seeds(A)"] == 5.0 and found["steps(B)"] == 2560.0 and found["entropy(A)"] == pytest.approx(0.1)
    assert found["speed(A)"] == pytest.approx(1024.0) and found["entropy(A, 10%)"] == pytest.approx(1.0)
    assert found["p_value(A, B)"] == found["p_value(B, A)"] == pytest.approx(2 / 252)
    assert found["above(A, 0.5)"] == 1.0 and found["score_difference(A, B)"] == -found["score_difference(B, A)"]


def test_every_figure_is_declared_and_every_declared_number_is_a_figure(tmp_path, good, bad):
    sides = [
        f"{run},{make_run(tmp_path / 'recall' / run.name, flat(0.1, 0.2), changes={'env.id': 'recall'})}"
        for run in (good, bad)
    ]
    result = compare(*sides)
    declared = {one.name for _, _, numbers in TABLE for one in numbers} | {n.rpartition("/")[2] for n in DIAGNOSTICS}
    named = {name.partition("(")[0].removesuffix("_low").removesuffix("_high") for name in result.figures}
    assert named <= declared and declared - named <= {n.rpartition("/")[2] for n in DIAGNOSTICS}
    assert {row.cells[3].text for row in table(result).rows} == named | {"seed"}


def test_the_other_view_of_a_pair_is_its_mirror(good, bad):
    (pair,) = compare(good, bad).tasks[0].pairs
    view = pair.turned()
    assert (view.a, view.b) == ("B", "A") and view.turned() == pair and view.verdict == pair.verdict
    assert view.improvement.value == 0.0 and view.difference.high == -pair.difference.low


def test_conditions_that_hold_are_reported(good, bad):
    result = compare(good, bad, fail_if=("P(A>B) < 0.4", "P(bad>good) < 0.4", "evaluated(A) > 2 or iqm(B) < 0.6"))
    assert result.failed == (
        "P(bad>good) < 0.4 holds: P(bad>good) is 0",
        "evaluated(A) > 2 or iqm(B) < 0.6 holds: evaluated(A) is 0.9, iqm(B) is 0.54",
    )


@pytest.mark.parametrize(
    ("sides", "words"),
    [
        (["tiny", "{file}"], "side B: it has no configuration"),
        (["metta", "tiny"], "side A: it is recurrent"),
        (["tiny", "{two_hot}"], "some sides have ppo.value_target = two_hot"),
    ],
)
def test_impl_refuses_losses_that_cannot_be_compared(tmp_path, sides, words):
    two_hot = replace(Config(), {**TINY, "ppo.value_target": "two_hot"})
    (tmp_path / "two_hot.toml").write_text(codec.to_toml(two_hot))
    file = write_metrics(tmp_path / "metrics.jsonl", flat(1.0))
    sides = [side.format(file=file, two_hot=tmp_path / "two_hot.toml") for side in sides]
    with pytest.raises(HmxError, match=words) as caught:
        compare(*sides, impl=True)
    assert caught.value.exit_code == ExitCode.USAGE and caught.value.hint


def test_comparing_imports_neither_jax_nor_scipy(good, bad):
    code = (
        "import sys; from hmx.reports.compare.job import compare; "
        "from hmx.reports.compare.request import CompareRequest; compare(CompareRequest(sides=tuple(sys.argv[1:]))); "
        "sys.exit(bool({'jax', 'flax', 'optax', 'wandb', 'scipy'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code, str(good), str(bad)]).returncode == 0


_lines = st.lists(
    st.one_of(
        st.binary(max_size=40),
        st.fixed_dictionaries(
            {},
            optional={
                "update": st.integers(-1, 5),
                "env_steps": st.one_of(st.integers(-5, 2000), st.floats(), st.text(max_size=3), st.just(10**400)),
                "seed": st.one_of(st.integers(-2, 2), st.none(), st.text(max_size=2)),
                RETURN: st.one_of(st.floats(), st.none(), st.booleans(), st.just(10**400), st.just([1])),
                "train/num_episodes": st.one_of(st.floats(), st.integers(-3, 3), st.none()),
                "train/steps_per_sec": st.one_of(st.floats(), st.integers(-3, 3), st.none()),
                "wall_time": st.one_of(st.floats(), st.none(), st.text(max_size=2)),
            },
        ).map(lambda record: json.dumps(record).encode()),
    ),
    max_size=8,
)


@given(_lines)
@settings(max_examples=60)
def test_any_metrics_file_is_compared_or_refused_with_a_message(tmp_path_factory, lines):
    folder = tmp_path_factory.mktemp("any")
    (folder / "metrics.jsonl").write_bytes(b"\n".join(lines))
    other = write_metrics(folder / "other.jsonl", flat(0.5, 0.6, updates=3))
    try:
        result = compare(folder / "metrics.jsonl", other, samples=20)
        json.dumps(as_json(result), allow_nan=False)
    except HmxError as problem:
        assert problem.message


def test_huge_numbers_count_as_not_finite(tmp_path, good):
    huge = write_metrics(tmp_path / "huge.jsonl", {0: [1e308] * 4, 1: [1.0] * 4}, rate=1e-313)
    result = compare(good, huge)
    assert [f.value for f in result.tasks[0].sides[1].seeds] == [None, 1.0]
    assert result.speed[1].steps_per_sec is None and result.speed[1].seconds is None


def test_a_malformed_evaluation_is_reported_or_ignored(good, bad):
    rows = [{"policy": "sampled", "seed": [1], "episodes": "many", "return_mean": 1.0}, 3]
    write_sealed(bad / "reports" / "evaluation.json", {"schema": REPORT_SCHEMA, "policies": rows})
    assert "cannot read its evaluation" in noticed(compare(good, bad))
    write_sealed(bad / "reports" / "evaluation.json", {"schema": REPORT_SCHEMA, "policies": rows[:1]})
    assert compare(good, bad).tasks[0].sides[1].evaluated is None


def test_values_swapped_between_tasks_are_a_difference(tmp_path):
    sides = []
    for name, (first, second) in {"a": (0.99, 0.9), "b": (0.9, 0.99)}.items():
        one = make_run(tmp_path / name / "one", flat(0.1), changes={"algo.gamma": first})
        two = make_run(tmp_path / name / "two", flat(0.2), changes={"env.id": "recall", "algo.gamma": second})
        sides.append(f"{name}={one},{two}")
    (group,) = compare(*sides).config
    assert group.differences[0].values == ("0.99 (corridor), 0.9 (recall)", "0.9 (corridor), 0.99 (recall)")


def test_a_repeated_seed_is_not_paired(tmp_path, good):
    again = make_run(tmp_path / "again", {0: [0.3] * 10, 1: [0.4] * 10})
    once = make_run(tmp_path / "once", {0: [0.5] * 10, 2: [0.6] * 10})
    result = compare(good, f"{again},{once}")
    (pair,) = result.tasks[0].pairs
    assert len(result.tasks[0].sides[1].seeds) == 4
    assert pair.shared == 2 and pair.paired.value == pytest.approx((0.91 - 0.4 + 0.92 - 0.6) / 2)
    assert "has seed 0 of corridor more than once" in noticed(result, "caution")


def written(folder, name, seeds, base):
    """A metrics file in which the return of a seed rises from `base`."""
    lines = [
        {"schema": 2, "run": "00" * 8, "update": u, "env_steps": 64 * u, "seed": s,
         "train/mean_episode_return": base + 0.01 * s + 0.0001 * u}
        for u in range(1, 33) for s in seeds
    ]  # fmt: skip
    file = folder / f"{name}.jsonl"
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return file


def test_an_agent_in_two_runs_of_a_side_is_one_sample(tmp_path):
    once, twice = [], []
    for name, base in (("x", 0.8), ("y", 0.2)):
        once.append(f"{name}={written(tmp_path, name, [0, 1, 2], base)}")
        parts = [written(tmp_path, f"{name}{first}", [first, first + 1], base) for first in (0, 1)]
        twice.append(f"{name}={parts[0]},{parts[1]}")
    result = compare(*twice, fail_if=["better(A, B) == 1", "seeds(A) > 3", "p_value(A, B) < 0.1"])
    (pair,) = result.tasks[0].pairs
    assert result.tasks[0].pairs == compare(*once).tasks[0].pairs
    assert pair.verdict.outcome == "weak evidence" and pair.p_value == pytest.approx(2 / math.comb(6, 3))
    assert (pair.difference.low, pair.difference.high) == pytest.approx((0.577, 0.623), abs=5e-4)
    assert result.failed == () and [side.seeds for side in result.sides] == [3, 3]
    assert "A has the same agent more than once, and counts it once" in noticed(result, "caution")


def test_a_copied_run_is_one_sample(good, bad, tmp_path):
    copy = shutil.copytree(bad, tmp_path / "copy")
    result = compare(good, f"bad={bad},{copy},{bad}")
    assert result.tasks[0].pairs == compare(good, f"bad={bad}").tasks[0].pairs
    assert result.sides[1].seeds == 5


def test_one_seed_gives_no_verdict_however_narrow_the_interval(tmp_path, good):
    single = make_run(tmp_path / "single", flat(0.1))
    (task,) = compare(good, single).tasks
    assert task.pairs[0].difference.low is None
    first, second = task.sides
    sure = Estimate(0.8, 0.7, 0.9)
    assert judge(first, second, sure, 0.0, (), CompareRequest()).text == "not distinguishable (5 vs 1 seed)"
    assert judge(first, first, sure, 0.0, (), CompareRequest()) == Verdict("better", "A is better", "A")


def test_metric_without_a_direction_is_reported_as_higher(tmp_path):
    name = "train/learning_rate"
    high = make_run(tmp_path / "high", flat(*[0.5] * 4), **{name: 2.0})
    low = make_run(tmp_path / "low", flat(*[0.5] * 4), **{name: 1.0})
    result = compare(low, high, metric=name)
    assert result.tasks[0].pairs[0].verdict.text == "B is higher" and result.direction == "none"


def test_presets_and_changes_at_a_resume_are_reported(tmp_path, good):
    resume = Resume(at="2026-01-02", update=5, command=(), changes={"algo.gamma": [0.9, 0.99]})
    other = make_run(tmp_path / "other", flat(0.1, 0.2), command=("hmx", "train", "--preset", "tiny"), resumes=[resume])
    result = compare(good, other)
    assert "was resumed at update 5 with changes: algo.gamma" in noticed(result, "caution")
    assert [side.members[0].preset for side in result.sides] == ["", "tiny"]
