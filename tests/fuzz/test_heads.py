"""Raw TCP against the HTTP layer: answered or closed, and nobody else notices."""

import asyncio
import contextlib
import re

import pytest

from gateway import server
from tests.fuzz.budget import fuzz
from tests.fuzz.heads import heads
from tests.fuzz.verdict import INTERNAL

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]

STATUS = re.compile(rb"HTTP/1\.1 (\d{3}) ")
# For a version or a part of HTTP that is not spoken here; all others from 500 on are faults of ours.
NOT_OURS = {501, 505}


def test_bytes_of_any_kind_are_answered_or_the_connection_is_closed(resident, monkeypatch):
    monkeypatch.setattr(server, "HEAD_S", 1.0)
    resident.each(lambda head: exchange(resident.fleet.port, head), fuzz("heads", heads), at_a_time=100)
    monkeypatch.undo()
    resident.assert_unharmed()


async def exchange(port: int, head: bytes) -> None:
    try:
        async with asyncio.timeout(10):
            answer = await answer_to(port, head)
    except TimeoutError:
        raise AssertionError(f"neither answered nor closed: {head!r:.2000}") from None
    told = f"{answer!r:.500} to {head!r:.2000}"
    status = STATUS.match(answer)
    assert status or not answer, told
    if status and int(status[1]) >= 400:
        assert int(status[1]) < 500 or int(status[1]) in NOT_OURS, told
        assert INTERNAL.search(answer.decode("latin-1")) is None, told


async def answer_to(port: int, head: bytes) -> bytes:
    """The first answer's head, and of its body what came with it; empty when the connection was closed."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    answer = b""
    try:
        with contextlib.suppress(ConnectionError):
            writer.write(head)
            while b"\r\n\r\n" not in answer and (more := await reader.read(65_536)):
                answer += more
    finally:
        writer.transport.abort()
    return answer
