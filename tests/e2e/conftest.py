"""A gateway on a real socket and workers, all in the test's process."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from typing import Any

import pytest
import uvicorn
import websockets

from gateway.app import create_app
from gateway.gateway import Gateway
from gateway.server import server_config
from shared.redis_client import RedisClients
from shared.settings import AuthSettings, GatewaySettings, LimitSettings, WorkerSettings
from tests.fakes import LoudnessDetector, NumberVocabulary, PitchEngine
from workers.stages.acoustic import Acoustic
from workers.stages.decoder import Decoder
from workers.stages.frontend import Frontend
from workers.worker import Worker


class QuietServer(uvicorn.Server):
    """uvicorn without its signal handlers."""

    def capture_signals(self):  # type: ignore[override]
        return nullcontext()


@dataclass
class Fleet:
    clients: RedisClients
    gateway: Gateway
    port: int
    workers: list[Worker] = field(default_factory=list)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def connect(self, query: str = "sample_rate=16000", **options: Any) -> websockets.connect:
        return websockets.connect(f"ws://127.0.0.1:{self.port}/v1/stream?{query}", **options)

    async def add_worker(self) -> Worker:
        engine = PitchEngine()
        stages = [Frontend(LoudnessDetector()), Acoustic(engine), Decoder(engine, NumberVocabulary())]
        worker = Worker(self.clients, WorkerSettings(lease_s=1), stages, f"w{len(self.workers)}")
        await worker.start()
        self.workers.append(worker)
        return worker


@pytest.fixture
def gateway_settings() -> GatewaySettings:
    return GatewaySettings(port=0, drain_s=5, resume_s=0.5)


@pytest.fixture
def auth_settings() -> AuthSettings:
    return AuthSettings()


@pytest.fixture
def limit_settings() -> LimitSettings:
    return LimitSettings()


@asynccontextmanager
async def gateway_on_a_port(gateway: Gateway, settings: GatewaySettings) -> AsyncIterator[int]:
    """Serve a gateway on a real socket; gives its port."""
    server = QuietServer(server_config(create_app(gateway), settings))
    running = asyncio.create_task(server.serve())
    while not server.started:  # noqa: ASYNC110 - uvicorn offers no event
        await asyncio.sleep(0.01)
    yield server.servers[0].sockets[0].getsockname()[1]
    await gateway.stop(5)
    server.should_exit = True
    await running


@pytest.fixture
async def idle_fleet(
    clients: RedisClients,
    gateway_settings: GatewaySettings,
    auth_settings: AuthSettings,
    limit_settings: LimitSettings,
) -> AsyncIterator[Fleet]:
    """A gateway without workers."""
    gateway = Gateway(clients, gateway_settings, auth_settings, limit_settings)
    async with gateway_on_a_port(gateway, gateway_settings) as port:
        fleet = Fleet(clients, gateway, port)
        yield fleet
    for worker in fleet.workers:
        await worker.stop(5)


@pytest.fixture
async def fleet(idle_fleet: Fleet) -> Fleet:
    await idle_fleet.add_worker()
    return idle_fleet


async def until(socket: Any, kind: str) -> list[dict[str, Any]]:
    """Messages up to and including the first of this type."""
    seen: list[dict[str, Any]] = []
    while not seen or seen[-1]["type"] != kind:
        seen.append(json.loads(await socket.recv()))
    return seen


async def rest(socket: Any) -> list[dict[str, Any]]:
    """All messages until the server closes, with whatever code."""
    seen: list[dict[str, Any]] = []
    with suppress(websockets.ConnectionClosedError):
        async for message in socket:
            seen.append(json.loads(message))  # noqa: PERF401 - what came before the close counts
    return seen
