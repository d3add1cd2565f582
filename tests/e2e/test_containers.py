"""Files sent as they are, over a real socket: the transcript is that of their samples."""

import asyncio
import json

import numpy as np
import pytest

from ops.client import StreamClient
from shared.events import Final, Flushed
from shared.protocol import SessionOptions
from shared.settings import GatewaySettings, LimitSettings
from tests.conftest import wait_until
from tests.containers import KINDS, container, pieces, wav
from tests.e2e.conftest import rest, until
from tests.e2e.test_resume import cut, resumption, told
from tests.e2e.test_stream import END, expected_texts, problem, talk, texts

pytestmark = pytest.mark.slow

TALK = talk()
FLAC = container("flac", TALK.astype(np.float32) / 32_768)


@pytest.fixture
def gateway_settings() -> GatewaySettings:
    return GatewaySettings(port=0, drain_s=5, resume_s=20, containers=2)


async def said(
    fleet, data: bytes, query: str = "sample_rate=16000", step: int = 5_000
) -> tuple[list[dict], int]:
    async with fleet.connect(query) as socket:
        await asyncio.gather(_send(socket, data, step), return_exceptions=True)
        return await asyncio.wait_for(rest(socket), 30), socket.close_code


async def _send(socket, data: bytes, step: int) -> None:
    for piece in pieces(data, step):
        await socket.send(piece)
    await socket.send(END)


@pytest.mark.parametrize("query", ["sample_rate=16000", "encoding=container", "sample_rate=8000&channels=2"])
@pytest.mark.parametrize("data", [FLAC, wav(TALK.tobytes(), size=0), wav(TALK.tobytes(), size=0xFFFFFFFF)], ids=["flac", "wav 0", "wav -1"])  # fmt: skip
@pytest.mark.parametrize("step", [7_000, 1 << 19])
async def test_lossless_files_say_what_their_samples_say(fleet, data, query, step):
    messages, code = await said(fleet, data, query, step)

    assert (texts(messages), code) == (expected_texts(TALK), 1000)
    assert messages[-1]["audio_ms"] == len(TALK) // 16


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind not in ("au", "amr")])
async def test_every_kind_is_recognised_and_has_as_many_utterances(fleet, kind):
    rate = KINDS[kind]["rate"]
    samples = np.repeat(TALK, rate // 16_000).astype(np.float32) / 32_768
    messages, code = await said(fleet, container(kind, samples))

    assert code == 1000
    assert len(texts(messages)) == len(expected_texts(TALK))
    assert messages[-1]["audio_ms"] == pytest.approx(len(TALK) / 16, abs=200)


async def test_text_comes_while_the_stream_goes_on(fleet):
    async with fleet.connect() as socket:
        await socket.send(FLAC[: len(FLAC) * 3 // 4])
        messages = await asyncio.wait_for(until(socket, "final"), 20)
    assert texts(messages) == expected_texts(TALK)[:1]


async def test_a_flush_in_a_container_is_answered_at_its_place(fleet):
    data = wav(TALK.tobytes(), size=0)
    async with (
        StreamClient(fleet.url, SessionOptions()) as raw,
        StreamClient(fleet.url, SessionOptions()) as file,
    ):
        for client, audio, head in ((raw, TALK.tobytes(), 0), (file, data, 44)):
            await client.send(audio[: head + 50_000])
            await client.flush("turn")
            await client.send(audio[head + 50_000 :])
            await client.end()
        heard = [[m async for m in client if isinstance(m, Final | Flushed)] for client in (raw, file)]

    bare = [[(m.type, m.through_ms, getattr(m, "text", "")) for m in each] for each in heard]
    assert bare[0] == bare[1]
    assert ("flushed", 50_000 // 32, "") in bare[1]


@pytest.mark.parametrize("data", [FLAC, wav(TALK.tobytes(), size=0), container("webm opus", np.repeat(TALK, 3).astype(np.float32) / 32_768)], ids=["flac", "wav", "webm"])  # fmt: skip
@pytest.mark.parametrize("share", [0.3, 0.8])
async def test_a_container_that_was_cut_off_is_sent_again_and_says_the_same(fleet, data, share):
    unbroken, _ = await said(fleet, data)
    socket = await fleet.connect()
    (ready,) = await until(socket, "ready")
    await socket.send(data[: int(len(data) * share)])
    heard = await until(socket, "speech_start")
    cut(socket)

    async with fleet.connect(resumption(ready, heard[-1]["event"])) as socket:
        (again,) = await until(socket, "ready")
        assert (again["resumed"], again["next_sample"]) == (True, 0)
        await _send(socket, data, 9_000)
        events = told(heard) + told(await asyncio.wait_for(rest(socket), 30))

    assert texts(events) == texts(unbroken)
    assert events[-1]["audio_ms"] == told(unbroken)[-1]["audio_ms"]


async def test_the_client_sends_a_container_again_by_itself(fleet):
    async with StreamClient(fleet.url, SessionOptions()) as client:
        await client.send(FLAC[:40_000])
        await client.flush("one")
        heard = [anext(aiter(client))]
        heard = [await heard[0]]
        cut(client.socket)
        await client.send(FLAC[40_000:])
        await client.flush("two")
        await client.end()
        heard += [message async for message in client]

    assert [m.flush_id for m in heard if isinstance(m, Flushed)] == ["one", "two"]
    assert heard[-1].audio_ms == len(TALK) // 16


async def test_a_session_of_a_container_can_not_go_on_with_samples(fleet):
    socket = await fleet.connect()
    (ready,) = await until(socket, "ready")
    await socket.send(FLAC[:60_000])
    heard = await until(socket, "speech_start")
    cut(socket)

    async with fleet.connect(resumption(ready, heard[-1]["event"])) as socket:
        await socket.send(TALK.tobytes())
        messages = await asyncio.wait_for(rest(socket), 20)
    assert "send it again from its first byte" in problem(messages)["message"]


@pytest.mark.parametrize(
    ("data", "query", "named"),
    [
        (FLAC, "encoding=mulaw&sample_rate=8000", ["FLAC file arrived where raw mulaw", "encoding=container"]),
        (wav(bytes(9_000)), "encoding=pcm_s16le", ["WAV file arrived where raw pcm_s16le", "encoding=container"]),
        (TALK.tobytes(), "encoding=container", ["no container arrived", "encoding=container", "FLAC"]),
        (b"fLaC" + bytes(9_000), "sample_rate=16000", ["FLAC file arrived, but it holds no audio"]),
        (b"\x1aE\xdf\xa3" + bytes(9_000), "sample_rate=16000", ["WebM or Matroska file arrived, but FFmpeg can not"]),
        (wav(bytes(9_000), rate=1_092_676), "sample_rate=16000", ["1092676 Hz"]),
        (wav(b""), "sample_rate=16000", ["no audio"]),
        (wav(bytes(9_000)), "channels=2&multichannel=true", ["WAV file with 1 channel(s)", "channels=2"]),
        (FLAC, "channels=2&multichannel=true", ["it has 1 channel(s)", "channels=2"]),
    ],
)  # fmt: skip
async def test_what_can_not_be_decoded_is_named(fleet, data, query, named):
    messages, code = await said(fleet, data, query)

    assert code == 1008
    assert all(word in problem(messages)["message"] for word in named), problem(messages)
    await wait_until(lambda: not fleet.gateway._decoders._open, 5)


async def test_channels_of_a_file_have_transcripts_of_their_own(fleet):
    left, right = TALK, np.roll(TALK, 16_000)
    both = np.stack([left, right], axis=1)
    for data in (wav(both.tobytes(), channels=2), container("flac", both.astype(np.float32) / 32_768)):
        messages, code = await said(fleet, data, "channels=2&multichannel=true")
        by_session = {m["session"]: [] for m in told(messages)}
        for message in told(messages):
            by_session[message["session"]].append(message)

        assert code == 1000
        assert sorted(map(texts, by_session.values())) == sorted(
            [expected_texts(left), expected_texts(right)]
        )


async def test_one_container_too_many_is_told_to_come_back(fleet):
    open_ones = [await fleet.connect() for _ in range(2)]
    for socket in open_ones:
        await until(socket, "ready")
        await socket.send(FLAC[:20_000])
    await wait_until(lambda: len(fleet.gateway._decoders._open) == 2, 10)

    messages, code = await said(fleet, FLAC)
    assert (code, problem(messages)["code"], problem(messages)["retryable"]) == (1013, "overloaded", True)
    assert texts((await said(fleet, wav(TALK.tobytes())))[0]) == expected_texts(TALK)
    for socket in open_ones:
        await socket.close()


async def test_what_was_sent_before_the_socket_closed_is_decoded(fleet):
    socket = await fleet.connect()
    (ready,) = await until(socket, "ready")
    await socket.send(FLAC)
    await socket.close()

    heard: list[dict] = []
    async with asyncio.timeout(20):
        async for event in fleet.gateway.events(ready["session"], 0):
            heard.append(json.loads(event.raw))
            if heard[-1]["type"] == "final":
                break
    assert texts(heard) == expected_texts(TALK)[:1]


class TestQuota:
    @pytest.fixture
    def limit_settings(self) -> LimitSettings:
        return LimitSettings(audio_s_per_day=2)

    async def test_audio_is_counted_as_it_sounds(self, fleet):
        """Not by bytes: Opus takes a tenth of them."""
        data = container("ogg opus", np.repeat(TALK, 3).astype(np.float32) / 32_768)
        messages, code = await said(fleet, data, step=500)

        assert (code, problem(messages)["code"]) == (1008, "quota_exceeded")


async def test_no_child_is_left_when_all_is_over(fleet):
    await said(fleet, FLAC)
    await wait_until(lambda: not fleet.gateway._decoders._open, 5)
