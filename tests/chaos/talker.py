"""A client with a talk to give: real WebSocket, its own pace, and a note of all that it saw and when."""

import asyncio
import json
import random
import time
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed, InvalidHandshake

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

    @property
    def events(self) -> list[dict]:
        return [event for _, event in self.heard]

    async def run(self, url: str) -> None:
        """From connecting until the server has closed. Raises TimeoutError when it never does."""
        address = url.replace("http", "ws") + "/v1/stream?sample_rate=16000"
        options = {"max_queue": 1} if self.deaf else {}
        async with asyncio.timeout(60):
            try:
                async with connect(address, ping_interval=None, compression=None, **options) as socket:
                    hearing = asyncio.create_task(self._hear(socket))
                    await self._speak(socket)
                    await hearing
                    self.close_code = socket.close_code
            except (OSError, InvalidHandshake) as error:
                self.problems.append({"type": "refused", "message": str(error)})

    async def _speak(self, socket) -> None:
        start = time.monotonic()
        try:
            for at in range(0, len(self.talk.samples), FRAME):
                await asyncio.sleep(start + at / RATE / self.pace - time.monotonic())
                frame = self.talk.samples[at : at + FRAME]
                await socket.send(frame.tobytes())
                self.sent.append((time.monotonic(), at + len(frame)))
            for i in range(self.talk.flushes):
                await socket.send(json.dumps({"type": "flush", "id": str(i)}))
            await socket.send(END)
        except ConnectionClosed:
            return  # what was said before it tells why

    async def _hear(self, socket) -> None:
        if self.deaf:
            await self.deaf.wait()
        try:
            async for message in socket:
                said = json.loads(message)
                if "event" in said:
                    self.heard.append((time.monotonic(), said))
                elif said["type"] == "ready":
                    self.session = said["session"]
                else:
                    self.problems.append(said)
        except ConnectionClosed:
            return

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
        return next((at for at, total in self.sent if sample is not None and total > sample), self.sent[-1][0])
