"""The ring buffer between one client's socket and the chunks handed to the workers."""

import threading
from typing import NamedTuple

from shared.protocol import RingPolicy

SAMPLE_BYTES = 2  # mono s16le throughout


class DroppedSpan(NamedTuple):
    """Samples start … end (exclusive), counted from the session's first sample."""

    start: int
    end: int


class RingBuffer:
    """Bytes of 16 kHz mono s16le; one allocation at the start, safe for any number of threads.

    Only whole samples go in, are dropped, or come out. Audio is dropped only at the reading end, so what one
    `read` returns never spans a dropped span: after a read, a span that starts where the previous read ended
    lies before the returned samples, every other one after them.
    """

    def __init__(self, capacity_bytes: int, policy: RingPolicy, start: int = 0) -> None:
        """`start`: number of the first sample that will be written."""
        if capacity_bytes < SAMPLE_BYTES:
            raise ValueError(
                f"a ring buffer of {capacity_bytes} bytes holds no sample: at least {SAMPLE_BYTES}"
            )
        self._capacity = capacity_bytes - capacity_bytes % SAMPLE_BYTES
        self._store = memoryview(bytearray(self._capacity))
        self._drops = policy == "drop_oldest"
        # Byte positions in the stream since its start, never wrapped; they index the store modulo its size.
        self._read = self._written = start * SAMPLE_BYTES
        self._gaps: list[DroppedSpan] = []
        self._lock = threading.Lock()

    def __len__(self) -> int:
        """Bytes waiting to be read."""
        with self._lock:
            return self._written - self._read

    @property
    def room(self) -> int:
        """Bytes that fit without dropping any."""
        with self._lock:
            return self._capacity - (self._written - self._read)

    @property
    def read_position(self) -> int:
        """Stream position of the next sample to be read, dropped ones counted."""
        with self._lock:
            return self._read // SAMPLE_BYTES

    def write(self, data: bytes | memoryview) -> int:
        """Bytes accepted: with "block" what fits, with "drop_oldest" all. Raises ValueError for half a sample."""
        _require_whole_samples(len(data))
        with self._lock:
            accepted = len(data)
            if not self._drops:
                accepted = min(accepted, self._capacity - (self._written - self._read))
            end = self._written + accepted
            self._drop_before(end - self._capacity)
            kept = min(accepted, self._capacity)
            self._store_at(end - kept, memoryview(data)[accepted - kept : accepted])
            self._written = end
            return accepted

    def read(self, n: int) -> bytes | None:
        """Take exactly n bytes, or None while fewer are waiting. Raises ValueError for half a sample."""
        _require_whole_samples(n)
        with self._lock:
            return self._take(n) if n <= self._written - self._read else None

    def drain(self) -> bytes:
        """Take everything that is waiting."""
        with self._lock:
            return self._take(self._written - self._read)

    def take_gaps(self) -> list[DroppedSpan]:
        """Spans dropped since the last call, in order, adjacent ones merged."""
        with self._lock:
            gaps, self._gaps = self._gaps, []
            return gaps

    def _drop_before(self, position: int) -> None:
        if position <= self._read:
            return
        start, end = self._read // SAMPLE_BYTES, position // SAMPLE_BYTES
        if self._gaps and self._gaps[-1].end == start:
            start = self._gaps.pop().start
        self._gaps.append(DroppedSpan(start, end))
        self._read = position

    def _store_at(self, position: int, data: memoryview) -> None:
        at = position % self._capacity
        first = min(len(data), self._capacity - at)
        self._store[at : at + first] = data[:first]
        self._store[: len(data) - first] = data[first:]

    def _take(self, n: int) -> bytes:
        at = self._read % self._capacity
        first = min(n, self._capacity - at)
        self._read += n
        if first == n:
            return bytes(self._store[at : at + n])
        return b"".join((self._store[at:], self._store[: n - first]))


def _require_whole_samples(n: int) -> None:
    if n % SAMPLE_BYTES:
        raise ValueError(f"{n} bytes are not whole samples of {SAMPLE_BYTES} bytes")
