"""A session outlives its connection: cut off anywhere, taken up at any gateway, the transcript is the same."""

import asyncio
import json
from contextlib import suppress
from typing import Any

import pytest
import websockets

from gateway import registry
from gateway.gateway import Gateway
from gateway.registry import Registry
from gateway.sessions import open_session
from ops.client import StreamClient
from shared.protocol import SessionOptions
from shared.settings import GatewaySettings
from tests.conftest import wait_until
from tests.e2e.conftest import Fleet, gateway_on_a_port, rest, until
from tests.integration.test_workers import bare, expected, talk
from tests.pipeline import lasting

pytestmark = pytest.mark.slow

END = json.dumps({"type": "end"})
AUDIO = talk(3).astype("<i2").tobytes()


@pytest.fixture
def gateway_settings() -> GatewaySettings:
    return GatewaySettings(port=0, drain_s=5, resume_s=20)


def cut(socket: Any) -> None:
    """As when a cable is pulled: no closing handshake."""
    socket.transport.abort()


def resumption(ready: dict, last_event: int) -> str:
    return f"session={ready['session']}&resume_token={ready['resume_token']}&last_event={last_event}"


def told(messages: list[dict]) -> list[dict]:
    return [message for message in messages if "event" in message]


async def first_part(fleet: Fleet, until_byte: int, *, hear: str = "final") -> tuple[dict, list[dict]]:
    """Speak, hear events up to the first of a type, and be cut off."""
    socket = await fleet.connect()
    ready = json.loads(await socket.recv())
    await socket.send(AUDIO[:until_byte])
    heard = await until(socket, hear)
    cut(socket)
    return ready, heard


@pytest.mark.parametrize("where", [70_001, 100_000, 130_000])
async def test_a_session_cut_off_and_resumed_says_what_the_unbroken_one_says(fleet, where):
    ready, heard = await first_part(fleet, where, hear="speech_start")

    async with fleet.connect(resumption(ready, heard[-1]["event"])) as socket:
        again = json.loads(await socket.recv())
        assert (again["resumed"], again["session"]) == (True, ready["session"])
        assert again["next_sample"] <= where // 2
        await socket.send(AUDIO[again["next_sample"] * 2 :])
        await socket.send(END)
        events = told(heard) + told(await rest(socket))

    assert [event["event"] for event in events] == list(range(1, len(events) + 1))
    assert lasting(bare(events)) == expected(3)


async def test_a_session_goes_on_at_another_gateway_when_its_own_is_gone(fleet, clients, gateway_settings):
    ready, heard = await first_part(fleet, 130_000)
    other = Gateway(clients, gateway_settings)
    async with gateway_on_a_port(other, gateway_settings) as port:
        url = f"ws://127.0.0.1:{port}/v1/stream?{resumption(ready, heard[-1]['event'])}"
        async with websockets.connect(url) as socket:
            again = json.loads(await socket.recv())
            await socket.send(AUDIO[again["next_sample"] * 2 :])
            await socket.send(END)
            events = told(heard) + told(await rest(socket))

    assert lasting(bare(events)) == expected(3)
    assert [event["event"] for event in events] == list(range(1, len(events) + 1))


async def test_what_was_missed_comes_first_and_a_session_that_ended_meanwhile_ends(fleet):
    async with fleet.connect() as socket:
        ready = json.loads(await socket.recv())
        await socket.send(AUDIO)
        await socket.send(END)
        everything = told(await rest(socket))

    async with fleet.connect(resumption(ready, 2)) as socket:
        again = json.loads(await socket.recv())
        missed = await rest(socket)
    assert again["ended"]
    assert missed == everything[2:]
    assert socket.close_code == 1000

    async with fleet.connect(resumption(ready, everything[-1]["event"])) as socket:
        assert [message["type"] for message in await rest(socket)] == ["ready"]
    assert socket.close_code == 1000


async def test_the_newest_connection_holds_the_session_and_the_older_one_is_told(fleet):
    async with fleet.connect() as old:
        ready = json.loads(await old.recv())
        await old.send(AUDIO[:100_000])
        async with fleet.connect(resumption(ready, 0)) as new:
            again = json.loads(await new.recv())
            with suppress(websockets.ConnectionClosed):  # it may have heard already
                await old.send(AUDIO[100_000:])
            refused = (await rest(old))[-1]
            assert (refused["type"], refused["code"]) == ("problem", "session_replaced")

            await new.send(AUDIO[again["next_sample"] * 2 :])
            await new.send(END)
            assert lasting(bare(told(await rest(new)))) == expected(3)


async def test_flushes_that_were_taken_are_counted(fleet):
    socket = await fleet.connect()
    ready = json.loads(await socket.recv())
    await socket.send(AUDIO[:60_000])
    await socket.send(json.dumps({"type": "flush", "id": "a"}))
    heard = await until(socket, "flushed")
    cut(socket)

    async with fleet.connect(resumption(ready, heard[-1]["event"])) as again:
        answer = json.loads(await again.recv())
        assert (answer["flushes"], answer["next_sample"]) == (1, 30_000)
        await again.send(END)
        assert [message["type"] for message in await rest(again)] == ["end"]


async def test_a_pong_says_how_much_need_not_be_kept(fleet):
    async with fleet.connect() as socket:
        await until(socket, "ready")
        await socket.send(AUDIO[: 2 * 5120 * 3 + 2])
        await wait_until(lambda: _safe(socket, 5120 * 3))
        await socket.send(END)


async def _safe(socket, sample: int) -> bool:
    await socket.send(json.dumps({"type": "ping"}))
    pong = (await until(socket, "pong"))[-1]
    return pong["sample"] == sample and pong["chunk"] == 3


@pytest.mark.parametrize("wrong", ["token", "session"])
async def test_without_the_token_nobody_learns_whether_a_session_exists(fleet, wrong):
    async with fleet.connect() as socket:
        ready = json.loads(await socket.recv())
        ready |= {"resume_token": "guessed"} if wrong == "token" else {"session": "0" * 32}
        async with fleet.connect(resumption(ready, 0)) as other:
            told_to_other = await rest(other)
        await socket.send(END)

    assert [message["type"] for message in told_to_other] == ["problem"]
    assert told_to_other[0]["message"].startswith("resume: no session with this id and resume token")


@pytest.mark.parametrize(("ahead", "said"), [(5000, "has never been sent"), (2**64, "last_event")])
async def test_events_that_never_were_are_not_waited_for(fleet, ahead, said):
    ready, heard = await first_part(fleet, 130_000)
    async with fleet.connect(resumption(ready, heard[-1]["event"] + ahead)) as socket:
        (problem,) = await rest(socket)

    assert (problem["code"], socket.close_code) == ("bad_input", 1008)
    assert said in problem["message"]


async def test_a_session_can_be_resumed_in_the_first_message(fleet):
    ready, heard = await first_part(fleet, 130_000)
    async with fleet.connect("") as socket:
        ask = {"type": "resume", "session": ready["session"], "resume_token": ready["resume_token"]}
        await socket.send(json.dumps({**ask, "last_event": heard[-1]["event"]}))
        again = json.loads(await socket.recv())
        await socket.send(AUDIO[again["next_sample"] * 2 :])
        await socket.send(END)
        assert lasting(bare(told(heard) + told(await rest(socket)))) == expected(3)


async def test_any_gateway_ends_the_sessions_of_one_that_was_killed(fleet, clients, monkeypatch):
    monkeypatch.setattr(registry, "TICK_S", 0.02)
    ready, heard = await first_part(fleet, 130_000)
    await wait_until(lambda: not fleet.gateway._connections)
    await fleet.gateway._registry.stop()
    keys, session = clients.keys, ready["session"]
    assert await clients.meta_field(session, "status") == b"open"

    survivor = Registry(clients, GatewaySettings(resume_s=20))
    await survivor.start()
    await clients.commands.zadd(keys.open_sessions_of(session), {session: 1})  # its 20 s are over

    await wait_until(lambda: _ended(clients, session))
    await survivor.stop()
    stored = [json.loads(f[b"e"]) for _, f in await clients.commands.xrange(keys.events(session))]
    assert stored[: len(told(heard))] == told(heard)
    assert stored[-1]["audio_ms"] == 130_000 // 32
    assert await clients.commands.zcard(keys.open_sessions_of(session)) == 0


async def test_a_session_that_is_served_is_renewed_however_little_happens(fleet, clients, monkeypatch):
    monkeypatch.setattr(registry, "TICK_S", 0.02)
    async with fleet.connect() as socket:
        ready = json.loads(await socket.recv())
        name = clients.keys.open_sessions_of(ready["session"])
        before = await clients.commands.zscore(name, ready["session"])
        await wait_until(lambda: _later(clients, name, ready["session"], before))
        await socket.send(END)
        await rest(socket)


async def test_a_short_wait_is_renewed_more_often_than_it_lasts(clients):
    held = await open_session(clients, SessionOptions(), wait_s=0.9)
    serving, other = (Registry(clients, GatewaySettings(resume_s=0.9)) for _ in range(2))
    serving.add(held)
    name = clients.keys.open_sessions_of(held.session)
    opened = await clients.commands.zscore(name, held.session)

    async def renewed_for_long() -> bool:
        await other.tick()
        return await _later(clients, name, held.session, opened + 2000)

    await serving.start()
    await wait_until(renewed_for_long)
    await serving.stop()
    assert await clients.meta_field(held.session, "holder") == b"1"


async def _ended(clients, session: str) -> bool:
    return await clients.meta_field(session, "status") == b"ended"


async def _later(clients, name: str, session: str, before: float) -> bool:
    return await clients.commands.zscore(name, session) > before


async def test_two_clients_that_resume_at_once_do_not_spoil_the_session(fleet):
    ready, heard = await first_part(fleet, 130_000)

    async def go_on() -> list[dict]:
        async with fleet.connect(resumption(ready, heard[-1]["event"])) as socket:
            again = json.loads(await socket.recv())
            try:
                await socket.send(AUDIO[again["next_sample"] * 2 :])
                await socket.send(END)
            except websockets.ConnectionClosed:
                pass
            return await rest(socket)

    both = await asyncio.gather(go_on(), go_on())
    whole = [
        lasting(bare(told(heard) + told(messages))) for messages in both if messages[-1]["type"] == "end"
    ]
    assert whole
    assert all(each == expected(3) for each in whole)


async def test_our_client_goes_on_by_itself_however_often_it_is_cut_off(fleet):
    heard, cuts = [], 0
    async with StreamClient(fleet.url) as client:

        async def speak() -> None:
            for at in range(0, len(AUDIO), 8_000):
                await client.send(AUDIO[at : at + 8_000])
            await client.flush("f")
            await client.end()

        speaking = asyncio.create_task(speak())
        async for event in client:
            heard.append(event.model_dump(mode="json", exclude_none=True))
            if event.type in ("final", "speech_start") and cuts < 4:
                cuts += 1
                cut(client.socket)
        await speaking

    assert cuts == 4
    assert [event["event"] for event in heard] == list(range(1, len(heard) + 1))
    flushed = [event for event in heard if event["type"] == "flushed"]
    assert [event["flush_id"] for event in flushed] == ["f"]
    texts = [event["text"] for event in heard if event["type"] == "final"]
    assert texts == [event["text"] for event in expected(3) if event["type"] == "final"]
