"""Import the functions that entries name, when they are needed: entries themselves import no JAX."""

from __future__ import annotations

import importlib
from typing import Any


def imported(place: str) -> Any:
    """Import what an entry names as `module:attribute`."""
    module, _, attribute = place.partition(":")
    return getattr(importlib.import_module(module), attribute)  # noqa: TID251 - only places that entries of hmx name
