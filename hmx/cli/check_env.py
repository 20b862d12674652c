"""`hmx check-env`."""

from __future__ import annotations

from typing import Annotated

from hmx.cli import completion
from hmx.cli.options import Quiet, Sets, argument
from hmx.cli.output import ReportOutputs, write_outputs
from hmx.config.schema import ENV_IDS
from hmx.reports.check_env.request import CheckEnvRequest

EnvArgument = Annotated[
    str,
    argument(
        "ENV", "Environment to check: an id of hmx envs, ./FILE.py or package.module:make.", completion.offer(ENV_IDS)
    ),
]


def check_env(
    env: EnvArgument, sets: Sets = None, quiet: Quiet = False, *, request: CheckEnvRequest, outputs: ReportOutputs
) -> None:
    """Check that an environment keeps the rules that training relies on.

    Plays at random and checks determinism, batches, masks, illegal actions, final observations, ends of episodes,
    shapes, finite values, keys and reward terms. Exits with code 4 if a check fails.

    Example: hmx check-env corridor --set env.slip=0.3
    """
    from hmx.cli.boundary import say
    from hmx.console.progress import status
    from hmx.registry.load import ENV_SECTIONS, load

    # rules for training, such as how a batch splits, do not matter here
    cfg = load(sets=sets or (), flags={"env.id": env}, check=ENV_SECTIONS).config

    from hmx.reports.check_env.document import document, failure, values
    from hmx.reports.check_env.job import check_env as job

    with status("compiling and checking", quiet):
        findings = job(cfg, request)
    for warning in findings.warnings:
        say("warning", warning)
    write_outputs(findings, document(findings), outputs, values(findings))
    if not findings.passed:
        raise failure(findings)
