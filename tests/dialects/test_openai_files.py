"""The unmodified openai SDK against `/v1/audio/transcriptions`, over a real socket."""

import io
import wave
from itertools import pairwise

import httpx
import numpy as np
import openai
import pytest
from openai.types.audio import (
    Transcription,
    TranscriptionTextDeltaEvent,
    TranscriptionTextDoneEvent,
    TranscriptionVerbose,
)

from gateway.dialects import openai_files
from ops.keys import FileStore
from shared.access import Key, new_secret
from shared.settings import AuthSettings
from tests.e2e.test_stream import expected_texts
from tests.unit.test_stages import silence, speech

SAMPLES = np.concatenate([silence(0.4), speech(7, 7), silence(1.1), speech(1.5, 8)])
KEY_ID, SECRET = new_secret()


def wav(samples: np.ndarray = SAMPLES) -> tuple[str, bytes]:
    file = io.BytesIO()
    with wave.open(file, "wb") as out:
        out.setnchannels(1)
        out.setsampwidth(2)
        out.setframerate(16_000)
        out.writeframes(samples.tobytes())
    return "talk.wav", file.getvalue()


SAID = " ".join(expected_texts(SAMPLES))


@pytest.fixture
def auth_settings(tmp_path) -> AuthSettings:
    FileStore(tmp_path / "keys.toml").write(KEY_ID, Key.new(SECRET, name="acme", scopes=["transcribe"]))
    return AuthSettings(keys_file=tmp_path / "keys.toml")


@pytest.fixture
async def client(fleet):
    async with openai.AsyncOpenAI(api_key=SECRET, base_url=f"{fleet.url}/v1", max_retries=0) as client:
        yield client


@pytest.fixture
def create(client):
    """Asks for a transcript, of the recording unless told otherwise."""

    def create(**wanted):
        return client.audio.transcriptions.create(**{"model": "whisper-1", "file": wav()} | wanted)

    return create


@pytest.fixture
def error_of(create):
    """What the SDK raises for a request: its class, and what stands under `error`."""

    async def error_of(**wanted) -> tuple[type, dict]:
        with pytest.raises(openai.APIStatusError) as caught:
            await create(**wanted)
        assert {"message", "type", "param", "code"} <= caught.value.body.keys()
        return type(caught.value), caught.value.body

    return error_of


async def test_json_has_the_text(create):
    said = await create(language="en", prompt="ignored", temperature=0.2)

    assert isinstance(said, Transcription)
    assert said.text == SAID
    assert said.usage.seconds == len(SAMPLES) / 16_000


async def test_text_and_subtitles_come_as_they_are(create):
    assert await create(response_format="text") == f"{SAID}\n"
    srt, vtt = await create(response_format="srt"), await create(response_format="vtt")
    assert srt.startswith("1\n00:00:00,")
    assert vtt.startswith("WEBVTT\n\n00:00:00.")
    for subtitles in (srt, vtt):
        lines = [
            line
            for line in subtitles.splitlines()[1:]
            if line and "-->" not in line and len(line.split()) > 1
        ]
        assert " ".join(lines) == SAID


async def test_verbose_json_has_segments_and_words_with_times(create):
    said = await create(response_format="verbose_json", timestamp_granularities=["word", "segment"])

    TranscriptionVerbose.model_validate(said.to_dict())
    assert [segment.text for segment in said.segments] == expected_texts(SAMPLES)
    assert " ".join(word.word for word in said.words) == SAID
    assert all(a.start <= a.end <= b.start + 0.001 for a, b in pairwise(said.words))


async def test_logprobs_are_given_on_request(create):
    said = await create(include=["logprobs"])

    assert "".join(token.token for token in said.logprobs) == SAID


async def test_a_stream_of_deltas_is_the_text(create):
    events = [event async for event in await create(stream=True)]

    *deltas, done = events
    assert len(deltas) >= 2
    for event in deltas:
        TranscriptionTextDeltaEvent.model_validate(event.to_dict())
    TranscriptionTextDoneEvent.model_validate(done.to_dict())
    assert "".join(event.delta for event in deltas) == done.text == SAID


async def test_a_stream_ends_as_openais_do(fleet):
    form = {"model": "whisper-1", "stream": "true"}
    async with httpx.AsyncClient(headers={"Authorization": f"Bearer {SECRET}"}, timeout=30) as http:
        answer = await http.post(f"{fleet.url}/v1/audio/transcriptions", data=form, files={"file": wav()})

    assert answer.headers["content-type"].startswith("text/event-stream")
    assert answer.text.replace("\r", "").endswith("data: [DONE]\n\n")


@pytest.mark.parametrize("stream", [False, True])
async def test_what_is_no_audio_is_named(error_of, stream):
    kind, error = await error_of(file=("talk.wav", b"this is no audio, " * 99), stream=stream)

    assert kind is openai.BadRequestError
    assert error["type"] == "invalid_request_error"
    assert error["message"]


@pytest.mark.parametrize(
    ("wanted", "param", "says"),
    [
        ({"response_format": "docx"}, "response_format", "verbose_json"),
        ({"response_format": "diarized_json"}, "response_format", "speakers are not told apart"),
        ({"language": "de"}, "language", "only English"),
        ({"file": ("talk.wav", b"")}, "file", "empty"),
    ],
)
async def test_what_can_not_be_had_is_a_bad_request(error_of, wanted, param, says):
    kind, error = await error_of(**wanted)

    assert kind is openai.BadRequestError
    assert error["param"] == param
    assert says in error["message"]


async def test_a_form_without_a_file_is_told(fleet):
    headers = {"Authorization": f"Bearer {SECRET}"}
    async with httpx.AsyncClient(headers=headers) as http:
        url = f"{fleet.url}/v1/audio/transcriptions"
        answers = [
            await http.post(url, data={"model": "whisper-1"}),
            await http.post(url, json={"model": "whisper-1"}),
            await http.post(url, data={"file": "no file"}, files={"model": ("", b"x")}),
            await http.post(url, content=b"x", headers={"Content-Type": "multipart/form-data"}),
        ]

    assert [answer.status_code for answer in answers] == [400] * 4
    assert [answer.json()["error"]["param"] for answer in answers[:3]] == ["file"] * 3


async def test_a_file_that_is_too_large_is_told_the_limit(error_of, monkeypatch):
    monkeypatch.setattr(openai_files, "LARGEST_BYTES", 1 << 20)

    kind, error = await error_of(file=("talk.wav", bytes(2 << 20)))

    assert kind is openai.BadRequestError
    assert "1 MiB" in error["message"]


async def test_a_wrong_key_is_an_authentication_error_before_the_file_is_read(fleet):
    async with openai.AsyncOpenAI(api_key="wrong", base_url=f"{fleet.url}/v1", max_retries=0) as client:
        with pytest.raises(openai.AuthenticationError) as caught:
            await client.audio.transcriptions.with_raw_response.create(model="any", file=wav())
        with pytest.raises(openai.AuthenticationError):
            await client.models.list()

    assert caught.value.code == "invalid_api_key"


async def test_models_are_listed_and_any_name_is_known(client):
    listed = [model.id async for model in client.models.list()]
    model = await client.models.retrieve("whisper-1")

    assert listed == ["streamscribe"]
    assert (model.id, model.object) == ("whisper-1", "model")
