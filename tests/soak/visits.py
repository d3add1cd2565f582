"""Ways to come and go. Each visit is one session that must end as it says."""

import random
from collections.abc import Awaitable, Callable

from ops.client import StreamClient
from ops.streaming import send_paced
from shared.errors import BadInput
from shared.events import End
from shared.protocol import SessionOptions

RATE = 16_000
Visit = Callable[[str, bytes], Awaitable[None]]


async def speaks(url: str, pcm: bytes) -> None:
    async with StreamClient(url) as client:
        await _say(client, pcm)
        await _hear_all(client, pcm)


async def takes_no_partials(url: str, pcm: bytes) -> None:
    async with StreamClient(url, SessionOptions(partials=False, chunk_ms=160)) as client:
        await _say(client, pcm)
        await _hear_all(client, pcm)


async def telephones(url: str, pcm: bytes) -> None:
    """The same samples as 8 kHz: slow, deep speech, twice as long."""
    pcm = pcm[: len(pcm) // 4 * 2]
    async with StreamClient(url, SessionOptions(sample_rate=8000)) as client:
        await _say(client, pcm)
        await _hear_all(client, pcm)


async def flushes(url: str, pcm: bytes) -> None:
    half = len(pcm) // 4 * 2
    async with StreamClient(url) as client:
        await _say(client, pcm[:half], end=False)
        await client.flush("half")
        await _say(client, pcm[half:])
        await _hear_all(client, pcm)


async def is_silent(url: str, pcm: bytes) -> None:
    await speaks(url, bytes(len(pcm)))


async def is_cut_off_and_comes_back(url: str, pcm: bytes) -> None:
    half = len(pcm) // 4 * 2
    async with StreamClient(url) as client:
        await _say(client, pcm[:half], end=False)
        client.socket.transport.abort()
        await _say(client, pcm[half:])
        await _hear_all(client, pcm)


async def vanishes(url: str, pcm: bytes) -> None:
    async with StreamClient(url) as client:
        await _say(client, pcm, end=False)
        client.socket.transport.abort()


async def sends_nonsense(url: str, pcm: bytes) -> None:
    async with StreamClient(url) as client:
        await client.socket.send("{" + pcm[:500].hex())
        try:
            await _hear_all(client, pcm)
        except BadInput:
            return
    raise AssertionError("nonsense was not refused")


VISITS: tuple[Visit, ...] = (
    speaks,
    takes_no_partials,
    telephones,
    flushes,
    is_silent,
    is_cut_off_and_comes_back,
    vanishes,
    sends_nonsense,
)


def some_of(pcm: bytes, chance: random.Random) -> bytes:
    """A random piece of 3 to 15 s."""
    length = chance.randrange(3 * RATE, 15 * RATE)
    start = chance.randrange(len(pcm) // 2 - length)
    return pcm[2 * start : 2 * (start + length)]


async def _say(client: StreamClient, pcm: bytes, *, end: bool = True) -> None:
    await send_paced(client, pcm, pace=1.0)
    if end:
        await client.end()


async def _hear_all(client: StreamClient, pcm: bytes) -> None:
    """Up to the end, which must have all of it."""
    async for message in client:
        last = message
    assert isinstance(last, End)
    assert abs(last.audio_ms - len(pcm) / 2 / client.options.sample_rate * 1000) <= 1, last
