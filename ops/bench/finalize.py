"""How long a client waits for the final answer after it said that its turn is over, in each dialect that can say so.

A turn is speech from the bundled recording at the speed it was spoken, then a pause, then `Finalize` (Deepgram), a commit
(OpenAI) or `flush` (ours). The time runs from that message to its answer, as a client sees it.
"""

import argparse
import asyncio
import base64
import json
import sys
from collections.abc import Callable, Sequence
from functools import partial
from importlib.resources import as_file, files
from typing import Any, NamedTuple

import numpy as np
import soxr
from rich.console import Console
from rich.progress import Progress
from rich.table import Table
from websockets.asyncio.client import ClientConnection, connect

from ops import scoring
from ops.target import gateway_at
from shared.clock import mono_ms
from shared.errors import ScribeError
from shared.media import RATE, MediaDecoder

FRAME_MS = 40
TURN_S = 3.0


class Speaking(NamedTuple):
    """How a dialect is spoken here."""

    path: str
    rate: int
    opening: Sequence[str]
    audio: Callable[[bytes], str | bytes]
    ask: str
    answers: Callable[[dict[str, Any]], bool]


_OPENAI_AUDIO = {"format": {"type": "audio/pcm", "rate": 24_000}, "turn_detection": None}
DIALECTS = {
    "native": Speaking(
        "/v1/stream?encoding=pcm_s16le",
        16_000,
        (),
        bytes,
        '{"type": "flush", "id": "turn"}',
        lambda message: message["type"] == "flushed",
    ),
    "deepgram": Speaking(
        "/v1/listen?encoding=linear16&sample_rate=16000&interim_results=true",
        16_000,
        (),
        bytes,
        '{"type": "Finalize"}',
        lambda message: bool(message.get("from_finalize")),
    ),
    "openai": Speaking(
        "/v1/realtime?intent=transcription",
        24_000,
        (
            json.dumps(
                {
                    "type": "session.update",
                    "session": {"type": "transcription", "audio": {"input": _OPENAI_AUDIO}},
                }
            ),
        ),
        lambda pcm: json.dumps(
            {"type": "input_audio_buffer.append", "audio": base64.b64encode(pcm).decode()}
        ),
        '{"type": "input_audio_buffer.commit"}',
        lambda message: message["type"].endswith("input_audio_transcription.completed"),
    ),
}


class Caller:
    """One client, turn after turn."""

    def __init__(self, socket: ClientConnection, how: Speaking) -> None:
        self._socket = socket
        self._how = how
        self._answered = asyncio.Event()

    async def turn(self, pcm: bytes, pause_s: float) -> float:
        """Say it all, wait, ask; milliseconds until the answer."""
        size = self._how.rate * 2 * FRAME_MS // 1000
        pcm += bytes(int(self._how.rate * pause_s) * 2)
        loop = asyncio.get_running_loop()
        began = loop.time()
        for n, at in enumerate(range(0, len(pcm), size), start=1):
            await asyncio.sleep(began + n * FRAME_MS / 1000 - loop.time())
            await self._socket.send(self._how.audio(pcm[at : at + size]))
        self._answered.clear()
        asked = mono_ms()
        await self._socket.send(self._how.ask)
        async with asyncio.timeout(30):
            await self._answered.wait()
        return mono_ms() - asked

    async def listen(self) -> None:
        async for message in self._socket:
            if self._how.answers(json.loads(message)):
                self._answered.set()


async def measure(
    url: str,
    how: Speaking,
    speech: Sequence[bytes],
    *,
    sessions: int,
    turns: int,
    pause_s: float,
    done: Callable[[], None] = lambda: None,
) -> list[float]:
    """Milliseconds of every turn but each session's first, which finds nothing warm."""
    waits: list[float] = []

    async def call(n: int) -> None:
        await asyncio.sleep(n * TURN_S / sessions)  # turns do not end all at once
        async with connect(url.replace("http", "ws", 1) + how.path) as socket:
            for message in how.opening:
                await socket.send(message)
            caller = Caller(socket, how)
            listening = asyncio.create_task(caller.listen())
            for turn in range(turns + 1):
                waited = await caller.turn(speech[(n + turn) % len(speech)], pause_s)
                if turn:
                    waits.append(waited)
                    done()
            listening.cancel()

    async with asyncio.TaskGroup() as callers:
        for n in range(sessions):
            callers.create_task(call(n))
    return waits


def turns_of(seconds: float, rate: int) -> list[bytes]:
    """The bundled recording in pieces, s16le."""
    with as_file(files("ops") / "assets" / "demo.flac") as file, MediaDecoder() as decoder:
        samples = np.frombuffer(decoder.decode(file), "<i2")
    samples = soxr.resample(samples, RATE, rate)
    size = int(seconds * rate)
    return [samples[at : at + size].tobytes() for at in range(0, len(samples) - size + 1, size)]


async def _main(asked: argparse.Namespace) -> Table:
    table = Table("dialect", "pause s", "turns", "p50 ms", "p95 ms", title=f"{asked.sessions} sessions")
    rounds = [(name, pause) for name in asked.dialect for pause in asked.pause]
    with Progress(console=Console(stderr=True)) as progress:
        bar = progress.add_task("turns", total=len(rounds) * asked.sessions * asked.turns)
        async with gateway_at(asked.url) as url:
            for name, pause in rounds:
                waits = await measure(
                    url,
                    DIALECTS[name],
                    turns_of(TURN_S, DIALECTS[name].rate),
                    sessions=asked.sessions,
                    turns=asked.turns,
                    pause_s=pause,
                    done=partial(progress.advance, bar),
                )
                found = scoring.percentiles(waits)
                table.add_row(name, f"{pause:g}", str(len(waits)), f"{found.p50:.0f}", f"{found.p95:.0f}")
    return table


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m ops.bench.finalize", description=__doc__)
    parser.add_argument("--url", help="of a running gateway without keys; none: start a fleet")
    parser.add_argument("--dialect", nargs="+", choices=DIALECTS, default=list(DIALECTS))
    parser.add_argument("--sessions", type=int, default=8)
    parser.add_argument("--turns", type=int, default=16, help="of each session")
    parser.add_argument(
        "--pause", type=float, nargs="+", default=[0.0, 0.2, 0.4], help="seconds of silence before asking"
    )
    try:
        Console().print(asyncio.run(_main(parser.parse_args())))
    except ScribeError as error:
        sys.exit(f"finalize: {error}")


if __name__ == "__main__":
    main()
