"""From the ring buffer to numbered chunks, with marks (flush, end) exactly where the client set them."""

import asyncio
from collections import deque
from dataclasses import dataclass

from gateway.ingest import Ingest
from gateway.ring import RingBuffer
from shared import metrics
from shared.clock import wall_ms

SAMPLE_RATE = 16_000
# How often the backlog is looked at while a session is held back.
HELD_POLL_S = 0.05


@dataclass(frozen=True, slots=True)
class _Mark:
    position: int  # sample of the session that it comes after
    kind: str  # flush | end | pause
    payload: bytes
    set_ms: float  # Unix time
    theirs: int  # samples the client had sent


class Feed:
    """Holds a connection's audio until the fleet wants it, and appends it chunk by chunk."""

    def __init__(self, ring: RingBuffer, ingest: Ingest, chunk_bytes: int, budget: int) -> None:
        self._ring = ring
        self._ingest = ingest
        self._chunk_bytes = chunk_bytes
        self._budget = budget
        self._marks: deque[_Mark] = deque()
        # (sample after the last one written, Unix ms): when a chunk was complete, however long it is held back.
        self._arrivals: deque[tuple[int, float]] = deque()
        self._more = asyncio.Event()
        self._room = asyncio.Event()

    async def write(self, samples: bytes) -> None:
        """Take samples; waits for room when the ring's policy is to block."""
        view = memoryview(samples)
        while view:
            self._room.clear()
            taken = self._ring.write(view)
            view = view[taken:]
            self._arrivals.append((self._written(), wall_ms()))
            self._more.set()
            if view:
                await self._room.wait()

    def mark(self, kind: str, payload: bytes = b"", theirs: int = 0) -> None:
        """Set a mark after all audio written so far."""
        self._marks.append(_Mark(self._written(), kind, payload, wall_ms(), theirs))
        self._more.set()

    async def run(self) -> None:
        """Append until the end mark is appended, or all that was written before a pause mark."""
        while True:
            self._more.clear()
            await self._announce_gaps()
            payload = self._next_chunk()
            if payload:
                self._room.set()
                await self._ingest.append("audio", payload, self._arrival())
                await self._hold_back()
            elif self._due():
                mark = self._marks.popleft()
                if mark.kind == "pause":
                    return
                await self._ingest.append(mark.kind, mark.payload, mark.set_ms, mark.theirs)
                if mark.kind == "end":
                    return
            else:
                await self._more.wait()

    def _next_chunk(self) -> bytes | None:
        """A whole chunk, or what is left before the next mark."""
        chunk = self._chunk_bytes
        if self._marks:
            chunk = min(chunk, 2 * (self._marks[0].position - self._ring.read_position))
        return self._ring.read(chunk) if chunk > 0 else None

    def _due(self) -> bool:
        return bool(self._marks) and self._marks[0].position <= self._ring.read_position

    async def _announce_gaps(self) -> None:
        """Until there is none left: more may be dropped while one is being announced."""
        while gaps := self._ring.take_gaps():
            for gap in gaps:
                metrics.DROPPED.inc((gap.end - gap.start) / SAMPLE_RATE)
                await self._ingest.append(
                    "gap", f"{gap.start}:{gap.end}:client_too_fast:0".encode(), wall_ms()
                )

    def _written(self) -> int:
        return self._ring.read_position + len(self._ring) // 2

    def _arrival(self) -> float:
        """When the last sample read from the ring had arrived."""
        while self._arrivals[0][0] < self._ring.read_position:
            self._arrivals.popleft()
        return self._arrivals[0][1]

    async def _hold_back(self) -> None:
        """Wait while too much of the session is undecoded; meanwhile the ring fills and its policy decides."""
        while await self._ingest.backlog() > self._budget:  # noqa: ASYNC110 - workers are other processes
            await asyncio.sleep(HELD_POLL_S)
