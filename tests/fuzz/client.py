"""Plays scripts against a gateway, and judges what it answered."""

import asyncio
import contextlib
from dataclasses import replace
from typing import Any

import websockets
from websockets.exceptions import ConnectionClosed, InvalidStatus

from shared.protocol import SERVER_ADAPTER
from tests.e2e.conftest import Fleet, rest, until
from tests.fuzz.scripts import FRAME_BYTES, Script
from tests.fuzz.texts import KEY, SESSION, TOKEN
from tests.fuzz.verdict import assert_told_well

END = '{"type": "end"}'
# Until the last message of any script: many sessions share two cores.
PATIENCE_S = 20
CODES = {1000, 1008}
STATUS = {400, 401, 403, 414, 431}


async def play(fleet: Fleet, secret: str, script: Script) -> None:
    """The script's connection ends in time, and all that it was told is as the protocol says."""
    try:
        async with asyncio.timeout(PATIENCE_S):
            await _play(fleet, secret, script)
    except TimeoutError:
        raise AssertionError(f"stuck after {script!r:.2000}") from None
    except Exception as error:
        raise AssertionError(f"{type(error).__name__}: {error} after {script!r:.2000}") from error


async def _play(fleet: Fleet, secret: str, script: Script) -> None:
    known = {KEY: secret}
    if script.needs_a_session():
        ready = await _left_session(fleet, secret)
        known |= {SESSION: ready["session"], TOKEN: ready["resume_token"]}
    script = _filled_in(script, known)
    try:
        socket = await _connected(fleet, script)
    except InvalidStatus as refusal:
        _judge_refusal(refusal)
        return
    try:
        told = asyncio.create_task(rest(socket))
        await _perform(socket, script)
        _judge(script, await told, socket.close_code)
    finally:
        socket.transport.abort()


def _filled_in(script: Script, known: dict[str, str]) -> Script:
    def fill(text: Any) -> Any:
        for name, value in known.items():
            text = text.replace(name, value) if isinstance(text, str) else text
        return text

    return replace(
        script,
        query=fill(script.query),
        headers=tuple((name, fill(value)) for name, value in script.headers),
        subprotocols=tuple(map(fill, script.subprotocols)),
        messages=tuple(map(fill, script.messages)),
    )


async def _left_session(fleet: Fleet, secret: str) -> dict[str, Any]:
    """The `ready` of a session whose client was cut off in the middle of a word."""
    socket = await _connected(fleet, _filled_in(Script(query="sample_rate=16000"), {KEY: secret}))
    (ready,) = await until(socket, "ready")
    await socket.send(bytes(6_400) + b"\x00\x70\x00\x90" * 3_000)
    socket.transport.abort()
    return ready


async def _connected(fleet: Fleet, script: Script) -> Any:
    return await websockets.connect(
        f"ws://127.0.0.1:{fleet.port}/v1/stream{'?' * bool(script.query)}{script.query}",
        additional_headers=script.headers,
        subprotocols=[websockets.Subprotocol(name) for name in script.subprotocols] or None,
        compression=None,
        proxy=None,
        ping_interval=None,
        close_timeout=2,
        max_queue=None,
    )


async def _perform(socket: Any, script: Script) -> None:
    with contextlib.suppress(ConnectionClosed):  # the server has heard enough
        for message in script.messages:
            await socket.send(message)
        if script.raw:
            socket.transport.write(script.raw)
        if script.ending == "end":
            await socket.send(END)
        elif script.ending == "close":
            await socket.close(script.close_code)
        elif script.ending == "eof":
            socket.transport.write_eof()
        else:
            socket.transport.abort()


def _judge_refusal(refusal: InvalidStatus) -> None:
    answer = refusal.response
    assert answer.status_code in STATUS, f"{answer.status_code} {answer.body!r:.300}"
    if answer.status_code in {401, 403}:
        problem = SERVER_ADAPTER.validate_json(answer.body)
        assert_told_well(problem.message, answer.status_code)


def _judge(script: Script, told: list[dict[str, Any]], code: int) -> None:
    for message in told:
        SERVER_ADAPTER.validate_python(message)
        if message["type"] == "problem":
            assert_told_well(message["message"], message)
            assert message["code"] in {
                "bad_input",
                "session_over",
                "session_replaced",
                "unauthorized",
                "forbidden",
            }, message
        assert message["type"] != "error", message
    events = [message["event"] for message in told if "event" in message]
    assert events == list(range(events[0], events[0] + len(events))) if events else True, events
    if script.ending != "close":  # else the client's own code comes back
        assert code != 1011, f"closed with 1011: {told[-1:]}"
    if script.ending != "end":
        return
    too_large = any(len(message) > FRAME_BYTES for message in script.messages)
    assert code in CODES | ({1009} if too_large else set()), f"closed with {code}: {told[-1:]}"
    if code == 1000:
        assert told[-1]["type"] == "end" or told[-1].get("ended"), f"closed with 1000 after {told[-1]}"
    if code == 1008:
        assert "problem" in {message["type"] for message in told}, "closed with 1008 and no word"
