"""The users in ops/redis: what each may do on a real server, and that gateway and worker need no more."""

import re
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path

import pytest
import redis

from gateway.gateway import Gateway
from shared.keys import Keys
from shared.redis_client import connect
from shared.settings import AuthSettings, LimitSettings, RedisSettings
from tests.conftest import wait_until
from tests.e2e.conftest import Fleet, gateway_on_a_port, gateway_settings, rest, until  # noqa: F401 - a fixture
from tests.e2e.test_stream import END, expected_texts, talk, texts
from tests.rigs import Server
from tests.servers import ALL, programs

FILES = Path(__file__).parents[2] / "ops/redis"
ROLES = ("gateway", "worker", "subscriber", "autoscaler")
PASSWORD = "only-for-this-test"
KEYS = Keys()
SID = "0123456789abcdef0123456789abcdef"
EVENTS, META, READY = KEYS.events(SID), KEYS.meta(SID), KEYS.ready(3, "acoustic")
CHANNEL = KEYS.channel(SID)

NOBODY: tuple[str, ...] = ()
BOTH = ("gateway", "worker")
READERS = ("gateway", "worker", "subscriber")

# Command -> who may. Everybody else must be refused by the server.
TABLE: list[tuple[tuple[object, ...], tuple[str, ...]]] = [
    (("PING",), ROLES),
    (("FLUSHALL",), NOBODY),
    (("FLUSHDB",), NOBODY),
    (("CONFIG", "GET", "*"), NOBODY),
    (("CONFIG", "SET", "dir", "/tmp"), NOBODY),
    (("KEYS", "*"), NOBODY),
    (("SCAN", "0"), NOBODY),
    (("ACL", "LIST"), NOBODY),
    (("ACL", "SETUSER", "me", "+@all"), NOBODY),
    (("SHUTDOWN", "NOSAVE"), NOBODY),
    (("MONITOR",), NOBODY),
    (("CLIENT", "LIST"), NOBODY),
    (("CLIENT", "KILL", "TYPE", "normal"), NOBODY),
    (("REPLICAOF", "127.0.0.1", "1"), NOBODY),
    (("MODULE", "LIST"), NOBODY),
    (("EVAL", "return 1", "0"), BOTH),
    (("SCRIPT", "FLUSH"), NOBODY),
    (("SAVE",), NOBODY),
    (("PUBSUB", "CHANNELS"), NOBODY),
    (("SWAPDB", "0", "1"), NOBODY),
    (("RENAME", META, "x"), NOBODY),
    (("DEL", META), ("gateway",)),
    (("GET", "somebody:else"), NOBODY),
    (("SET", "somebody:else", "1"), NOBODY),
    (("HGET", "somebody:else", "f"), NOBODY),
    (("XRANGE", "somebody:{p00}:s:x:events", "-", "+"), NOBODY),
    (("XADD", "scribes:x", "*", "a", "b"), NOBODY),
    (("PUBLISH", "somebody:else", "x"), NOBODY),
    (("SUBSCRIBE", "somebody:else"), NOBODY),
    (("PSUBSCRIBE", "*"), NOBODY),
    (("SUBSCRIBE", CHANNEL), ("gateway", "subscriber")),
    (("PUBLISH", CHANNEL, "x"), BOTH),
    (("HGET", META, "status"), BOTH),
    (("HSET", META, "status", "open"), BOTH),
    (("XRANGE", KEYS.inputs(SID, "frontend"), "-", "+"), BOTH),
    (("XRANGE", EVENTS, "-", "+"), READERS),
    (("XADD", EVENTS, "*", "e", "{}"), BOTH),
    (("XREADGROUP", "GROUP", "workers", "w", "STREAMS", READY, ">"), ("worker",)),
    (("XACK", READY, "workers", "1-0"), ("worker",)),
    (("XLEN", READY), (*BOTH, "autoscaler")),
    (("XPENDING", READY, "workers"), ("worker", "autoscaler")),
    (("XINFO", "GROUPS", READY), (*BOTH, "autoscaler")),
    (("INFO", "memory"), (*BOTH, "autoscaler")),
    (("HGETALL", KEYS.access()), ("gateway",)),
    (("HSET", KEYS.access(), "id", "{}"), ("gateway",)),
    (("SET", KEYS.probe(), "1"), ("gateway",)),
    (("INCRBY", KEYS.heard("a", "20260101"), "1"), ("gateway",)),
    # Gateways only read them; a user of Redis 6.2 can't be let read alone.
    (("HSET", KEYS.workers("acoustic"), "w", "{}"), BOTH),
]


def users(role: str) -> str:
    """The file with its user enabled, as ops/redis/README.md says."""
    return (FILES / f"{role}.acl").read_text().replace(" off ", f" on >{PASSWORD} ", 1)


@pytest.fixture(scope="module", params=ALL)
def server(request, tmp_path_factory) -> Iterator[Server]:
    """A server that has loaded all four files; for each server program that is here."""
    program = programs().get(request.param)
    if program is None:
        pytest.skip(f"{request.param} is not here: make servers, or apt-get install redis-server")
    file = tmp_path_factory.mktemp("acl") / "users.acl"
    file.write_text("user default on nopass ~* &* +@all\n" + "".join(map(users, ROLES)))
    with Server(program, {"aclfile": str(file)}) as running:
        running.tell("XGROUP", "CREATE", READY, "workers", "0", "MKSTREAM")
        yield running


def settings_for(role: str, server: Server) -> RedisSettings:
    return RedisSettings(url=f"redis://scribe-{role}:{PASSWORD}@127.0.0.1:{server.port}", partitions=4)


def allowed(server: Server, role: str, command: tuple[object, ...]) -> bool:
    """Whether the server lets this user do it; what else it may say does not matter."""
    client = redis.Redis(port=server.port, username=f"scribe-{role}", password=PASSWORD, protocol=2)
    connection = client.connection_pool.get_connection()
    with client:
        connection.send_command(*command)
        try:
            connection.read_response()
        except redis.exceptions.NoPermissionError:
            return False
        except redis.ResponseError:
            pass
        connection.disconnect()
    return True


@pytest.mark.slow
@pytest.mark.parametrize(("command", "who"), TABLE, ids=[" ".join(map(str, c[:2])) for c, _ in TABLE])
def test_each_user_may_do_what_it_needs_and_no_more(server, command, who):
    may = tuple(role for role in ROLES if allowed(server, role, command))

    assert may == who


def test_a_user_is_off_until_it_has_a_password():
    for role in ROLES:
        assert re.match(
            rf"user scribe-{role} off resetkeys resetchannels -@all \+ping",
            (FILES / f"{role}.acl").read_text(),
        )


# Who runs which script.
SCRIPTS = {
    "gateway": {
        "admit",
        "append",
        "claim",
        "emit",
        "heal",
        "keepalive",
        "open",
        "peers",
        "restore",
        "waiting",
    },
    "worker": {"beat", "commit", "emit", "forget", "load", "peers", "renew", "settle", "take"},
}


def test_every_script_has_its_users():
    assert {s.name.removesuffix(".lua") for s in (files("shared") / "scripts").iterdir()} == set().union(
        *SCRIPTS.values()
    )


@pytest.mark.parametrize(
    ("role", "script"), [(role, s) for role, names in SCRIPTS.items() for s in sorted(names)]
)
def test_a_script_sends_nothing_that_its_user_may_not(role, script):
    """A denial in the middle would leave half a commit."""
    granted = set(re.findall(r"\+(\S+)", (FILES / f"{role}.acl").read_text()))
    source = (files("shared") / "scripts" / f"{script}.lua").read_text()
    sent = {
        f"{name}|{what}".lower().removesuffix("|")
        for name, what in re.findall(
            r"redis\.p?call\('(\w+)'(?:, '(GROUPS|CONSUMERS|DELCONSUMER|CREATE)')?", source
        )
    }

    assert sent
    assert sent - granted == set()


@pytest.mark.slow
async def test_a_session_runs_with_gateway_and_worker_as_their_own_users(server, gateway_settings):  # noqa: F811
    """With quotas, resumption, admission and an orderly end; and nothing was refused that they sent."""
    server.tell("FLUSHALL")
    gateway_clients, worker_clients = [await connect(settings_for(role, server)) for role in BOTH]
    server.tell("ACL", "LOG", "RESET")
    limits = LimitSettings(sessions=2, audio_s_per_day=100)
    gateway = Gateway(gateway_clients, gateway_settings, AuthSettings(), limits)
    async with gateway_on_a_port(gateway, gateway_settings) as port:
        fleet = Fleet(gateway_clients, gateway, port)
        fleet.clients = worker_clients
        worker = await fleet.add_worker()
        async with fleet.connect() as socket:
            (ready,) = await until(socket, "ready")
            await socket.send(talk().tobytes()[:64_000])
            await until(socket, "speech_start")
        async with fleet.connect(f"session={ready['session']}&resume_token={ready['resume_token']}") as again:
            (ready,) = await until(again, "ready")
            await again.send(talk().tobytes()[ready["next_sample"] * 2 :])
            await again.send(END)
            messages = await rest(again)
        await gateway.admission.look()
        await gateway.fleet.look()
        abandoned = await fleet.connect()
        (lost,) = await until(abandoned, "ready")
        abandoned.transport.abort()
        await wait_until(lambda: _over(worker_clients, lost["session"]))
        assert await gateway.problem() is None
        await worker.stop(5)
    for clients in (gateway_clients, worker_clients):
        await clients.stop()
    denied = [dict(zip(entry[::2], entry[1::2], strict=True)) for entry in server.tell("ACL", "LOG")]

    assert texts(messages) == [] or texts(messages)[-1] == expected_texts(talk())[-1]
    assert messages[-1]["type"] == "end"
    # redis-py introduces itself on every connection and does not mind a refusal.
    assert {entry[b"object"] for entry in denied} <= {b"client|setinfo", b"client"}


async def _over(clients, session) -> bool:
    return await clients.meta_field(session, "status") == b"ended"
