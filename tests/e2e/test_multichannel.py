"""`multichannel`: each channel is a session of its own, on one connection."""

import json
from typing import Any

import numpy as np
import pytest

from gateway.ingest import Ingest
from gateway.sessions import channel_sessions, open_session
from ops.client import StreamClient
from shared.clock import wall_ms
from shared.protocol import SessionOptions
from shared.settings import GatewaySettings
from tests.e2e.conftest import rest, until
from tests.e2e.test_resume import cut
from tests.integration.test_workers import bare
from tests.pipeline import Pipeline, audio_chunks, lasting
from tests.unit.test_stages import silence, speech, stages

END = json.dumps({"type": "end"})
LEFT = np.concatenate([silence(0.4), speech(2.2, 7), silence(1.6)])
RIGHT = np.concatenate([silence(1.3), speech(1.5, 8), silence(0.9), speech(0.5, 9)])
AUDIO = np.stack([LEFT, RIGHT], axis=1).tobytes()
QUERY = "sample_rate=16000&channels=2&multichannel=true"
CHUNK = 5_120  # samples


@pytest.fixture
def gateway_settings() -> GatewaySettings:
    return GatewaySettings(port=0, drain_s=5, resume_s=20)


def alone(samples: np.ndarray) -> list[dict[str, Any]]:
    """What a session of this channel alone says for good."""
    return lasting(Pipeline(stages()).run(audio_chunks(samples), [1] * 99))


def by_channel(messages: list[dict[str, Any]], channels: list[str]) -> list[list[dict[str, Any]]]:
    return [[m for m in messages if m.get("session") == each and "event" in m] for each in channels]


def resumption(session: str, token: str, events: str) -> str:
    return f"session={session}&resume_token={token}&channel_events={events}"


async def test_each_channel_says_what_it_would_say_alone(fleet):
    async with fleet.connect(QUERY) as socket:
        (ready,) = await until(socket, "ready")
        await socket.send(AUDIO)
        await socket.send(END)
        left, right = by_channel(await rest(socket), ready["channels"])

    assert ready["channels"][0] == ready["session"]
    for events, samples in [(left, LEFT), (right, RIGHT)]:
        assert [event["event"] for event in events] == list(range(1, len(events) + 1))
        assert lasting(bare(events)) == alone(samples)
    assert socket.close_code == 1000


async def test_a_flush_is_answered_by_each_channel(fleet):
    async with fleet.connect(QUERY) as socket:
        (ready,) = await until(socket, "ready")
        await socket.send(AUDIO[: 2 * 40_000 * 2])
        await socket.send(json.dumps({"type": "flush", "id": "turn"}))
        await socket.send(END)
        told = by_channel(await rest(socket), ready["channels"])

    assert [[e["flush_id"] for e in events if e["type"] == "flushed"] for events in told] == [["turn"]] * 2


@pytest.mark.parametrize("chunks", [(3, 7), (7, 3), (0, 4)])
async def test_channels_that_a_dead_gateway_left_at_different_places_go_on_from_the_one_behind(
    fleet, clients, chunks
):
    options = SessionOptions(sample_rate=16_000, channels=2, multichannel=True)
    first = await open_session(clients, options)
    channels = channel_sessions(first.session, 2)
    second = await open_session(clients, options, session=channels[1], resume_token=first.resume_token)
    for held, samples, count in zip((first, second), (LEFT, RIGHT), chunks, strict=True):
        ingest = Ingest(clients, held)
        for chunk in range(count):
            piece = samples[chunk * CHUNK : (chunk + 1) * CHUNK]
            await ingest.append("audio", piece.tobytes(), wall_ms())

    async with fleet.connect(resumption(first.session, first.resume_token, "0,0")) as socket:
        (ready,) = await until(socket, "ready")
        await socket.send(AUDIO[ready["next_sample"] * 4 :])
        await socket.send(END)
        left, right = by_channel(await rest(socket), channels)

    assert ready["next_sample"] == min(chunks) * CHUNK
    assert ready["channels"] == channels
    assert (lasting(bare(left)), lasting(bare(right))) == (alone(LEFT), alone(RIGHT))


async def test_a_client_that_comes_back_hears_of_each_channel_what_it_has_missed(fleet):
    async with fleet.connect(QUERY) as socket:
        (ready,) = await until(socket, "ready")
        await socket.send(AUDIO)
        await socket.send(END)
        everything = by_channel(await rest(socket), ready["channels"])

    async with fleet.connect(resumption(ready["session"], ready["resume_token"], "2,3")) as socket:
        missed = by_channel(await rest(socket), ready["channels"])
    assert missed == [everything[0][2:], everything[1][3:]]


@pytest.mark.parametrize("events", ["3", "1,2,3"])
async def test_numbers_for_other_channels_than_there_are_get_a_clear_error(fleet, events):
    async with fleet.connect(QUERY) as socket:
        (ready,) = await until(socket, "ready")
    async with fleet.connect(resumption(ready["session"], ready["resume_token"], events)) as socket:
        (problem,) = await rest(socket)
    assert problem["code"] == "bad_input"
    assert "the session 2 channel(s)" in problem["message"]


async def test_our_client_resumes_all_channels_and_ends_with_the_last(fleet):
    options = SessionOptions(sample_rate=16_000, channels=2, multichannel=True)
    events = []
    async with StreamClient(fleet.url, options) as client:
        await client.send(AUDIO[:150_000])
        async for message in client:
            events.append(message.model_dump())
            if message.type == "partial":
                break
        cut(client.socket)
        await client.send(AUDIO[150_000:])
        await client.end()
        events += [message.model_dump() async for message in client]
        told = by_channel(events, client.ready.channels)

    for heard, samples in zip(told, (LEFT, RIGHT), strict=True):
        assert [event["event"] for event in heard] == list(range(1, len(heard) + 1))
        finals = [event["text"] for event in alone(samples) if event["type"] == "final"]
        assert [event["text"] for event in heard if event["type"] == "final"] == finals
