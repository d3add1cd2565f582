"""Vosk-server's clients against `/` and `/vosk`, over a real socket: each does what an official sample does."""

import asyncio
import json
import os
import random
from typing import Any

import numpy as np
import pytest
import soundfile
import websockets
import websockets.sync.client

from ops.keys import FileStore
from shared.access import Key, new_secret
from shared.settings import AuthSettings
from tests.dialects.pypi import run_with, unpacked
from tests.e2e.test_stream import expected_texts
from tests.unit.test_stages import silence, speech

CONFIG = '{ "config" : { "sample_rate" : 16000 } }'
EOF = '{"eof" : 1}'
RESET = '{"reset" : 1}'
TALK = np.concatenate(
    [silence(0.4), speech(2.2, 7), silence(1.1), speech(1.5, 8), silence(0.9), speech(1.2, 9)]
)


def connect(fleet: Any, path: str = "/", **options: Any) -> websockets.connect:
    return websockets.connect(f"ws://127.0.0.1:{fleet.port}{path}", **options)


def frames(audio: bytes, sizes: Any) -> list[bytes]:
    """Cut into these sizes; the last is repeated."""
    cut, at = [], 0
    for size in sizes:
        cut.append(audio[at : at + size])
        at += size
    while at < len(audio):
        cut.append(audio[at : at + sizes[-1]])
        at += sizes[-1]
    return [frame for frame in cut if frame]


def transcript(replies: list[dict[str, Any]]) -> str:
    return " ".join(reply["text"] for reply in replies if reply.get("text"))


async def lock_step(socket: Any, chunks: list[bytes]) -> list[dict[str, Any]]:
    """As test.py: a chunk, one reply, and so on; the last reply is that to eof, then the server closes."""
    replies = []
    for chunk in [*chunks, EOF]:
        await socket.send(chunk)
        replies.append(json.loads(await socket.recv()))
    with pytest.raises(websockets.ConnectionClosedOK):
        await socket.recv()
    return replies


def random_sizes(seed: int) -> list[int]:
    rng = random.Random(seed)
    return [rng.choice([1, 7, 320, 3_201, 8_000, 50_000]) for _ in range(rng.randint(1, 40))] + [8_000]


@pytest.mark.parametrize(
    "sizes", [[6_400], [333], [4_096], [10**6], *(random_sizes(seed) for seed in range(4))]
)
async def test_one_reply_for_each_frame_however_the_audio_is_cut(fleet, sizes):
    chunks = frames(TALK.tobytes(), sizes)
    async with connect(fleet) as socket:
        await socket.send(CONFIG)
        replies = await lock_step(socket, chunks)

    assert len(replies) == len(chunks) + 1
    assert all(("partial" in reply) != ("text" in reply) for reply in replies)
    assert "text" in replies[-1]
    assert transcript(replies) == " ".join(expected_texts(TALK))
    assert socket.close_code == 1000


async def test_words_have_times_and_finals_come_while_the_microphone_is_open(fleet):
    """As test_microphone.py, and test_srt.py on what it collects."""
    async with connect(fleet, "/vosk") as socket:
        await socket.send(CONFIG)
        replies = []
        chunks = frames(np.concatenate([TALK, silence(2)]).tobytes(), [8_000])
        while sum("result" in reply for reply in replies) < 3:  # frames without samples are answered as well
            await socket.send(chunks.pop(0) if chunks else b"")
            replies.append(json.loads(await socket.recv()))
        assert await lock_step(socket, []) == [{"text": ""}]

    assert any(reply.get("partial") for reply in replies)
    words = [word for reply in replies for word in reply.get("result", [])]
    assert " ".join(word["word"] for word in words) == " ".join(expected_texts(TALK))
    assert words == sorted(words, key=lambda word: word["start"])
    assert all(0 <= word["start"] <= word["end"] <= len(TALK) / 16_000 for word in words)
    assert all(0 < word["conf"] <= 1 for word in words)


async def test_a_blocking_client(fleet):
    """As asr-test-client.py."""

    def talk() -> list[str]:
        replies = []
        with websockets.sync.client.connect(f"ws://127.0.0.1:{fleet.port}/vosk") as socket:
            socket.send(CONFIG)
            for chunk in frames(TALK.tobytes(), [6_400]):
                socket.send(chunk)
                replies.append(socket.recv())
            socket.send(EOF)
            replies.append(socket.recv())
        return replies

    replies = await asyncio.to_thread(talk)
    assert transcript([json.loads(reply) for reply in replies]) == " ".join(expected_texts(TALK))


async def test_a_client_that_does_not_wait(fleet):
    """As node/test.js: events in, events out, until the server closes."""
    chunks = frames(TALK.tobytes(), [65_536])
    async with connect(fleet) as socket:
        for message in [CONFIG, *chunks, EOF]:
            await socket.send(message)
        replies = [json.loads(message) async for message in socket]

    assert len(replies) == len(chunks) + 1
    assert transcript(replies) == " ".join(expected_texts(TALK))
    assert socket.close_code == 1000


async def test_a_reset_is_answered_before_what_is_sent_behind_it(fleet):
    audio = TALK.tobytes()
    half = 16_000 * 2 * 2
    async with connect(fleet) as socket:
        for message in [CONFIG, audio[:half], RESET, audio[half:], b"", EOF]:
            await socket.send(message)
        replies = [json.loads(message) async for message in socket]

    assert [min(reply) for reply in replies[:3]] == ["partial", "result", "partial"]
    assert len(replies) == 5
    async with fleet.connect() as socket:
        for message in [audio[:half], '{"type": "flush"}', audio[half:], '{"type": "end"}']:
            await socket.send(message)
        events = [json.loads(message) async for message in socket]
    assert transcript(replies) == transcript([event for event in events if event["type"] == "final"])
    assert replies[1]["text"] == next(event["text"] for event in events if event["type"] == "final")


async def test_a_client_that_sends_8_khz_need_say_nothing(fleet):
    audio = TALK[::2].tobytes()
    async with connect(fleet) as socket:
        replies = await lock_step(socket, frames(audio, [4_000]))
    assert replies[-1]["text"]
    assert 4 < replies[-1]["result"][-1]["end"] <= len(TALK) / 16_000


async def test_a_wav_file_with_its_header_says_its_rate_itself(fleet, tmp_path):
    """As test_srt.py, which reads the file as it is and sends no config."""
    soundfile.write(tmp_path / "talk.wav", TALK, 16_000)
    async with connect(fleet) as socket:
        replies = await lock_step(socket, frames((tmp_path / "talk.wav").read_bytes(), [8_000]))
    assert transcript(replies) == " ".join(expected_texts(TALK))


async def test_alternatives(fleet):
    """As test_alternatives.py."""
    async with connect(fleet) as socket:
        await socket.send('{"config": {"sample_rate": 16000, "max_alternatives": 5, "words": 0}}')
        replies = await lock_step(socket, frames(TALK.tobytes(), [8_000]))
    finals = [reply["alternatives"] for reply in replies if "alternatives" in reply]
    assert " ".join(only["text"] for (only,) in finals if only["text"]) == " ".join(expected_texts(TALK))


@pytest.mark.parametrize(
    ("message", "words"),
    [
        (
            '{"config": {"sample_rate": 4000}}',
            "config: sample_rate: Input should be greater than or equal to",
        ),
        ("stop", "text frames are JSON"),
        ((TALK[8_000:] / 32_768).astype("<f4").tobytes(), "32-bit floats arrived"),
    ],
)
async def test_what_was_wrong_is_in_the_close_frame(fleet, message, words):
    async with connect(fleet) as socket:
        await socket.send(message)
        await socket.wait_closed()
    assert socket.close_code == 1008
    assert words in socket.close_reason


class TestWithKeys:
    ID, SECRET = new_secret()

    @pytest.fixture
    def auth_settings(self, tmp_path) -> AuthSettings:
        FileStore(tmp_path / "keys.toml").write(
            self.ID, Key.new(self.SECRET, name="acme", scopes=["transcribe"])
        )
        return AuthSettings(keys_file=tmp_path / "keys.toml")

    async def test_the_address_may_hold_the_key(self, fleet):
        async with connect(fleet, f"/?token={self.SECRET}&sample_rate=16000") as socket:
            replies = await lock_step(socket, frames(TALK.tobytes(), [8_000]))
        assert transcript(replies) == " ".join(expected_texts(TALK))

    async def test_without_a_key_the_handshake_is_refused(self, fleet):
        with pytest.raises(websockets.InvalidStatus) as refused:
            await connect(fleet, "/vosk")
        assert refused.value.response.status_code == 401


# vosk-transcriber's own command line wants a model even with --server, and can't be told a port.
TRANSCRIBER = """
import queue, sys, types
from vosk.transcriber.transcriber import Transcriber

class WithoutModel(Transcriber):
    def __init__(self, args):
        self.args, self.queue = args, queue.Queue()

args = types.SimpleNamespace(server=sys.argv[1], tasks=1, output_type=sys.argv[4])
WithoutModel(args).process_task_list([(sys.argv[2], sys.argv[3])])
"""
# It has the file converted by a program, which need not be installed here: this one hands the samples on.
FFMPEG = '#!/bin/sh\ntail -c +45 "$5"\n'


@pytest.fixture(scope="session")
def vosk_package(tmp_path_factory):
    return unpacked(tmp_path_factory.mktemp("vosk"), "vosk==0.3.45", "srt==3.5.3")


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["txt", "srt"])
async def test_vosk_transcriber_unmodified(fleet, vosk_package, tmp_path, kind):
    """The official client on PyPI: its constructor, which loads a model, is left out; the rest is as it comes."""
    soundfile.write(tmp_path / "talk.wav", TALK, 16_000)
    ffmpeg = tmp_path / "ffmpeg"
    ffmpeg.write_text(FFMPEG)
    ffmpeg.chmod(0o755)

    code, _, errors = await run_with(
        vosk_package,
        *(
            "-c",
            TRANSCRIBER,
            f"ws://127.0.0.1:{fleet.port}",
            str(tmp_path / "talk.wav"),
            str(tmp_path / "out"),
            kind,
        ),
        PATH=f"{tmp_path}:{os.environ['PATH']}",
    )

    assert (code, errors) == (0, "")
    out = (tmp_path / "out").read_text()
    lines = [line for line in out.splitlines() if line and "-->" not in line]
    assert " ".join(lines if kind == "txt" else lines[1::2]) == " ".join(expected_texts(TALK))
