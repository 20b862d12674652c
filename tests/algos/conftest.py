"""Lets tests import the probe environments that stand one folder up."""

import sys
from pathlib import Path

_tests = str(Path(__file__).parents[1])
if _tests not in sys.path:
    sys.path.insert(0, _tests)
