"""One client connection: socket in, chunks out; events in, socket out."""

import asyncio
import contextlib
from collections.abc import Coroutine
from typing import Any

import structlog
from starlette.websockets import WebSocket, WebSocketDisconnect, WebSocketState

from gateway import session
from gateway.door import chosen_subprotocol
from gateway.handshake import Message, ready, request_from, session_for
from gateway.intake import Intake
from gateway.refusal import CLOSE_BAD_INPUT, CLOSE_INTERNAL, close_code_of, note, problem_of
from gateway.registry import Registry
from gateway.relay import Relay, SessionFailed
from gateway.sessions import Held
from gateway.visit import Visit
from shared.errors import BadInput, RedisUnavailable, Replaced, ScribeError, SessionLost, SessionOver
from shared.redis_client import RedisClients
from shared.settings import GatewaySettings
from shared.tasks import cancel
from shared.transcripts import TranscriptHub

log = structlog.get_logger()

CLOSE_OK, CLOSE_GOING_AWAY = 1000, 1001

# How often a connection sees whether Redis still has its session as it left it.
CHECK_S = 2.0


class Connection:
    """Serves one WebSocket from accept to close."""

    def __init__(
        self,
        socket: WebSocket,
        clients: RedisClients,
        hub: TranscriptHub,
        registry: Registry,
        *,
        settings: GatewaySettings,
        visit: Visit,
    ) -> None:
        self._socket = socket
        self._clients = clients
        self._hub = hub
        self._registry = registry
        self._settings = settings
        self._visit = visit
        self._held: Held | None = None
        self._intake: Intake | None = None
        self._relay: Relay | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._feeding: asyncio.Task[None] | None = None
        self._close_code = CLOSE_OK
        self.comes_back = False  # the session waits for its client; else it ends with this connection
        self._parting: ScribeError | None = None  # why the session may not go on; told when all is decoded

    async def serve(self) -> None:
        """Until the session is over; whatever goes wrong is told to this client and nobody else."""
        await self._socket.accept(subprotocol=chosen_subprotocol(self._socket))
        try:
            await self._run(await self._open())
        except WebSocketDisconnect:
            self.comes_back = True
            log.info("client_left", session=self._session)
        except SessionFailed:
            await self._close(CLOSE_INTERNAL)  # its error event has told the client why
        except ScribeError as error:
            self.comes_back = error.retryable
            await self._refuse(error)
        except asyncio.CancelledError:
            self.comes_back = True  # the gateway stops; the client can go on at another
            await self._close(CLOSE_GOING_AWAY)
            raise
        except Exception:
            # The top of a connection: a bug of ours costs this session, and the client hears no traceback.
            log.exception("connection_failed", session=self._session)
            await self._refuse(ScribeError("internal error; the session is over"))
        finally:
            await self._finish()

    async def _open(self) -> Message | None:
        """The session, ready for audio; and the first message where it belongs to that."""
        request, first = await request_from(self._socket)
        held = self._held = await session_for(
            self._clients, request, self._settings.resume_s, self._visit.session, self._visit.principal.id
        )
        await self._visit.holds(held)
        self._registry.add(held)
        self._relay = Relay(self._clients, await self._hub.follow(held.session, held.last_event), held)
        self._intake = Intake(self._clients, held, self._settings, self._relay.restore)
        await self._socket.send_text(ready(held).model_dump_json())
        log.info("session_resumed" if held.resumed else "session_opened", session=held.session)
        return first

    async def _run(self, first: Message | None) -> None:
        """Read, feed and relay side by side; the session is over when the relay has sent the last event."""
        assert self._intake is not None
        assert self._relay is not None
        relay = self._start(self._relay.run(self._socket), "relay")
        self._feeding = asyncio.create_task(self._intake.feed(), name=f"feed {self._session}")
        pending = {
            relay,
            self._feeding,
            self._start(self._read(first), "read"),
            self._start(self._watch(), "watch"),
            self._start(self._limit(), "limit"),
        }
        while relay in pending:
            done, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                _result(task)
        if self._parting:
            await self._tell(self._parting)
        await self._close(self._close_code)

    async def _read(self, message: Message | None) -> None:
        """Read until the client leaves or falls silent; only the wait for it counts, not our own holding back."""
        assert self._intake is not None
        while True:
            if message:
                if message["type"] == "websocket.disconnect":
                    raise WebSocketDisconnect(message.get("code", 1006))
                self._visit.take(message)
                if not self._parting and (answer := await self._intake.take(message)):
                    await self._answer(answer)
            try:
                over = self._intake.state is session.State.ENDING
                async with asyncio.timeout(None if over else self._settings.idle_s):
                    message = await self._socket.receive()
            except TimeoutError as error:
                raise BadInput(
                    f"nothing was sent for {self._settings.idle_s:g} s: send audio, a ping now and then, or end"
                ) from error

    async def _answer(self, answer: BadInput | Any) -> None:
        """Tell at once what the end of the audio had wrong: what was whole is still decoded."""
        if isinstance(answer, BadInput):
            self._close_code = CLOSE_BAD_INPUT
            await self._tell(answer)
        else:
            await self._socket.send_text(answer.model_dump_json())

    async def _watch(self) -> None:
        """Notice what a connection that neither sends nor hears anything would not."""
        assert self._intake is not None
        assert self._relay is not None
        while True:
            await asyncio.sleep(CHECK_S)
            # A failover takes seconds. The feed, which has something to lose, decides when an outage is too long.
            with contextlib.suppress(RedisUnavailable):
                await self._intake.check()
                await self._relay.check()

    async def _limit(self) -> None:
        """End the session as its client would, once it may not go on."""
        assert self._intake is not None
        self._parting, self._close_code = await self._visit.over(), CLOSE_BAD_INPUT
        await self._intake.cut()

    async def _refuse(self, error: ScribeError) -> None:
        await self._tell(error)
        await self._close(close_code_of(error))

    async def _tell(self, error: ScribeError) -> None:
        note(error, self._session)
        with contextlib.suppress(WebSocketDisconnect, RuntimeError):
            if self._socket.application_state is WebSocketState.CONNECTED:
                await self._socket.send_text(problem_of(error).model_dump_json(exclude_none=True))

    async def _close(self, code: int) -> None:
        with contextlib.suppress(RuntimeError):  # the client closed first
            await self._socket.close(code)

    async def _finish(self) -> None:
        """What was said before the client left or was refused is decoded; then nothing remains here."""
        if self._relay:
            await self._relay.close()
        await cancel(self._tasks)
        if self._intake and self._feeding:
            self._intake.leave(comes_back=self.comes_back)
            await asyncio.wait([self._feeding], timeout=self._settings.drain_s)
            await cancel([self._feeding])
        if self._held:
            self._registry.remove(self._held)
        log.info("session_closed", session=self._session)
        # A cancelled task's error remembers this connection: without them its audio is freed now, not when Python next
        # looks for cycles.
        self._tasks.clear()
        self._relay = self._intake = self._feeding = None

    @property
    def _session(self) -> str | None:
        return self._held.session if self._held else None

    def _start(self, work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        task = asyncio.create_task(work, name=f"{name} {self._session}")
        self._tasks.append(task)
        return task


def _result(task: asyncio.Task[None]) -> None:
    """Raise what a task failed with; but a session that the fleet gave up is told by its error event."""
    try:
        task.result()
    except (Replaced, SessionLost):
        raise
    except SessionOver:
        pass
