"""A session's events on their way to its client, and what was told kept for a while, in case Redis loses it."""

from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

import structlog

from gateway.sessions import Held
from shared import metrics
from shared.clock import wall_ms
from shared.errors import SessionLost
from shared.redis_client import RedisClients, translated
from shared.transcripts import Follower

log = structlog.get_logger()

# More than a fleet says in the seconds that a failover may lose.
_KEPT_EVENTS = 200


# Takes an event's JSON, and the same parsed, to the client.
Tell = Callable[[bytes, dict[str, Any]], Awaitable[None]]


class SessionFailed(Exception):
    """The fleet gave the session up."""


class _Told(NamedTuple):
    number: int
    lasting: int  # how many events so far last: all but partials
    lasts: bool
    raw: bytes


class Relay:
    """Sends events in order, each once, until the last one."""

    def __init__(self, clients: RedisClients, follower: Follower, held: Held) -> None:
        self._clients = clients
        self._follower = follower
        self._session = held.session
        self._heard_all = held.heard_all
        self._lasting = held.lasting
        self._told: deque[_Told] = deque(maxlen=_KEPT_EVENTS)
        self._newest: dict[str, int] = {}  # type -> utterance of the newest such event
        self._doubted = b""

    async def run(self, tell: Tell) -> None:
        """Until `end`. Raises SessionFailed after an `error` event."""
        if self._heard_all:
            return
        async for event in self._follower:
            fields = event.fields
            kind = fields["type"]
            if self._repeats(fields) and event.raw != self._doubted:
                # If it is what the stream holds after all, it comes again, and is told.
                self._doubted = event.raw
                await self.restore()
                continue
            lasts = kind != "partial"
            self._lasting += lasts
            self._told.append(_Told(event.number, self._lasting, lasts, event.raw))
            await tell(event.raw, fields)
            _observe(fields)
            if kind == "error":
                raise SessionFailed
            if kind == "end":
                return

    async def check(self) -> None:
        """See whether Redis still has the event told last, and put it right if not."""
        if not self._told:
            return
        newest = self._told[-1]
        with translated():
            stored = await self._clients.commands.xrange(
                self._clients.keys.events(self._session), f"{newest.number}-0", f"{newest.number}-0"
            )
        if newest is self._told[-1] and (not stored or stored[0][1][b"e"] != newest.raw):
            await self.restore()

    async def restore(self) -> int:
        """Put back the events that Redis lost after the client had them. Raises SessionLost, RedisUnavailable.

        Returns the newest utterance the client has heard of.
        """
        if self._told:
            await self._restore()
        return max(self._newest.values(), default=0)

    async def _restore(self) -> None:
        keys, newest = self._clients.keys, self._told[-1]
        told = [
            part
            for event in self._told
            for part in (event.number, event.lasting, int(event.lasts), event.raw)
        ]
        reply = await self._clients.run(
            "restore",
            [keys.meta(self._session), keys.events(self._session)],
            [keys.channel(self._session), self._clients.ttl_ms, newest.lasting, *told],
        )
        if reply is None:
            raise SessionLost("Redis has lost the session: open a new one")
        log.warning("events_restored", session=self._session, through=newest.number, newest=int(reply))
        self._follower.rewind(self._told[-1].number)

    async def close(self) -> None:
        await self._follower.close()

    def _repeats(self, fields: dict[str, Any]) -> bool:
        """Whether workers tell again what was told before Redis lost it. Utterances of a type only ever grow."""
        if fields["type"] == "partial" or "utterance" not in fields:
            return False
        if fields["utterance"] <= self._newest.get(fields["type"], 0):
            return True
        self._newest[fields["type"]] = fields["utterance"]
        return False


def _observe(fields: dict[str, Any]) -> None:
    metrics.EVENTS.labels(fields["type"]).inc()
    if trace := fields.get("trace"):
        metrics.LATENCY.observe(max(wall_ms() - trace["received_ms"], 0) / 1000)
        metrics.RELAY.observe(max(wall_ms() - trace["committed_ms"], 0) / 1000)
