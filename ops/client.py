"""Client of the native WebSocket protocol (docs/protocol.md): audio out, transcript events in.

A connection that is lost is made again, and the session goes on where it was: what was sent is kept until it is safe.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from types import TracebackType
from typing import Self
from urllib.parse import urlsplit

from pydantic import ValidationError
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidHandshake, InvalidStatus, InvalidURI

from ops.answers import closed, error_named, error_of, stream_url
from ops.kept import MOST_BYTES, Kept
from shared.clock import mono_ms
from shared.errors import BadInput, Misconfigured, Overloaded, RedisUnavailable, ScribeError
from shared.events import End, ErrorEvent, TranscriptEvent
from shared.protocol import (
    SERVER_ADAPTER,
    Advice,
    EndOfAudio,
    Flush,
    Ping,
    Pong,
    Problem,
    Ready,
    Resume,
    SessionOptions,
)

# Asked for after so much audio: what a pong calls safe is not kept any longer.
_ASK_S = 2
# How long a lost connection is tried again: gateways let a session wait for 30 s.
RESUME_S = 30.0
_SAFE = "safe?"
_PAUSE_S = 0.25


class StreamClient:
    """One session. Raises the ScribeError that the server names, with its message.

    async with StreamClient(url, SessionOptions()) as client:
        await client.send(pcm); await client.end()
        async for message in client: ...
    """

    def __init__(
        self,
        url: str,
        options: SessionOptions | None = None,
        *,
        connect_s: float = 10.0,
        key: str | None = None,
        advised: Callable[[Advice], None] = lambda _advice: None,
    ) -> None:
        """`advised`: told what the gateway thinks that we do wrong."""
        self.options = options or SessionOptions()
        self.url = stream_url(url, self.options)
        self._resume_url = url
        self._connect_s = connect_s
        self._headers = {"Authorization": f"Bearer {key}"} if key else {}
        self._socket: ClientConnection | None = None
        self._ready: Ready | None = None
        self._advised = advised
        self._kept = Kept(self.options)
        self._asked_at = 0  # samples kept when it was last asked what is safe
        self._last_events: dict[str, int] = {}  # of each channel's session
        self._over: set[str] = set()  # sessions of channels that have ended
        self._resuming = asyncio.Lock()

    @property
    def ready(self) -> Ready:
        assert self._ready is not None, "not connected"
        return self._ready

    @property
    def _channels(self) -> list[str]:
        return self.ready.channels or [self.ready.session]

    @property
    def socket(self) -> ClientConnection:
        assert self._socket is not None, "not connected"
        return self._socket

    async def __aenter__(self) -> Self:
        self._socket = await self._connect(self.url)
        try:
            self._ready = await self._first_message()
        except BaseException:
            await self.close()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> None:
        await self.close()

    async def send(self, audio: bytes) -> None:
        """Send samples in the announced encoding. Waits while the server holds the socket back."""
        self._kept.audio(audio)
        await self._send(audio)
        if self._kept.samples - self._asked_at > _ASK_S * self.options.sample_rate:
            self._asked_at = self._kept.samples
            await self._send(Ping(id=_SAFE).model_dump_json())

    async def flush(self, flush_id: str = "") -> None:
        message = Flush(id=flush_id)
        self._kept.flush(message)
        await self._send(message.model_dump_json())

    async def ping(self) -> None:
        """Answered by a pong. Whoever has nothing to send for a while must: silent sessions are ended."""
        await self._send(Ping().model_dump_json())

    async def end(self) -> None:
        self._kept.ended = True
        await self._send(EndOfAudio().model_dump_json())

    async def close(self) -> None:
        if self._socket is not None:
            await self._socket.close()

    async def __aiter__(self) -> AsyncIterator[TranscriptEvent | Pong]:
        """Messages up to and including the `end`, with `multichannel` the last one. Raises after an `error` event, or if the connection closes before."""
        while True:
            message = await self._receive()
            if isinstance(message, Ready):
                continue
            if isinstance(message, Pong) and message.id == _SAFE:
                self._kept.safe(message.sample)
                self._asked_at = self._kept.samples
                continue
            if not isinstance(message, Pong):
                self._last_events[message.session] = message.event
            yield message
            if isinstance(message, End):
                self._over.add(message.session)
                if self._over.issuperset(self._channels):
                    return
            if isinstance(message, ErrorEvent):
                raise error_named(message.code, message.message)

    async def _connect(self, url: str) -> ClientConnection:
        # The library finds proxies in the environment; nothing on this machine is behind one.
        local = urlsplit(url).hostname in {"127.0.0.1", "::1", "localhost"}
        try:
            return await connect(
                url,
                additional_headers=self._headers,
                proxy=None if local else True,
                compression=None,  # speech samples do not deflate
                ping_interval=None,  # a gateway that holds a socket back does not answer pings either
                open_timeout=self._connect_s,
            )
        except InvalidStatus as error:
            raise error_of(self.url, error.response.status_code, bytes(error.response.body or b"")) from error
        except InvalidURI as error:
            raise BadInput(
                f"{self.url} is no gateway address: use http://host:port or ws://host:port"
            ) from error
        except (OSError, TimeoutError, InvalidHandshake) as error:
            raise Misconfigured(
                f"no gateway answers at {self.url}: start one with `streamscribe serve`"
            ) from error

    async def _first_message(self) -> Ready:
        try:
            async with asyncio.timeout(self._connect_s):
                first = await self._receive()
        except TimeoutError as error:
            raise Overloaded(
                f"{self.url} took the connection but was not ready in {self._connect_s:g} s"
            ) from error
        if not isinstance(first, Ready):
            raise BadInput(f"{self.url} speaks another protocol: its first message is not `ready`")
        return first

    async def _send(self, data: str | bytes) -> None:
        """Send a message; if the connection is lost, that comes with all the rest that was not safe."""
        socket = self.socket
        try:
            await socket.send(data)
        except ConnectionClosed as error:
            await self._resume(socket, closed(error))

    async def _receive(self) -> Ready | Pong | TranscriptEvent:
        while True:
            socket = self.socket
            try:
                return await self._message(socket)
            except ConnectionClosed as error:
                await self._resume(socket, closed(error))
            except (Overloaded, RedisUnavailable) as error:  # the gateway says that it is for now only
                await self._resume(socket, error)

    async def _resume(self, lost: ClientConnection, why: ScribeError) -> None:
        """Take the session up again on a new connection, unless another task has. Raises `why` when it is for good."""
        if self._ready is None or isinstance(why, BadInput):
            raise why
        if self._kept.lost:
            raise type(why)(
                f"{why}; it can't go on: more than {MOST_BYTES >> 20} MB would have to be sent again"
            ) from why
        async with self._resuming:
            end = mono_ms() + RESUME_S * 1000
            while self._socket is lost:
                try:
                    await self._take_up()
                except (Misconfigured, Overloaded, RedisUnavailable, ConnectionClosed, TimeoutError):
                    if mono_ms() > end:
                        raise why from None
                    await asyncio.sleep(_PAUSE_S)

    async def _take_up(self) -> None:
        heard = [self._last_events.get(session, 0) for session in self._channels]
        request = Resume(
            session=self.ready.session,
            resume_token=self.ready.resume_token,
            last_event=heard[0],
            channel_events=",".join(map(str, heard)) if self.ready.channels else "",
        )
        socket = await self._connect(stream_url(self._resume_url, request))
        async with asyncio.timeout(self._connect_s):
            ready = await self._message(socket)
        if not isinstance(ready, Ready):
            raise BadInput(f"{self.url} answered a resume with {ready.type}, not with ready")
        if not ready.ended:
            for message in self._kept.again(ready.next_sample, ready.flushes):
                await socket.send(message if isinstance(message, bytes) else message.model_dump_json())
            if self._kept.ended:
                await socket.send(EndOfAudio().model_dump_json())
        self._socket = socket

    async def _message(self, socket: ClientConnection) -> Ready | Pong | TranscriptEvent:
        try:
            while isinstance(message := SERVER_ADAPTER.validate_json(await socket.recv()), Advice):
                self._advised(message)
        except ValidationError as error:
            raise BadInput(f"{self.url} sent a message that protocol version 1 does not have") from error
        if isinstance(message, Problem):
            raise error_named(message.code, message.message)
        return message
