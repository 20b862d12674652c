"""Make the modules beside the tests importable."""

import sys
from pathlib import Path

for _folder in (Path(__file__).parent, Path(__file__).parents[2]):
    if str(_folder) not in sys.path:
        sys.path.insert(0, str(_folder))
