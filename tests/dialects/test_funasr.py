"""FunASR's clients against `/funasr` and `/`, over a real socket."""

import asyncio
import json
from typing import Any

import numpy as np
import pytest
import soundfile
import websockets

from tests.dialects.pypi import run_with, unpacked
from tests.e2e.test_stream import expected_texts
from tests.unit.test_stages import silence, speech

STRIDE = 1_920  # 60 ms, as clients send
ONE = np.concatenate([silence(0.4), speech(7, 7), silence(1.1), speech(1.5, 8)])
OTHER = np.concatenate([silence(0.3), speech(1.4, 9)])
# The whole of it, as FunASR's Python and HTML5 clients show it.
SAID = " ".join(expected_texts(ONE))


def connect(fleet: Any, path: str = "/funasr", **options: Any) -> websockets.connect:
    """As funasr_wss_client.py does."""
    binary = {"subprotocols": ["binary"], "ping_interval": None} | options
    return websockets.connect(f"ws://127.0.0.1:{fleet.port}{path}", **binary)


def config(**changes: Any) -> str:
    first = {
        "mode": "2pass",
        "chunk_size": [5, 10, 5],
        "chunk_interval": 10,
        "encoder_chunk_look_back": 4,
        "decoder_chunk_look_back": 0,
        "audio_fs": 16_000,
        "wav_name": "demo",
        "wav_format": "pcm",
        "is_speaking": True,
        "hotwords": "",
        "itn": True,
    }
    return json.dumps(first | changes)


async def send(socket: Any, audio: bytes, pause_s: float = 0.0) -> None:
    for at in range(0, len(audio), STRIDE):
        await socket.send(audio[at : at + STRIDE])
        await asyncio.sleep(pause_s)


async def until_end(socket: Any, *, acknowledged: bool) -> list[dict[str, Any]]:
    """Messages up to the one that a new client (`is_end`) or an old one (`is_final`) waits for."""
    seen: list[dict[str, Any]] = []
    while not seen or not seen[-1].get("is_end" if acknowledged else "is_final"):
        seen.append(json.loads(await socket.recv()))
    return seen


def shown(messages: list[dict[str, Any]]) -> str:
    """As the official client prints it: fragments are appended, and dropped when their sentence comes whole."""
    fixed = fragments = ""
    for message in messages:
        if message["mode"] == "2pass-offline":
            fixed, fragments = fixed + message["text"], ""
        else:
            fragments += message["text"]
    return fixed + fragments


async def talk(socket: Any, audio: np.ndarray, **changes: Any) -> list[dict[str, Any]]:
    """One recording, as the newest official client sends it."""
    await socket.send(config(**changes))
    await send(socket, audio.tobytes(), 0.001)
    await socket.send('{"is_speaking": false, "is_end": true}')
    return await until_end(socket, acknowledged=True)


async def flushed_between(fleet: Any, *recordings: np.ndarray) -> list[str]:
    """What the native protocol gives for each."""
    texts = [""]
    async with fleet.connect() as socket:
        for recording in recordings:
            await socket.send(recording.tobytes())
            await socket.send('{"type": "flush"}')
        await socket.send('{"type": "end"}')
        async for message in socket:
            event = json.loads(message)
            if event["type"] == "final":
                texts[-1] = f"{texts[-1]} {event['text']}".strip()
            elif event["type"] == "flushed":
                texts.append("")
    return texts[: len(recordings)]


@pytest.mark.parametrize("path", ["/funasr", "/"])
async def test_the_official_client_in_two_passes(fleet, path):
    async with connect(fleet, path) as socket:
        assert socket.subprotocol == "binary"
        messages = await talk(socket, ONE)

    assert [message["is_final"] for message in messages[-3:]] == [False, True, True]
    assert messages[-1] == {
        "mode": "2pass-offline",
        "text": "",
        "wav_name": "demo",
        "is_final": True,
        "is_end": True,
    }
    assert any(message["mode"] == "2pass-online" for message in messages)
    for cut in range(len(messages)):
        assert SAID.startswith(shown(messages[:cut]))
    assert shown(messages) == SAID
    sentences = [message for message in messages if message["mode"] == "2pass-offline" and message["text"]]
    assert [sentence["text"].strip() for sentence in sentences] == expected_texts(ONE)
    for sentence in sentences:
        spans = json.loads(sentence["timestamp"])
        assert len(spans) == len(sentence["text"].split())
        assert spans == [span for clause in sentence["stamp_sents"] for span in clause["ts_list"]]


@pytest.mark.parametrize("mode", ["online", "offline"])
async def test_in_one_pass_there_are_fragments_or_one_result(fleet, mode):
    async with connect(fleet) as socket:
        messages = await talk(socket, ONE, mode=mode)

    assert {message["mode"] for message in messages} == {mode}
    assert "".join(message["text"] for message in messages) == SAID
    if mode == "offline":
        assert [message["text"] for message in messages] == [SAID, ""]
        assert len(json.loads(messages[0]["timestamp"])) == len(SAID.split())


async def test_an_old_client_waits_for_is_final_and_is_told_of_no_acknowledgement(fleet):
    async with connect(fleet) as socket:
        await socket.send(config(chunk_size="5, 10, 5"))
        await send(socket, ONE.tobytes())
        await socket.send('{"is_speaking": false}')
        messages = await until_end(socket, acknowledged=False)
        await socket.send('{"is_speaking": false}')
        (empty,) = await until_end(socket, acknowledged=False)

    assert shown(messages) == SAID
    assert not any("is_end" in message for message in messages)
    assert empty == {"mode": "2pass-offline", "text": "", "wav_name": "demo", "is_final": True}


async def test_recordings_one_after_the_other_on_one_connection(fleet):
    async with connect(fleet) as socket:
        first = await talk(socket, ONE, wav_name="one")
        second = await talk(socket, OTHER, wav_name="other")

    assert [shown(first), shown(second)] == await flushed_between(fleet, ONE, OTHER)
    assert {message["wav_name"] for message in second} == {"other"}
    spans = [span for message in second for span in json.loads(message.get("timestamp", "[]"))]
    assert spans[0][0] < 1_000
    assert spans[-1][1] <= len(OTHER) / 16


async def test_the_html5_page_is_understood_at_the_root_without_a_subprotocol(fleet):
    config_of_page = {"chunk_size": [5, 10, 5], "wav_name": "h5", "chunk_interval": 10, "mode": "2pass"}
    async with connect(fleet, "/", subprotocols=None) as socket:
        await socket.send(json.dumps(config_of_page | {"is_speaking": True, "itn": False}))
        await send(socket, ONE.tobytes())
        await socket.send(json.dumps(config_of_page | {"is_speaking": False}))
        messages = await until_end(socket, acknowledged=False)

    assert shown(messages) == SAID
    assert not any("timestamp" in message for message in messages)


@pytest.mark.parametrize(
    ("kind", "announced"), [("flac", "others"), ("flac", "flac"), ("wav", "PCM"), ("wav", "wav")]
)
async def test_a_file_as_it_is(fleet, tmp_path, kind, announced):
    """The Python client sends what is neither .pcm nor .wav as `others`; the HTML5 page a WAV file, header and all, as PCM."""
    soundfile.write(tmp_path / f"one.{kind}", ONE, 16_000)
    async with connect(fleet) as socket:
        await socket.send(config(mode="offline", wav_format=announced))
        await send(socket, (tmp_path / f"one.{kind}").read_bytes())
        await socket.send('{"is_speaking": false, "is_end": true}')
        messages = await until_end(socket, acknowledged=True)

    assert [message["text"] for message in messages] == [SAID, ""]


async def test_a_file_that_is_none_is_named(fleet):
    async with connect(fleet) as socket:
        await socket.send(config(mode="offline", wav_format="mp3"))
        await socket.send(ONE.tobytes())
        (message,) = await until_end(socket, acknowledged=False)
        await socket.wait_closed()

    assert "no container arrived" in message["error"]
    assert message["error"].startswith(socket.close_reason)


async def test_what_is_wrong_is_told_and_is_in_the_close_frame(fleet):
    async with connect(fleet) as socket:
        await talk(socket, OTHER)
        await socket.send(config(audio_fs=8_000))
        (message,) = await until_end(socket, acknowledged=False)
        await socket.wait_closed()

    assert "open another for pcm of 8000 Hz" in message["error"]
    assert (socket.close_code, socket.close_reason) == (1008, message["error"])


@pytest.fixture(scope="session")
def funasr_client(tmp_path_factory):
    return unpacked(tmp_path_factory.mktemp("funasr"), "funasr-client==0.1.6")


@pytest.mark.slow
async def test_funasr_client_unmodified(fleet, funasr_client, tmp_path):
    """The command line of funasr-client from PyPI, which merges the sentences of a file.

    Not without --async: 0.1.6 then takes a lock twice when it closes, with any server.
    """
    soundfile.write(tmp_path / "one.wav", ONE, 16_000)
    code, out, errors = await run_with(
        funasr_client,
        *("-m", "funasr_client", f"ws://127.0.0.1:{fleet.port}", str(tmp_path / "one.wav"), "--async"),
        *("--hotwords", "yes:20"),
    )

    assert (code, errors) == (0, "")
    merged = json.loads(out)
    assert merged["text"] == SAID
    assert len(merged["timestamp"]) == len(SAID.split())
