"""What one client has with the fleet, whatever it speaks: a session, or one for each channel, from opening to its end."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import structlog

from gateway import session
from gateway.container_stream import ContainerDecoders
from gateway.dialects.base import Said
from gateway.intake import Intake
from gateway.line import Line
from gateway.lines import Lines
from gateway.place import restart_of
from gateway.registry import Registry
from gateway.sessions import Held, channel_sessions, open_session, resume_session
from gateway.visit import Visit
from shared import metrics
from shared.errors import BadInput, QuotaExceeded, RedisUnavailable, Replaced, SessionLost, SessionOver
from shared.protocol import Advice, Pong, Ready, Resume, SessionOptions
from shared.redis_client import RedisClients
from shared.settings import GatewaySettings
from shared.tasks import cancel
from shared.transcripts import TranscriptHub

log = structlog.get_logger()

# How often it is looked whether Redis still has the session as it was left.
CHECK_S = 2.0

# Takes an event's JSON, the same parsed, and its channel, to the client.
TellAll = Callable[[bytes, dict[str, Any], int], Awaitable[None]]


class Call:
    """open ──> run (beside it: take)* ──> finish"""

    def __init__(
        self,
        clients: RedisClients,
        hub: TranscriptHub,
        registry: Registry,
        decoders: ContainerDecoders,
        *,
        settings: GatewaySettings,
        visit: Visit,
    ) -> None:
        self._clients = clients
        self._hub = hub
        self._registry = registry
        self._decoders = decoders
        self._settings = settings
        self._visit = visit
        self._lines: list[Line] = []
        self._intake: Intake | None = None
        self._tasks: list[asyncio.Task[Any]] = []
        self._feeding: list[asyncio.Task[None]] = []
        self._cut = False

    @property
    def session(self) -> str | None:
        return self._lines[0].held.session if self._lines else None

    @property
    def ending(self) -> bool:
        """Whether its end was taken: the client has nothing more to say."""
        return self._intake is not None and self._intake.state is session.State.ENDING

    async def open(self, request: SessionOptions | Resume) -> Ready:
        """Raises BadInput, RedisUnavailable, Overloaded."""
        first = await self._hold(request, self._visit.session, 0)
        await self._visit.holds(first)
        channels = channel_sessions(first.session, first.options.separate)
        _require_numbers_for(request, len(channels))
        for channel, sid in enumerate(channels):
            held = first if channel == 0 else await self._hold(request, sid, channel, first)
            self._registry.add(held)
            follower = await self._hub.follow(held.session, held.last_event)
            self._lines.append(Line(self._clients, held, follower, self._settings))
        self._intake = Intake(Lines(self._lines, self._visit.heard), self._decoders)
        log.info("session_resumed" if first.resumed else "session_opened", session=first.session)
        return self._ready()

    async def run(self, tell: TellAll, beside: Coroutine[Any, Any, None]) -> QuotaExceeded | None:
        """Feed and relay, with `beside` for what the client says, until every channel's last event is told.

        Returns why the session was ended for its client, if it was. Raises SessionFailed, ScribeError, and what `beside` does.
        """
        self._feeding = [self._start(line.run(), "feed") for line in self._lines]
        relays = {
            self._start(line.relay.run(_by_channel(tell, channel)), "relay")
            for channel, line in enumerate(self._lines)
        }
        limit = asyncio.create_task(self._limit(), name=f"limit {self.session}")
        others = {self._start(beside, "read"), self._start(self._watch(), "watch")}
        self._tasks = [*relays, *others, limit]
        assert self._intake is not None
        pending: set[asyncio.Future[Any]] = {*self._feeding, *self._tasks, self._intake.trouble}
        while not relays.isdisjoint(pending):
            done, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                _result(task)
        return limit.result() if limit.done() else None

    async def take(self, said: Said) -> Pong | Advice | BadInput | None:
        """Handle what the client says: Intake.take says how. Nothing, once the session was ended for it."""
        assert self._intake is not None
        if self._cut:
            return None
        answer = await self._intake.take(said)
        if isinstance(answer, Advice):
            metrics.ADVISED.labels(answer.code).inc()
            log.warning(
                "client_advised", session=self.session, **answer.model_dump(exclude={"type", "message"})
            )
        return answer

    async def finish(self, *, comes_back: bool) -> None:
        """What was said before the client left or was refused is decoded; then nothing remains here."""
        for line in self._lines:
            await line.relay.close()
        await cancel(self._tasks)
        if self._intake and self._feeding:
            self._intake.leave(comes_back=comes_back)
            await asyncio.wait(self._feeding, timeout=self._settings.drain_s)
            await cancel(self._feeding)
        if self._intake:
            await self._intake.close()
        for line in self._lines:
            self._registry.remove(line.held)
        log.info("session_closed", session=self.session)
        # A cancelled task's error remembers this call: without them its audio is freed now, not when Python next
        # looks for cycles.
        self._tasks.clear()
        self._feeding.clear()
        self._lines.clear()
        self._intake = None

    async def _hold(
        self, request: SessionOptions | Resume, sid: str, channel: int, first: Held | None = None
    ) -> Held:
        owner, wait_s = self._visit.principal.id, self._settings.resume_s
        if isinstance(request, Resume):
            asked = _of_channel(request, sid if first else request.session, channel)
            return await resume_session(self._clients, asked, wait_s, owner)
        token = first.resume_token if first else None
        return await open_session(self._clients, request, wait_s, sid, owner=owner, resume_token=token)

    def _ready(self) -> Ready:
        """Where the client is to begin, or to go on."""
        held = [line.held for line in self._lines]
        first, options = held[0], held[0].options
        sample, start = restart_of([each.place for each in held], options.sample_rate)
        return Ready(
            session=first.session,
            resume_token=first.resume_token,
            chunk_ms=options.chunk_ms,
            sample_rate=options.sample_rate,
            encoding=options.encoding,
            channels=[each.session for each in held] if options.multichannel else [],
            resumed=first.resumed,
            next_chunk=min(each.fed for each in held) + 1,
            next_sample=sample,
            flushes=start.flushes,
            ended=all(each.over for each in held),
        )

    async def _watch(self) -> None:
        """Notice what a call that neither sends nor hears anything would not."""
        while True:
            await asyncio.sleep(CHECK_S)
            for line in self._lines:
                # A failover takes seconds. The feed, which has something to lose, decides when an outage is too long.
                with contextlib.suppress(RedisUnavailable):
                    await line.check()

    async def _limit(self) -> QuotaExceeded:
        """End the session as its client would, once it may not go on."""
        assert self._intake is not None
        parting = await self._visit.over()
        self._cut = True
        await self._intake.cut()
        return parting

    def _start(self, work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        return asyncio.create_task(work, name=f"{name} {self.session}")


def _of_channel(request: Resume, session: str, channel: int) -> Resume:
    """The part of one channel. Its own number where there are any; without them only the first one's is known."""
    newest = request.channel_events.split(",") if request.channel_events else [str(request.last_event)]
    last = int(newest[channel]) if channel < len(newest) else 0
    return request.model_copy(update={"session": session, "last_event": last})


def _require_numbers_for(request: SessionOptions | Resume, channels: int) -> None:
    """Raise BadInput when a client that comes back names events of other channels than the session has."""
    if isinstance(request, Resume) and request.channel_events:
        named = request.channel_events.count(",") + 1
        if named != channels:
            raise BadInput(
                f"resume: channel_events has {named} number(s) and the session {channels} channel(s): "
                "send one for each, by commas"
            )


def _by_channel(tell: TellAll, channel: int) -> Callable[[bytes, dict[str, Any]], Awaitable[None]]:
    def told(raw: bytes, fields: dict[str, Any]) -> Awaitable[None]:
        return tell(raw, fields, channel)

    return told


def _result(task: asyncio.Future[Any]) -> None:
    """Raise what a task failed with; but a session that the fleet gave up is told by its error event."""
    try:
        task.result()
    except (Replaced, SessionLost):
        raise
    except SessionOver:
        pass
