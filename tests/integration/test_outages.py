"""What Redis can't do is no fault of a session: it waits, and then goes on as if nothing had been."""

import asyncio
import threading
import time

import pytest

from gateway.sessions import open_session
from ops.embedded import EmbeddedRedis
from shared import clock
from shared.errors import Overloaded, RedisUnavailable
from shared.keys import STAGES
from shared.protocol import SessionOptions
from shared.redis_client import GROUP, connect, translated
from shared.settings import RedisSettings, WorkerSettings
from tests.conftest import wait_until
from tests.fakes import LoudnessDetector
from tests.integration.test_workers import SETTINGS, Session, stages
from workers.compute import AnyStage
from workers.stages.frontend import Frontend
from workers.worker import Worker

pytestmark = pytest.mark.slow

# One failure counted, and the session is given up.
STRICT = WorkerSettings(lease_s=0.4, deliveries=1)


class Gated(LoudnessDetector):
    """A model that takes until `gate` is opened."""

    def __init__(self) -> None:
        self.begun, self.gate = threading.Event(), threading.Event()

    def probability(self, state, frame):
        self.begun.set()
        self.gate.wait(30)
        return super().probability(state, frame)

    def stages(self) -> list[AnyStage]:
        return [Frontend(self), *stages("acoustic decoder")]


@pytest.fixture
async def server(tmp_path):
    server = EmbeddedRedis(tmp_path / "data")
    server.start()
    yield server
    server.stop()


@pytest.fixture
async def own(server):
    """Clients of a server that is this test's alone."""
    clients = await connect(RedisSettings(url=f"unix://{server._socket}", prefix="own", partitions=4))
    yield clients
    await clients.stop()


async def outage(server: EmbeddedRedis, seconds: float) -> None:
    server._process.kill()
    server._process.wait()
    await asyncio.sleep(seconds)  # the fault itself
    await asyncio.to_thread(server.start)


async def finish(session: Session, *team: Worker) -> None:
    await session.send(100)
    await wait_until(session.over)
    for worker in team:
        await worker.stop(5)
    await session.check()


async def test_outages_longer_than_a_lease_count_as_nobodys_failure(own, server):
    detector, session = Gated(), await Session.open(own, 1)
    owner, peer = (Worker(own, STRICT, detector.stages(), name) for name in ("owner", "peer"))
    await session.send(4)
    await owner.start()
    await wait_until(detector.begun.is_set)
    await peer.start()
    await wait_until(lambda: own.commands.hexists(own.keys.workers("frontend"), "peer"))

    for _ in range(3):
        await outage(server, 2 * STRICT.lease_s)
        back = clock.mono_ms()
        await wait_until(lambda back=back: _has_judged(peer, back))
    detector.gate.set()

    await finish(session, owner, peer)


def _has_judged(worker: Worker, since_ms: float) -> bool:
    """It has looked for silent peers since that moment, and since it believes their silence."""
    looked = worker._sweep_at - worker._lease_ms / 4
    return looked > max(since_ms, worker._peers._judge_from)


async def test_a_worker_keeps_its_token_through_an_outage_that_its_commit_falls_into(own, server):
    detector, session = Gated(), await Session.open(own, 1)
    worker = Worker(own, STRICT, detector.stages(), "alone")
    await session.send(4)
    await worker.start()
    await wait_until(detector.begun.is_set)

    server._process.kill()
    server._process.wait()
    detector.gate.set()
    await wait_until(lambda: worker._troubles > 1)
    assert worker._token
    await asyncio.to_thread(server.start)

    await finish(session, worker)


async def test_a_reply_that_never_came_leaves_its_token_to_the_next_pass_without_blame(clients):
    session = await Session.open(clients, 1)
    await session.send(4)
    worker = Worker(clients, STRICT, stages(), "w1")
    assert await worker._queue.take()  # and nobody heard it

    await worker._hand_back_unseen()

    assert (await worker._queue.take()).failures == 0


async def test_without_memory_passes_finish_chunks_wait_and_new_sessions_are_refused(own):
    session = await Session.open(own, 1)
    await session.send(8)
    await own.commands.config_set("maxmemory", 1)
    worker = Worker(own, STRICT, stages(), "w1")
    await worker.start()

    sending = asyncio.create_task(session.send(4))
    await wait_until(lambda: _done(session, 8))
    with pytest.raises(Overloaded):
        await open_session(own, SessionOptions())
    assert await own.commands.hexists(own.keys.workers("frontend"), "w1")
    assert not sending.done()
    assert session.ingest.seq == 8

    await own.commands.config_set("maxmemory", 0)
    await sending
    await finish(session, worker)


async def test_a_full_redis_lets_a_worker_hand_back_its_token_and_leave(own):
    session = await Session.open(own, 1)
    await session.send(4)
    await own.commands.config_set("maxmemory", 1)
    detector = Gated()
    leaving, peer = Worker(own, STRICT, detector.stages(), "leaving"), Worker(own, STRICT, stages(), "peer")
    await leaving.start()
    await wait_until(detector.begun.is_set)

    await leaving.stop(0)
    assert await peer.work()

    detector.gate.set()
    await own.commands.config_set("maxmemory", 0)
    await peer.start()
    await finish(session, peer)


async def _done(session: Session, seq: int) -> bool:
    keys, commands = session.clients.keys, session.clients.commands
    done = [await commands.hmget(keys.state(session.sid, stage), "seq", "fed") for stage in STAGES]
    return int(done[0][0] or 0) >= seq and all(seen == fed for seen, fed in done)


async def _idle_ms(clients, token) -> int:
    (entry,) = await clients.commands.xpending_range(token.ready, GROUP, token.id, token.id, 1)
    return entry["time_since_delivered"]


@pytest.fixture
async def held(own):
    """A worker with a token in hand and its renewal thread, and the token."""
    session = await Session.open(own, 1)
    await session.send(4)
    worker = Worker(own, SETTINGS, stages(), "holder")
    worker._hold(await worker._queue.take())
    worker._leases.start()
    yield worker, worker._token
    await worker.stop(5)


async def test_a_lease_outlives_a_blocked_event_loop(own, held):
    _, token = held
    time.sleep(3 * SETTINGS.lease_s)  # noqa: ASYNC251 - the blocked loop is the point

    assert await _idle_ms(own, token) < SETTINGS.lease_s * 1000


async def test_a_lease_outlives_an_inference_that_never_lets_go_of_the_interpreter(own, held):
    _, token = held
    end = time.monotonic() + 3 * SETTINGS.lease_s
    while time.monotonic() < end:  # pure Python, on the loop's own thread: as greedy as a step can be
        sum(range(1000))

    assert await _idle_ms(own, token) < SETTINGS.lease_s * 1000


async def test_a_lease_is_renewed_at_once_after_an_outage_of_three_seconds(own, held, server):
    _, token = held
    await outage(server, 3)

    await wait_until(lambda: _renewed(own, token), within_s=SETTINGS.lease_s)


async def _renewed(own, token) -> bool:
    return await _idle_ms(own, token) < SETTINGS.lease_s * 500


async def test_the_renewal_thread_survives_errors_of_any_kind(own, held, monkeypatch):
    worker, token = held
    leases = worker._leases
    for broken in (ZeroDivisionError, OSError, MemoryError):
        raised = threading.Event()

        def fails(*_args, broken=broken, raised=raised, **_named):
            raised.set()
            raise broken

        with monkeypatch.context() as patch:
            patch.setattr(leases, "_renewal", fails)
            await wait_until(raised.is_set)
    await own.commands.xgroup_destroy(token.ready, GROUP)
    await wait_until(lambda: _beaten_since(own, time.time() * 1000))

    assert leases._thread.is_alive()


async def _beaten_since(own, moment_ms: float) -> bool:
    (beat,) = (await Worker(own, SETTINGS, stages(), "other")._peers.live("frontend")).values()
    return beat["seen_ms"] > moment_ms - 1000


@pytest.mark.parametrize("hours", [1, -1])
async def test_a_step_of_a_workers_clock_changes_nothing(clients, monkeypatch, hours):
    real = clock.time.time
    session = await Session.open(clients, 1)
    team = [Worker(clients, SETTINGS, stages(), name) for name in ("one", "two")]
    for worker in team:
        await worker.start()
    await session.send(4)

    monkeypatch.setattr(clock.time, "time", lambda: real() + hours * 3600)
    await wait_until(lambda: _both_seen(team))
    await finish(session, *team)

    waits = [hop["wait_ms"] for event in await session.events() for hop in event["trace"]["hops"]]
    assert 0 <= min(waits) <= max(waits) < 10_000


async def _both_seen(team) -> bool:
    return all([len(await worker._peers.live("frontend")) == 1 for worker in team])


async def test_a_connection_that_another_task_closes_is_an_outage_and_no_bug(clients, monkeypatch):
    """Its pool does so when the master has moved."""
    connection = clients.commands.connection_pool.make_connection()
    await connection.connect()
    monkeypatch.setattr(connection, "check_health", connection.disconnect)

    with pytest.raises(RedisUnavailable), translated():
        await connection.send_command("PING")
