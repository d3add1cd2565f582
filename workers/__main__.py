"""`python -m workers frontend|acoustic|decoder|all|acoustic+decoder`: one worker process. Signals live here."""

import asyncio
import os
import secrets
import signal
import socket
import sys
from collections.abc import Callable, Sequence

import structlog
import uvloop
from prometheus_client import start_http_server

from shared import heap, logs
from shared.errors import ScribeError
from shared.redis_client import connect
from shared.settings import LogSettings, RedisSettings, WorkerSettings
from workers import registry
from workers.compute import AnyStage
from workers.worker import Worker

log = structlog.get_logger()

Build = Callable[[Sequence[str], WorkerSettings], list[AnyStage]]


async def serve(spec: str, build: Build) -> None:
    """Run until SIGTERM or SIGINT, then drain; a second signal exits at once."""
    settings = WorkerSettings()
    names = registry.parse(spec)
    clients = await connect(RedisSettings())
    stages = build(names, settings)
    worker = Worker(clients, settings, stages, f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(3)}")
    asked = asyncio.Event()

    def on_signal() -> None:
        if asked.is_set():
            os._exit(1)  # the lease brings the pass in flight back to a peer
        asked.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, on_signal)
    if settings.metrics_port:
        start_http_server(settings.metrics_port)
    heap.settle()
    await worker.start()
    log.info("ready", stages="+".join(names))
    await asked.wait()
    log.info("draining")
    await worker.stop(settings.drain_s)
    await clients.stop()


def main(build: Build = registry.build) -> None:
    """`build` makes the stages; tests/chaos gives one whose engines load no model."""
    if len(sys.argv) != 2:
        sys.exit("usage: python -m workers frontend|acoustic|decoder|all|acoustic+decoder")
    logs.configure(LogSettings(), role="worker", stages=sys.argv[1])
    try:
        uvloop.run(serve(sys.argv[1], build))
    except ScribeError as error:
        sys.exit(f"worker: {error}")
    # A pass that outlived the deadline holds its thread, for which an exit in the usual way would wait.
    os._exit(0)


if __name__ == "__main__":
    main()
