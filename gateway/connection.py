"""One client's WebSocket: what its dialect makes of messages goes into the call, and of events to the client."""

import asyncio
import contextlib
from collections.abc import Sequence
from typing import Any

import structlog
from starlette.websockets import WebSocket, WebSocketDisconnect, WebSocketState

from gateway.call import Call
from gateway.dialects.base import Begin, Dialect, Farewell, Reply, Said, chosen_subprotocol
from gateway.refusal import CLOSE_GOING_AWAY, note
from gateway.relay import SessionFailed
from gateway.visit import Visit
from shared.errors import BadInput, ScribeError, SessionOver, Silent
from shared.protocol import Advice
from shared.settings import GatewaySettings

log = structlog.get_logger()

# After which a dialect may begin a session for a client that says nothing.
PATIENCE_S = 1.0


class Connection:
    """Serves one WebSocket from accept to close."""

    def __init__(
        self, socket: WebSocket, dialect: Dialect, call: Call, *, settings: GatewaySettings, visit: Visit
    ) -> None:
        self._socket = socket
        self._dialect = dialect
        self._call = call
        self._visit = visit
        self._idle_s = dialect.idle_s or settings.idle_s
        self._sending = asyncio.Lock()
        # About what was said; told already, and shown in the close code.
        self._complaint: ScribeError | None = None
        self.comes_back = False  # the session waits for its client; else it ends with this connection

    async def serve(self) -> None:
        """Until the session is over; whatever goes wrong is told to this client and nobody else."""
        socket, dialect = self._socket, self._dialect
        await socket.accept(chosen_subprotocol(socket, type(dialect)), dialect.headers())
        try:
            await self._talk(await self._begin())
        except WebSocketDisconnect:
            self.comes_back = True
            log.info("client_left", session=self._call.session)
        except SessionFailed:
            # Its error event has told why.
            await self._close(dialect.close(ScribeError("the session failed")))
        except ScribeError as error:
            self.comes_back = error.retryable
            await self._part(error)
        except asyncio.CancelledError:
            self.comes_back = True  # the gateway stops; the client can go on at another
            await self._close(Farewell(CLOSE_GOING_AWAY))
            raise
        except Exception:
            # The top of a connection: a bug of ours costs this session, and the client hears no traceback.
            log.exception("connection_failed", session=self._call.session)
            await self._part(ScribeError("internal error; the session is over"))
        finally:
            self.comes_back &= dialect.resumes
            await self._call.finish(comes_back=self.comes_back)

    async def _begin(self) -> Sequence[Said]:
        """Open the session when the dialect knows which; what the client has said beyond that."""
        said = list(self._dialect.greet())
        patience: float | None = PATIENCE_S
        while True:
            while said:
                if isinstance(first := said.pop(0), Begin):
                    await self._send(self._dialect.ready(await self._call.open(first.request)))
                    return said
                assert isinstance(first, Reply), f"{type(self._dialect).__name__} said {first} before Begin"
                await self._send((first.message,))
            try:
                said += self._dialect.hear(await self._receive(patience))
            except TimeoutError:
                said += self._dialect.impatient()
                patience = None

    async def _talk(self, said: Sequence[Said]) -> None:
        """The session is over when its last event was told."""
        parting = await self._call.run(self._tell, self._listen(said))
        if parting:
            await self._tell_error(parting)
            self._complaint = SessionOver(str(parting))  # it may try again, but not with this session
        await self._close(self._dialect.close(self._complaint))

    async def _listen(self, said: Sequence[Said]) -> None:
        while True:
            for each in said:
                await self._take(each)
            said = self._dialect.hear(await self._receive())

    async def _take(self, said: Said) -> None:
        if isinstance(said, Reply):
            await self._send((said.message,))
            return
        answer = await self._call.take(said)
        if isinstance(answer, BadInput):
            # What the end of the audio had wrong is told at once: what was whole is still decoded.
            self._complaint = answer
            await self._tell_error(answer)
        elif isinstance(answer, Advice):
            await self._send(self._dialect.advise(answer))
        elif answer:
            await self._send(self._dialect.pong(answer))

    async def _receive(self, patience_s: float | None = None) -> str | bytes:
        """The next message; only the wait for it counts as silence, not our own holding back.

        Raises WebSocketDisconnect, Silent, TimeoutError when `patience_s` is over.
        """
        limit = None if self._call.ending else self._idle_s
        try:
            async with asyncio.timeout(patience_s or limit):
                message = await self._socket.receive()
        except TimeoutError as error:
            if patience_s:
                raise
            raise Silent(
                f"nothing was sent for {self._idle_s:g} s: send audio, a ping now and then, or end"
            ) from error
        if message["type"] == "websocket.disconnect":
            raise WebSocketDisconnect(message.get("code", 1006))
        data: str | bytes = message["text"] if message.get("text") is not None else message["bytes"]
        self._visit.take(data)
        return data

    async def _part(self, error: ScribeError) -> None:
        await self._tell_error(error)
        await self._close(self._dialect.close(error))

    async def _tell(self, raw: bytes, fields: dict[str, Any], channel: int) -> None:
        await self._send(self._dialect.tell_raw(raw, fields, channel))

    async def _tell_error(self, error: ScribeError) -> None:
        note(error, self._call.session)
        with contextlib.suppress(WebSocketDisconnect, RuntimeError):
            if self._socket.application_state is WebSocketState.CONNECTED:
                await self._send(self._dialect.refuse(error))

    async def _send(self, messages: Sequence[str]) -> None:
        """In the order in which the dialect made them, whichever task asked."""
        if messages:
            async with self._sending:
                for message in messages:
                    await self._socket.send_text(message)

    async def _close(self, how: Farewell) -> None:
        with contextlib.suppress(RuntimeError):  # the client closed first
            await self._socket.close(how.code, how.reason)
