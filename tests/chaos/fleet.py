"""Gateways and workers as processes on a Redis, all tethered to this one; and what a fault may do to them."""

import asyncio
import random
import signal
import subprocess
import sys
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path

from ops.fleet import _free_port
from ops.readiness import Group, wait_for_gateway, wait_for_workers
from ops.tether import tethered
from shared.redis_client import RedisClients
from shared.settings import child_environment

WORKER = (sys.executable, "-m", "tests.chaos.worker")
GATEWAY = (sys.executable, "-m", "tests.chaos.gateway")


class Process:
    """One process and the end we expect of it."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str], log: Path) -> None:
        self.command, self.environment, self.log = command, environment, log
        self.doomed = False
        self.start()

    def start(self) -> None:
        with self.log.open("ab") as log:
            self.popen = subprocess.Popen(
                tethered(self.command), env=self.environment, stdout=log, stderr=log, start_new_session=True
            )

    @property
    def alive(self) -> bool:
        return self.popen.poll() is None

    def send(self, number: signal.Signals) -> None:
        self.doomed = self.doomed or number in {signal.SIGKILL, signal.SIGTERM}
        self.popen.send_signal(number)


class Fleet:
    """Whatever dies is started again at once; `died` has the exit codes of those that nobody killed."""

    def __init__(
        self,
        url: str,
        layout: Sequence[Group],
        *,
        gateways: int,
        settings: Mapping[str, str],
        folder: Path,
        seed: int,
    ) -> None:
        self.random = random.Random(seed)
        self.workers: list[Process] = []
        self.gateways: list[Process] = []
        self.ports = [_free_port("127.0.0.1", 0) for _ in range(gateways)]
        self.died: list[int] = []
        self.drained: list[int] = []  # exit codes of workers after SIGTERM
        self.log = folder / "fleet.log"
        self._layout = layout
        self._environment = child_environment(
            SCRIBE_REDIS_URL=url, SCRIBE_LOG_LEVEL="WARNING", SCRIBE_LOG_JSON="true", **settings
        )

    @property
    def urls(self) -> list[str]:
        return [f"http://127.0.0.1:{port}" for port in self.ports]

    async def start(self, clients: RedisClients) -> None:
        """Return when every worker beats and every gateway is ready."""
        self.workers = [
            self._spawn([*WORKER, group.name]) for group in self._layout for _ in range(group.count)
        ]
        self.gateways = [self._spawn(GATEWAY, SCRIBE_GATEWAY_PORT=str(port)) for port in self.ports]
        self._keeper = asyncio.create_task(self._keep())
        await wait_for_workers(clients, self._layout, defaultdict(set))
        for port in self.ports:
            await wait_for_gateway("127.0.0.1", port)

    async def stop(self) -> None:
        self._keeper.cancel()
        for process in (*self.workers, *self.gateways):
            process.popen.kill()
        for process in (*self.workers, *self.gateways):
            await asyncio.to_thread(process.popen.wait)

    def some_worker(self) -> Process:
        return self.random.choice([worker for worker in self.workers if worker.alive])

    def each(self) -> list[Process]:
        return [*self.workers, *self.gateways]

    def _spawn(self, command: Sequence[str], **environment: str) -> Process:
        return Process(command, self._environment | environment, self.log)

    async def _keep(self) -> None:
        """Replace workers that are gone, as a supervisor would."""
        while True:
            for process in self.each():
                if process.alive:
                    continue
                code = process.popen.returncode
                if not process.doomed:
                    self.died.append(code)
                elif code != -signal.SIGKILL:
                    self.drained.append(code)
                process.doomed = False
                process.start()
            await asyncio.sleep(0.02)
