"""Lets these tests import the machine they share, and what stands one folder up."""

import sys
from pathlib import Path

for _place in (str(Path(__file__).parent), str(Path(__file__).parents[1])):
    if _place not in sys.path:
        sys.path.insert(0, _place)  # for what stands beside the tests, and one folder up
