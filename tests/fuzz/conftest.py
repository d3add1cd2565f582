"""A gateway on a real port and a worker, in a thread of their own: hypothesis wants tests that are no coroutines."""

import secrets
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from logging import ERROR
from pathlib import Path

import pytest
import structlog
from anyio.from_thread import BlockingPortal, start_blocking_portal

from gateway.gateway import Gateway
from ops.keys import FileStore
from shared.access import Key, new_secret
from shared.redis_client import connect
from shared.settings import AuthSettings, GatewaySettings, LimitSettings, RedisSettings
from tests.e2e.conftest import Fleet, gateway_on_a_port
from tests.fuzz.handshakes import AUDIENCE, JWT_SECRET
from tests.fuzz.resident import Resident
from tests.fuzz.scripts import FRAME_BYTES
from workers import tokens

SETTINGS = GatewaySettings(port=0, drain_s=5, resume_s=0.5, idle_s=10, frame_bytes=FRAME_BYTES)


@asynccontextmanager
async def fleet_of(redis: RedisSettings, auth: AuthSettings) -> AsyncIterator[Fleet]:
    clients = await connect(redis)
    # The queue's age is no fuzzed input: a busy machine must not turn clients away.
    gateway = Gateway(clients, SETTINGS, auth, LimitSettings(queue_s=0))
    async with gateway_on_a_port(gateway, SETTINGS) as port:
        fleet = Fleet(clients, gateway, port)
        await fleet.add_worker()
        yield fleet
    for worker in fleet.workers:
        await worker.stop(5)
    await clients.stop()


def auth_settings(folder: Path, secret: str, key_id: str) -> AuthSettings:
    FileStore(folder / "keys.toml").write(key_id, Key.new(secret, name="acme", scopes=["transcribe"]))
    (folder / "jwt").write_text(JWT_SECRET)
    return AuthSettings(
        keys_file=folder / "keys.toml",
        jwt_key_file=folder / "jwt",
        jwt_algorithm="HS256",
        jwt_audience=AUDIENCE,
    )


@pytest.fixture(scope="module")
def portal() -> Iterator[BlockingPortal]:
    with start_blocking_portal(backend_options={"use_uvloop": True}) as portal:
        yield portal


@pytest.fixture(scope="module")
def resident(
    portal: BlockingPortal, redis_url: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Resident]:
    key_id, secret = new_secret()
    auth = auth_settings(tmp_path_factory.mktemp("fuzz"), secret, key_id)
    redis = RedisSettings(url=redis_url, prefix=f"f{secrets.token_hex(4)}", partitions=4)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tokens, "BLOCK_MS", 50)
        with portal.wrap_async_context_manager(fleet_of(redis, auth)) as fleet:
            yield Resident(portal, fleet, secret)


@pytest.fixture(autouse=True)
def no_errors_logged(logging: None, caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """Whatever a client sends, nothing of ours fails: neither we nor uvicorn or asyncio log an error."""
    with structlog.testing.capture_logs() as logged:
        yield
    ours = [str(line) for line in logged if line["log_level"] in ("error", "critical")]
    theirs = [record.getMessage() for record in caplog.get_records("call") if record.levelno >= ERROR]
    assert ours + theirs == []
