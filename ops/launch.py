"""From command-line options to processes."""

import os
import sys
from typing import NoReturn

import typer

from ops.readiness import Group
from shared.settings import child_environment


def worker_group(text: str) -> Group:
    """Read STAGES or STAGES=N. Raises typer.BadParameter, or Misconfigured for stages that do not exist."""
    name, _, count = text.partition("=")
    if count and not count.isdecimal():
        raise typer.BadParameter(
            f"{text!r}: expected STAGES or STAGES=N, such as frontend=2", param_hint="--worker"
        )
    return Group(name, int(count or 1))


def become(module: str, *arguments: str, **environment: object) -> NoReturn:
    """Replace this process by `python -m module`: signals then reach the gateway or worker itself.

    `environment` holds settings; those that are None keep what the environment says.
    """
    changes = {name: str(value) for name, value in environment.items() if value is not None}
    command = [sys.executable, "-m", module, *arguments]
    os.execve(sys.executable, command, child_environment(**changes))  # noqa: S606 - no shell wanted
