"""What a client of the native protocol sees, over a real socket."""

import asyncio
import gc
import json

import httpx
import numpy as np
import pytest
import websockets

from gateway.ingest import Ingest
from gateway.ring import RingBuffer
from ops.streaming import stream_pcm
from shared.protocol import SERVER_ADAPTER
from shared.settings import GatewaySettings
from tests.conftest import wait_until
from tests.e2e.conftest import rest, until
from tests.pipeline import Pipeline, audio_chunks, finals
from tests.unit.test_stages import silence, speech, stages

END = json.dumps({"type": "end"})


def talk() -> np.ndarray:
    return np.concatenate([silence(0.4), speech(2.2, 7), silence(1.1), speech(1.5, 8)])


def texts(events) -> list[str]:
    return [event["text"] for event in events if event["type"] == "final"]


def expected_texts(samples: np.ndarray) -> list[str]:
    return texts(finals(Pipeline(stages()).run(audio_chunks(samples), [1] * 99)))


def problem(messages) -> dict:
    return next(message for message in messages if message["type"] == "problem")


async def test_a_session_from_ready_to_end(fleet):
    async with fleet.connect() as socket:
        (ready,) = await until(socket, "ready")
        await socket.send(talk().tobytes())
        await socket.send(END)
        messages = await rest(socket)

    assert ready["chunk_ms"] == 320
    assert texts(messages) == expected_texts(talk())
    assert [message["event"] for message in messages] == list(range(1, len(messages) + 1))
    assert messages[-1]["type"] == "end"
    assert messages[-1]["audio_ms"] == len(talk()) // 16
    assert socket.close_code == 1000
    for message in [ready, *messages]:
        SERVER_ADAPTER.validate_python(message)


@pytest.mark.parametrize("size", [1, 333, 5_000, 200_000])
async def test_frames_of_any_size_give_the_same_text(fleet, size):
    audio = talk()[: 16_000 * 2 if size == 1 else None].tobytes()
    audio = audio[:20_000] if size == 1 else audio
    async with fleet.connect() as socket:
        for i in range(0, len(audio), size):
            await socket.send(audio[i : i + size])
        await socket.send(END)
        messages = await rest(socket)

    assert texts(messages) == expected_texts(np.frombuffer(audio, np.int16))


async def test_options_can_come_in_the_first_message(fleet):
    configure = {"type": "configure", "sample_rate": 16000, "chunk_ms": 160, "partials": False}
    async with websockets.connect(f"ws://127.0.0.1:{fleet.port}/v1/stream") as socket:
        await socket.send(json.dumps(configure))
        (ready,) = await until(socket, "ready")
        await socket.send(talk().tobytes())
        await socket.send(END)
        messages = await rest(socket)

    assert ready["chunk_ms"] == 160
    assert "partial" not in {message["type"] for message in messages}
    assert texts(messages) == expected_texts(talk())


async def test_a_client_that_configures_nothing_gets_the_defaults(fleet):
    async with websockets.connect(f"ws://127.0.0.1:{fleet.port}/v1/stream") as socket:
        (ready,) = await until(socket, "ready")

    assert (ready["sample_rate"], ready["encoding"]) == (16000, "auto")


async def test_a_flush_is_answered_after_everything_said_before_it(fleet):
    async with fleet.connect() as socket:
        await socket.send(speech(1.0, 7).tobytes())
        await socket.send(json.dumps({"type": "flush", "id": "a"}))
        answer = await until(socket, "flushed")
        await socket.send(speech(1.0, 8).tobytes())
        await socket.send(json.dumps({"type": "flush", "id": "b"}))
        second = await until(socket, "flushed")
        await socket.send(END)
        await rest(socket)

    assert (answer[-1]["flush_id"], second[-1]["flush_id"]) == ("a", "b")
    assert len(texts(answer)) == len(texts(second)) == 1
    assert next(e for e in answer if e["type"] == "final")["end_ms"] == 1000


@pytest.mark.parametrize("audio", [b"", silence(3).tobytes()], ids=["zero bytes", "silence only"])
async def test_nothing_said_is_an_empty_transcript(fleet, audio):
    async with fleet.connect() as socket:
        await socket.send(audio)
        await socket.send(END)
        messages = await rest(socket)

    assert [message["type"] for message in messages] == ["ready", "end"]
    assert messages[-1]["utterances"] == 0
    assert socket.close_code == 1000


async def test_the_audio_of_a_session_goes_with_it_and_waits_for_no_garbage_collection(fleet):
    gc.collect()
    gc.disable()
    try:
        await stream_pcm(fleet.url, talk().tobytes())
        await wait_until(lambda: not fleet.gateway._connections)
        left = [held for held in gc.get_objects() if type(held) in {Ingest, RingBuffer}]
    finally:
        gc.enable()

    assert left == []


async def test_ping_is_answered_at_any_time(fleet):
    async with fleet.connect() as socket:
        await socket.send(json.dumps({"type": "ping", "id": "1"}))
        messages = await until(socket, "pong")

    assert messages[-1] == {"type": "pong", "id": "1", "chunk": 0, "sample": 0}


@pytest.mark.parametrize(
    ("query", "named"),
    [
        ("sample_rate=4000", ["sample_rate", "8000"]),
        ("sample_rate=fast", ["sample_rate", "integer", "fast"]),
        ("encoding=mp3", ["encoding", "pcm_s16le", "mp3"]),
        ("channels=9", ["channels", "8"]),
        ("endpointing_ms=10", ["endpointing_ms", "200"]),
        ("chunk_ms=5", ["chunk_ms", "80"]),
        ("language=xx", ["language", "en"]),
        ("samplerate=16000", ["samplerate", "sample_rate"]),
    ],
)
async def test_a_wrong_parameter_is_named_with_what_would_be_right(fleet, query, named):
    async with fleet.connect(query) as socket:
        messages = await rest(socket)

    assert socket.close_code == 1008
    assert problem(messages)["code"] == "bad_input"
    assert all(word in problem(messages)["message"] for word in named)


@pytest.mark.parametrize(
    ("frames", "named"),
    [
        ([b'{"type": "end"}'], ["text"]),
        (["hello"], ["text frames are JSON"]),
        ([json.dumps({"type": "ping", "di": "1"})], ["ping", "'di'", "id"]),
        ([json.dumps({"type": "stop"})], ["configure, resume, flush, end or ping"]),
        ([b"\0\0", json.dumps({"type": "configure"})], ["first message"]),
        ([END, b"\0\0"], ["after end", "new session"]),
        ([b'{"a":' + b"[" * 1100 + b"]" * 1100 + b"}", END, b"\0\0"], ["after end"]),
        (["null"], ["JSON", "type"]),
    ],
    ids=[
        "json as audio",
        "no json",
        "unknown field",
        "unknown type",
        "late configure",
        "after end",
        "brackets",
        "no object",
    ],
)
async def test_wrong_input_is_told_to_that_client_in_one_sentence(idle_fleet, frames, named):
    async with idle_fleet.connect() as socket:
        for frame in frames:
            await socket.send(frame)
        messages = await asyncio.wait_for(rest(socket), 10)

    assert socket.close_code == 1008
    said = problem(messages)["message"]
    assert all(word in said for word in named), said
    assert "Traceback" not in said
    await wait_until(lambda: not idle_fleet.gateway._connections, 3)


async def test_half_a_sample_at_the_end_is_told_and_the_rest_is_decoded(fleet):
    async with fleet.connect() as socket:
        await socket.send(talk().tobytes() + b"x")
        await socket.send(END)
        messages = await rest(socket)

    assert "byte" in problem(messages)["message"]
    assert texts(messages) == expected_texts(talk())
    assert messages[-1]["type"] == "end"
    assert socket.close_code == 1008


async def test_a_gateway_that_must_stop_says_so_to_sessions_that_go_on(fleet):
    async with fleet.connect() as socket:
        await until(socket, "ready")
        await fleet.gateway.stop(0.1)
        await rest(socket)

    assert socket.close_code == 1001


async def test_a_frame_that_is_too_large_closes_only_its_own_connection(fleet):
    async with fleet.connect() as good, fleet.connect() as bad:
        await good.send(talk().tobytes())
        await bad.send(bytes(2 << 20))
        await rest(bad)
        await good.send(END)
        messages = await rest(good)

    assert bad.close_code == 1009
    assert texts(messages) == expected_texts(talk())


class TestIdle:
    @pytest.fixture
    def gateway_settings(self):
        return GatewaySettings(port=0, idle_s=0.2)

    async def test_a_client_that_falls_silent_is_told_so_and_its_session_ends(self, fleet):
        async with fleet.connect() as socket:
            (ready,) = await until(socket, "ready")
            messages = await rest(socket)

        assert "nothing was sent for 0.2 s" in problem(messages)["message"]
        await wait_until(lambda: _ended(fleet, ready["session"]))


async def test_a_session_that_the_fleet_gave_up_closes_with_its_error_event(fleet):
    async with fleet.connect() as socket:
        (ready,) = await until(socket, "ready")
        keys, body = fleet.clients.keys, '{"v":1,"type":"error","code":"stage_failed","message":"..."}'
        names = [keys.meta(ready["session"]), keys.events(ready["session"])]
        await fleet.clients.run("emit", names, [keys.channel(ready["session"]), 60_000, "failed", body])
        await socket.send(talk().tobytes())
        messages = await rest(socket)

    assert messages[-1]["code"] == "stage_failed"
    assert socket.close_code == 1011


async def test_what_a_client_said_before_it_vanished_is_still_decoded(fleet):
    socket = await fleet.connect()
    (ready,) = await until(socket, "ready")
    await socket.send(talk().tobytes())
    socket.transport.abort()

    keys = fleet.clients.keys
    await wait_until(lambda: _ended(fleet, ready["session"]))
    stored = await fleet.clients.commands.xrange(keys.events(ready["session"]))
    assert texts([json.loads(fields[b"e"]) for _, fields in stored]) == expected_texts(talk())


async def _ended(fleet, session) -> bool:
    return await fleet.clients.meta_field(session, "status") == b"ended"


async def test_a_client_that_never_reads_delays_nobody(fleet):
    """Its socket fills; its own events wait in Redis."""
    async with fleet.connect(max_queue=1, close_timeout=0.2) as deaf, fleet.connect() as good:
        await deaf.send(talk().tobytes())
        await good.send(talk().tobytes())
        await good.send(END)
        messages = await asyncio.wait_for(rest(good), 20)

    assert texts(messages) == expected_texts(talk())


async def test_while_the_fleet_is_away_audio_waits_and_nothing_is_lost(idle_fleet):
    """Policy block: far more audio than the backlog and the ring hold."""
    audio = np.concatenate([talk()] * 12)
    async with idle_fleet.connect() as socket:
        sending = asyncio.create_task(_send_all(socket, audio.tobytes()))
        await wait_until(lambda: _backlog_is_full(idle_fleet))
        await idle_fleet.add_worker()
        await sending
        messages = await rest(socket)

    assert texts(messages) == expected_texts(audio)


async def _send_all(socket, audio: bytes) -> None:
    for i in range(0, len(audio), 32_000):
        await socket.send(audio[i : i + 32_000])
    await socket.send(END)


async def _backlog_is_full(fleet) -> bool:
    keys = [key async for key in fleet.clients.commands.scan_iter("*:audio")]
    return bool(keys) and await fleet.clients.commands.xlen(keys[0]) > 10


async def test_drop_oldest_keeps_reading_and_announces_what_it_dropped(idle_fleet):
    audio = np.concatenate([talk()] * 12)
    async with idle_fleet.connect("when_full=drop_oldest") as socket:
        await _send_all(socket, audio.tobytes())
        await idle_fleet.add_worker()
        messages = await rest(socket)

    gaps = [message for message in messages if message["type"] == "gap"]
    assert gaps
    assert messages[-1]["audio_ms"] == len(audio) // 16
    assert gaps[-1]["end_ms"] <= messages[-1]["audio_ms"]


async def test_server_sent_events_replay_a_session_from_any_event(fleet):
    async with fleet.connect() as socket:
        (ready,) = await until(socket, "ready")
        await socket.send(talk().tobytes())
        await socket.send(END)
        messages = await rest(socket)
    url = f"{fleet.url}/v1/sessions/{ready['session']}/events"

    async with httpx.AsyncClient() as http:
        everything = (await http.get(url)).text
        later = (await http.get(url, headers={"Last-Event-ID": "3"})).text
        last = await http.get(url, headers={"Last-Event-ID": str(messages[-1]["event"])})
        beyond = await http.get(url, headers={"Last-Event-ID": str(2**64)})

    def events(page: str) -> list[dict]:
        return [json.loads(line[6:]) for line in page.splitlines() if line.startswith("data: ")]

    assert events(everything) == messages
    assert events(later) == messages[3:]
    assert last.status_code == 204  # else an EventSource would come back for ever
    assert beyond.status_code == 422


async def test_an_unknown_session_is_not_found(fleet):
    async with httpx.AsyncClient() as http:
        answer = await http.get(f"{fleet.url}/v1/sessions/nobody/events")

    assert answer.status_code == 404
    assert "nobody" in answer.json()["message"]


async def test_health_readiness_metrics_and_the_api_description(fleet):
    async with fleet.connect() as socket, httpx.AsyncClient(base_url=fleet.url) as http:
        await socket.send(talk().tobytes())
        await socket.send(END)
        await rest(socket)
        pages = {path: await http.get(path) for path in ("/healthz", "/readyz", "/metrics", "/openapi.json")}

    assert {path: page.status_code for path, page in pages.items()} == dict.fromkeys(pages, 200)
    assert 'scribe_events_total{type="final"}' in pages["/metrics"].text
    assert "/v1/sessions/{session}/events" in pages["/openapi.json"].json()["paths"]


async def test_a_draining_gateway_is_not_ready_and_lets_sessions_finish(fleet):
    async with fleet.connect() as socket, httpx.AsyncClient(base_url=fleet.url) as http:
        await until(socket, "ready")
        fleet.gateway.quiet()
        assert (await http.get("/readyz")).status_code == 503
        assert (await http.get("/healthz")).status_code == 200
        with pytest.raises(websockets.InvalidStatus) as late:
            await fleet.connect()
        await socket.send(talk().tobytes())
        await socket.send(END)
        messages = await rest(socket)

    assert late.value.response.status_code == 503
    assert late.value.response.headers["Retry-After"] == "1"
    assert texts(messages) == expected_texts(talk())


async def test_a_hole_in_the_channel_is_filled_from_the_stream(fleet):
    """Messages lost on the way are read again from the durable stream, in order."""
    from shared.transcripts import TranscriptHub

    lossy = TranscriptHub(fleet.clients)
    route, count = lossy._route, 0

    def drop_every_third(channel, raw):
        nonlocal count
        count += 1
        if count % 3:
            route(channel, raw)

    lossy._route = drop_every_third
    await lossy.start()
    async with fleet.connect() as socket:
        (ready,) = await until(socket, "ready")
        follower = await lossy.follow(ready["session"])
        await socket.send(talk().tobytes())
        await socket.send(END)
        messages = await rest(socket)
    numbers = []
    while len(numbers) < len(messages):
        numbers.append((await follower.__anext__()).number)
    await lossy.stop()

    assert numbers == [message["event"] for message in messages]


async def test_sessions_that_open_at_the_same_moment_all_hear_the_channel(fleet, monkeypatch):
    """The stream, read again every 2 s, would hide a subscription that nobody reads."""
    monkeypatch.setattr("shared.transcripts.CHECK_S", 60)

    async def session() -> list[dict]:
        async with fleet.connect() as socket:
            await until(socket, "ready")
            await socket.send(talk().tobytes())
            await socket.send(END)
            return await rest(socket)

    sessions = await asyncio.wait_for(asyncio.gather(*(session() for _ in range(4))), 20)

    assert [texts(messages) for messages in sessions] == [expected_texts(talk())] * 4
