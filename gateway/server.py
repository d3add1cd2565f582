"""uvicorn, set up: what may come in before anything of ours sees it.

Limits of the parts, read in uvicorn 0.54: h11 ends a head (request line and headers) that is not complete after
HEAD_BYTES, httptools has no limit at all; a WebSocket's head is parsed once more by websockets, which takes lines up
to 8,192 bytes and 128 headers and fails an assertion in uvicorn otherwise; nobody ends a connection that never
completes its head. So: h11, and the checks below.
"""

import asyncio
from collections.abc import Sequence
from typing import Any

import h11
import uvicorn
from fastapi import FastAPI
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.frames import CloseCode

from shared.settings import GatewaySettings

HEAD_BYTES = 16_384
HEADER_BYTES = 8_000
HEADERS = 64
TARGET_BYTES = 4_096  # path and query
# From connecting to a complete head.
HEAD_S = 10.0


def server_config(app: FastAPI, settings: GatewaySettings) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        host=settings.host,
        port=settings.port,
        http=BoundedProtocol,
        h11_max_incomplete_event_size=HEAD_BYTES,
        ws=Handshakes,
        ws_max_size=settings.frame_bytes,
        # A client that is held back can't answer pings; a silent one ends by the idle time-out.
        ws_ping_interval=None,
        # Compressing events costs a gateway 1.1 % of a core for 100 viewers, and memory for each connection; audio does not deflate.
        ws_per_message_deflate=False,
        log_config=None,
        # Below it uvicorn logs addresses with their query, and websockets logs headers: both may hold secrets.
        log_level="warning",
        access_log=False,
        timeout_graceful_shutdown=1,
        server_header=False,
    )


_NO_HANDSHAKE = (
    b"HTTP/1.1 400 Bad Request\r\nconnection: close\r\ncontent-type: text/plain\r\ncontent-length: 63\r\n\r\n"
    b"no WebSocket handshake: it has a body, or a header is malformed"
)


class BoundedProtocol(H11Protocol):
    """HTTP/1.1 with heads of bounded size that must come in bounded time."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._patience = self.loop.call_later(HEAD_S, self._too_slow)

    def connection_lost(self, exc: Exception | None) -> None:
        self._patience.cancel()
        super().connection_lost(exc)

    def handle_websocket_upgrade(self, event: h11.Request) -> None:
        if status := excess(event.target, self.headers):
            self.send_400_response(f"{status} {REASONS[status]}")
            return
        super().handle_websocket_upgrade(event)

    def send_400_response(self, msg: str) -> None:
        """Without words where uvicorn's would break HTTP: for HEAD, and when the answer has begun."""
        try:
            super().send_400_response(msg)
        except h11.LocalProtocolError:
            self.transport.close()

    def _too_slow(self) -> None:
        # A head that was complete has a cycle, or has handed the connection to the WebSocket protocol.
        if self.cycle is None and self.transport.get_protocol() is self:
            self.transport.close()


class Handshakes(WebSocketsSansIOProtocol):
    """uvicorn 0.54, put right in three places."""

    def data_received(self, data: bytes) -> None:
        """A head that h11 takes and websockets does not, one with a body, would leave the connection open for ever."""
        super().data_received(data)
        if self.conn.handshake_exc and not self.handshake_initiated:
            self.transport.write(_NO_HANDSHAKE)
            self.transport.close()

    async def send(self, message: Any) -> None:
        """An HTTP answer completes a handshake: else each of them is logged as an error."""
        await super().send(message)
        if message["type"] == "websocket.http.response.body" and not message.get("more_body"):
            self.handshake_complete = True

    def send_receive_event_to_app(self) -> None:
        """A text frame that is no UTF-8 is its client's mistake, and no reason to log a traceback."""
        if self.curr_msg_data_type == "text" and not self.close_sent and not _is_utf8(self.frames):
            self.frames = []
            self.conn.send_close(CloseCode.INVALID_DATA)
            self.handle_parser_exception()
            return
        super().send_receive_event_to_app()


def _is_utf8(parts: Sequence[bytes]) -> bool:
    try:
        b"".join(parts).decode()
    except UnicodeDecodeError:
        return False
    return True


class BoundedHeads:
    """ASGI middleware: the same limits for requests that are no WebSockets."""

    def __init__(self, app: Any) -> None:
        self._app = app

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        target = scope.get("raw_path", b"") + b"?" + scope.get("query_string", b"")
        if scope["type"] != "http" or not (status := excess(target, scope["headers"])):
            await self._app(scope, receive, send)
            return
        body = f"{status} {REASONS[status]}".encode()
        headers = [(b"content-type", b"text/plain"), (b"connection", b"close")]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": body})


REASONS = {
    414: f"the path with its query may have {TARGET_BYTES} bytes",
    431: f"a request may have {HEADERS} headers of {HEADER_BYTES} bytes, {HEAD_BYTES} in all",
}


def excess(target: bytes, headers: Sequence[tuple[bytes, bytes]]) -> int:
    """HTTP status for what is too large about a request's head; 0 when it is fine."""
    if len(target) > TARGET_BYTES:
        return 414
    sizes = [len(name) + len(value) + 4 for name, value in headers]
    return (
        431 if len(sizes) > HEADERS or max(sizes, default=0) > HEADER_BYTES or sum(sizes) > HEAD_BYTES else 0
    )
