"""The protocol client against a real WebSocket server that plays a script."""

import asyncio
from contextlib import asynccontextmanager
from http import HTTPStatus

import pytest
from websockets.asyncio.server import serve

from ops import client
from ops.answers import stream_url
from ops.client import StreamClient
from ops.kept import Kept
from ops.streaming import stream_pcm
from shared.errors import BadInput, Misconfigured, Overloaded, StageFailed
from shared.events import End, ErrorEvent, Final
from shared.protocol import EndOfAudio, Flush, Problem, Ready, SessionOptions

READY = Ready(
    session="s1", resume_token="t", chunk_ms=320, sample_rate=16_000, encoding="pcm_s16le"
).model_dump_json()
FINAL = Final(
    session="s1", event=1, utterance=1, text="hello", stable=5, start_ms=0, end_ms=900
).model_dump_json()
END = End(session="s1", event=2, audio_ms=1000, speech_ms=900, utterances=1).model_dump_json()


@asynccontextmanager
async def gateway(handler, **options):
    async with serve(handler, "127.0.0.1", 0, **options) as server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"


async def polite(socket):
    """Answer `ready`, take everything up to `end`, then say what was heard."""
    await socket.send(READY)
    socket.heard, socket.texts = b"", []
    async for message in socket:
        if isinstance(message, bytes):
            socket.heard += message
        else:
            socket.texts.append(message)
            if message == EndOfAudio().model_dump_json():
                await socket.send(FINAL)
                await socket.send(END)
                return


async def test_a_whole_session_gives_its_transcript_and_every_sample_arrives():
    sockets = []

    async def handler(socket):
        sockets.append(socket)
        await polite(socket)

    pcm = bytes(range(256)) * 125 + b"\x01\x02"  # no multiple of a frame
    async with gateway(handler) as url:
        recording = await stream_pcm(url, pcm, pace=0)

    assert recording.session == "s1"
    assert recording.text == "hello"
    assert isinstance(recording.heard[-1].event, End)
    assert sockets[0].heard == pcm
    assert recording.end_sent_ms <= recording.heard[0].arrived_ms


async def test_flush_and_options_reach_the_server():
    seen = {}

    async def handler(socket):
        seen["path"] = socket.request.path
        await polite(socket)
        seen["texts"] = socket.texts

    async with (
        gateway(handler) as url,
        StreamClient(url, SessionOptions(partials=False, sample_rate=8000)) as client,
    ):
        await client.flush("f1")
        await client.end()
        events = [message.type async for message in client]

    assert events == ["final", "end"]
    assert seen["path"].startswith("/v1/stream?sample_rate=8000&encoding=auto&")
    assert "partials=false" in seen["path"]
    assert seen["texts"][0] == Flush(id="f1").model_dump_json()


async def test_pace_1_sends_each_frame_when_its_last_sample_would_have_been_recorded():
    arrivals = []

    async def handler(socket):
        await socket.send(READY)
        start = asyncio.get_running_loop().time()
        async for message in socket:
            if not isinstance(message, bytes):
                break
            arrivals.append(asyncio.get_running_loop().time() - start)
        await socket.send(END)

    async with gateway(handler) as url:
        await stream_pcm(url, bytes(32 * 400), pace=1)

    assert len(arrivals) == 5
    # Never earlier than recorded (a millisecond for the two ends' start), however late the machine is.
    assert all(at >= 0.08 * n - 0.005 for n, at in enumerate(arrivals, start=1))


@pytest.mark.parametrize(
    ("code", "error"),
    [
        ("bad_input", BadInput),
        ("overloaded", Overloaded),
        ("misconfigured", Misconfigured),
        ("new_one", StageFailed),
    ],
)
async def test_a_problem_becomes_the_error_that_its_code_names(code, error):
    async def handler(socket):
        await socket.send(Problem(code=code, message="sample_rate must be 8000 to 48000").model_dump_json())

    async with gateway(handler) as url:
        with pytest.raises(error, match="sample_rate must be"):
            await stream_pcm(url, b"")


async def test_an_error_event_ends_the_session_with_that_error():
    event = ErrorEvent(session="s1", event=1, code="overloaded", message="the fleet is over its capacity")

    async def handler(socket):
        await socket.send(READY)
        await socket.send(event.model_dump_json())

    async with gateway(handler) as url:
        with pytest.raises(Overloaded, match="over its capacity"):
            await stream_pcm(url, bytes(32_000))


@pytest.mark.parametrize(
    ("code", "error"),
    [(1008, BadInput), (1009, BadInput), (1013, Overloaded), (1011, StageFailed), (1000, StageFailed)],
)
async def test_a_close_before_the_end_event_is_an_error(monkeypatch, code, error):
    monkeypatch.setattr(client, "RESUME_S", 0)

    async def handler(socket):
        await socket.send(READY)
        await socket.close(code, "because")

    async with gateway(handler) as url:
        with pytest.raises(error, match="before its end: because"):
            await stream_pcm(url, bytes(32_000))


async def test_a_refused_connection_says_why():
    def refuse(connection, request):
        return connection.respond(HTTPStatus.SERVICE_UNAVAILABLE, "no capacity for another session\n")

    async with gateway(polite, process_request=refuse) as url:
        with pytest.raises(Overloaded, match="HTTP 503: no capacity"):
            await stream_pcm(url, b"")


async def test_a_server_of_another_protocol_is_told_from_ours():
    async def handler(socket):
        await socket.send('{"type": "hello"}')

    async with gateway(handler) as url:
        with pytest.raises(BadInput, match="protocol version 1"):
            await stream_pcm(url, b"")


async def test_a_fleet_that_stands_still_is_given_up():
    async def handler(socket):
        await socket.send(READY)
        await socket.wait_closed()

    async with gateway(handler) as url:
        with pytest.raises(StageFailed, match=r"did nothing for 0\.2 s"):
            await stream_pcm(url, b"", stalled_s=0.2)


async def test_nobody_listening_says_how_to_start_a_gateway():
    with pytest.raises(Misconfigured, match="streamscribe serve"):
        await stream_pcm("http://127.0.0.1:1", b"")


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("http://h:1", "ws://h:1/v1/stream"),
        ("https://h", "wss://h/v1/stream"),
        ("h:80/", "ws://h:80/v1/stream"),
        ("ws://h/speech/stream", "ws://h/speech/stream"),
    ],
)
def test_gateway_addresses_are_completed(given, expected):
    assert stream_url(given, SessionOptions()).split("?")[0] == expected


def test_more_than_can_be_kept_is_kept_no_longer():
    kept = Kept(SessionOptions(encoding="container"))
    for _ in range(65):
        kept.audio(bytes(1 << 20))
    kept.audio(bytes(1 << 20))

    assert kept.lost
    assert list(kept.again(0, 0)) == []


def test_what_is_sent_again_is_all_that_is_not_safe_with_flushes_at_their_places():
    kept = Kept(SessionOptions())
    kept.audio(bytes(range(8)))
    kept.flush(Flush(id="a"))
    kept.audio(bytes(range(8, 16)))
    kept.flush(Flush(id="b"))
    kept.audio(bytes(range(16, 20)))

    assert list(kept.again(2, 0)) == [
        bytes(range(4, 8)),
        Flush(id="a"),
        bytes(range(8, 16)),
        Flush(id="b"),
        bytes(range(16, 20)),
    ]
    kept.safe(6)
    assert kept.samples == 6
    assert list(kept.again(8, 1)) == [Flush(id="b"), bytes(range(16, 20))]
    assert list(kept.again(8, 2)) == [bytes(range(16, 20))]
