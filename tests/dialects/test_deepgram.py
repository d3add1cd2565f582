"""The unmodified deepgram-sdk against `/v1/listen`, over a real socket."""

import asyncio
import hashlib
import io
import json
import re
import warnings
import wave
from contextlib import suppress

import httpx
import numpy as np
import pytest
import websockets

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # the SDK's own: it uses websockets.legacy
    from deepgram import AsyncDeepgramClient, DeepgramClient
    from deepgram.core.api_error import ApiError
    from deepgram.core.events import EventType
    from deepgram.environment import DeepgramClientEnvironment
    from deepgram.errors import BadRequestError
    from deepgram.listen.v1 import raw_client  # noqa: F401 - loads it here, where the warning is ignored
    from deepgram.listen.v1.types import (
        ListenV1Configure,
        ListenV1ConfigureFailure,
        ListenV1ConfigureSuccess,
        ListenV1Metadata,
        ListenV1Results,
        ListenV1SpeechStarted,
        ListenV1UtteranceEnd,
    )

from gateway.dialects.deepgram import Deepgram
from ops.keys import FileStore
from shared.access import Key, Limits, new_secret
from shared.protocol import SessionOptions
from shared.settings import AuthSettings
from tests.e2e.test_stream import expected_texts, talk
from tests.pipeline import Pipeline, audio_chunks
from tests.pipeline import finals as finals_of
from tests.unit.test_stages import silence, speech, stages

KEY_ID, SECRET = new_secret()
RAW = {"model": "nova-3", "encoding": "linear16", "sample_rate": 16000}
UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


@pytest.fixture
def auth_settings(tmp_path) -> AuthSettings:
    """Everything here needs the key, which allows two sessions at a time."""
    key = Key.new(SECRET, name="acme", scopes=["transcribe"], limits=Limits(sessions=2))
    FileStore(tmp_path / "keys.toml").write(KEY_ID, key)
    return AuthSettings(keys_file=tmp_path / "keys.toml")


def at(fleet) -> DeepgramClientEnvironment:
    ws = fleet.url.replace("http", "ws")
    return DeepgramClientEnvironment(base=fleet.url, production=ws, agent=ws, agent_rest=fleet.url)


def connect(fleet, key: str = SECRET, **options):
    return AsyncDeepgramClient(api_key=key, environment=at(fleet)).listen.v1.connect(**{**RAW, **options})


def checked(message):
    """A message as the SDK has parsed it: every field its type requires is there, and of the right kind."""
    assert message is not None, "the SDK does not know a message of this type"
    return type(message).model_validate(message.model_dump(exclude_unset=True), strict=True)


async def until(connection, wanted) -> list:
    """Messages up to and including the first that is wanted."""
    seen = []
    while not seen or not wanted(seen[-1]):
        seen.append(checked(await connection.recv()))
    return seen


async def rest(connection) -> list:
    """All messages until the server closes, with whatever code."""
    seen = []
    with suppress(websockets.ConnectionClosedError):
        async for message in connection:
            seen.append(checked(message))  # noqa: PERF401 - what came before the close counts
    return seen


async def closed_by(connection) -> tuple[int, str]:
    return connection._websocket.close_code, connection._websocket.close_reason


def finals(messages, channel: int = 0) -> list[ListenV1Results]:
    return [
        m for m in messages if isinstance(m, ListenV1Results) and m.is_final and m.channel_index[0] == channel
    ]


def texts(messages, channel: int = 0) -> list[str]:
    """What was said, without the results of silence."""
    return [text for m in finals(messages, channel) if (text := m.channel.alternatives[0].transcript)]


def answers_finalize(message) -> bool:
    return isinstance(message, ListenV1Results) and message.from_finalize


def wav(samples: np.ndarray, channels: int = 1) -> bytes:
    file = io.BytesIO()
    with wave.open(file, "wb") as writer:
        writer.setparams((channels, 2, 16_000, 0, "NONE", ""))
        writer.writeframes(samples.tobytes())
    return file.getvalue()


async def test_a_stream_from_its_first_sample_to_its_summary(fleet):
    async with connect(fleet) as connection:
        await connection.send_media(talk().tobytes())
        await connection.send_close_stream()
        messages = await rest(connection)
        closed = await closed_by(connection)

    assert texts(messages) == expected_texts(talk())
    assert {type(m) for m in messages[:-1]} == {ListenV1Results}
    assert all(m.is_final for m in messages[:-1])
    summary = messages[-1]
    assert isinstance(summary, ListenV1Metadata)
    assert (summary.duration, summary.channels) == (len(talk()) / 16_000, 1)
    assert summary.request_id == messages[0].metadata.request_id
    assert UUID.fullmatch(summary.request_id)
    assert closed == (1000, "")


async def test_final_results_tile_the_stream_and_hold_their_words(fleet):
    async with connect(fleet) as connection:
        await connection.send_media(talk().tobytes())
        await connection.send_close_stream()
        results = finals(await rest(connection))

    ends = [round(m.start + m.duration, 3) for m in results]
    assert [m.start for m in results] == [0.0, *ends[:-1]]
    assert ends[-1] == len(talk()) / 16_000
    spoken = [m for m in results if m.channel.alternatives[0].words]
    assert spoken
    assert [m.speech_final for m in results] == [m in spoken for m in results]
    for m in spoken:
        (alternative,) = m.channel.alternatives
        assert alternative.transcript == " ".join(word.punctuated_word for word in alternative.words)
        assert m.start <= alternative.words[0].start
        assert alternative.words[-1].end <= m.start + m.duration


async def test_interim_results_come_first_when_asked_for(fleet):
    async with connect(fleet, interim_results="true") as connection:
        await connection.send_media(talk().tobytes())
        first = await until(connection, lambda m: m.is_final and m.channel.alternatives[0].transcript)

    interim = [m for m in first if not m.is_final]
    assert interim
    assert all(m.channel.alternatives[0].words and not m.speech_final for m in interim)


async def test_a_finalize_is_answered_by_what_was_said_and_the_stream_goes_on(fleet):
    async with connect(fleet) as connection:
        await connection.send_media(speech(1.0, 7).tobytes())
        await connection.send_finalize()
        answer = (await until(connection, answers_finalize))[-1]
        await connection.send_media(speech(1.0, 8).tobytes())
        await connection.send_close_stream()
        messages = await rest(connection)

    assert answer.channel.alternatives[0].transcript
    assert (answer.is_final, answer.start, answer.duration) == (True, 0, 1)
    assert len(texts(messages)) == 1


@pytest.mark.parametrize("audio", [b"", silence(1.5).tobytes()], ids=["nothing", "silence"])
async def test_a_finalize_is_answered_even_when_nothing_was_said(fleet, audio):
    async with connect(fleet) as connection:
        if audio:
            await connection.send_media(audio)
        await connection.send_finalize()
        answer = (await until(connection, answers_finalize))[-1]

    assert answer.channel.alternatives[0].transcript == ""
    assert answer.is_final


async def test_every_finalize_is_answered_once(fleet):
    async with connect(fleet) as connection:
        for seed in range(4):
            await connection.send_media(speech(0.5, seed).tobytes())
            await connection.send_finalize()
            await connection.send_finalize()
        await connection.send_close_stream()
        messages = await rest(connection)

    assert len([m for m in messages if answers_finalize(m)]) == 8
    assert len(texts(messages)) == 4


async def test_speech_and_the_end_of_an_utterance_are_told_to_those_who_ask(fleet):
    async with connect(
        fleet, interim_results="true", vad_events="true", utterance_end_ms="1000"
    ) as connection:
        await connection.send_media(np.concatenate([talk(), silence(2)]).tobytes())
        await connection.send_close_stream()
        messages = await rest(connection)

    starts = [m.timestamp for m in messages if isinstance(m, ListenV1SpeechStarted)]
    ends = [m for m in messages if isinstance(m, ListenV1UtteranceEnd)]
    assert len(starts) == len(ends) == 2
    for end in ends:
        before = finals(messages[: messages.index(end)])
        spoken = [m for m in before if m.channel.alternatives[0].words]
        assert end.last_word_end == spoken[-1].channel.alternatives[0].words[-1].end


async def test_keep_alive_keeps_a_silent_stream_and_nothing_else_does(fleet, monkeypatch):
    monkeypatch.setattr(Deepgram, "idle_s", 1.0)
    async with connect(fleet) as silent, connect(fleet) as kept:
        while not silent._websocket.closed:
            await kept.send_keep_alive()
            await asyncio.wait([asyncio.ensure_future(silent._websocket.wait_closed())], timeout=0.2)
        await kept.send_close_stream()
        messages = await rest(kept)

        code, reason = await closed_by(silent)
        assert (code, reason[-23:]) == (1011, "https://dpgr.am/net0001")
        assert isinstance(messages[-1], ListenV1Metadata)


async def test_configure_is_answered(fleet):
    async with connect(fleet) as connection:
        await connection.send_configure(ListenV1Configure(features={"numerals": True}))
        yes = checked(await connection.recv())
        await connection.send_configure(ListenV1Configure(keyterms=["Ada"]))
        no = checked(await connection.recv())

    assert isinstance(yes, ListenV1ConfigureSuccess)
    assert isinstance(no, ListenV1ConfigureFailure)


async def test_audio_that_is_none_is_named_and_closes_the_stream(fleet):
    async with connect(fleet, encoding="linear32") as connection:
        await connection.send_media(b"this is no sound " * 1000)
        messages = await rest(connection)
        code, reason = await closed_by(connection)

    assert [m.type for m in messages] == ["Error"]
    assert "text arrived" in messages[0].description
    assert (code, reason[:11]) == (1008, "DATA-0000: ")


async def test_what_is_no_message_of_theirs_is_an_error_and_the_stream_goes_on(fleet):
    async with connect(fleet) as connection:
        await connection._send('{"type": "Bye"}')
        error = checked(await connection.recv())
        await connection.send_close_stream()
        messages = await rest(connection)

    assert (error.type, error.variant, error.message) == ("Error", "SchemaError", '{"type": "Bye"}')
    assert isinstance(messages[-1], ListenV1Metadata)


@pytest.mark.parametrize(
    "announced", [{"encoding": None, "sample_rate": None}, {}], ids=["nothing", "linear16"]
)
async def test_a_wav_file_may_be_sent_as_it_is(fleet, announced):
    file = wav(talk())
    async with connect(fleet, **announced) as connection:
        for i in range(0, len(file), 5_000):
            await connection.send_media(file[i : i + 5_000])
        await connection.send_close_stream()
        messages = await rest(connection)

    assert texts(messages) == expected_texts(talk())


async def test_each_channel_has_its_own_results_and_the_summary_comes_last(fleet):
    other = np.concatenate([speech(1.5, 9), silence(len(talk()) / 16_000 - 1.5)])
    async with connect(fleet, channels="2", multichannel="true") as connection:
        await connection.send_media(np.stack([talk(), other], axis=1).tobytes())
        await connection.send_finalize()
        await connection.send_close_stream()
        messages = await rest(connection)

    assert texts(messages, 0) == expected_texts(talk())
    assert texts(messages, 1) == expected_texts(other)
    assert sorted(m.channel_index for m in messages if answers_finalize(m)) == [[0, 2], [1, 2]]
    assert [type(m) for m in messages].count(ListenV1Metadata) == 1
    assert messages[-1].channels == 2


async def test_the_sdks_callbacks_and_its_blocking_client(fleet):
    """As the SDK's README does it: callbacks, a thread that listens, and another that sends."""

    def converse() -> list:
        seen: list = []
        client = DeepgramClient(api_key=SECRET, environment=at(fleet))
        with client.listen.v1.connect(**RAW) as connection:
            for event in EventType:
                connection.on(event, lambda message, event=event: seen.append((event, message)))
            connection.send_media(talk().tobytes())
            connection.send_keep_alive()
            connection.send_finalize()
            connection.send_close_stream()
            connection.start_listening()
        return seen

    seen = await asyncio.to_thread(converse)

    assert (seen[0][0], seen[-1][0]) == (EventType.OPEN, EventType.CLOSE)
    messages = [checked(message) for event, message in seen if event is EventType.MESSAGE]
    assert len(messages) == len(seen) - 2
    assert texts(messages) == expected_texts(talk())


@pytest.mark.parametrize(
    ("options", "key", "status"),
    [({}, "wrong", 401), ({"language": "de"}, SECRET, 400), ({"encoding": "g729"}, SECRET, 400)],
    ids=["wrong key", "German", "g729"],
)
async def test_who_is_refused_gets_an_api_error(fleet, options, key, status):
    with pytest.raises(ApiError) as caught:
        async with connect(fleet, key, **options):
            pass

    assert caught.value.status_code == status


async def test_one_session_too_many_is_refused_with_429(fleet):
    async with connect(fleet) as first, connect(fleet) as second:
        await first.send_finalize()
        await second.send_finalize()
        await asyncio.gather(until(first, answers_finalize), until(second, answers_finalize))

        with pytest.raises(ApiError) as caught:
            async with connect(fleet):
                pass

    assert caught.value.status_code == 429


async def test_a_refusal_says_why_in_its_body_and_headers(fleet):
    url = f"ws://127.0.0.1:{fleet.port}/v1/listen?model=nova-3&language=de"
    with pytest.raises(websockets.InvalidStatus) as caught:
        await websockets.connect(url, additional_headers={"Authorization": f"Token {SECRET}"})

    response = caught.value.response
    body = json.loads(response.body)
    assert (response.status_code, body["err_code"]) == (400, "Bad Request")
    assert body["err_msg"].startswith("language: must be one of en")
    assert response.headers["dg-error"] == body["err_msg"]


async def test_a_browser_brings_its_key_in_the_subprotocols(fleet):
    url = f"ws://127.0.0.1:{fleet.port}/v1/listen?model=nova-3"
    async with websockets.connect(url, subprotocols=["token", SECRET]) as socket:
        await socket.send(b"")
        summary = json.loads(await socket.recv())

    assert socket.subprotocol == "token"
    assert summary["type"] == "Metadata"
    assert socket.response.headers["dg-request-id"] == summary["request_id"]


# Recordings.


async def transcribe(fleet, request: bytes, key: str = SECRET, **options):
    """The SDK's answer."""
    async with httpx.AsyncClient() as http:  # which the SDK never closes
        client = AsyncDeepgramClient(api_key=key, environment=at(fleet), httpx_client=http)
        return checked(await client.listen.v1.media.transcribe_file(request=request, **options))


def raw(**more) -> dict:
    return {"additional_query_parameters": {"encoding": "linear16", "sample_rate": 16000, **more}}


async def test_a_recording_is_answered_with_its_transcript(fleet):
    answer = await transcribe(fleet, talk().tobytes(), model="nova-3", request_options=raw())

    (channel,) = answer.results.channels
    (alternative,) = channel.alternatives
    assert alternative.transcript == " ".join(expected_texts(talk()))
    assert alternative.transcript.split() == [word.word for word in alternative.words]
    assert (answer.metadata.duration, answer.metadata.channels) == (len(talk()) / 16_000, 1)
    assert answer.metadata.sha256 == hashlib.sha256(talk().tobytes()).hexdigest()
    assert UUID.fullmatch(answer.metadata.request_id)


@pytest.mark.parametrize("multichannel", [True, False])
async def test_a_wav_file_knows_its_channels(fleet, multichannel):
    other = np.concatenate([speech(1.5, 9), silence(len(talk()) / 16_000 - 1.5)])
    file = wav(np.stack([talk(), other], axis=1), 2)

    answer = await transcribe(fleet, file, multichannel=multichannel, utterances=True)

    options = SessionOptions(endpointing_ms=800)
    events = [Pipeline(stages(), options).run(audio_chunks(each), [1] * 99) for each in (talk(), other)]
    transcripts = [channel.alternatives[0].transcript for channel in answer.results.channels]
    assert len(transcripts) == (2 if multichannel else 1)
    if multichannel:
        assert transcripts == [" ".join(each["text"] for each in finals_of(told)) for told in events]
        assert {each.channel for each in answer.results.utterances} == {0, 1}


async def test_the_blocking_client_transcribes_recordings_too(fleet):
    with httpx.Client() as http:
        client = DeepgramClient(api_key=SECRET, environment=at(fleet), httpx_client=http)
        answer = await asyncio.to_thread(
            client.listen.v1.media.transcribe_file, request=talk().tobytes(), request_options=raw(tag="a")
        )

    assert answer.results.channels[0].alternatives[0].transcript == " ".join(expected_texts(talk()))
    assert answer.metadata.tags == ["a"]


@pytest.mark.parametrize(
    ("body", "type_", "complaint"),
    [
        (b"", "audio/wav", "the body is empty"),
        (b"this is no sound " * 1000, "audio/wav", ""),
        (b'{"url": "https://example.com/a.wav"}', "application/json", "url: nothing is fetched here"),
    ],
    ids=["nothing", "text", "an address"],
)
async def test_what_is_no_recording_is_refused(fleet, body, type_, complaint):
    async with httpx.AsyncClient() as http:
        headers = {"Authorization": f"Token {SECRET}", "Content-Type": type_}
        answer = await http.post(f"{fleet.url}/v1/listen?model=nova-3", content=body, headers=headers)

    assert answer.status_code == 400
    assert answer.json()["err_code"] == "Bad Request"
    assert answer.json()["err_msg"].startswith(complaint)
    assert answer.headers["dg-request-id"] == answer.json()["request_id"]


async def test_an_address_is_refused_as_the_sdk_expects_it(fleet):
    async with httpx.AsyncClient() as http:
        client = AsyncDeepgramClient(api_key=SECRET, environment=at(fleet), httpx_client=http)
        with pytest.raises(BadRequestError):
            await client.listen.v1.media.transcribe_url(url="https://example.com/a.wav")


async def test_a_recording_needs_a_key_too(fleet):
    with pytest.raises(ApiError) as caught:
        await transcribe(fleet, talk().tobytes(), "wrong", request_options=raw())

    assert caught.value.status_code == 401
