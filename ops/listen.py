"""`streamscribe listen`: a session's captions from its transcript channel, as any subscriber would get them."""

import asyncio

from rich.console import Console

from ops.answers import error_named
from ops.captions import Captions
from ops.read_along import events_from
from shared.errors import BadInput, Misconfigured
from shared.events import End, ErrorEvent, parse_event
from shared.redis_client import RedisClients, connect
from shared.settings import RedisSettings
from shared.transcripts import TranscriptHub


def listen(
    session: str, settings: RedisSettings, *, partials: bool | None, console: Console | None = None
) -> None:
    """Show everything the session has said and says, until its `end`. Raises BadInput without such a session, and its own error."""
    if not settings.url:
        raise Misconfigured(
            "listening needs the fleet's Redis: give its address with --redis-url or SCRIBE_REDIS_URL"
        )
    asyncio.run(_listen(session, settings, Captions(console, partials=partials)))


def listen_at(url: str, session: str, key: str | None, *, partials: bool | None) -> None:
    """The same from a gateway, with its owner's key or one of scope `listen`. Raises what the gateway answers."""
    with Captions(None, partials=partials) as captions:
        for event in events_from(url, session, key):
            captions.show(event)
            if isinstance(event, ErrorEvent):
                raise error_named(event.code, event.message)


async def _listen(session: str, settings: RedisSettings, captions: Captions) -> None:
    clients = await connect(settings)
    try:
        await _follow(session, clients, captions)
    finally:
        await clients.stop()


async def _follow(session: str, clients: RedisClients, captions: Captions) -> None:
    if await clients.meta_field(session, "options") is None:
        raise BadInput(
            f"no session {session!r} in this Redis: its id is in the `ready` message; sessions are forgotten "
            f"{clients.settings.session_ttl_s} s after their last event"
        )
    hub = TranscriptHub(clients)
    await hub.start()
    try:
        with captions:
            async for numbered in await hub.follow(session):
                event = parse_event(numbered.raw)
                captions.show(event)
                if isinstance(event, ErrorEvent):
                    raise error_named(event.code, event.message)
                if isinstance(event, End):
                    return
    finally:
        await hub.stop()
