"""A real Redis for every test that wants one, a prefix of its own for each, and no key left without an expiry."""

import asyncio
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator

import pytest

from ops.embedded import EmbeddedRedis
from shared import logs
from shared.redis_client import RedisClients, connect
from shared.settings import LogSettings, RedisSettings
from workers import tokens


@pytest.fixture(autouse=True)
def logging() -> None:
    logs.configure(LogSettings(level="WARNING"))


@pytest.fixture(scope="session")
def redis_url() -> Iterator[str]:
    server = EmbeddedRedis()
    yield server.start()
    server.stop()


@pytest.fixture(autouse=True)
def impatience(monkeypatch: pytest.MonkeyPatch) -> None:
    """An idle worker sees that it is to stop when its read returns: a second later, in 35 tests."""
    monkeypatch.setattr(tokens, "BLOCK_MS", 50)


@pytest.fixture
def redis_settings(redis_url: str) -> RedisSettings:
    return RedisSettings(url=redis_url, prefix=f"t{secrets.token_hex(4)}", partitions=4)


@pytest.fixture
async def clients(redis_settings: RedisSettings) -> AsyncIterator[RedisClients]:
    """Clients of a fresh deployment; afterwards every key must have a TTL or be on the list of permanent ones."""
    clients = await connect(redis_settings)
    yield clients
    leaked = await _without_ttl(clients)
    await clients.commands.flushall()
    await clients.stop()
    assert leaked == set()


async def _without_ttl(clients: RedisClients) -> set[str]:
    keys = [key.decode() async for key in clients.commands.scan_iter(f"{clients.settings.prefix}*")]
    lasting = {key for key in keys if await clients.commands.pttl(key) == -1}
    return lasting - clients.keys.permanent()


async def wait_until(true: Callable[[], bool | Awaitable[bool]], within_s: float = 20) -> None:
    """Poll a condition; fails when it does not come true."""
    async with asyncio.timeout(within_s):
        while True:
            result = true()
            if await result if isinstance(result, Awaitable) else result:
                return
            await asyncio.sleep(0.01)
