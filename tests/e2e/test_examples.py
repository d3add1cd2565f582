"""The programs in docs/subscribing.md, as they stand there, on a real session."""

import asyncio
import binascii
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from shared.settings import RedisSettings
from tests.e2e.conftest import rest, until
from tests.e2e.test_stream import END, talk
from tests.rigs import Server

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]

PAGE = (Path(__file__).parents[2] / "docs/subscribing.md").read_text()


@pytest.fixture
def redis_url() -> Iterator[str]:
    """One that listens on TCP."""
    with Server() as server:
        yield server.url


@pytest.fixture
def redis_settings(redis_url: str) -> RedisSettings:
    """With the names that the page has."""
    return RedisSettings(url=redis_url)


def program(marker: str) -> str:
    """The block of the page that has this in it."""
    return next(code for code in re.findall(r"```\w+\n(.*?)```", PAGE, re.DOTALL) if marker in code)


def wants(tool: str) -> None:
    if shutil.which(tool) is None:
        pytest.skip(f"no {tool} on PATH")


def run(command: list[Any], **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command, env=os.environ | environment, capture_output=True, text=True, check=False, timeout=90
    )


async def read_along(fleet: Any, command: Any) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """A session's events as its client got them, and as a program printed them that came in its middle."""
    async with fleet.connect() as socket:
        (ready,) = await until(socket, "ready")
        await socket.send(talk().tobytes())
        heard = await until(socket, "final")
        arguments, environment = command(ready["session"])
        process = await asyncio.create_subprocess_exec(
            *arguments, env=os.environ | environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        await socket.send(END)
        heard += await rest(socket)
    out, err = await process.communicate()
    assert process.returncode == 0, err.decode()
    return heard, [json.loads(line) for line in out.decode().splitlines() if line.startswith("{")]


@pytest.mark.parametrize("name", ["follow.py", "follow_sse.py"])
async def test_python(fleet, redis_url, tmp_path, name):
    (tmp_path / name).write_text(program(f"python {name} "))
    place = redis_url if name == "follow.py" else fleet.url
    heard, seen = await read_along(fleet, lambda s: ([sys.executable, tmp_path / name, place, s], {}))

    assert seen == heard


async def test_node(fleet, redis_url, tmp_path):
    wants("npm")
    got = run(["npm", "install", "--silent", "--no-audit", "--no-fund", "--prefix", tmp_path, "redis@5"])
    if got.returncode:
        pytest.skip("the npm package redis can't be had here")
    (tmp_path / "follow.mjs").write_text(program("follow.mjs"))
    heard, seen = await read_along(fleet, lambda s: (["node", tmp_path / "follow.mjs", redis_url, s], {}))

    assert seen == heard


@pytest.mark.parametrize("name", ["follow.go", "follow_sse.go"])
async def test_go(fleet, redis_url, tmp_path, name):
    wants("go")
    (tmp_path / name).write_text(program(f"go run {name} "))
    caches = {"GOCACHE": str(tmp_path / "cache"), "GO111MODULE": "off", "GOPATH": str(tmp_path)}
    done = run(["go", "build", "-o", tmp_path / "follow", tmp_path / name], **caches)
    assert done.returncode == 0, done.stderr
    place = redis_url.removeprefix("redis://").removesuffix("/0") if name == "follow.go" else fleet.url
    heard, seen = await read_along(fleet, lambda s: ([tmp_path / "follow", place, s], {}))

    assert seen == heard


async def test_curl(fleet):
    wants("curl")
    line = program("curl")

    def command(session: str) -> tuple[list[str], dict[str, str]]:
        return ["sh", "-c", f"{line.strip()} | sed -n 's/^data: //p'"], {
            "GATEWAY": fleet.url,
            "SESSION": session,
        }

    heard, seen = await read_along(fleet, command)

    assert seen == heard


async def test_redis_cli(fleet, redis_url):
    wants("redis-cli")
    line = program("XRANGE")
    async with fleet.connect() as socket:
        (ready,) = await until(socket, "ready")
        await socket.send(talk().tobytes())
        await socket.send(END)
        heard = await rest(socket)
    session = ready["session"]
    number = f"{binascii.crc_hqx(session.encode(), 0) % 16:02d}"
    done = run(["sh", "-c", line], REDIS=redis_url, SESSION=session, NN=number)

    assert [json.loads(each) for each in done.stdout.splitlines() if each.startswith("{")] == heard
