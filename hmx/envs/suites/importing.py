"""Import the packages of suites, with an error that names the extra, and without their warnings."""

from __future__ import annotations

import contextlib
import io
import sys
import warnings
from collections.abc import Iterator

import jax

from hmx.config.extras import install, needed
from hmx.config.textfile import quoted
from hmx.errors import HmxError


@contextlib.contextmanager
def importing(extra: str) -> Iterator[None]:
    """Raise an error with the command to install an extra if an import inside fails.

    Raises:
        HmxError: it is not installed, or does not work with the installed JAX; the hint installs it.
    """
    try:
        with needed(extra), quiet():
            yield
    except (ImportError, AttributeError) as error:
        words = f"the {extra} that is installed does not work with JAX {jax.__version__}: {quoted(str(error))}"
        raise HmxError(words, install(extra)) from error


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Suppress warnings and prints of importing, building and tracing: of Brax, JAXopt, MJX and models.

    Users cannot act on these deprecations, and MuJoCo would write them into MUJOCO_LOG.TXT of the current folder. MJX
    prints into the output of a command that Warp is missing, which hmx does not use.
    """
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore", DeprecationWarning)
        warnings.simplefilter("ignore", UserWarning)
        mujoco = sys.modules.get("mujoco")
        if mujoco is None:  # no package is imported yet, so no model was built
            yield
            return
        before = mujoco.get_mju_user_warning()
        mujoco.set_mju_user_warning(lambda message: None)
        try:
            yield
        finally:
            mujoco.set_mju_user_warning(before)
