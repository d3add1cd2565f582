"""A recording through the fleet: what a client sends in one request, as if it were streamed."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Any

from starlette.requests import HTTPConnection

from gateway.call import Call
from gateway.dialects.base import Audio, Dialect
from gateway.gateway import Gateway
from gateway.relay import SessionFailed
from shared.errors import BadInput
from shared.events import EVENT_ADAPTER, TranscriptEvent
from shared.protocol import EndOfAudio, SessionOptions
from shared.tasks import cancel

Told = tuple[int, TranscriptEvent]  # channel, event


async def transcribe(
    gateway: Gateway,
    client: HTTPConnection,
    recording: AsyncIterator[bytes],
    options: SessionOptions,
    *,
    dialect: type[Dialect],
) -> AsyncGenerator[Told, None]:
    """Every channel's events, up to its `end` or an `error`. Raises ScribeError: for a client that is refused, and for bad audio."""
    with gateway.counted():
        visit = await gateway.let_in(client, dialect)
        call = gateway.call(visit)
        told: asyncio.Queue[Told | None] = asyncio.Queue()
        running = asyncio.create_task(_run(call, recording, options, told))
        try:
            while (each := await told.get()) is not None:
                yield each
            await running
        finally:
            await cancel([running])
            await call.finish(comes_back=False)
            await visit.stop(comes_back=False)


async def _run(
    call: Call, recording: AsyncIterator[bytes], options: SessionOptions, told: asyncio.Queue[Told | None]
) -> None:
    async def tell(raw: bytes, fields: dict[str, Any], channel: int) -> None:  # noqa: ARG001
        await told.put((channel, EVENT_ADAPTER.validate_python(fields)))

    try:
        await call.open(options)
        parting = await call.run(tell, _send(call, recording))
        if parting:
            raise parting
    except SessionFailed:
        pass  # its error event was told
    finally:
        told.put_nowait(None)


async def _send(call: Call, recording: AsyncIterator[bytes]) -> None:
    async for piece in recording:
        await call.take(Audio(piece))
    if isinstance(complaint := await call.take(EndOfAudio()), BadInput):
        raise complaint
