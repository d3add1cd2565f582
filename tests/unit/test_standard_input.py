"""Standard input is read as it comes in."""

import asyncio
import os

import pytest

from ops.standard_input import StandardInput


@pytest.fixture
def pipe():
    reading, writing = os.pipe()
    yield reading, writing
    os.close(reading)


async def test_pieces_come_as_they_are_written_until_the_end(pipe):
    reading, writing = pipe
    pieces = StandardInput(reading).pieces(idle_s=20)

    os.write(writing, b"one")
    assert await anext(pieces) == b"one"
    os.write(writing, b"two")
    assert await anext(pieces) == b"two"
    os.close(writing)
    assert [piece async for piece in pieces] == []


async def test_a_pipe_that_pauses_is_told_so_that_the_session_can_be_kept(pipe):
    reading, writing = pipe
    pieces = StandardInput(reading).pieces(idle_s=0.01)

    assert await anext(pieces) == b""
    os.close(writing)


async def test_after_an_interruption_what_was_read_counts_and_no_more(pipe):
    reading, writing = pipe
    audio = StandardInput(reading)
    pieces = audio.pieces(idle_s=20)
    os.write(writing, b"one")
    assert await anext(pieces) == b"one"

    audio.end()

    assert [piece async for piece in pieces] == []
    os.close(writing)


async def test_all_of_a_long_input_arrives_though_it_is_read_ahead_only_so_far(pipe, monkeypatch):
    reading, writing = pipe
    monkeypatch.setattr("ops.standard_input._PIECES", 3)
    monkeypatch.setattr("ops.standard_input._READ", 1_000)
    sent = bytes(range(256)) * 200
    audio = StandardInput(reading)
    writer = asyncio.create_task(asyncio.to_thread(_write_all, writing, sent))

    heard = b"".join([piece async for piece in audio.pieces(idle_s=20)])

    await writer
    assert heard == sent


def _write_all(descriptor: int, data: bytes) -> None:
    while data:
        data = data[os.write(descriptor, data) :]
    os.close(descriptor)
