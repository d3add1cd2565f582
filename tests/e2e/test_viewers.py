"""Reading a session along by the WebSocket that takes nothing. (Server-sent events: test_stream.py, test_door.py)"""

import asyncio
import json
from contextlib import suppress
from typing import Any

import httpx
import pytest
import websockets

from ops.keys import FileStore
from shared.access import Key, new_secret
from shared.settings import AuthSettings
from tests.conftest import wait_until
from tests.e2e.conftest import rest, until
from tests.e2e.test_stream import END, talk


def watch(fleet: Any, session: str, query: str = "", **options: Any) -> websockets.connect:
    return websockets.connect(f"ws://127.0.0.1:{fleet.port}/v1/sessions/{session}/stream{query}", **options)


@pytest.fixture
async def over(fleet) -> tuple[str, list[dict[str, Any]]]:
    """A session that has ended, and its events."""
    async with fleet.connect() as socket:
        (ready,) = await until(socket, "ready")
        await socket.send(talk().tobytes())
        await socket.send(END)
        return ready["session"], await rest(socket)


async def refusal(fleet: Any, session: str, query: str = "", **options: Any) -> tuple[int, dict[str, Any]]:
    with pytest.raises(websockets.InvalidStatus) as refused:
        async with watch(fleet, session, query, **options):
            pass
    return refused.value.response.status_code, json.loads(refused.value.response.body)


@pytest.mark.parametrize("after", [0, 3])
async def test_a_session_that_is_over_is_replayed_from_any_event_and_the_socket_closed(fleet, over, after):
    session, events = over
    async with watch(fleet, session, f"?after={after}") as viewer:
        seen = await rest(viewer)

    assert seen == events[after:]
    assert viewer.close_code == 1000


async def test_a_viewer_that_has_the_last_event_is_told_so_by_the_close(fleet, over):
    session, events = over
    async with watch(fleet, session, f"?after={events[-1]['event']}") as viewer:
        assert await rest(viewer) == []
    assert viewer.close_code == 1000


async def test_viewers_that_come_at_any_time_all_see_every_event_once_and_in_order(fleet):
    async with fleet.connect() as socket:
        (ready,) = await until(socket, "ready")
        early = [await watch(fleet, ready["session"]) for _ in range(20)]
        await socket.send(talk().tobytes())
        heard = await until(socket, "final")
        late = [await watch(fleet, ready["session"]) for _ in range(20)]
        await socket.send(END)
        heard += await rest(socket)
    seen = await asyncio.gather(*(rest(viewer) for viewer in [*early, *late]))

    assert all(each == heard for each in seen)


async def test_a_viewer_that_reads_nothing_holds_up_nobody(fleet):
    async with fleet.connect() as socket:
        (ready,) = await until(socket, "ready")
        async with (
            watch(fleet, ready["session"], max_queue=1, close_timeout=0.2),
            watch(fleet, ready["session"]) as good,
        ):
            await socket.send(talk().tobytes())
            await socket.send(END)
            heard = await rest(socket)
            assert await rest(good) == heard


@pytest.mark.parametrize("said", ["hello", b"\0\0" * 160])
async def test_a_viewer_that_says_something_is_told_where_it_belongs_and_the_speaker_hears_nothing(
    fleet, said
):
    async with fleet.connect() as socket:
        (ready,) = await until(socket, "ready")
        async with watch(fleet, ready["session"]) as viewer:
            await viewer.send(said)
            (problem,) = await rest(viewer)
        await socket.send(END)
        assert [message["type"] for message in await rest(socket)] == ["end"]

    assert problem["code"] == "bad_input"
    assert "/v1/stream" in problem["message"]
    assert viewer.close_code == 1008


async def test_viewers_leave_nothing_behind(fleet):
    async with fleet.connect() as socket:
        (ready,) = await until(socket, "ready")
        for _ in range(3):
            async with watch(fleet, ready["session"]):
                pass
        hub = fleet.gateway._hub
        await wait_until(lambda: _only_the_speaker(hub, ready["session"]))


async def _only_the_speaker(hub: Any, session: str) -> bool:
    return len(hub._followers[session]) == 1


async def test_a_gateway_that_stops_sends_its_viewers_away_without_waiting_for_them(fleet):
    socket = await fleet.connect()
    (ready,) = await until(socket, "ready")
    viewer = await watch(fleet, ready["session"])
    stopping = asyncio.create_task(fleet.gateway.stop(0.2))
    with suppress(websockets.ConnectionClosed):
        await viewer.recv()
    await stopping

    assert viewer.close_code == 1001


@pytest.mark.parametrize("after", ["-1", "x", "1.5", str(2**64)])
async def test_a_number_that_is_none_is_refused_with_what_would_be_right(fleet, over, after):
    status, problem = await refusal(fleet, over[0], f"?after={after}")

    assert status == 400
    assert "after: the number of the last event" in problem["message"]


@pytest.mark.parametrize("session", ["nobody", "0" * 32])
async def test_a_session_that_is_not_there_is_refused(fleet, session):
    status, problem = await refusal(fleet, session)

    assert (status, problem["code"]) == (404, "no_session")


async def test_server_sent_events_begin_after_a_number_in_the_address_and_the_header_counts_when_it_is_later(
    fleet, over
):
    session, events = over
    url = f"{fleet.url}/v1/sessions/{session}/events"
    async with httpx.AsyncClient() as http:
        later = (await http.get(url, params={"after": 2})).text
        again = (await http.get(url, params={"after": 2}, headers={"Last-Event-ID": "4"})).text

    def numbers(page: str) -> list[int]:
        return [int(line[4:]) for line in page.splitlines() if line.startswith("id: ")]

    every = [event["event"] for event in events]
    assert numbers(later) == every[2:]
    assert numbers(again) == every[4:]


class TestWithKeys:
    KEY_ID, SECRET = new_secret()

    @pytest.fixture
    def auth_settings(self, tmp_path):
        store = FileStore(tmp_path / "keys.toml")
        store.write(self.KEY_ID, Key.new(self.SECRET, name="acme", scopes=["transcribe"]))
        self.ears_id, self.ears = new_secret()
        store.write(self.ears_id, Key.new(self.ears, name="ears", scopes=["listen"]))
        self.other_id, self.other = new_secret()
        store.write(self.other_id, Key.new(self.other, name="other", scopes=["transcribe"]))
        return AuthSettings(keys_file=tmp_path / "keys.toml")

    async def test_a_session_is_shown_to_its_owner_and_to_listeners_and_to_nobody_else(self, fleet):
        def bearer(secret: str) -> dict[str, Any]:
            return {"additional_headers": {"Authorization": f"Bearer {secret}"}}

        async with fleet.connect(**bearer(self.SECRET)) as socket:
            (ready,) = await until(socket, "ready")
            await socket.send(END)
            events = await rest(socket)
        session = ready["session"]
        for ways in (
            bearer(self.SECRET),
            bearer(self.ears),
            {"subprotocols": ["streamscribe.v1", f"bearer.{self.ears}"]},
        ):
            async with watch(fleet, session, **ways) as viewer:
                assert await rest(viewer) == events
        async with watch(fleet, session, f"?token={self.ears}") as viewer:
            assert await rest(viewer) == events

        assert (await refusal(fleet, session))[0] == 401
        assert (await refusal(fleet, session, **bearer(self.other)))[0] == 404
        async with watch(fleet, session, origin="https://evil.example", **bearer(self.ears)) as page:
            (problem,) = await rest(page)
        assert (problem["code"], page.close_code) == ("forbidden", 1008)
