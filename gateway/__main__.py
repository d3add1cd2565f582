"""`python -m gateway`: one gateway process, configured by SCRIBE_* variables. Signals live here."""

import asyncio
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import structlog
import uvicorn
import uvloop

from gateway.app import create_app
from gateway.gateway import Gateway
from gateway.server import server_config
from shared import heap, logs
from shared.errors import ScribeError
from shared.redis_client import connect
from shared.settings import GatewaySettings, LogSettings, RedisSettings

log = structlog.get_logger()


class _Server(uvicorn.Server):
    """uvicorn, but a signal first lets sessions finish: its own shutdown would close their sockets at once."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


async def serve() -> None:
    """Run until SIGTERM or SIGINT, then drain; a second signal exits at once."""
    settings = GatewaySettings()
    clients = await connect(RedisSettings())
    gateway = Gateway(clients, settings)
    server = _Server(server_config(create_app(gateway), settings))
    asked = asyncio.Event()

    def on_signal() -> None:
        if asked.is_set():
            os._exit(1)
        asked.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, on_signal)
    heap.settle()
    running = asyncio.create_task(server.serve(), name="uvicorn")
    asking = asyncio.create_task(asked.wait(), name="signals")
    await asyncio.wait([running, asking], return_when=asyncio.FIRST_COMPLETED)
    log.info("draining")
    await gateway.stop(settings.drain_s)
    server.should_exit = True
    await running
    await clients.stop()


def main() -> None:
    logs.configure(LogSettings(), role="gateway")
    try:
        uvloop.run(serve())
    except ScribeError as error:
        sys.exit(f"gateway: {error}")


if __name__ == "__main__":
    main()
