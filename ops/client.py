"""Client of the native WebSocket protocol (docs/protocol.md): audio out, transcript events in."""

import asyncio
import json
from collections.abc import AsyncIterator
from types import TracebackType
from typing import Self
from urllib.parse import urlencode, urlsplit, urlunsplit

from pydantic import BaseModel, ValidationError
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidHandshake, InvalidStatus, InvalidURI

from shared.errors import BadInput, Misconfigured, Overloaded, ScribeError, StageFailed
from shared.events import End, ErrorEvent, TranscriptEvent
from shared.protocol import (
    SERVER_ADAPTER,
    EndOfAudio,
    Flush,
    Pong,
    Problem,
    Ready,
    ServerMessage,
    SessionOptions,
)

_ERRORS: dict[str, type[ScribeError]] = {kind.code: kind for kind in ScribeError.__subclasses__()}
_REFUSALS: dict[int, type[ScribeError]] = {1003: BadInput, 1007: BadInput, 1008: BadInput, 1009: BadInput}
_REFUSALS |= {1001: Overloaded, 1012: Overloaded, 1013: Overloaded}  # going away, restarting, try again later


class StreamClient:
    """One session. Raises the ScribeError that the server names, with its message.

    async with StreamClient(url, SessionOptions()) as client:
        await client.send(pcm); await client.end()
        async for message in client: ...
    """

    def __init__(self, url: str, options: SessionOptions | None = None, *, connect_s: float = 10.0) -> None:
        self.options = options or SessionOptions()
        self.url = stream_url(url, self.options)
        self._connect_s = connect_s
        self._socket: ClientConnection | None = None
        self._ready: Ready | None = None

    @property
    def ready(self) -> Ready:
        assert self._ready is not None, "not connected"
        return self._ready

    @property
    def socket(self) -> ClientConnection:
        assert self._socket is not None, "not connected"
        return self._socket

    async def __aenter__(self) -> Self:
        self._socket = await self._connect()
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
        await self._send(audio)

    async def flush(self, flush_id: str = "") -> None:
        await self._send(Flush(id=flush_id).model_dump_json())

    async def end(self) -> None:
        await self._send(EndOfAudio().model_dump_json())

    async def close(self) -> None:
        if self._socket is not None:
            await self._socket.close()

    async def __aiter__(self) -> AsyncIterator[TranscriptEvent | Pong]:
        """Messages up to and including `end`. Raises after an `error` event, or if the connection closes before."""
        while True:
            message = await self._receive()
            if isinstance(message, Ready):
                continue
            yield message
            if isinstance(message, End):
                return
            if isinstance(message, ErrorEvent):
                raise error_named(message.code, message.message)

    async def _connect(self) -> ClientConnection:
        # The library finds proxies in the environment; nothing on this machine is behind one.
        local = urlsplit(self.url).hostname in {"127.0.0.1", "::1", "localhost"}
        try:
            return await connect(
                self.url,
                proxy=None if local else True,
                compression=None,  # speech samples do not deflate
                ping_interval=None,  # a gateway that holds a socket back does not answer pings either
                open_timeout=self._connect_s,
            )
        except InvalidStatus as error:
            status, body = error.response.status_code, (error.response.body or b"").decode(errors="replace")
            kind = Overloaded if status in {429, 503} else BadInput
            raise kind(
                f"{self.url} refused the connection with HTTP {status}: {body.strip()[:200]}"
            ) from error
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
        try:
            await self.socket.send(data)
        except ConnectionClosed as error:
            raise _closed(error) from error

    async def _receive(self) -> Ready | Pong | TranscriptEvent:
        try:
            message: ServerMessage = SERVER_ADAPTER.validate_json(await self.socket.recv())
        except ConnectionClosed as error:
            raise _closed(error) from error
        except ValidationError as error:
            raise BadInput(f"{self.url} sent a message that protocol version 1 does not have") from error
        if isinstance(message, Problem):
            raise error_named(message.code, message.message)
        return message


def error_named(code: str, message: str) -> ScribeError:
    """Rebuild an error that came over the wire; one of a newer version is a StageFailed."""
    return _ERRORS.get(code, StageFailed)(message)


def stream_url(url: str, options: BaseModel) -> str:
    """Complete a gateway address: http(s) or ws(s), with or without the path."""
    parts = urlsplit(url if "//" in url else f"//{url}")
    scheme = {"": "ws", "http": "ws", "https": "wss"}.get(parts.scheme, parts.scheme)
    path = parts.path if parts.path.strip("/") else "/v1/stream"
    fields = options.model_dump(mode="json")
    query = urlencode({k: v if isinstance(v, str) else json.dumps(v) for k, v in fields.items()})
    return urlunsplit((scheme, parts.netloc, path, query, ""))


def _closed(error: ConnectionClosed) -> ScribeError:
    code, reason = (error.rcvd.code, error.rcvd.reason) if error.rcvd else (1006, "no close frame")
    return _REFUSALS.get(code, StageFailed)(
        f"the gateway closed the session before its end: {reason or code}"
    )
