"""Workers that leave: real processes, asked to go or killed, and the sessions they leave behind."""

import os
import signal
import subprocess
import sys
import time

import pytest

from ops.tether import tethered
from shared.settings import child_environment
from tests.conftest import wait_until
from tests.integration.test_workers import Session, nothing_is_pending

pytestmark = pytest.mark.slow

# The cheap worker, each of whose passes takes a while; over many chunks, longer than any deadline.
PROCESS = """
import sys, time
from tests.chaos.worker import build
from workers.__main__ import main
from workers.stages.frontend import Frontend

def slow(names, settings):
    stages = build(names, settings)
    step = stages[0].step
    def wait(state, inputs, *rest):
        time.sleep(30 if len(inputs) > 10 and {stuck} else 0.05)
        return step(state, inputs, *rest)
    stages[0].step = wait
    return stages

main(slow)
"""


class Process:
    def __init__(self, settings, *, stuck: bool, **extra: str) -> None:
        environment = child_environment(
            SCRIBE_REDIS_URL=settings.url,
            SCRIBE_REDIS_PREFIX=settings.prefix,
            SCRIBE_REDIS_PARTITIONS=str(settings.partitions),
            SCRIBE_LOG_LEVEL="WARNING",
            **extra,
        )
        command = [sys.executable, "-c", PROCESS.format(stuck=stuck), "all"]
        self.popen = subprocess.Popen(tethered(command), env=environment)
        self.pid = str(self.popen.pid)

    async def exited(self, within_s: float) -> int:
        await wait_until(lambda: self.popen.poll() is not None, within_s)
        return self.popen.returncode


@pytest.fixture
def start(redis_settings):
    started = []

    def start(*, stuck: bool = False, **extra: str) -> Process:
        started.append(Process(redis_settings, stuck=stuck, **extra))
        return started[-1]

    yield start
    for process in started:
        process.popen.kill()
        process.popen.wait()


async def names(clients) -> list[str]:
    return [name.decode() for name in await clients.commands.hkeys(clients.keys.workers("frontend"))]


async def named(clients, process: Process) -> bool:
    return any(f"-{process.pid}-" in name for name in await names(clients))


async def done(session: Session) -> int:
    keys = session.clients.keys
    return int(await session.clients.commands.hget(keys.state(session.sid, "frontend"), "seq") or 0)


async def caught_up(session: Session) -> bool:
    return await done(session) == session.ingest.seq


async def owner(session: Session) -> int:
    """Process id of the worker that has the session's token."""
    keys, commands = session.clients.keys, session.clients.commands
    ready = keys.ready_of(session.sid, "frontend")
    pending = await commands.xpending_range(ready, "workers", "-", "+", 1)
    return int(pending[0]["consumer"].decode().split("-")[-2]) if pending else 0


async def holder(session: Session) -> int:
    """The same, once there is one."""
    found: list[int] = []

    async def held() -> int:
        found.append(await owner(session))
        return found[-1]

    await wait_until(held)
    return found[-1]


async def test_a_worker_asked_to_go_under_load_leaves_at_once_and_no_chunk_is_late(clients, start):
    team = [start(), start()]
    for process in team:
        await wait_until(lambda process=process: named(clients, process), 30)
    sessions = [await Session.open(clients, seed) for seed in range(4)]
    latest = 0.0
    for number in range(len(sessions[0].chunks)):
        began = time.monotonic()
        for session in sessions:
            await session.send()
        if number == 6:
            team[0].popen.send_signal(signal.SIGTERM)
        for session in sessions:
            await wait_until(lambda session=session: caught_up(session))
        latest = max(latest, time.monotonic() - began)

    # Four sessions' passes of 50 ms on one worker take 0.2 s; a lease would have taken 2 s.
    assert latest < 0.2 + 0.32 + 0.3
    assert await team[0].exited(5) == 0
    assert not await named(clients, team[0])
    for session in sessions:
        await wait_until(session.over)
        await session.check()
    ready = clients.keys.ready_of(sessions[0].sid, "frontend")
    consumers = await clients.commands.xinfo_consumers(ready, "workers")
    assert not any(f"-{team[0].pid}-" in consumer["name"].decode() for consumer in consumers)


async def test_a_pass_that_outlives_the_deadline_goes_to_a_peer_at_once(clients, start):
    session = await Session.open(clients, 1)
    await session.send(20)
    stuck = start(stuck=True, SCRIBE_WORKER_DRAIN_S="0.5", SCRIBE_WORKER_LEASE_S="60")
    assert await holder(session) == stuck.popen.pid

    stuck.popen.send_signal(signal.SIGTERM)
    assert await stuck.exited(5) == 0

    ready = clients.keys.ready_of(session.sid, "frontend")
    assert (await clients.commands.xpending(ready, "workers"))["pending"] == 0
    assert await clients.commands.xlen(ready) == 1


async def test_a_second_signal_ends_a_worker_now(clients, start):
    session = await Session.open(clients, 1)
    await session.send(20)
    stuck = start(stuck=True)
    assert await holder(session) == stuck.popen.pid
    await wait_until(lambda: named(clients, stuck))

    stuck.popen.send_signal(signal.SIGTERM)
    await wait_until(lambda: _gone(clients, stuck))
    stuck.popen.send_signal(signal.SIGTERM)

    assert await stuck.exited(2) == 1


async def _gone(clients, process) -> bool:
    return not await named(clients, process)


async def test_a_killed_workers_session_goes_on_within_three_seconds(clients, start):
    """At default settings; killed in the middle of a pass, five times."""
    stalls = []
    team = [start(), start()]
    for process in team:
        await wait_until(lambda process=process: named(clients, process), 30)
    for seed in range(5):
        session = await Session.open(clients, seed)
        await session.send()
        pid = await holder(session)
        os.kill(pid, signal.SIGKILL)
        began = time.monotonic()
        await wait_until(lambda session=session: caught_up(session))
        stalls.append(time.monotonic() - began)
        team = [process for process in team if process.popen.pid != pid] + [start()]
        await wait_until(lambda newest=team[-1]: named(clients, newest), 30)
        await session.send(100)
        await wait_until(session.over)
        await session.check()
    assert max(stalls) < 3, stalls
    await wait_until(lambda: nothing_is_pending(clients))
