"""The ring buffer loses nothing silently, whatever the sizes and threads."""

import threading
from itertools import count

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.ring import DroppedSpan, RingBuffer


def samples(start: int, end: int) -> bytes:
    """Samples that say their own stream position (modulo 65,536)."""
    return np.arange(start, end).astype("<u2").tobytes()


def rebuild(chunks: list[bytes], gaps: list[DroppedSpan]) -> list[bytes | DroppedSpan]:
    """Put chunks and gaps in stream order, as the gateway does: a gap that starts here goes first."""
    placed: list[bytes | DroppedSpan] = []
    at, waiting = 0, list(gaps)
    for chunk in chunks:
        if waiting and waiting[0].start == at:
            placed.append(waiting.pop(0))
            at = placed[-1].end
        placed.append(chunk)
        at += len(chunk) // 2
    return placed + waiting


def positions(placed: list[bytes | DroppedSpan]) -> list[int]:
    """Positions modulo 65,536 of everything read or announced as dropped."""
    out: list[int] = []
    for piece in placed:
        is_gap = isinstance(piece, DroppedSpan)
        out += [p % 65_536 for p in range(*piece)] if is_gap else np.frombuffer(piece, "<u2").tolist()
    return out


def test_block_takes_only_what_fits():
    ring = RingBuffer(8, "block")
    assert ring.write(samples(0, 6)) == 8
    assert ring.write(samples(4, 6)) == 0
    assert ring.room == 0
    assert ring.read(4) == samples(0, 2)
    assert ring.write(samples(4, 6)) == 4
    assert ring.drain() == samples(2, 6)
    assert ring.take_gaps() == []


def test_read_waits_for_enough():
    ring = RingBuffer(8, "block")
    ring.write(samples(0, 2))
    assert ring.read(6) is None
    assert len(ring) == 4
    assert ring.drain() == samples(0, 2)
    assert ring.drain() == b""


def test_drop_oldest_golden_case():
    ring = RingBuffer(8, "drop_oldest")
    ring.write(samples(0, 3))
    assert ring.read(2) == samples(0, 1)
    ring.write(samples(3, 7))  # 1 and 2 fall out
    ring.write(samples(7, 8))  # 3 too, adjacent
    assert ring.read_position == 4
    assert ring.take_gaps() == [DroppedSpan(1, 4)]
    assert ring.read(4) == samples(4, 6)
    ring.write(samples(8, 20))  # three times the capacity in one go
    assert ring.take_gaps() == [DroppedSpan(6, 16)]
    assert ring.drain() == samples(16, 20)
    assert ring.read_position == 20


def test_accepts_views_and_an_uneven_capacity():
    ring = RingBuffer(5, "drop_oldest")
    assert ring.room == 4
    ring.write(memoryview(samples(0, 4))[2:])
    assert ring.take_gaps() == [DroppedSpan(0, 1)]
    assert ring.drain() == samples(2, 4)


def test_half_samples_are_refused():
    ring = RingBuffer(8, "block")
    with pytest.raises(ValueError, match="3 bytes are not whole samples"):
        ring.write(b"abc")
    with pytest.raises(ValueError, match="1 bytes are not whole samples"):
        ring.read(1)
    with pytest.raises(ValueError, match="holds no sample"):
        RingBuffer(1, "block")


STEPS = st.lists(st.tuples(st.sampled_from(["write", "read", "gaps"]), st.integers(0, 20)), max_size=60)


@given(capacity=st.integers(1, 12), steps=STEPS)
def test_what_comes_out_and_the_gaps_are_what_went_in(capacity, steps):
    ring, written = RingBuffer(capacity * 2, "drop_oldest"), 0
    chunks, gaps = [], []
    for what, n in steps:
        if what == "write":
            assert ring.write(samples(written, written + n)) == n * 2
            written += n
        elif what == "gaps":
            gaps += ring.take_gaps()
        elif chunk := ring.read(n * 2):
            chunks.append(chunk)
            assert ring.read_position == (chunk[-2] | chunk[-1] << 8) + 1
        assert len(ring) + ring.room == capacity * 2
    chunks.append(ring.drain())
    gaps += ring.take_gaps()
    assert positions(rebuild(chunks, merged(gaps))) == list(range(written))


def merged(gaps: list[DroppedSpan]) -> list[DroppedSpan]:
    """Join spans that only a call of take_gaps between two drops kept apart."""
    out: list[DroppedSpan] = []
    for gap in gaps:
        out.append(DroppedSpan(out.pop().start, gap.end) if out and out[-1].end == gap.start else gap)
    return out


@given(capacity=st.integers(1, 12), steps=STEPS)
def test_block_is_a_plain_queue(capacity, steps):
    ring, written, read = RingBuffer(capacity * 2, "block"), 0, 0
    for what, n in steps:
        if what == "write":
            written += ring.write(samples(written, written + n)) // 2
        elif chunk := ring.read(n * 2):
            assert chunk == samples(read, read + n)
            read += n
    assert ring.drain() == samples(read, written)
    assert ring.take_gaps() == []


def write_all(ring: RingBuffer, total: int, moved: threading.Event) -> None:
    sizes = (n % 97 + 1 for n in count(1))
    at = 0
    while at < total:
        end = min(at + next(sizes), total)
        while at < end:
            accepted = ring.write(samples(at, end)) // 2
            at += accepted
            if not accepted:
                moved.wait()
                moved.clear()


def test_two_threads_with_block_lose_nothing():
    ring, moved, total = RingBuffer(256, "block"), threading.Event(), 50_000
    producer = threading.Thread(target=write_all, args=(ring, total, moved))
    producer.start()
    out = bytearray()
    while len(out) < total * 2:
        out += ring.read(62) or ring.drain()
        moved.set()
    producer.join()
    assert bytes(out) == samples(0, total)
    assert ring.take_gaps() == []


def test_two_threads_with_drop_oldest_announce_every_loss():
    ring, total = RingBuffer(256, "drop_oldest"), 50_000
    producer = threading.Thread(target=write_all, args=(ring, total, threading.Event()))
    producer.start()
    chunks, gaps = [], []
    while producer.is_alive():
        if chunk := ring.read(62):
            chunks.append(chunk)
        gaps += ring.take_gaps()
    producer.join()
    chunks.append(ring.drain())
    gaps += ring.take_gaps()
    assert positions(rebuild(chunks, merged(gaps))) == [p % 65_536 for p in range(total)]
