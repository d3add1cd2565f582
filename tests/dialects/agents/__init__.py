"""LiveKit Agents' and Pipecat's plugins, unmodified, in a Python of their own: they want other versions of our libraries.

`make agents` puts it into `.agents`; SCRIBE_AGENTS_PYTHON names another. Where there is none, the tests are skipped.
"""

import asyncio
import json
import os
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

import pytest

PYTHON = os.environ.get("SCRIBE_AGENTS_PYTHON", str(Path(__file__).parents[3] / ".agents/bin/python"))


@cache
def lacks(module: str) -> bool:
    if not Path(PYTHON).exists():
        return True
    return bool(
        subprocess.run([PYTHON, "-c", f"import {module}"], capture_output=True, check=False).returncode
    )


def wants(module: str) -> None:
    """Skip where a package is not to be had."""
    if lacks(module):
        pytest.skip(f"{module} is not importable by {PYTHON}: make agents")


async def run(script: str, *arguments: str) -> list[dict[str, Any]]:
    """What a script of this folder has printed."""
    process = await asyncio.create_subprocess_exec(
        PYTHON,
        str(Path(__file__).with_name(script)),
        *arguments,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        out, err = await asyncio.wait_for(process.communicate(), 50)
    except TimeoutError:
        process.kill()
        await process.wait()
        raise
    assert process.returncode == 0, err.decode()[-3_000:]
    return [json.loads(line) for line in out.splitlines() if line.startswith(b"{")]
