"""A client with a talk to give: real WebSocket, its own pace, and a note of all that it saw and when."""

import asyncio
import json
import random
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from itertools import cycle
from typing import Any
from urllib.parse import urlencode

import numpy as np
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, ConnectionClosedError, InvalidHandshake

from tests.chaos.worker import POISON, build
from tests.pipeline import Pipeline, audio_chunks, lasting
from tests.unit.test_stages import RATE, silence, speech
from workers.wire import AudioChunk

FRAME = RATE // 10  # samples per WebSocket message
CHUNK = 5120
END = json.dumps({"type": "end"})
# What differs between any two runs.
UNIQUE = ("event", "v", "session", "trace")
Span = tuple[int, int]


@dataclass(frozen=True)
class Talk:
    """Utterances and pauses that follow from the seed alone."""

    seed: int
    seconds: float = 6.0
    flushes: int = 0  # after the last word
    poison: bool = False  # in the middle

    @cached_property
    def _parts(self) -> tuple[list[np.ndarray], list[Span]]:
        rng = random.Random(self.seed)
        parts, spans, at = [silence(0.4)], [], 0.4
        while at < self.seconds:
            spoken = rng.uniform(1.2, 4.0)
            parts += [speech(spoken, rng.randrange(1 << 30)), silence(pause := rng.uniform(0.3, 1.2))]
            spans.append((int(at * RATE), int((at + spoken) * RATE)))
            at += spoken + pause
        return parts, spans

    @cached_property
    def samples(self) -> np.ndarray:
        whole = np.concatenate(self._parts[0])
        if self.poison:
            middle = len(whole) // 2 // CHUNK * CHUNK
            whole = np.concatenate([whole[:middle], POISON, whole[middle:]])
        return whole

    @property
    def chunks(self) -> int:
        return -(-len(self.samples) // CHUNK)

    def next_speech(self, sample: int) -> int | None:
        """The first sample at or after this one in which somebody speaks."""
        return next((max(sample, start) for start, end in self._parts[1] if end > sample), None)

    def expected(self) -> list[dict]:
        """What lasts of its events when nothing goes wrong."""
        chunks = audio_chunks(self.samples)
        marks = [AudioChunk("flush", str(i).encode()) for i in range(self.flushes)]
        chunks[-1:-1] = marks
        stages = build(("frontend", "acoustic", "decoder"), None)
        return lasting(Pipeline(stages).run(chunks, [1] * len(chunks)))


@dataclass
class Talker:
    """One session. `heard` and `sent` carry monotonic seconds."""

    talk: Talk
    pace: float = 2.0
    deaf: asyncio.Event | None = None  # reads nothing until it is set
    heard: list[tuple[float, dict]] = field(default_factory=list)
    sent: list[tuple[float, int]] = field(default_factory=list)  # samples sent so far
    problems: list[dict] = field(default_factory=list)
    session: str = ""
    close_code: int | None = None
    reconnections: int = 0
    _token: str = ""
    _began: float = 0.0

    @property
    def events(self) -> list[dict]:
        return [event for _, event in self.heard]

    async def run(self, urls: Sequence[str]) -> None:
        """From connecting until the session is over; a lost connection is made again, to the next gateway.

        Raises TimeoutError when neither an end nor an error comes.
        """
        async with asyncio.timeout(60):
            for url in cycle(urls):
                with suppress(OSError, InvalidHandshake, ConnectionClosed):  # that gateway is down
                    await self._connect(url)
                if self._over():
                    return
                self.reconnections += 1
                await asyncio.sleep(0.1)

    async def _connect(self, url: str) -> None:
        asked = {"sample_rate": RATE}
        if self.session:
            asked = {"session": self.session, "resume_token": self._token, "last_event": len(self.events)}
        address = f"{url.replace('http', 'ws')}/v1/stream?{urlencode(asked)}"
        options: dict[str, Any] = {"max_queue": 1} if self.deaf else {}
        async with connect(address, ping_interval=None, compression=None, **options) as socket:
            self._take(first := json.loads(await socket.recv()))
            speaking = asyncio.create_task(self._speak(socket, first))
            try:
                await self._hear(socket)
            finally:
                self.close_code = socket.close_code
                speaking.cancel()
                await asyncio.gather(speaking, return_exceptions=True)

    async def _speak(self, socket: ClientConnection, ready: dict) -> None:
        """From where the server says; the talk's clock never stops: what a fault held up is sent at once."""
        if ready["type"] != "ready" or ready["ended"]:
            return
        self._began = self._began or time.monotonic()
        for at in range(ready["next_sample"], len(self.talk.samples), FRAME):
            await asyncio.sleep(self._began + at / RATE / self.pace - time.monotonic())
            frame = self.talk.samples[at : at + FRAME]
            await socket.send(frame.tobytes())
            self.sent.append((time.monotonic(), at + len(frame)))
        for i in range(ready["flushes"], self.talk.flushes):
            await socket.send(json.dumps({"type": "flush", "id": str(i)}))
        await socket.send(END)

    async def _hear(self, socket: ClientConnection) -> None:
        if self.deaf:
            await self.deaf.wait()
        with suppress(ConnectionClosedError):
            async for message in socket:
                self._take(json.loads(message))

    def _take(self, said: dict) -> None:
        if "event" in said:
            self.heard.append((time.monotonic(), said))
        elif said["type"] == "ready":
            self.session, self._token = said["session"], said["resume_token"]
        else:
            self.problems.append(said)

    def _over(self) -> bool:
        """An end or an error was told; what may be tried again ends only a session that never began."""
        last = [self.events[-1]["type"]] if self.events else []
        told = any(not problem["retryable"] or not self.session for problem in self.problems)
        return told or last in (["end"], ["error"])

    def lasting(self) -> list[dict]:
        return lasting({k: v for k, v in event.items() if k not in UNIQUE} for event in self.events)

    def duplicates(self) -> int:
        numbers = [event["event"] for event in self.events]
        return len(numbers) - len(set(numbers))

    def chunks_lost(self) -> int:
        """Of the audio sent, what the end event says was not decoded, and what gap events say was dropped."""
        ends = [event["audio_ms"] for event in self.events if event["type"] == "end"]
        gone = sum(event["end_ms"] - event["start_ms"] for event in self.events if event["type"] == "gap")
        missing = len(self.talk.samples) * 1000 // RATE - (ends[-1] if ends else 0)
        return -(-(missing + gone) * RATE // 1000 // CHUNK) if missing + gone > 0 else 0

    def longest_stall(self) -> float:
        """The longest time in which speech had been sent and no event came, in seconds.

        A wait begins with the event before, or when the first spoken sample after it was sent if that is later.
        """
        worst, last, through = 0.0, 0.0, 0
        for at, event in self.heard:
            due = self._sent_at(self.talk.next_speech(through))
            worst = max(worst, at - max(last, due))
            last, through = at, event["through_ms"] * RATE // 1000
        return worst

    def _sent_at(self, sample: int | None) -> float:
        """When this sample had left; the end of the talk for None."""
        return next(
            (at for at, total in self.sent if sample is not None and total > sample), self.sent[-1][0]
        )
