"""Admission and quotas: who is told to come back later, and that running sessions do not notice."""

import asyncio
import json

import httpx
import pytest
import websockets

from gateway import admission, quota, visit
from gateway.admission import Admission
from gateway.gateway import Gateway
from shared.access import Key, new_secret
from shared.clock import wall_ms
from shared.errors import Overloaded
from shared.redis_client import GROUP
from shared.settings import GatewaySettings, LimitSettings
from tests.conftest import wait_until
from tests.e2e.conftest import gateway_on_a_port, rest, until
from tests.e2e.test_door import bearer, refused
from tests.e2e.test_stream import END, expected_texts, problem, talk, texts

pytestmark = pytest.mark.slow

SECOND = bytes(32_000)


async def looks(fleet) -> None:
    for _ in range(admission.LOOKS):
        await fleet.gateway.admission.look()


async def waiting_since(fleet, seconds: float, stage: str = "acoustic") -> tuple[str, bytes]:
    """A token that nobody has taken for so long."""
    ready = fleet.clients.keys.ready(1, stage)
    token = await fleet.clients.commands.xadd(
        ready, {"s": "x", "t": 0}, id=f"{int(wall_ms() - seconds * 1000)}-0"
    )
    return ready, token


class TestAdmission:
    @pytest.fixture(autouse=True)
    def no_looks_of_its_own(self, monkeypatch):
        monkeypatch.setattr(admission, "LOOK_S", 1000)

    async def test_work_that_waits_too_long_closes_the_door_until_it_is_taken(self, idle_fleet):
        async with idle_fleet.connect() as running:
            await until(running, "ready")
            ready, token = await waiting_since(idle_fleet, 10)
            await idle_fleet.gateway.admission.look()
            async with idle_fleet.connect():  # once may be chance
                pass
            await idle_fleet.gateway.admission.look()
            answer = await refused(idle_fleet)
            async with httpx.AsyncClient() as http:
                readiness = await http.get(f"{idle_fleet.url}/readyz")
            await running.send(json.dumps({"type": "ping"}))
            assert (await until(running, "pong"))[-1]["type"] == "pong"

            await idle_fleet.clients.commands.xdel(ready, token)
            await idle_fleet.gateway.admission.look()
            async with idle_fleet.connect() as socket:
                await until(socket, "ready")

        assert (answer.status_code, answer.headers["Retry-After"]) == (503, "5")
        assert json.loads(answer.body)["code"] == "overloaded"
        assert (readiness.status_code, "more than 3 s" in readiness.json()["status"]) == (503, True)

    async def test_a_page_hears_it_in_a_message(self, idle_fleet):
        await waiting_since(idle_fleet, 10)
        await looks(idle_fleet)
        async with idle_fleet.connect(origin="http://localhost") as socket:
            messages = await rest(socket)

        assert (messages[0]["code"], messages[0]["retry_after_s"]) == ("overloaded", 5)
        assert socket.close_code == 1013

    async def test_a_session_that_comes_back_is_not_new(self, idle_fleet):
        socket = await idle_fleet.connect()
        (ready,) = await until(socket, "ready")
        socket.transport.abort()
        await waiting_since(idle_fleet, 10)
        await looks(idle_fleet)
        query = f"session={ready['session']}&resume_token={ready['resume_token']}"
        async with idle_fleet.connect(query) as again:
            (resumed,) = await until(again, "ready")

        assert resumed["resumed"]

    async def test_a_token_that_a_worker_has_taken_does_not_count(self, idle_fleet):
        """It is a long pass, a poison chunk or a dead worker's: no sign of too many sessions."""
        ready, _ = await waiting_since(idle_fleet, 10)
        await idle_fleet.clients.commands.xreadgroup(GROUP, "gone", {ready: ">"})
        await looks(idle_fleet)
        async with idle_fleet.connect() as socket:
            await until(socket, "ready")

    async def test_the_age_is_shown_for_each_stage(self, idle_fleet):
        await waiting_since(idle_fleet, 2, "decoder")
        await idle_fleet.gateway.admission.look()
        async with httpx.AsyncClient() as http:
            page = (await http.get(f"{idle_fleet.url}/metrics")).text
        ages = {
            line.split('"')[1]: float(line.split()[1])
            for line in page.splitlines()
            if line.startswith("scribe_queue_age_seconds{")
        }

        assert ages["frontend"] == ages["acoustic"] == 0
        assert 2 <= ages["decoder"] < 3

    async def test_a_fleet_without_workers_is_full_as_soon_as_work_waits(self, idle_fleet):
        async with idle_fleet.connect() as socket:
            await socket.send(SECOND)
            await wait_until(lambda: _queue_is_older(idle_fleet, 0))

    async def test_memory_that_runs_out_closes_the_door_before_it_is_full(self, idle_fleet):
        commands = idle_fleet.clients.commands
        used = int((await commands.info("memory"))["used_memory"])
        await commands.config_set("maxmemory", int(used / 0.95))
        try:
            await idle_fleet.gateway.admission.look()
            answer = await refused(idle_fleet)
        finally:
            await commands.config_set("maxmemory", 0)
        await idle_fleet.gateway.admission.look()
        async with idle_fleet.connect() as socket:
            await until(socket, "ready")

        assert answer.status_code == 503
        assert "memory" in json.loads(answer.body)["message"]

    async def test_what_is_measured_changes_nothing(self, clients):
        ready = clients.keys.ready(0, "frontend")
        await clients.commands.xadd(ready, {"s": "x"}, id="1-0")
        before = await clients.commands.xinfo_stream(ready, full=True)
        look = Admission(clients, LimitSettings())
        await look.look()

        assert look._age_s > 1e6
        assert await clients.commands.xinfo_stream(ready, full=True) == before

    async def test_ages_of_streams_that_are_gone_are_zero(self, clients):
        await clients.commands.flushall()
        assert await clients.run("waiting", [clients.keys.ready(0, "frontend")], [GROUP]) == [0]
        await clients.start()

    async def test_a_queue_target_of_zero_is_none(self, clients):
        await clients.commands.xadd(clients.keys.ready(0, "frontend"), {"s": "x"}, id="1-0")
        look = Admission(clients, LimitSettings(queue_s=0))
        for _ in range(3):
            await look.look()

        look.check(1000)
        with pytest.raises(Overloaded, match="serves 10 sessions"):
            Admission(clients, LimitSettings(gateway_sessions=10)).check(10)


async def _queue_is_older(fleet, seconds) -> bool:
    return max((await fleet.gateway.admission._ages()).values()) > seconds


async def test_the_door_looks_by_itself(idle_fleet, monkeypatch):
    monkeypatch.setattr(admission, "LOOK_S", 0.01)
    await waiting_since(idle_fleet, 10)

    await wait_until(lambda: idle_fleet.gateway.admission.problem is not None, 5)


class TestGatewaySessions:
    @pytest.fixture
    def limit_settings(self):
        return LimitSettings(gateway_sessions=1)

    async def test_a_gateway_serves_so_many_and_then_the_next(self, idle_fleet):
        async with idle_fleet.connect() as first:
            await until(first, "ready")
            assert (await refused(idle_fleet)).status_code == 503
        await wait_until(lambda: not idle_fleet.gateway._connections)
        async with idle_fleet.connect() as second:
            await until(second, "ready")


class TestSeats:
    @pytest.fixture
    def limit_settings(self):
        return LimitSettings(sessions=1)

    async def test_one_owner_has_so_many_sessions_on_all_gateways(
        self, idle_fleet, clients, gateway_settings, limit_settings
    ):
        other = Gateway(clients, gateway_settings, None, limit_settings)
        async with gateway_on_a_port(other, gateway_settings) as port, idle_fleet.connect() as first:
            await until(first, "ready")
            with pytest.raises(websockets.InvalidStatus) as caught:
                await websockets.connect(f"ws://127.0.0.1:{port}/v1/stream?sample_rate=16000")
            answer = caught.value.response

        assert (answer.status_code, answer.headers["Retry-After"]) == (429, "5")
        assert json.loads(answer.body) == {
            "type": "problem",
            "code": "quota_exceeded",
            "message": "this key may have 1 session(s) at a time: end one first",
            "retryable": True,
            "retry_after_s": 5.0,
        }

    async def test_owners_do_not_share(self, idle_fleet, clients):
        for owner in ("a", "b"):
            await quota.take_seat(clients, owner, "s", 1)

    async def test_a_finished_session_leaves_its_seat(self, fleet):
        for _ in range(2):
            async with fleet.connect() as socket:
                await socket.send(END)
                await rest(socket)
            await wait_until(lambda: _seats(fleet, 0))

    async def test_a_client_that_comes_back_has_its_seat_still(self, idle_fleet):
        socket = await idle_fleet.connect()
        (ready,) = await until(socket, "ready")
        socket.transport.abort()
        await wait_until(lambda: not idle_fleet.gateway._connections)
        assert await _seats(idle_fleet, 1)
        assert (await refused(idle_fleet)).status_code == 429
        async with idle_fleet.connect(
            f"session={ready['session']}&resume_token={ready['resume_token']}"
        ) as again:
            await until(again, "ready")

            assert await _seats(idle_fleet, 1)

    async def test_one_that_comes_back_by_message_swaps_seats(self, clients, gateway_settings):
        gateway = Gateway(clients, gateway_settings, None, LimitSettings(sessions=2))
        async with gateway_on_a_port(gateway, gateway_settings) as port:
            url = f"ws://127.0.0.1:{port}/v1/stream"
            socket = await websockets.connect(f"{url}?sample_rate=16000")
            (ready,) = await until(socket, "ready")
            socket.transport.abort()
            async with websockets.connect(url) as again:
                request = {name: ready[name] for name in ("session", "resume_token")}
                await again.send(json.dumps({"type": "resume", **request}))
                await until(again, "ready")
                seats = await clients.commands.zrange(clients.keys.seats("anonymous"), 0, -1)

        assert seats == [ready["session"].encode()]

    async def test_a_killed_gateways_seats_fall_free(self, clients, monkeypatch):
        monkeypatch.setattr(quota, "LEASE_S", 0.1)
        await quota.take_seat(clients, "a", "killed", 1)

        await wait_until(lambda: _has_room(clients))
        assert await clients.commands.pttl(clients.keys.seats("a")) > 0

    async def test_a_long_session_keeps_its_seat(self, idle_fleet, monkeypatch):
        monkeypatch.setattr(visit, "TICK_S", 0.02)
        monkeypatch.setattr(quota, "LEASE_S", 1.0)
        name = idle_fleet.clients.keys.seats("anonymous")
        async with idle_fleet.connect() as socket:
            (ready,) = await until(socket, "ready")
            first = await idle_fleet.clients.commands.zscore(name, ready["session"])

            await wait_until(lambda: _renewed(idle_fleet, name, ready["session"], first + 200))

    async def test_a_resume_that_fails_takes_no_seat(self, idle_fleet):
        async with idle_fleet.connect(f"session={'0' * 32}&resume_token=x") as socket:
            await rest(socket)
        await wait_until(lambda: _seats(idle_fleet, 0))


async def _seats(fleet, count: int) -> bool:
    return await fleet.clients.commands.zcard(fleet.clients.keys.seats("anonymous")) == count


async def _has_room(clients) -> bool:
    return bool(await clients.run("admit", [clients.keys.seats("a")], ["new", 1000, 1]))


async def _renewed(fleet, name, session, until_ms) -> bool:
    return (await fleet.clients.commands.zscore(name, session) or 0) > until_ms


class TestAudioPerDay:
    @pytest.fixture
    def limit_settings(self):
        return LimitSettings(audio_s_per_day=3)

    async def test_what_was_said_up_to_the_limit_is_decoded_and_the_client_told(self, fleet):
        async with fleet.connect() as socket:
            await socket.send(talk().tobytes())  # 5.2 s in one message: the limit is not a knife
            messages = await rest(socket)
        answer = await refused(fleet)

        assert texts(messages) == expected_texts(talk())
        assert [message["type"] for message in messages[-2:]] == ["end", "problem"]
        assert "3 s of audio a day" in messages[-1]["message"]
        assert 0 < messages[-1]["retry_after_s"] <= 86_400
        assert socket.close_code == 1008
        assert answer.status_code == 429
        assert 0 < int(answer.headers["Retry-After"]) <= 86_400

    async def test_sessions_of_an_owner_add_up(self, fleet):
        for _ in range(2):
            async with fleet.connect() as socket:
                await socket.send(SECOND)
                await socket.send(END)
                await rest(socket)
        await wait_until(lambda: _heard(fleet, 2000))

    async def test_use_is_counted_while_a_session_runs(self, idle_fleet, monkeypatch):
        monkeypatch.setattr(visit, "TICK_S", 0.02)
        async with idle_fleet.connect() as socket:
            await socket.send(SECOND)

            await wait_until(lambda: _heard(idle_fleet, 1000))


async def _heard(fleet, ms: int) -> bool:
    return await quota.add_heard(fleet.clients, "anonymous", 0) == ms


class TestLongestSession:
    @pytest.fixture
    def limit_settings(self):
        return LimitSettings(session_s=0.5)

    async def test_a_session_that_lasts_too_long_is_decoded_and_then_told(self, fleet):
        async with fleet.connect() as socket:
            await socket.send(talk().tobytes())
            sending = asyncio.create_task(_babble(socket))
            messages = await rest(socket)
            sending.cancel()

        assert texts(messages)[0] == expected_texts(talk())[0]
        assert [message["type"] for message in messages[-2:]] == ["end", "problem"]
        assert messages[-1]["message"] == "a session may last 0.5 s: open a new one"
        assert socket.close_code == 1008

    async def test_its_age_counts_over_resumptions(self, fleet):
        socket = await fleet.connect()
        (ready,) = await until(socket, "ready")
        socket.transport.abort()
        meta = fleet.clients.keys.meta(ready["session"])
        await fleet.clients.commands.hset(meta, "created_ms", int(wall_ms() - 3_600_000))
        async with fleet.connect(f"session={ready['session']}&resume_token={ready['resume_token']}") as again:
            messages = await rest(again)

        assert [message["type"] for message in messages] == ["ready", "end", "problem"]


async def _babble(socket) -> None:
    """As a client does that never looks at what it gets."""
    while True:
        await socket.send(bytes(3200))
        await asyncio.sleep(0.01)


class TestMessages:
    @pytest.fixture
    def limit_settings(self):
        return LimitSettings(frame_bytes=4000, messages_per_s=5)

    async def test_a_message_larger_than_the_key_allows_is_told(self, idle_fleet):
        async with idle_fleet.connect() as socket:
            await socket.send(bytes(4002))
            messages = await rest(socket)

        assert problem(messages)["message"] == "a message of 4002 bytes: this key may send 4000 at most"
        assert socket.close_code == 1008

    async def test_too_many_messages_are_told_a_burst_is_not(self, idle_fleet):
        async with idle_fleet.connect() as socket:
            for _ in range(50):
                await socket.send(bytes(320))
            await socket.send(json.dumps({"type": "ping"}))
            messages = await rest(socket)

        assert "5 messages a second" in problem(messages)["message"]
        assert problem(messages)["retry_after_s"] == 1
        assert socket.close_code == 1013


class TestKeysOwnLimits:
    async def test_a_keys_limits_go_before_the_deployments(self, idle_fleet, clients):
        key_id, secret = new_secret()
        key = Key.new(secret, name="small", scopes=["transcribe"], limits={"sessions": 1})
        await clients.commands.hset(clients.keys.access(), key_id, key.model_dump_json())
        await idle_fleet.gateway.door._ring.reload()
        async with idle_fleet.connect(additional_headers=bearer(secret)) as socket:
            await until(socket, "ready")

            assert (await refused(idle_fleet, additional_headers=bearer(secret))).status_code == 429


class TestFullRedis:
    @pytest.fixture
    def gateway_settings(self):
        return GatewaySettings(port=0, drain_s=0.5, resume_s=0.5)

    @pytest.fixture
    def limit_settings(self):
        return LimitSettings(sessions=5)

    async def test_a_full_redis_refuses_before_anything_is_accepted(self, idle_fleet, clients, monkeypatch):
        """Even before the next look of the admission finds it."""
        monkeypatch.setattr(admission, "LOOK_S", 1000)
        commands = clients.commands
        await commands.config_set("maxmemory", 1)
        try:
            answer = await refused(idle_fleet)
        finally:
            await commands.config_set("maxmemory", 0)

        assert answer.status_code == 503
        assert "out of memory" in json.loads(answer.body)["message"]
