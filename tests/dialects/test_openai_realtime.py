"""The unmodified openai SDK against `/v1/realtime`, over a real socket."""

import base64
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, get_args

import numpy as np
import openai
import pytest
import websockets
from openai.types.beta.realtime import RealtimeServerEvent as BetaEvent
from openai.types.beta.realtime.transcription_session import TranscriptionSession
from openai.types.realtime import RealtimeErrorEvent
from openai.types.realtime import RealtimeServerEvent as Event
from openai.types.realtime.realtime_transcription_session_create_response import (
    RealtimeTranscriptionSessionCreateResponse as Session,
)

from ops.keys import FileStore
from shared.access import Key, Limits, new_secret
from shared.settings import AuthSettings, GatewaySettings
from tests.conftest import wait_until
from tests.e2e.conftest import rest, until
from tests.unit.test_stages import silence, speech

# At 24 kHz: two utterances, and the silence that ends the second.
TALK = np.concatenate([silence(0.6), speech(3, 7), silence(1.8), speech(2.4, 8), silence(1.8)]).tobytes()
KEY_ID, SECRET = new_secret()
MANUAL = {"type": "transcription", "audio": {"input": {"turn_detection": None}}}
KNOWN = {"Authorization": f"Bearer {SECRET}"}
COMPLETED = "conversation.item.input_audio_transcription.completed"
DELTA = "conversation.item.input_audio_transcription.delta"


@pytest.fixture
def auth_settings(tmp_path) -> AuthSettings:
    """Everything here needs the key, which allows two sessions at a time."""
    key = Key.new(SECRET, name="acme", scopes=["transcribe"], limits=Limits(sessions=2))
    FileStore(tmp_path / "keys.toml").write(KEY_ID, key)
    return AuthSettings(keys_file=tmp_path / "keys.toml")


@pytest.fixture
def gateway_settings() -> GatewaySettings:
    return GatewaySettings(port=0, drain_s=5, resume_s=60)


class Talk:
    """A connection of the SDK's, and all it has received, each checked against the SDK's types."""

    def __init__(self, connection: Any, union: Any) -> None:
        self.connection = connection
        self.seen: list[dict[str, Any]] = []
        members = get_args(get_args(union)[0])
        self._models = {get_args(each.model_fields["type"].annotation)[0]: each for each in members}

    async def next(self) -> dict[str, Any]:
        raw = await self.connection.recv_bytes()
        message = json.loads(raw)
        self.seen.append(message)
        if message["type"] != "transcription_session.created":  # the SDK has no type for it
            filled = _with_secret(message) if message["type"].startswith("transcription_session") else message
            self._models[message["type"]].model_validate(filled)
            assert self.connection.parse_event(raw).type == message["type"]
        return message

    async def until(self, kind: str, times: int = 1) -> dict[str, Any]:
        """Receive until a type has been seen so many times, now included."""
        while [each["type"] for each in self.seen].count(kind) < times:
            await self.next()
        return self.seen[-1]

    async def append(self, audio: bytes, size: int = 4_800) -> None:
        for at in range(0, len(audio), size):
            piece = base64.b64encode(audio[at : at + size]).decode()
            await self.connection.input_audio_buffer.append(audio=piece)

    def all(self, kind: str) -> list[dict[str, Any]]:
        return [each for each in self.seen if each["type"] == kind]

    def deltas(self, item: str) -> str:
        return "".join(each["delta"] for each in self.all(DELTA) if each["item_id"] == item)

    def kinds(self) -> list[str]:
        return [each["type"] for each in self.seen]


def _with_secret(message: dict[str, Any]) -> dict[str, Any]:
    """Over WebSockets there is none, as the SDK's own text says; its type wants one."""
    session = message["session"] | {"client_secret": {"value": "", "expires_at": 0}}
    TranscriptionSession.model_validate(session)
    return message | {"session": session}


@asynccontextmanager
async def ga(fleet, key: str = SECRET) -> AsyncIterator[Talk]:
    async with (
        openai.AsyncOpenAI(api_key=key, base_url=f"{fleet.url}/v1") as client,
        client.realtime.connect(extra_query={"intent": "transcription"}) as connection,
    ):
        yield Talk(connection, Event)


@asynccontextmanager
async def beta(fleet) -> AsyncIterator[Talk]:
    async with (
        openai.AsyncOpenAI(
            api_key=SECRET, base_url=f"{fleet.url}/v1", websocket_base_url=f"ws://127.0.0.1:{fleet.port}/v1"
        ) as client,
        client.beta.realtime.connect(
            model="whisper-1", extra_query={"intent": "transcription"}
        ) as connection,
    ):
        yield Talk(connection, BetaEvent)


async def natively(fleet, audio: bytes) -> list[str]:
    """What our own protocol says to the same audio."""
    async with fleet.connect("sample_rate=24000&encoding=pcm_s16le", additional_headers=KNOWN) as socket:
        await until(socket, "ready")
        await socket.send(audio)
        await socket.send(json.dumps({"type": "end"}))
        return [each["text"] for each in await rest(socket) if each["type"] == "final"]


async def test_the_server_finds_utterances_and_says_what_our_own_protocol_says(fleet):
    async with ga(fleet) as talk:
        created = await talk.until("session.created")
        await talk.append(TALK)
        await talk.until(COMPLETED, 2)

    Session.model_validate(created["session"])
    done = talk.all(COMPLETED)
    assert [each["transcript"] for each in done] == await natively(fleet, TALK)
    assert all(each["transcript"] == talk.deltas(each["item_id"]) for each in done)
    items = [each["item_id"] for each in talk.all("input_audio_buffer.speech_started")]
    assert items == [each["item_id"] for each in done]
    committed = talk.all("input_audio_buffer.committed")
    assert [(each["previous_item_id"], each["item_id"]) for each in committed] == [
        (None, items[0]),
        (*items,),
    ]
    for item in items:
        order = [
            each["type"].rsplit(".", 1)[-1]
            for each in talk.seen
            if item in {each.get("item_id"), each.get("item", {}).get("id")}
        ]
        assert [kind for kind in order if kind != "delta"] == [
            "speech_started", "speech_stopped", "committed", "added", "done", "completed",
        ]  # fmt: skip


@pytest.mark.parametrize("session", [{"type": "transcription"}, MANUAL])
async def test_words_come_while_somebody_speaks(fleet, session):
    async with ga(fleet) as talk:
        await talk.connection.session.update(session=session)
        await talk.append(speech(9, 5).tobytes())
        early = await talk.until(DELTA)
        await talk.append(speech(3, 6).tobytes())
        await talk.connection.input_audio_buffer.commit()
        done = await talk.until(COMPLETED)

    assert early["item_id"] == done["item_id"]
    assert done["transcript"] == talk.deltas(done["item_id"]) != early["delta"]


async def test_manual_commits_are_one_item_each_also_for_silence(fleet):
    async with ga(fleet) as talk:
        await talk.connection.session.update(session=MANUAL)
        await talk.until("session.updated")
        await talk.append(TALK)
        await talk.connection.input_audio_buffer.commit()
        await talk.append(bytes(24_000))
        await talk.connection.input_audio_buffer.commit()
        await talk.until(COMPLETED, 2)

    said, nothing = talk.all(COMPLETED)
    assert said["transcript"] == talk.deltas(said["item_id"]) == " ".join(await natively(fleet, TALK))
    assert said["usage"] == {"type": "duration", "seconds": len(TALK) / 48_000}
    assert (nothing["transcript"], nothing["usage"]["seconds"]) == ("", 0.5)
    assert not talk.all("input_audio_buffer.speech_started")


async def test_the_beta_sdk_is_spoken_to_in_its_own_shapes(fleet):
    async with beta(fleet) as talk:
        await talk.until("transcription_session.created")
        await talk.connection.transcription_session.update(
            session={
                "input_audio_format": "pcm16",
                "input_audio_transcription": {"model": "whisper-1"},
                "turn_detection": {"type": "server_vad", "silence_duration_ms": 400},
            }
        )
        updated = await talk.until("transcription_session.updated")
        await talk.append(TALK)
        await talk.until(COMPLETED, 2)

    assert updated["session"]["turn_detection"]["silence_duration_ms"] == 400
    assert len(talk.all("conversation.item.created")) == 2
    assert not talk.all("conversation.item.added")
    assert all(each["transcript"] == talk.deltas(each["item_id"]) for each in talk.all(COMPLETED))


async def test_what_was_cleared_is_never_transcribed(fleet):
    async with ga(fleet) as talk:
        await talk.connection.session.update(session=MANUAL)
        await talk.append(speech(3, 3).tobytes())
        await talk.connection.input_audio_buffer.clear()
        await talk.append(TALK)
        await talk.connection.input_audio_buffer.commit()
        await talk.until(COMPLETED)

    (done,) = talk.all(COMPLETED)
    assert done["transcript"].split()
    assert done["usage"]["seconds"] == len(TALK) / 48_000
    (committed,) = talk.all("input_audio_buffer.committed")
    assert committed["item_id"] == done["item_id"]
    assert committed["previous_item_id"] is None
    assert (
        len(done["transcript"].split()) <= sum(len(text.split()) for text in await natively(fleet, TALK)) + 1
    )


async def test_a_commit_while_somebody_speaks_ends_the_item(fleet):
    async with ga(fleet) as talk:
        await talk.append(speech(6, 5).tobytes())
        started = await talk.until("input_audio_buffer.speech_started")
        await talk.connection.input_audio_buffer.commit()
        done = await talk.until(COMPLETED)

    assert done["item_id"] == started["item_id"]
    assert done["transcript"] == talk.deltas(started["item_id"]) != ""
    assert not talk.all("input_audio_buffer.speech_stopped")


async def test_mistakes_are_told_and_the_session_goes_on(fleet):
    async with ga(fleet) as talk:
        await talk.connection.input_audio_buffer.append(audio="no base64", event_id="first")
        await talk.connection.input_audio_buffer.commit(event_id="second")
        await talk.connection.response.create(event_id="third")
        german = {"type": "transcription", "audio": {"input": {"transcription": {"language": "de"}}}}
        await talk.connection.session.update(session=german, event_id="fourth")
        await talk.append(TALK)
        changed = {"type": "transcription", "audio": {"input": {"format": {"type": "audio/pcmu"}}}}
        await talk.connection.session.update(session=changed, event_id="fifth")
        await talk.until("error", 5)
        await talk.until(COMPLETED, 2)

    errors = [each["error"] for each in talk.all("error")]
    assert [each["event_id"] for each in errors] == ["first", "second", "third", "fourth", "fifth"]
    assert errors[1]["code"] == "input_audio_buffer_commit_empty"
    assert errors[3]["param"] == "session.audio.input.transcription.language"
    assert all(each["transcript"] for each in talk.all(COMPLETED))


async def test_telephone_audio_is_heard(fleet):
    loud = np.concatenate([silence(0.2), speech(1, 4), silence(0.6)])
    mulaw = (
        np.where(loud > 0, 0x80, np.where(loud < 0, 0x00, 0xFF)).astype(np.uint8).tobytes()
    )  # as loud as can be
    async with ga(fleet) as talk:
        await talk.connection.session.update(
            session={"type": "transcription", "audio": {"input": {"format": {"type": "audio/pcmu"}}}}
        )
        await talk.append(mulaw, 800)
        started = await talk.until("input_audio_buffer.speech_started")
        stopped = await talk.until("input_audio_buffer.speech_stopped")
        done = await talk.until(COMPLETED)

    # 16,000 samples played at 8 kHz take twice as long.
    assert abs(started["audio_start_ms"] - 400) <= 400
    assert abs(stopped["audio_end_ms"] - 2_400) <= 700
    assert done["transcript"]


async def test_a_file_instead_of_samples_ends_the_session_with_a_reason(fleet):
    async with ga(fleet) as talk:
        await talk.append(b"RIFF\x24\0\0\0WAVEfmt " + bytes(20_000))
        error = await talk.until("error")
        with pytest.raises(websockets.ConnectionClosedError) as closed:
            await talk.next()

    assert "WAV" in error["error"]["message"]
    assert closed.value.rcvd.code == 1008


@pytest.mark.parametrize("size", [333, 200_000])
async def test_appends_of_any_size_give_the_same_transcript(fleet, size):
    async with ga(fleet) as talk:
        await talk.append(TALK, size)
        await talk.until(COMPLETED, 2)

    assert [each["transcript"] for each in talk.all(COMPLETED)] == await natively(fleet, TALK)


async def test_a_browser_offers_its_key_as_a_subprotocol(fleet):
    async with websockets.connect(
        f"ws://127.0.0.1:{fleet.port}/v1/realtime?intent=transcription",
        subprotocols=["realtime", f"openai-insecure-api-key.{SECRET}"],
        origin=fleet.url,
    ) as socket:
        (created,) = await until(socket, "session.created")

    assert socket.subprotocol == "realtime"
    assert created["session"]["type"] == "transcription"


async def test_a_browser_with_a_wrong_key_is_told_in_a_message(fleet):
    async with websockets.connect(
        f"ws://127.0.0.1:{fleet.port}/v1/realtime",
        subprotocols=["realtime", "openai-insecure-api-key.wrong"],
        origin=fleet.url,
    ) as socket:
        (told,) = await rest(socket)

    RealtimeErrorEvent.model_validate(told)
    assert told["error"]["code"] == "invalid_api_key"
    assert socket.close_code == 1008


async def test_a_wrong_key_and_too_many_sessions_are_refused_as_openai_does(fleet):
    with pytest.raises(websockets.InvalidStatus) as wrong:
        async with ga(fleet, "wrong"):
            pass
    async with ga(fleet), ga(fleet):
        with pytest.raises(websockets.InvalidStatus) as many:
            async with ga(fleet):
                pass

    answers = [caught.value.response for caught in (wrong, many)]
    assert [answer.status_code for answer in answers] == [401, 429]
    assert [json.loads(answer.body)["error"]["code"] for answer in answers] == [
        "invalid_api_key",
        "rate_limit_exceeded",
    ]
    assert "retry-after" in answers[1].headers


async def test_who_leaves_makes_room_without_waiting_for_a_resume(fleet):
    async def comes_in() -> bool:
        try:
            async with ga(fleet) as talk:
                await talk.append(TALK)
                await talk.until("input_audio_buffer.speech_started")
        except websockets.InvalidStatus:
            return False
        return True

    for _ in range(4):
        await wait_until(comes_in)
