"""Official clients that are on PyPI, but must not be installed beside us: unpacked into a folder of their own."""

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest


def unpacked(folder: Path, *pinned: str) -> Path:
    """A folder for PYTHONPATH with these, without what they depend on. Skips the test where they can't be had."""
    command = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--target", str(folder), *pinned]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=50)
    if done.returncode:
        pytest.skip(f"{' '.join(pinned)} can't be had from PyPI: {done.stderr.strip().splitlines()[-1]}")
    return folder


async def run_with(folder: Path, *arguments: str, **environment: str) -> tuple[int, str, str]:
    """Run Python with that folder on its path; exit code, output, errors."""
    variables = os.environ | {"PYTHONPATH": str(folder)} | environment
    process = await asyncio.create_subprocess_exec(
        sys.executable, *arguments, env=variables, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    try:
        out, err = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    return process.returncode or 0, out.decode(), err.decode()
