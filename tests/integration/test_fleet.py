"""The supervisor with real processes. Stand-ins that only announce themselves take the place of the models."""

import asyncio
import http.client
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from ops.embedded import EmbeddedRedis
from ops.fleet import SMALLEST_LAYOUT, Fleet
from ops.readiness import Group
from shared.errors import Misconfigured, RedisUnavailable, StageFailed
from shared.redis_client import connect, translated
from shared.settings import GatewaySettings, RedisSettings

pytestmark = pytest.mark.slow

GATEWAY = """
import http.server, os, signal, sys
class Ready(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200); self.end_headers()
    def log_message(self, *_): pass
def drained(*_):
    print("gateway drained", file=sys.stderr, flush=True); os._exit(0)
signal.signal(signal.SIGTERM, drained)
http.server.HTTPServer(("127.0.0.1", int(os.environ["SCRIBE_GATEWAY_PORT"])), Ready).serve_forever()
"""
WORKER = """
import asyncio, os, signal, sys
from shared.redis_client import connect
from shared.settings import RedisSettings
async def main():
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    clients = await connect(RedisSettings())
    for stage in sys.argv[1].split("+"):
        await clients.commands.hset(clients.keys.workers(stage), str(os.getpid()), "{}")
    await stop.wait()
    await clients.commands.ping()
    await clients.stop()
    os.write(2, b"worker drained\\n")
asyncio.run(main())
"""
GATEWAY_COMMAND = (sys.executable, "-c", GATEWAY)
WORKER_COMMAND = (sys.executable, "-c", WORKER)

STAND_INS = f"""
    layout=SMALLEST_LAYOUT,
    gateway_command=(sys.executable, "-c", {GATEWAY!r}),
    worker_command=(sys.executable, "-c", {WORKER!r}),
"""
SUPERVISOR = """
import sys
from ops.fleet import SMALLEST_LAYOUT, Fleet
from ops.serve import serve
from shared.settings import GatewaySettings
sys.exit(serve(Fleet(gateway=GatewaySettings(port=0), %s)))
"""


def wait_until(holds: Callable[[], object], seconds: float = 20) -> None:
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.01)


def processes_with(value: str) -> set[int]:
    """Living processes with `value` in their environment or, as Redis overwrites that, in their title."""
    found = set()
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            told = (folder / "environ").read_bytes() + (folder / "cmdline").read_bytes()
            if value.encode() in told:
                found.add(int(folder.name))
    return found


def command_of(pid: int) -> bytes:
    with suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    return b""


class Supervisor:
    """`serve` in a process of its own; it and all its children carry a marker in their environment."""

    def __init__(self, tmp: Path, commands: str) -> None:
        self.tmp = tmp
        self.process = subprocess.Popen(
            [sys.executable, "-c", SUPERVISOR % commands],
            env={**os.environ, "SCRIBE_REDIS_URL": "", "SCRIBE_TEST": tmp.name, "TMPDIR": str(tmp)},
            stderr=subprocess.PIPE,
            text=True,
        )
        self.lines: list[str] = []

    def read_until(self, text: str) -> str:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.lines.append(line.strip())
            if text in line:
                return line.strip()
        raise AssertionError(f"{text!r} is not in {self.lines}")

    def rest(self) -> list[str]:
        _, err = self.process.communicate(timeout=30)
        return err.splitlines()


@contextmanager
def supervised(commands: str) -> Iterator[Supervisor]:
    with tempfile.TemporaryDirectory(prefix="fleet") as folder:
        running = Supervisor(Path(folder), commands)
        with running.process:
            yield running
            running.process.kill()


@pytest.fixture
def supervisor() -> Iterator[Supervisor]:
    with supervised(STAND_INS) as running:
        yield running


@pytest.fixture
def real_supervisor() -> Iterator[Supervisor]:
    with supervised("") as running:
        yield running


def fleet(**changes) -> Fleet:
    defaults = {
        "redis": RedisSettings(url=""),
        "gateway": GatewaySettings(port=0),
        "layout": SMALLEST_LAYOUT,
        "gateway_command": GATEWAY_COMMAND,
        "worker_command": WORKER_COMMAND,
    }
    return Fleet(**(defaults | changes))


def status_of(url: str, path: str) -> int:
    connection = http.client.HTTPConnection(url.removeprefix("http://"), timeout=5)
    connection.request("GET", path)
    try:
        return connection.getresponse().status
    finally:
        connection.close()


async def test_it_comes_up_ready_and_leaves_nothing(tmp_path_factory):
    value = tmp_path_factory.mktemp("marker").name
    async with fleet(environment={"SCRIBE_TEST": value}) as running:
        assert status_of(running.url, "/readyz") == 200
        assert len(processes_with(value)) == 3
        folder = Path(running.redis.url.removeprefix("unix://")).parent
        assert folder.exists()
    assert not processes_with(value)
    assert not folder.exists()


def test_ctrl_c_drains_gateway_then_workers_and_exits_0(supervisor: Supervisor):
    supervisor.read_until("ready: http://127.0.0.1:")
    assert len(processes_with(supervisor.tmp.name)) == 5
    supervisor.process.send_signal(signal.SIGINT)
    drained = [line for line in supervisor.rest() if line.endswith(("drained", "stopped"))]
    assert drained == ["gateway drained", "worker drained", "worker drained", "stopped"]
    assert supervisor.process.returncode == 0
    assert not processes_with(supervisor.tmp.name)
    assert not list(supervisor.tmp.iterdir())


def test_the_real_fleet_is_ready_and_ctrl_c_leaves_nothing(real_supervisor: Supervisor):
    url = real_supervisor.read_until("ready: ").removeprefix("ready: ")
    assert status_of(url, "/readyz") == 200
    real_supervisor.process.send_signal(signal.SIGINT)
    assert "stopped" in real_supervisor.rest()
    assert real_supervisor.process.returncode == 0
    assert not processes_with(real_supervisor.tmp.name)
    assert not list(real_supervisor.tmp.iterdir())


def test_ctrl_c_while_starting_leaves_nothing(supervisor: Supervisor):
    supervisor.read_until("starting gateway and workers")
    supervisor.process.send_signal(signal.SIGINT)
    supervisor.rest()
    assert supervisor.process.returncode == 130
    assert not processes_with(supervisor.tmp.name)
    assert not list(supervisor.tmp.iterdir())


def test_a_killed_supervisor_takes_everything_along(supervisor: Supervisor):
    supervisor.read_until("ready: ")
    assert len(processes_with(supervisor.tmp.name)) == 5
    supervisor.process.kill()
    wait_until(lambda: not processes_with(supervisor.tmp.name))


def test_a_second_signal_does_not_wait_for_a_child_that_hangs(supervisor: Supervisor):
    supervisor.read_until("ready: ")
    for pid in processes_with(supervisor.tmp.name) - {supervisor.process.pid}:
        if b"gateway drained" in command_of(pid):
            os.kill(pid, signal.SIGSTOP)
    supervisor.process.send_signal(signal.SIGINT)
    supervisor.read_until("once more to stop now")
    supervisor.process.send_signal(signal.SIGTERM)
    supervisor.rest()
    assert supervisor.process.returncode == 130
    assert not processes_with(supervisor.tmp.name)


async def eventually(holds: Callable[[], object], seconds: float = 20) -> None:
    await asyncio.to_thread(wait_until, holds, seconds)


def workers_with(marker: str) -> set[int]:
    return {pid for pid in processes_with(marker) if b"worker drained" in command_of(pid)}


async def test_a_worker_that_dies_is_started_again(tmp_path_factory):
    value = tmp_path_factory.mktemp("marker").name
    said: list[str] = []
    async with fleet(environment={"SCRIBE_TEST": value}, layout=[Group("decoder", 1)], say=said.append):
        (first,) = workers_with(value)
        os.kill(first, signal.SIGKILL)
        await eventually(lambda: workers_with(value) - {first})
    assert any("worker decoder 1 died" in line and "SIGKILL" in line for line in said)


async def test_redis_that_dies_comes_back_at_the_same_address():
    async with fleet() as running:
        clients = await connect(running.redis)
        try:
            run_id = (await clients.commands.info("server"))["run_id"]
            os.kill((await clients.commands.info("server"))["process_id"], signal.SIGKILL)

            async def is_back() -> bool:
                with suppress(RedisUnavailable), translated():
                    return (await clients.commands.info("server"))["run_id"] != run_id
                return False

            async with asyncio.timeout(20):
                while not await is_back():  # noqa: ASYNC110
                    await asyncio.sleep(0.05)
        finally:
            await clients.stop()


async def test_a_worker_that_keeps_dying_ends_the_start_with_a_clear_error():
    broken = fleet(worker_command=(sys.executable, "-c", "raise SystemExit(3)"))
    with pytest.raises(StageFailed, match=r"worker .* died 4 times in a row .*exit code 3.*doctor"):
        await broken.start()


async def test_a_given_redis_is_used_and_left_alone():
    server = EmbeddedRedis()
    try:
        url = server.start()
        async with fleet(redis=RedisSettings(url=url)) as running:
            assert running.redis.url == url
        assert server.running
    finally:
        server.stop()


async def test_a_port_in_use_is_said_at_once():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(Misconfigured, match=rf"127.0.0.1 port {port} .*--port"):
            await fleet(gateway=GatewaySettings(port=port)).start()


def test_an_unknown_stage_is_refused_by_name():
    with pytest.raises(Misconfigured, match="no stage is called 'acustic': use frontend, acoustic, decoder"):
        Group("acustic+decoder", 1)
