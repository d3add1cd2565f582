"""One client connection: socket in, chunks out; events in, socket out."""

import asyncio
import contextlib
import json
from collections.abc import Coroutine, MutableMapping
from typing import Any

import structlog
from starlette.websockets import WebSocket, WebSocketDisconnect, WebSocketState

from gateway import session
from gateway.audio import AudioDecoder
from gateway.door import chosen_subprotocol
from gateway.feed import SAMPLE_RATE, Feed
from gateway.ingest import Ingest, Opened, open_session
from gateway.messages import control_of, options_of
from gateway.refusal import CLOSE_BAD_INPUT, CLOSE_INTERNAL, close_code_of, note, problem_of
from gateway.ring import RingBuffer
from shared import metrics
from shared.access import Principal
from shared.clock import wall_ms
from shared.errors import BadInput, ScribeError, SessionOver
from shared.protocol import Configure, EndOfAudio, Flush, Ping, Pong, Ready, SessionOptions
from shared.redis_client import RedisClients
from shared.settings import GatewaySettings
from shared.transcripts import Follower, Numbered, TranscriptHub

log = structlog.get_logger()

# A client that gave no query and says nothing is taken to want the defaults.
CONFIGURE_S = 1.0

CLOSE_OK, CLOSE_GOING_AWAY = 1000, 1001


class _SessionFailed(Exception):
    """The fleet gave the session up."""


class Connection:
    """Serves one WebSocket from accept to close."""

    def __init__(
        self,
        socket: WebSocket,
        clients: RedisClients,
        hub: TranscriptHub,
        settings: GatewaySettings,
        principal: Principal,
    ) -> None:
        self._principal = principal
        self._socket = socket
        self._clients = clients
        self._hub = hub
        self._settings = settings
        self._state = session.State.CONFIGURING
        self._options = SessionOptions()
        self._decoder: AudioDecoder | None = None
        self._feed: Feed | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._feeding: asyncio.Task[None] | None = None
        self._opened: Opened | None = None
        self._close_code = CLOSE_OK
        self._follower: Follower | None = None

    async def serve(self) -> None:
        """Until the session is over; whatever goes wrong is told to this client and nobody else."""
        await self._socket.accept(subprotocol=chosen_subprotocol(self._socket))
        try:
            await self._configure()
            await self._run()
        except WebSocketDisconnect:
            log.info("client_left", session=self._session)
        except _SessionFailed:
            await self._close(CLOSE_INTERNAL)  # its error event has told the client why
        except ScribeError as error:
            await self._refuse(error)
        except asyncio.CancelledError:
            await self._close(
                CLOSE_GOING_AWAY
            )  # the gateway stops; the rest is decoded and can be read later
            raise
        except Exception:
            # The top of a connection: a bug of ours costs this session, and the client hears no traceback.
            log.exception("connection_failed", session=self._session)
            await self._refuse(ScribeError("internal error; the session is over"))
        finally:
            await self._finish()

    async def _configure(self) -> None:
        """Options from the query, or from the first message; then the session exists."""
        query = dict(self._socket.query_params)
        first: MutableMapping[str, Any] | None = None
        if query:
            self._options = options_of(query)
            self._state = session.State.STREAMING
        else:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(CONFIGURE_S):
                    first = await self._socket.receive()
            if first and first["type"] == "websocket.disconnect":
                raise WebSocketDisconnect(first.get("code", 1006))
            if first and first.get("text") is not None:
                message = control_of(first["text"])
                if isinstance(message, Configure):
                    self._options = SessionOptions(**message.model_dump(exclude={"type"}))
                    first = None
        await self._open()
        if first:
            await self._handle(first)

    async def _open(self) -> None:
        options = self._options
        self._opened = await open_session(self._clients, options, self._principal.id)
        ring = RingBuffer(int(self._settings.ring_s * SAMPLE_RATE) * 2, options.when_full)
        ingest = Ingest(self._clients, self._opened.session)
        self._decoder = AudioDecoder(options)
        self._feed = Feed(
            ring, ingest, SAMPLE_RATE * options.chunk_ms // 1000 * 2, self._settings.backlog_chunks
        )
        self._state = session.State.STREAMING
        ready = Ready(
            session=self._opened.session,
            resume_token=self._opened.resume_token,
            chunk_ms=options.chunk_ms,
            sample_rate=options.sample_rate,
            encoding=options.encoding,
        )
        self._follower = await self._hub.follow(self._opened.session)
        await self._socket.send_text(ready.model_dump_json())
        log.info("session_opened", session=self._session, encoding=options.encoding, rate=options.sample_rate)

    async def _run(self) -> None:
        """Read, feed and relay side by side; the session is over when the relay has sent the last event."""
        assert self._feed is not None
        relay = self._start(self._relay(), "relay")
        self._feeding = asyncio.create_task(self._feed.run(), name=f"feed {self._session}")
        pending = {relay, self._feeding, self._start(self._read(), "read")}
        while relay in pending:
            done, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                with contextlib.suppress(
                    SessionOver
                ):  # the fleet gave it up; the relay brings the error event
                    task.result()
        await self._close(self._close_code)

    async def _read(self) -> None:
        """Read until the client leaves or falls silent; only the wait for it counts, not our own holding back."""
        while True:
            try:
                over = self._state is session.State.ENDING
                async with asyncio.timeout(None if over else self._settings.idle_s):
                    message = await self._socket.receive()
            except TimeoutError as error:
                raise BadInput(
                    f"nothing was sent for {self._settings.idle_s:g} s: send audio, a ping now and then, or end"
                ) from error
            if message["type"] == "websocket.disconnect":
                raise WebSocketDisconnect(message.get("code", 1006))
            await self._handle(message)

    async def _handle(self, message: MutableMapping[str, Any]) -> None:
        assert self._decoder is not None
        assert self._feed is not None
        if message.get("bytes") is not None:
            self._state = session.after(self._state, "audio")
            await self._feed.write(self._decoder.feed(message["bytes"]))
            return
        control = control_of(message["text"])
        self._state = session.after(self._state, control.type)
        if isinstance(control, Ping):
            await self._socket.send_text(Pong(id=control.id).model_dump_json())
        elif isinstance(control, Flush):
            await self._feed.write(self._decoder.finish())
            self._feed.mark("flush", control.id.encode())
        elif isinstance(control, EndOfAudio):
            await self._end()

    async def _end(self) -> None:
        assert self._decoder is not None
        assert self._feed is not None
        await self._feed.write(self._decoder.finish())
        self._feed.mark("end")
        try:
            self._decoder.require_whole()
        except BadInput as error:  # told at once, but what was whole is still decoded
            self._close_code = CLOSE_BAD_INPUT
            await self._tell(error)

    async def _relay(self) -> None:
        """Send events in order until the last one."""
        assert self._follower is not None
        async for event in self._follower:
            await self._socket.send_text(event.raw.decode())
            kind = _observe(event)
            if kind == "error":
                raise _SessionFailed
            if kind == "end":
                return

    async def _refuse(self, error: ScribeError) -> None:
        await self._tell(error)
        await self._close(close_code_of(error))

    async def _tell(self, error: ScribeError) -> None:
        note(error, self._session)
        with contextlib.suppress(WebSocketDisconnect, RuntimeError):
            if self._socket.application_state is WebSocketState.CONNECTED:
                await self._socket.send_text(problem_of(error).model_dump_json())

    async def _close(self, code: int) -> None:
        with contextlib.suppress(RuntimeError):  # the client closed first
            await self._socket.close(code)

    async def _finish(self) -> None:
        """What was said before the client left or was refused is decoded to its end; then nothing remains."""
        if self._follower:
            await self._follower.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._feed and self._feeding:
            if self._state is not session.State.ENDING:
                self._feed.mark("end")
            await asyncio.wait([self._feeding], timeout=self._settings.drain_s)
            self._feeding.cancel()
        log.info("session_closed", session=self._session)

    @property
    def _session(self) -> str | None:
        return self._opened.session if self._opened else None

    def _start(self, work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        task = asyncio.create_task(work, name=f"{name} {self._session}")
        self._tasks.append(task)
        return task


def _observe(event: Numbered) -> str:
    fields = json.loads(event.raw)
    kind: str = fields["type"]
    metrics.EVENTS.labels(kind).inc()
    if trace := fields.get("trace"):
        metrics.LATENCY.observe(max(wall_ms() - trace["received_ms"], 0) / 1000)
        metrics.RELAY.observe(max(wall_ms() - trace["committed_ms"], 0) / 1000)
    return kind
