"""Redis comes back with an older copy of its data, as after a failover: nothing is lost, nothing is told twice."""

import asyncio
import json
from contextlib import suppress

import numpy as np
import pytest

from gateway.ingest import Ingest
from gateway.relay import Relay, SessionFailed
from gateway.sessions import open_session
from shared.errors import Replaced, ScribeError, SessionLost
from shared.protocol import SessionOptions
from shared.tasks import cancel
from shared.transcripts import TranscriptHub
from tests.conftest import wait_until
from tests.integration.test_workers import SETTINGS, bare, stages
from tests.pipeline import Pipeline, audio_chunks, lasting
from tests.unit.test_stages import silence, speech
from workers.wire import AudioChunk
from workers.worker import Worker


def long_talk() -> np.ndarray:
    return np.concatenate([part for n in range(4) for part in (silence(0.6), speech(1.5, n))])


CHUNKS = audio_chunks(long_talk())


async def copy(clients) -> dict[bytes, tuple[int, bytes]]:
    """All of Redis as it is now."""
    while True:
        keys = list({key async for key in clients.commands.scan_iter("*")})
        pipe = clients.commands.pipeline(transaction=True)
        pipe.dbsize()
        for key in keys:
            pipe.pttl(key)
            pipe.dump(key)
        size, *values = await pipe.execute()
        if size == len(keys) and None not in values:
            return dict(zip(keys, zip(values[::2], values[1::2], strict=True), strict=True))


async def restore(clients, saved) -> None:
    """Redis as it was then, at once: nobody sees it in between."""
    pipe = clients.commands.pipeline(transaction=True)
    pipe.flushall()
    for key, (ttl, value) in saved.items():
        pipe.restore(key, max(ttl, 0), value)
    await pipe.execute()


class Client:
    """What a gateway does for one session, with a client that only listens."""

    def __init__(self, clients, hub, held) -> None:
        self.clients, self.hub, self.held = clients, hub, held
        self.received: list[dict] = []

    async def __aenter__(self):
        self.relay = Relay(self.clients, await self.hub.follow(self.held.session), self.held)
        self.ingest = Ingest(self.clients, self.held, before_repeat=self.relay.restore)
        self.tasks = [asyncio.create_task(self.relay.run(self.hear)), asyncio.create_task(self._watch())]
        return self

    async def __aexit__(self, *_):
        await self.relay.close()
        await cancel(self.tasks)

    async def hear(self, _: bytes, fields: dict) -> None:
        self.received.append(fields)

    async def send(self, first: int, last: int) -> None:
        for chunk in CHUNKS[first:last]:
            await self.ingest.append(chunk.kind, chunk.payload, 0)

    async def over(self) -> None:
        async with asyncio.timeout(20):
            with suppress(SessionFailed):
                await self.tasks[0]

    def check(self, expected) -> None:
        assert [event["event"] for event in self.received] == list(range(1, len(self.received) + 1))
        assert lasting(bare(self.received)) == expected

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(0.02)
            with suppress(ScribeError):
                await self.ingest.check()
                await self.relay.check()


@pytest.fixture
async def hub(clients):
    hub = TranscriptHub(clients)
    await hub.start()
    yield hub
    await hub.stop()


@pytest.fixture
async def workers(clients):
    team = [Worker(clients, SETTINGS, stages(), name) for name in ("one", "two")]
    for worker in team:
        await worker.start()
    yield team
    await asyncio.gather(*(worker.stop(5) for worker in team))


def unbroken():
    return lasting(Pipeline(stages()).run(CHUNKS, [1] * 100))


@pytest.mark.parametrize("saved_after", [2, 7, 11, 13])
@pytest.mark.parametrize("lost_after", [14, 20, 27])
async def test_chunks_and_events_that_redis_lost_are_put_back(clients, hub, workers, saved_after, lost_after):
    async with Client(clients, hub, await open_session(clients, SessionOptions())) as client:
        await client.send(0, saved_after)
        await wait_until(lambda: caught_up(client.ingest))
        saved = await copy(clients)
        await client.send(saved_after, lost_after)
        await wait_until(lambda: caught_up(client.ingest))
        await restore(clients, saved)
        await client.send(lost_after, len(CHUNKS))
        await client.over()

        client.check(unbroken())
        assert await stored(clients, client.held.session) == client.received


async def test_events_lost_while_nothing_is_sent_are_noticed_and_not_told_again(clients, hub, workers):
    async with Client(clients, hub, await open_session(clients, SessionOptions())) as client:
        await client.send(0, 13)
        saved = await copy(clients)  # chunks are there, commits may not be
        await wait_until(lambda: caught_up(client.ingest))
        before = len(client.received)
        await restore(clients, saved)
        await wait_until(lambda: caught_up(client.ingest))
        await client.send(13, len(CHUNKS))
        await client.over()

        assert before
        client.check(unbroken())


async def test_the_end_is_sent_again_when_redis_lost_it(clients, hub):
    async with Client(clients, hub, await open_session(clients, SessionOptions())) as client:
        await client.send(0, 20)
        saved = await copy(clients)
        await client.send(20, len(CHUNKS))
        await restore(clients, saved)
        worker = Worker(clients, SETTINGS, stages(), "late")
        await worker.start()
        await client.over()
        await worker.stop(5)

        client.check(unbroken())


async def test_audio_that_is_not_kept_any_more_is_announced_as_a_gap(clients, hub, workers):
    held = await open_session(clients, SessionOptions())
    async with Client(clients, hub, held) as client:
        client.ingest = Ingest(clients, held, keep_s=1.0, before_repeat=client.relay.restore)
        await client.send(0, 2)
        await wait_until(lambda: caught_up(client.ingest))
        saved = await copy(clients)
        await client.send(2, 15)
        await wait_until(lambda: any(event["type"] == "final" for event in client.received))
        await restore(clients, saved)
        await client.send(15, len(CHUNKS))
        await client.over()

    before, after = split_at_gap(client.received)
    newest = max(event["utterance"] for event in before if "utterance" in event)
    end = after[0]["end_ms"] * 16
    assert end == 12 * 5120  # three chunks make almost the second that is kept
    gap = AudioChunk("gap", f"{2 * 5120}:{end}:redis_lost_data:{newest}".encode())
    chunks = [*CHUNKS[:2], gap, *CHUNKS[end // 5120 :]]
    assert after == split_at_gap(Pipeline(stages()).run(chunks, [1] * len(chunks)))[1]
    assert [event["event"] for event in client.received] == list(range(1, len(client.received) + 1))


def split_at_gap(events: list[dict]) -> tuple[list[dict], list[dict]]:
    """What lasts before the gap, and from it on."""
    told = lasting(bare(events))
    at = next(i for i, event in enumerate(told) if event["type"] == "gap")
    return told[:at], told[at:]


async def test_a_session_that_redis_lost_altogether_ends_with_a_clear_error(clients, hub):
    async with Client(clients, hub, await open_session(clients, SessionOptions())) as client:
        await client.send(0, 3)
        await clients.commands.flushall()

        with pytest.raises(SessionLost, match="Redis has lost the session"):
            await client.send(3, 4)
        with pytest.raises(SessionLost, match="open a new one"):
            await client.ingest.check()


async def test_a_connection_that_sends_nothing_notices_that_it_was_replaced(clients, hub):
    held = await open_session(clients, SessionOptions())
    await clients.commands.hincrby(clients.keys.meta(held.session), "holder", 1)

    with pytest.raises(Replaced):
        await Ingest(clients, held).check()


async def stored(clients, session: str) -> list[dict]:
    return [json.loads(f[b"e"]) for _, f in await clients.commands.xrange(clients.keys.events(session))]


async def caught_up(ingest: Ingest) -> bool:
    return await ingest.backlog() == 0
