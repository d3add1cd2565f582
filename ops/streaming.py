"""A whole session from a client's side: PCM at a chosen pace in, everything that was heard out."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from ops.client import StreamClient
from shared.clock import wall_ms
from shared.errors import StageFailed
from shared.events import Final, TranscriptEvent
from shared.protocol import Pong, SessionOptions

FRAME_MS = 80  # audio per WebSocket message: callers send 20 to 100 ms


@dataclass(slots=True)
class Heard:
    """A transcript event and when it reached us (Unix milliseconds)."""

    event: TranscriptEvent
    arrived_ms: float


@dataclass(slots=True)
class Recording:
    """What a whole session gave."""

    session: str
    heard: list[Heard] = field(default_factory=list)
    end_sent_ms: float = 0.0

    @property
    def finals(self) -> list[Final]:
        return [h.event for h in self.heard if isinstance(h.event, Final) and h.event.text]

    @property
    def text(self) -> str:
        return " ".join(final.text for final in self.finals)


async def send_paced(
    client: StreamClient, pcm: bytes, *, pace: float, on_sent: Callable[[int], None] = lambda _size: None
) -> None:
    """Send s16le samples in frames of 80 ms.

    With pace 1 each frame leaves when its last sample would have been recorded, on a schedule from one start:
    a late frame does not delay the following ones. Pace 2 is twice as fast, 0 as fast as the server reads.
    """
    frame = client.options.sample_rate * client.options.channels * 2 * FRAME_MS // 1000
    loop = asyncio.get_running_loop()
    start = loop.time()
    for n, at in enumerate(range(0, len(pcm), frame), start=1):
        if pace:
            await asyncio.sleep(start + n * FRAME_MS / 1000 / pace - loop.time())
        piece = pcm[at : at + frame]
        await client.send(piece)
        on_sent(len(piece))


async def stream_pcm(
    url: str,
    pcm: bytes,
    *,
    options: SessionOptions | None = None,
    key: str | None = None,
    pace: float = 0.0,
    stalled_s: float = 60.0,
    on_event: Callable[[Heard], None] = lambda _heard: None,
    on_sent: Callable[[int], None] = lambda _size: None,
) -> Recording:
    """One session from its first sample to its `end` event.

    Raises the server's ScribeError, or StageFailed when for `stalled_s` seconds nothing moves either way.
    """
    async with StreamClient(url, options, key=key) as client:
        recording = Recording(client.ready.session)

        def heard(new: Heard) -> None:
            recording.heard.append(new)
            on_event(new)

        async def send(moved: Callable[[int], None]) -> None:
            def sent(size: int) -> None:
                moved(size)
                on_sent(size)

            await send_paced(client, pcm, pace=pace, on_sent=sent)
            await client.end()
            recording.end_sent_ms = wall_ms()

        await converse(client, send, stalled_s=stalled_s, on_event=heard)
    return recording


async def converse(
    client: StreamClient,
    send: Callable[[Callable[[int], None]], Awaitable[None]],
    *,
    stalled_s: float = 60.0,
    on_event: Callable[[Heard], None],
) -> None:
    """Listen to a connected session's end while `send` speaks, which tells what it is given the size of each message.

    Raises as stream_pcm does, and what `on_event` raises.
    """
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(stalled_s) as stall:
            sender = asyncio.ensure_future(send(lambda _size: stall.reschedule(loop.time() + stalled_s)))
            try:
                async for message in client:
                    stall.reschedule(loop.time() + stalled_s)
                    if not isinstance(message, Pong):
                        on_event(Heard(message, wall_ms()))
            finally:
                sender.cancel()
                # The reader has seen the same closed connection, with its reason.
                await asyncio.gather(sender, return_exceptions=True)
    except TimeoutError as error:
        raise StageFailed(f"the fleet did nothing for {stalled_s:g} s: see `streamscribe doctor`") from error
