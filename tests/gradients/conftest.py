"""Lets tests import what stands beside them, and the probe environments one folder up."""

import sys
from pathlib import Path

for _folder in Path(__file__).parents[:2]:
    if str(_folder) not in sys.path:
        sys.path.insert(0, str(_folder))
