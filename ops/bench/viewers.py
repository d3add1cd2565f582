"""What it costs a gateway that many people read one session along, by server-sent events and by WebSocket.

One session speaks at the speed of speech, the bundled recording over and over. Each phase lasts as long as the recording, so
that all have the same events; phases with viewers stand between phases without. The viewers are a process of their own.
"""

import argparse
import asyncio
import base64
import os
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.resources import as_file, files
from typing import NamedTuple
from urllib.parse import urlsplit

import psutil
from rich.console import Console
from rich.table import Table

from ops.client import StreamClient
from ops.streaming import send_paced
from ops.target import gateway_at
from shared.errors import ScribeError, StageFailed
from shared.media import RATE, MediaDecoder

KINDS = {"sse": "/events", "websocket": "/stream"}
_EVENT = b'{"event":'


class Phase(NamedTuple):
    """CPU seconds in so many seconds, and events at each viewer, the least and the most."""

    seconds: float
    gateway: float
    workers: float
    least: int = 0
    most: int = 0


async def watch(kind: str, viewers: int, url: str, session: str) -> None:
    """Be so many viewers: say when all are there; at the end of standard input, how many events came."""
    counts = [0] * viewers
    sockets = [await _open(kind, url, session) for _ in range(viewers)]
    reading = [asyncio.create_task(_count(reader, counts, n)) for n, (reader, _) in enumerate(sockets)]
    print("there", flush=True)
    await asyncio.to_thread(sys.stdin.read)
    print(min(counts), max(counts), flush=True)
    for task in reading:
        task.cancel()


async def _open(kind: str, url: str, session: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    at = urlsplit(url)
    reader, writer = await asyncio.open_connection(at.hostname, at.port)
    head = f"GET /v1/sessions/{session}{KINDS[kind]}?after=999999 HTTP/1.1\r\nHost: {at.netloc}\r\n"
    if kind == "websocket":
        key = base64.b64encode(os.urandom(16)).decode()
        head += f"Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {key}\r\n"
    writer.write(f"{head}\r\n".encode())
    answer = await reader.readuntil(b"\r\n\r\n")
    if not answer.startswith((b"HTTP/1.1 200", b"HTTP/1.1 101")):
        raise StageFailed(f"a viewer was refused: {answer.splitlines()[0].decode()}")
    return reader, writer


async def _count(reader: asyncio.StreamReader, counts: list[int], n: int) -> None:
    while data := await reader.read(1 << 16):
        counts[n] += data.count(_EVENT)


async def measure(url: str, pcm: bytes, viewers: int) -> list[tuple[str, Phase]]:
    """`pcm`: one phase's. Of a fleet that this process has started."""
    seconds = len(pcm) / 2 / RATE
    found = []
    async with StreamClient(url) as client:
        phases = ["warm-up", "none", *(each for kind in KINDS for each in (kind, "none"))]
        sending = asyncio.create_task(send_paced(client, pcm * (len(phases) + 1), pace=1.0))
        hearing = asyncio.create_task(_drain(client))
        for phase in phases:
            async with _viewers(phase, viewers, url, client.ready.session) as process:
                before = _cpu_s()
                await asyncio.sleep(seconds)
                gateway, workers = (after - then for after, then in zip(_cpu_s(), before, strict=True))
                heard = (0, 0) if process is None else await _heard(process)
            found.append((phase, Phase(seconds, gateway, workers, *heard)))
        sending.cancel()
        hearing.cancel()
    return found[1:]


async def _drain(client: StreamClient) -> None:
    async for _ in client:
        pass


@asynccontextmanager
async def _viewers(kind: str, viewers: int, url: str, session: str) -> AsyncIterator[Process | None]:
    if kind not in KINDS:
        yield None
        return
    command = [sys.executable, "-m", "ops.bench.viewers", "--watch", kind, str(viewers), url, session]
    process = await asyncio.create_subprocess_exec(*command, stdin=PIPE, stdout=PIPE)
    assert process.stdin
    assert process.stdout
    if not await process.stdout.readline():
        raise StageFailed("the viewers did not get in: their message is above")
    yield process
    process.stdin.close()
    await process.wait()


async def _heard(process: Process) -> tuple[int, int]:
    assert process.stdin
    assert process.stdout
    process.stdin.close()
    least, most = map(int, (await process.stdout.read()).split())
    return least, most


def _cpu_s() -> tuple[float, float]:
    """Of the gateway, and of the workers, since they began."""
    used = {"gateway": 0.0, "workers": 0.0}
    for process in psutil.Process().children(recursive=True):
        for part in used:
            if part in process.cmdline():
                times = process.cpu_times()
                used[part] += times.user + times.system
    return used["gateway"], used["workers"]


def table(found: list[tuple[str, Phase]], viewers: int) -> Table:
    """Phases; of those with viewers, what each hundred of them added to the mean of the two beside it."""
    shown = Table("viewers", "gateway %", "per 100 viewers %", "workers %", "events at each viewer")
    for n, (kind, phase) in enumerate(found):
        share = 100 * phase.gateway / phase.seconds
        added, heard = "", ""
        if kind in KINDS:
            beside = (found[n - 1][1].gateway + found[n + 1][1].gateway) / 2 / phase.seconds
            added = f"{(share - 100 * beside) / viewers * 100:.2f}"
            heard = f"{phase.least} to {phase.most}"
        name = f"{viewers}, {kind}" if kind in KINDS else "none"
        shown.add_row(name, f"{share:.1f}", added, f"{100 * phase.workers / phase.seconds:.0f}", heard)
    return shown


async def _main(viewers: int) -> Table:
    with as_file(files("ops") / "assets" / "demo.flac") as file, MediaDecoder() as decoder:
        pcm = decoder.decode(file)
    async with gateway_at(None) as url:
        return table(await measure(url, pcm, viewers), viewers)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m ops.bench.viewers", description=__doc__)
    parser.add_argument("--viewers", type=int, default=200)
    parser.add_argument("--watch", nargs=4, metavar=("KIND", "N", "URL", "SESSION"), help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.watch:
        kind, viewers, url, session = asked.watch
        asyncio.run(watch(kind, int(viewers), url, session))
        return
    try:
        Console().print(asyncio.run(_main(asked.viewers)))
    except ScribeError as error:
        sys.exit(f"viewers: {error}")


if __name__ == "__main__":
    main()
