"""Channels that bring nothing: they are noticed and made anew, and nobody misses an event meanwhile."""

import asyncio
import json

import pytest

from gateway.sessions import open_session
from shared import metrics, subscription, transcripts
from shared.errors import Misconfigured
from shared.protocol import SessionOptions
from shared.redis_client import RedisClients, connect
from shared.transcripts import TranscriptHub
from tests.conftest import wait_until


@pytest.fixture
async def hub(clients, monkeypatch):
    monkeypatch.setattr(transcripts, "CHECK_S", 0.1)
    monkeypatch.setattr(transcripts, "GRACE_S", 0.1)
    hub = TranscriptHub(clients)
    await hub.start()
    yield hub
    await hub.stop()


async def say(clients: RedisClients, session: str, what: str) -> None:
    keys, event = clients.keys, json.dumps({"type": "flushed", "flush_id": what})
    await clients.run(
        "emit", [keys.meta(session), keys.events(session)], [keys.channel(session), 60_000, "", event]
    )


async def deafen(hub: TranscriptHub, session: str) -> None:
    """The server forgets the subscription, and nobody here knows."""
    channel = hub._clients.keys.channel(session)
    subscription = hub._subscription(session)
    await subscription._call(subscription._pubsub, "unsubscribe")(channel)


def rebuilt() -> float:
    return metrics.RESUBSCRIBED._value.get()


async def test_a_deaf_channel_is_made_anew_and_brings_the_next_event_by_itself(clients, hub, monkeypatch):
    session = (await open_session(clients, SessionOptions())).session
    follower, before = await hub.follow(session), rebuilt()
    await say(clients, session, "heard")
    assert (await anext(follower)).number == 1

    reading = asyncio.create_task(anext(follower))
    await asyncio.wait([reading], timeout=0.25)  # nothing is said; it looks at the stream now and then
    await deafen(hub, session)
    await say(clients, session, "unheard")
    assert (await reading).number == 2  # from the stream
    reading = asyncio.create_task(anext(follower))
    await wait_until(lambda: rebuilt() == before + 1)

    monkeypatch.setattr(transcripts, "CHECK_S", 60)
    await wait_until(lambda: hub._subscription(session)._deaf is False)
    await asyncio.wait([reading], timeout=0.2)  # its last look at the stream is over
    await say(clients, session, "heard again")
    assert (await asyncio.wait_for(reading, 5)).number == 3
    await follower.close()


async def test_a_channel_that_is_only_quiet_is_left_alone(clients, hub):
    session = (await open_session(clients, SessionOptions())).session
    follower, before = await hub.follow(session), rebuilt()
    for n in range(1, 4):
        reading = asyncio.create_task(anext(follower))
        await asyncio.wait([reading], timeout=0.25)  # two looks at the stream
        await say(clients, session, "now")
        assert (await reading).number == n

    assert rebuilt() == before
    await follower.close()


async def test_a_channel_is_not_made_anew_more_often_than_every_few_seconds(clients, hub):
    session = (await open_session(clients, SessionOptions())).session
    follower, before = await hub.follow(session), rebuilt()
    for _ in range(20):
        hub.deaf(session)
        await asyncio.sleep(0.01)
    await say(clients, session, "wakes the reader")

    await wait_until(lambda: rebuilt() > before)
    hub.deaf(session)
    assert hub._subscription(session)._deaf is False
    assert subscription.REBUILD_S >= 1
    await follower.close()


async def test_sharded_channels_bring_events_and_are_made_anew(redis_settings):
    settings = redis_settings.model_copy(update={"sharded_pubsub": True})
    clients = await connect(settings)
    hub = TranscriptHub(clients)
    await hub.start()
    session = (await open_session(clients, SessionOptions())).session
    assert clients.keys.channel(session).startswith(f"{settings.prefix}:{{p")
    follower, before = await hub.follow(session), rebuilt()
    await say(clients, session, "heard")
    assert (await anext(follower)).number == 1

    await deafen(hub, session)  # the server says so, as it does when the slot moves
    await say(clients, session, "perhaps unheard")
    assert (await anext(follower)).number == 2
    await wait_until(lambda: rebuilt() > before)
    await follower.close()
    await hub.stop()
    await clients.stop()


async def test_all_processes_agree_on_sharded_channels(clients):
    with pytest.raises(Misconfigured, match="SCRIBE_REDIS_SHARDED_PUBSUB=0"):
        await connect(clients.settings.model_copy(update={"sharded_pubsub": True}))
