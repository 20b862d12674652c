"""`hmx envs`."""

from __future__ import annotations

from typing import Annotated

from hmx.cli import completion
from hmx.cli.options import Sets, Start, argument
from hmx.cli.output import Outputs, write_outputs
from hmx.config.schema import ENV_IDS, EnvConfig
from hmx.registry.environments import find_source


def envs(
    env: Annotated[
        str | None,
        argument(
            "ID",
            "Environment to build and describe: an id, ./FILE.py or package.module:make.",
            completion.offer(ENV_IDS),
        ),
    ] = None,
    sets: Sets = None,
    *,
    outputs: Outputs,
) -> None:
    """List environments, their sizes, and what is missing to use them.

    Lists the built-in environments, those of optional extras, and those that installed packages register in the
    entry-point group hmx.environments.

    Example: hmx envs ./game.py
    """
    from hmx.reports.environments import build_environment, document, list_environments, to_json

    if env is not None and find_source(env) is None:
        build_environment(EnvConfig(id=env))  # whose error names no option
    if env is None:
        rows = list_environments()
    else:
        rows = [build_environment(Start(sets=sets).bound({"env.id": env}).config.env)]
    write_outputs(to_json(rows), document(rows), outputs)
