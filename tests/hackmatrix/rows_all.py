"""All hand-worked positions."""

from __future__ import annotations

import rows_beyond
import rows_programs
from rows import ROWS, Row

__all__ = ["ROWS", "Row", "rows_beyond", "rows_programs"]
