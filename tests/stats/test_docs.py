"""The examples of docs/stats.md run as they are, and its table of sample sizes is what the functions return."""

from __future__ import annotations

import doctest
import re
from pathlib import Path
from statistics import NormalDist

import pytest

from hmx import stats

PAGE = Path(__file__).parents[2] / "docs" / "stats.md"
ROWS = re.findall(r"^\| (\d+) \| (0\.\d+) \| (\d\.\d) \|$", PAGE.read_text(), re.MULTILINE)


def test_examples_of_the_page_run() -> None:
    result = doctest.testfile(str(PAGE), module_relative=False)
    assert result.attempted > 10 and not result.failed


@pytest.mark.parametrize(("runs", "improvement", "deviations"), ROWS)
def test_table_of_sample_sizes_is_current(runs: str, improvement: str, deviations: str) -> None:
    """The improvement that is found with a power of 80 % lies between both ends of what is rounded to the number."""
    low, high = float(improvement) - 0.006, float(improvement) + 0.006  # it is known to 0.001
    assert stats.power(int(runs), low) < 0.8 <= stats.power(int(runs), high)
    low, high = (2**0.5 * NormalDist().inv_cdf(end) for end in (low, high))
    assert low - 0.05 <= float(deviations) <= high + 0.05


def test_the_page_names_every_public_function() -> None:
    assert len(ROWS) == 7
    functions = [name for name in stats.__all__ if name[0].islower()]
    assert not [name for name in functions if name not in PAGE.read_text()]
