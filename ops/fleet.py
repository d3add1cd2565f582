"""The whole fleet on one machine under one supervisor: embedded Redis, gateway, workers.

Start order: Redis, then gateway and workers together. Stop order: the gateway first (it finishes its sessions, for
which it needs workers), then the workers (each finishes the pass in hand), Redis last. Every process dies with this
one, SIGKILL included (ops/tether.py), so run a fleet in the main thread.
"""

import asyncio
import os
import socket
import sys
from collections.abc import Coroutine, Mapping, Sequence
from typing import Any, Self

from ops.child import Child, Patience, Say
from ops.embedded import EmbeddedRedis
from ops.readiness import Group, heartbeats, wait_for_gateway, wait_for_workers
from shared.clock import mono_ms
from shared.errors import Misconfigured
from shared.redis_client import connect
from shared.settings import GatewaySettings, RedisSettings, WorkerSettings, child_environment

# An encoder-decoder hands 25 KB per second of audio from acoustic to decoder: one process saves that. It computes on one
# core, so there is one for each; a single frontend serves dozens of sessions.
DEFAULT_LAYOUT = (Group("frontend", 1), Group("acoustic+decoder", os.cpu_count() or 1))
SMALLEST_LAYOUT = (Group("frontend", 1), Group("acoustic+decoder", 1))

_WATCH_S = 0.2


def tell(line: str) -> None:
    """Progress for people; standard output is left to results."""
    print(line, file=sys.stderr, flush=True)


class Fleet:
    """Start with `async with Fleet() as fleet`; then `fleet.url` serves until the block is left.

    `redis.url` empty: an embedded server is started. `gateway.port` 0: a free port. `layout`: which workers;
    a stage left out must run elsewhere. `environment` is added to the children's.
    """

    def __init__(
        self,
        *,
        redis: RedisSettings | None = None,
        gateway: GatewaySettings | None = None,
        layout: Sequence[Group] = DEFAULT_LAYOUT,
        environment: Mapping[str, str] | None = None,
        say: Say = tell,
        gateway_command: Sequence[str] = (sys.executable, "-m", "gateway"),
        worker_command: Sequence[str] = (sys.executable, "-m", "workers"),
    ) -> None:
        self.redis = redis or RedisSettings()
        self.gateway = gateway or GatewaySettings()
        self._layout = tuple(layout)
        self._environment = dict(environment or {})
        self._say = say
        self._commands = (gateway_command, worker_command)
        self._embedded: EmbeddedRedis | None = None
        self._gateway: Child | None = None
        self._workers: list[Child] = []
        self._tasks: list[asyncio.Task[None]] = []

    @property
    def url(self) -> str:
        """Where the gateway serves, for clients on this machine."""
        return f"http://{self._address}:{self.gateway.port}"

    @property
    def _address(self) -> str:
        return "127.0.0.1" if self.gateway.host in {"0.0.0.0", "::"} else self.gateway.host  # noqa: S104

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def start(self) -> None:
        """Start everything and return when a client can be served.

        Raises Misconfigured, RedisUnavailable, or StageFailed when a part keeps dying or is not ready in 90 s.
        """
        try:
            await self._start()
        except BaseException:
            await self.stop(deadline_s=2)
            raise

    async def wait(self) -> None:
        """Wait until a part fails for good and raise its StageFailed or RedisUnavailable."""
        done, _ = await asyncio.wait(self._tasks, return_when=asyncio.FIRST_EXCEPTION)
        for task in done:
            task.result()

    def quiet(self) -> None:
        """Take no new sessions: the gateway finishes those it has and exits."""
        if self._gateway is not None:
            self._gateway.quiet()

    async def stop(self, deadline_s: float | None = None) -> None:
        """Drain in order, by force after `deadline_s`: half of it for the gateway. 0 ends everything now.

        None: as long as the settings' drains take. May be called again to cut a cancelled one short.
        """
        if deadline_s is None:
            deadline_s = 2 * max(self.gateway.drain_s, WorkerSettings().drain_s) + 5
        end = mono_ms() + deadline_s * 1000
        self.quiet()
        if self._gateway is not None:
            await self._gateway.stop(deadline_s / 2)
        for worker in self._workers:
            worker.quiet()
        await asyncio.gather(*(worker.stop(_seconds_to(end) * 0.9) for worker in self._workers))
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)  # `wait` has raised what failed
        if self._embedded is not None:
            await asyncio.to_thread(self._embedded.stop, _seconds_to(end))

    async def _start(self) -> None:
        port = _free_port(self.gateway.host, self.gateway.port)
        self.gateway = self.gateway.model_copy(update={"port": port})
        self._say("starting Redis …" if not self.redis.url else "looking for Redis …")
        if not self.redis.url:
            self._embedded = EmbeddedRedis(self.redis.data_dir)
            self.redis = self.redis.model_copy(update={"url": self._embedded.start()})
            self._run(self._keep_redis(self._embedded))
        clients = await connect(self.redis)
        try:
            before = await heartbeats(clients, self._layout)
            self._start_children()
            await self._unless_failed(wait_for_workers(clients, self._layout, before))
            await self._unless_failed(wait_for_gateway(self._address, self.gateway.port))
        finally:
            await clients.stop()
        self._say(f"Redis at {self.redis.url}")
        self._say(f"ready: {self.url}")

    def _start_children(self) -> None:
        environment = child_environment(
            **self._environment,
            SCRIBE_REDIS_URL=self.redis.url,
            SCRIBE_REDIS_PREFIX=self.redis.prefix,
            SCRIBE_REDIS_PARTITIONS=str(self.redis.partitions),
            SCRIBE_GATEWAY_HOST=self.gateway.host,
            SCRIBE_GATEWAY_PORT=str(self.gateway.port),
        )
        gateway, worker = self._commands
        self._gateway = Child("gateway", gateway, environment, self._say)
        for group in self._layout:
            for number in range(1, group.count + 1):
                name = f"worker {group.name} {number}"
                self._workers.append(Child(name, [*worker, group.name], environment, self._say))
        for child in (self._gateway, *self._workers):
            self._run(child.run())
        counts = ", ".join(f"{group.count} {group.name}" for group in self._layout)
        self._say(f"starting gateway and workers ({counts}) …")

    def _run(self, work: Coroutine[Any, Any, None]) -> None:
        self._tasks.append(asyncio.create_task(work))

    async def _unless_failed(self, work: Coroutine[Any, Any, None]) -> None:
        """Await `work`, but raise as soon as a part has failed for good."""
        tasks = [asyncio.create_task(work), asyncio.create_task(self.wait())]
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _keep_redis(self, server: EmbeddedRedis) -> None:
        """Start the embedded server again, at the same address, when it dies."""
        patience = Patience("Redis", self._say)
        patience.born()
        while True:
            await asyncio.sleep(_WATCH_S)
            if not server.running:
                await asyncio.sleep(patience.after_death("it ended"))
                patience.born()
                server.start()


def _seconds_to(end_ms: float) -> float:
    return max(end_ms - mono_ms(), 0) / 1000


def _free_port(host: str, port: int) -> int:
    """Check the port, or pick one for 0. Else a stranger there could answer /readyz in our gateway's place."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        with socket.create_server((host, port), family=family) as listener:
            return int(listener.getsockname()[1])
    except OSError as error:
        raise Misconfigured(
            f"cannot listen on {host} port {port} ({error.strerror}): choose another with --port or "
            "SCRIBE_GATEWAY_PORT; 0 takes a free one"
        ) from error
