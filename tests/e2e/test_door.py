"""Who gets in, and how the others are told."""

import asyncio
import json
import logging
from contextlib import suppress
from datetime import UTC, datetime, timedelta

import httpx
import jwt
import pytest
import structlog
import websockets

from gateway import keyring, server
from ops.client import StreamClient
from ops.keys import FileStore, RedisStore
from ops.read_along import events_from
from shared import logs
from shared.access import Key, new_secret
from shared.errors import Forbidden, Unauthorized
from shared.settings import AuthSettings, GatewaySettings, LimitSettings, LogSettings
from tests.conftest import wait_until
from tests.e2e.conftest import rest, until
from tests.e2e.test_stream import END, expected_texts, talk, texts

pytestmark = pytest.mark.slow

JWT_SECRET = "never to be logged either, 32 bytes"


def bearer(secret: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {secret}"}


async def refused(fleet, query: str = "sample_rate=16000", **options):
    """The HTTP answer to a handshake that fails."""
    with pytest.raises(websockets.InvalidStatus) as caught:
        await fleet.connect(query, **options)
    return caught.value.response


@pytest.fixture
def key_file(tmp_path):
    return tmp_path / "keys.toml"


@pytest.fixture
def make_key(key_file):
    """Adds a key to the file and gives its secret."""

    def make(name="acme", scopes=("transcribe",), **fields) -> str:
        key_id, secret = new_secret()
        FileStore(key_file).write(key_id, Key.new(secret, name=name, scopes=list(scopes), **fields))
        return secret

    return make


@pytest.fixture
def secret(make_key):
    return make_key()


@pytest.fixture
def auth_settings(key_file, secret, tmp_path):
    (tmp_path / "jwt").write_text(JWT_SECRET)
    return AuthSettings(
        keys_file=key_file,
        jwt_key_file=tmp_path / "jwt",
        jwt_algorithm="HS256",
        jwt_audience="scribe",
        origins="https://app.example.com",
    )


def token(**changes) -> str:
    claims = {
        "sub": "ann",
        "aud": "scribe",
        "scope": "transcribe",
        "exp": datetime.now(UTC) + timedelta(hours=1),
    }
    return jwt.encode(claims | changes, JWT_SECRET, "HS256")


async def session_of(fleet, **options) -> tuple[str, list[dict]]:
    async with fleet.connect(**options) as socket:
        (ready,) = await until(socket, "ready")
        await socket.send(talk().tobytes())
        await socket.send(END)
        return ready["session"], await rest(socket)


class TestCredentials:
    @pytest.mark.parametrize("scheme", ["Bearer", "bearer", "Token"])
    async def test_a_key_in_the_header_opens_a_session_that_is_its_owners(self, fleet, secret, scheme):
        session, messages = await session_of(
            fleet, additional_headers={"Authorization": f"{scheme} {secret}"}
        )

        assert texts(messages) == expected_texts(talk())
        assert await fleet.clients.meta_field(session, "owner") == b"key:acme"

    async def test_a_browser_gives_it_as_a_subprotocol_and_does_not_hear_it_back(self, fleet, secret):
        async with fleet.connect(
            subprotocols=["streamscribe.v1", f"bearer.{secret}"], origin="https://app.example.com"
        ) as socket:
            await until(socket, "ready")

            assert socket.subprotocol == "streamscribe.v1"
            assert secret not in str(socket.response.headers)

    async def test_a_token_is_as_good_as_a_key(self, fleet):
        session, _ = await session_of(fleet, additional_headers=bearer(token()))

        assert await fleet.clients.meta_field(session, "owner") == b"jwt:ann"

    async def test_two_keys_of_one_name_work_at_a_time(self, fleet, secret, make_key):
        second = make_key()
        await fleet.gateway.door._ring.reload()
        for each in (secret, second):
            async with fleet.connect(additional_headers=bearer(each)) as socket:
                await until(socket, "ready")

    async def test_keys_in_redis_count_too(self, fleet, redis_settings, secret):
        key_id, other = new_secret()
        await asyncio.to_thread(
            RedisStore(redis_settings).write, key_id, Key.new(other, name="bob", scopes=["transcribe"])
        )
        await fleet.gateway.door._ring.reload()
        async with fleet.connect(additional_headers=bearer(other)) as socket:
            await until(socket, "ready")

    async def test_without_or_with_wrong_credentials_the_handshake_is_refused(
        self, idle_fleet, secret, make_key
    ):
        old = make_key(expires=datetime.now(UTC) - timedelta(seconds=1))
        await idle_fleet.gateway.door._ring.reload()
        wrong = {
            "no credentials": {},
            "wrong secret": bearer(secret[:-1] + ("A" if secret[-1] != "A" else "B")),
            "unknown key": bearer(new_secret()[1]),
            "no scheme": {"Authorization": secret},
            "basic": {"Authorization": f"Basic {secret}"},
            "expired": bearer(old),
            "expired token": bearer(token(exp=datetime.now(UTC) - timedelta(hours=1))),
            "token for another": bearer(token(aud="bank")),
            "noise": bearer("é" * 10),
        }
        answers = {name: await refused(idle_fleet, additional_headers=h) for name, h in wrong.items()}

        for name, answer in answers.items():
            assert answer.status_code == 401, name
            assert answer.headers["WWW-Authenticate"].startswith("Bearer"), name
            assert json.loads(answer.body)["code"] == "unauthorized", name
        assert "Authorization: Bearer" in json.loads(answers["no credentials"].body)["message"]
        assert "expired" in json.loads(answers["expired"].body)["message"]

    async def test_a_key_in_the_query_of_a_socket_does_not_count(self, idle_fleet, secret):
        assert (await refused(idle_fleet, f"token={secret}")).status_code == 401

    async def test_a_missing_scope_is_named(self, idle_fleet, make_key):
        listener = make_key("ears", ["listen"])
        await idle_fleet.gateway.door._ring.reload()
        answer = await refused(idle_fleet, additional_headers=bearer(listener))

        assert answer.status_code == 403
        assert "'transcribe'" in json.loads(answer.body)["message"]

    async def test_the_tools_say_what_is_wrong_with_a_key(self, idle_fleet, make_key):
        listener = make_key("ears", ["listen"])
        await idle_fleet.gateway.door._ring.reload()

        with pytest.raises(Unauthorized, match="--key or SCRIBE_KEY"):
            await StreamClient(idle_fleet.url).__aenter__()
        with pytest.raises(Forbidden, match="lacks the scope 'transcribe'"):
            await StreamClient(idle_fleet.url, key=listener).__aenter__()

    async def test_the_client_shows_its_key(self, fleet, secret):
        async with StreamClient(fleet.url, key=secret) as client:
            assert client.ready.session


class TestChanges:
    async def test_a_revoked_key_is_refused_within_seconds(self, idle_fleet, secret, key_file, monkeypatch):
        store = FileStore(key_file)
        ((key_id, key),) = store.read().items()
        async with idle_fleet.connect(additional_headers=bearer(secret)):
            pass
        store.write(key_id, key.model_copy(update={"expires": datetime.now(UTC)}))

        await wait_until(lambda: _is_refused(idle_fleet, secret), keyring.RELOAD_S + 3)

    async def test_a_broken_file_leaves_the_last_good_keys_and_says_so(self, idle_fleet, secret, key_file):
        key_file.write_text("keys = [")
        with structlog.testing.capture_logs() as logged:
            await idle_fleet.gateway.door._ring.reload()
            key_file.unlink()
            await idle_fleet.gateway.door._ring.reload()

        assert [(line["event"], line["log_level"]) for line in logged] == [("keys_not_reloaded", "error")] * 2
        async with idle_fleet.connect(additional_headers=bearer(secret)) as socket:
            await until(socket, "ready")


async def _is_refused(fleet, secret) -> bool:
    try:
        async with fleet.connect(additional_headers=bearer(secret)):
            return False
    except websockets.InvalidStatus:
        return True


class TestKeysInRedisOnly:
    @pytest.fixture
    def auth_settings(self):
        return AuthSettings()

    async def test_losing_the_last_key_does_not_open_the_door(self, idle_fleet, redis_settings):
        ring = idle_fleet.gateway.door._ring
        assert idle_fleet.gateway.door.open
        key_id, secret = new_secret()
        await asyncio.to_thread(
            RedisStore(redis_settings).write, key_id, Key.new(secret, name="bob", scopes=["transcribe"])
        )
        await ring.reload()
        async with idle_fleet.connect(additional_headers=bearer(secret)) as socket:
            await until(socket, "ready")
        await idle_fleet.clients.commands.delete(idle_fleet.clients.keys.access())
        await ring.reload()

        assert (await refused(idle_fleet, additional_headers=bearer(secret))).status_code == 401
        assert (await refused(idle_fleet)).status_code == 401

    async def test_a_broken_key_in_redis_is_skipped_and_said(self, idle_fleet):
        await idle_fleet.clients.commands.hset(idle_fleet.clients.keys.access(), "bad", "{")
        with structlog.testing.capture_logs() as logged:
            await idle_fleet.gateway.door._ring.reload()

        assert logged[0]["event"] == "key_in_redis_is_broken"
        assert (await refused(idle_fleet)).status_code == 401


class TestRequired:
    @pytest.fixture
    def auth_settings(self):
        return AuthSettings(required=True)

    async def test_nobody_gets_in_before_there_are_keys(self, idle_fleet):
        assert (await refused(idle_fleet)).status_code == 401


class TestListening:
    async def test_events_are_for_their_owner_and_for_listeners(self, fleet, secret, make_key):
        other, listener = make_key("other"), make_key("ears", ["listen"])
        await fleet.gateway.door._ring.reload()
        session, _ = await session_of(fleet, additional_headers=bearer(secret))
        url = f"{fleet.url}/v1/sessions/{session}/events"
        async with httpx.AsyncClient() as http:
            answers = {
                "owner": await http.get(url, headers=bearer(secret)),
                "listener": await http.get(url, headers=bearer(listener)),
                "in the query": await http.get(url, params={"token": secret}),
                "other": await http.get(url, headers=bearer(other)),
                "token of that name": await http.get(url, headers=bearer(token(sub="acme"))),
                "nobody": await http.get(url),
            }
            missing = await http.get(url.replace(session, "0" * 32), headers=bearer(other))

        assert {name: answer.status_code for name, answer in answers.items()} == {
            "owner": 200,
            "listener": 200,
            "in the query": 200,
            "other": 404,
            "token of that name": 404,
            "nobody": 401,
        }
        assert texts([json.loads(line[6:]) for line in answers["owner"].text.splitlines() if "data" in line])
        # Nothing tells somebody else's session from one that never was.
        assert answers["other"].text.replace(session, "") == missing.text.replace("0" * 32, "")

    async def test_listen_reads_from_a_gateway(self, fleet, secret):
        session, messages = await session_of(fleet, additional_headers=bearer(secret))
        heard = await asyncio.to_thread(lambda: list(events_from(fleet.url, session, secret)))

        assert [event.event for event in heard] == [message["event"] for message in messages]
        with pytest.raises(Unauthorized, match="SCRIBE_KEY"):
            await asyncio.to_thread(lambda: list(events_from(fleet.url, session, None)))

    async def test_another_owner_cannot_resume_a_session_even_with_its_token(self, fleet, secret, make_key):
        other = make_key("other")
        await fleet.gateway.door._ring.reload()
        socket = await fleet.connect(additional_headers=bearer(secret))
        (ready,) = await until(socket, "ready")
        query = f"session={ready['session']}&resume_token={ready['resume_token']}"
        async with fleet.connect(query, additional_headers=bearer(other)) as thief:
            answer = await rest(thief)
        await socket.close()

        assert "no session with this id" in answer[0]["message"]

    @pytest.mark.parametrize("name", ["nobody", "A" * 32, "0" * 31, "%7Bp00%7D", "x" * 3000])
    async def test_a_session_id_has_a_form(self, idle_fleet, secret, name):
        async with httpx.AsyncClient() as http:
            answer = await http.get(f"{idle_fleet.url}/v1/sessions/{name}/events", headers=bearer(secret))

        assert answer.status_code == 404
        assert len(answer.text) < 300


class TestPages:
    async def test_a_strangers_page_hears_why_in_a_message(self, idle_fleet, secret):
        async with idle_fleet.connect(
            subprotocols=["streamscribe.v1", f"bearer.{secret}"], origin="https://evil.example"
        ) as socket:
            messages = await rest(socket)

        assert messages[0]["code"] == "forbidden"
        assert "evil.example" in messages[0]["message"]
        assert (socket.close_code, socket.subprotocol) == (1008, "streamscribe.v1")

    async def test_a_page_without_a_key_too(self, idle_fleet):
        async with idle_fleet.connect(origin="https://app.example.com") as socket:
            messages = await rest(socket)

        assert messages[0]["code"] == "unauthorized"
        assert socket.close_code == 1008

    async def test_a_draining_gateway_tells_a_page_to_come_back(self, idle_fleet):
        idle_fleet.gateway.quiet()
        async with idle_fleet.connect(origin="http://localhost:3000") as socket:
            messages = await rest(socket)

        assert messages[0]["retry_after_s"] == 1
        assert socket.close_code == 1013

    @pytest.mark.parametrize("path", ["/v1/sessions/" + "0" * 32 + "/events", "/metrics"])
    async def test_a_name_that_was_pointed_at_loopback_is_refused(self, idle_fleet, path):
        async with httpx.AsyncClient() as http:
            answer = await http.get(idle_fleet.url + path, headers={"Host": "evil.example"})

        assert answer.status_code == 403

    async def test_a_listed_page_may_read_answers(self, idle_fleet):
        origin = {"Origin": "https://app.example.com"}
        async with httpx.AsyncClient() as http:
            answer = await http.get(f"{idle_fleet.url}/healthz", headers=origin)

        assert answer.headers["Access-Control-Allow-Origin"] == "https://app.example.com"


class TestElsewhere:
    """Listening on all addresses."""

    @pytest.fixture
    def gateway_settings(self):
        return GatewaySettings(host="0.0.0.0", port=0, drain_s=5)

    async def test_metrics_want_a_listener(self, idle_fleet, secret, make_key):
        listener = make_key("ears", ["listen"])
        await idle_fleet.gateway.door._ring.reload()
        async with httpx.AsyncClient(base_url=idle_fleet.url) as http:
            codes = [
                (await http.get("/metrics", headers=h)).status_code
                for h in ({}, bearer(secret), bearer(listener))
            ]
            health = [(await http.get(path)).status_code for path in ("/healthz", "/readyz")]

        assert codes == [401, 403, 200]
        assert health == [200, 200]


class TestElsewhereWithoutKeys(TestElsewhere):
    @pytest.fixture
    def auth_settings(self):
        return AuthSettings()

    async def test_metrics_want_a_listener(self, idle_fleet):
        """Nobody is known here, so everybody may."""
        async with httpx.AsyncClient(base_url=idle_fleet.url) as http:
            assert (await http.get("/metrics")).status_code == 200

    async def test_the_danger_is_said(self, clients, gateway_settings):
        from gateway.door import Door

        door = Door(clients, AuthSettings(), LimitSettings(), gateway_settings.host)
        with structlog.testing.capture_logs() as logged:
            await door.start()
            await door.stop()

        assert [line["event"] for line in logged] == ["OPEN_TO_EVERYBODY"]
        assert logged[0]["log_level"] == "warning"


class TestSizes:
    async def raw(self, fleet, head: bytes) -> bytes:
        reader, writer = await asyncio.open_connection("127.0.0.1", fleet.port)
        writer.write(head)
        with suppress(ConnectionError):
            await writer.drain()
        answer = b""
        with suppress(ConnectionError):
            answer = await asyncio.wait_for(reader.read(1000), 5)
        writer.close()
        return answer

    UPGRADE = (
        b"Host: 127.0.0.1\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
        b"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n"
    )

    @pytest.mark.parametrize("kind", [UPGRADE, b"Host: 127.0.0.1\r\n"], ids=["socket", "http"])
    @pytest.mark.parametrize(
        ("path", "more", "said"),
        [
            (b"/healthz?" + b"a" * 5000, b"", b"4096 bytes"),
            (b"/healthz", b"X: y\r\n" * 200, b"64 headers"),
            (b"/healthz", b"X: " + b"y" * 8500 + b"\r\n", b"64 headers of 8000 bytes"),
            (b"/healthz", (b"X: " + b"y" * 7000 + b"\r\n") * 3, b"16384 in all"),
        ],
        ids=["query", "many headers", "long header", "all headers"],
    )
    async def test_a_large_head_is_refused_in_words(self, idle_fleet, kind, path, more, said):
        answer = await self.raw(idle_fleet, b"GET " + path + b" HTTP/1.1\r\n" + kind + more + b"\r\n")

        assert answer.startswith(b"HTTP/1.1 4")
        assert said in answer or b"Invalid HTTP" in answer

    @pytest.mark.parametrize("body", [b"Content-Length: 5\r\n", b"Transfer-Encoding: chunked\r\n"])
    async def test_a_handshake_with_a_body_is_refused_and_not_left_open(self, idle_fleet, body):
        head = b"GET /v1/stream HTTP/1.1\r\n" + self.UPGRADE + body + b"\r\n"

        assert (await self.raw(idle_fleet, head)).startswith(b"HTTP/1.1 400")

    async def test_a_head_without_end_is_cut_off(self, idle_fleet):
        assert b"400" in await self.raw(idle_fleet, b"GET / HTTP/1.1\r\nX: " + b"y" * 100_000)

    async def test_a_head_that_takes_for_ever_is_cut_off(self, idle_fleet, secret, monkeypatch):
        monkeypatch.setattr(server, "HEAD_S", 0.05)
        async with idle_fleet.connect(additional_headers=bearer(secret)) as good:
            await until(good, "ready")
            assert await self.raw(idle_fleet, b"GET / HTTP/1.1\r\nHost: ") == b""
            await good.send(json.dumps({"type": "ping"}))  # whoever has come in is not cut off
            assert (await until(good, "pong"))[-1]["type"] == "pong"

    @pytest.mark.parametrize(
        ("query", "frame", "said"),
        [
            ("&".join(f"a{i}=1" for i in range(40)), None, "40 parameters; at most 32"),
            ("sample_rate=16000", json.dumps({"type": "ping", "id": "x" * 5000}), "4096"),
            (f"session={'x' * 65}&resume_token=a", None, "session"),
        ],
    )
    async def test_a_large_query_or_message_is_told(self, idle_fleet, secret, query, frame, said):
        async with idle_fleet.connect(query, additional_headers=bearer(secret)) as socket:
            if frame:
                await socket.send(frame)
            messages = await rest(socket)

        assert said in next(m for m in messages if m["type"] == "problem")["message"]
        assert socket.close_code == 1008


async def test_no_secret_and_no_word_is_ever_logged(fleet, secret, make_key, caplog, capfd):
    """Every way in and every refusal, with everything logged that anybody would log."""
    listener, expired = make_key("ears", ["listen"]), make_key(expires=datetime.now(UTC))
    await fleet.gateway.door._ring.reload()
    old = token(exp=datetime.now(UTC) - timedelta(hours=1))
    secrets = [secret, listener, expired, new_secret()[1], token(), old]
    caplog.set_level(logging.DEBUG)
    logs.configure(LogSettings(level="DEBUG"))
    with structlog.testing.capture_logs() as logged:
        heard: list[str] = []
        for each in secrets:
            for options in (
                {"additional_headers": bearer(each)},
                {"additional_headers": {"Authorization": each}},
                {"subprotocols": ["streamscribe.v1", f"bearer.{each}"]},
                {"subprotocols": ["streamscribe.v1", f"bearer.{each}"], "origin": "https://evil.example"},
                {"additional_headers": bearer(each) | {"Host": "evil.example"}},
            ):
                with suppress(websockets.WebSocketException):
                    heard += texts((await session_of(fleet, **options))[1])
            with suppress(websockets.InvalidStatus):
                await fleet.connect(f"token={each}")
            async with httpx.AsyncClient(base_url=fleet.url) as http:
                for params in ({"token": each}, {}):
                    await http.get(f"/v1/sessions/{'0' * 32}/events", params=params, headers=bearer(each))
                await http.get("/metrics", headers=bearer(each) | {"Host": "evil.example"})
        async with fleet.connect(additional_headers=bearer(secret)) as socket:
            (ready,) = await until(socket, "ready")
            await socket.send(json.dumps({"type": "configure", "token": secret}))
            await rest(socket)
    logs.configure(LogSettings(level="WARNING"))
    standard = [
        (r.levelno, r.name, r.getMessage())
        for r in caplog.records
        if not r.name.startswith(("http", "websockets"))
    ]
    ours = [(line["log_level"], str(line)) for line in logged]
    everything = "\n".join(
        [*(text for *_, text in standard), *(text for _, text in ours), *capfd.readouterr()]
    )

    assert len(ours) > 20
    assert heard
    for each in [*secrets, JWT_SECRET, ready["resume_token"]]:
        assert each not in everything
        assert each[-16:] not in everything
    at_info = "\n".join([text for level, text in ours if level != "debug"])
    assert max(map(len, heard)) > 10
    assert not [text for text in heard if len(text) > 10 and text in at_info]
