"""A client that announces the wrong sample rate is told, and nothing else changes for it."""

import json

import websockets

from shared import metrics
from tests.e2e.conftest import rest
from tests.e2e.test_stream import END
from tests.unit.test_rate_check import brisk, heard


async def test_a_client_is_warned_once_and_its_session_goes_on(fleet):
    audio = heard(brisk(8_000), 16_000) * 3
    before = metrics.ADVISED.labels("sample_rate")._value.get()
    async with fleet.connect("sample_rate=16000&encoding=pcm_s16le", max_size=None) as socket:
        for at in range(0, len(audio), 64_000):
            await socket.send(audio[at : at + 64_000])
        await socket.send(END)
        messages = await rest(socket)

    (warning,) = [message for message in messages if message["type"] == "warning"]
    assert (warning["code"], warning["announced"], warning["likely"]) == ("sample_rate", 16_000, 8_000)
    assert "8000 Hz, announced as 16000 Hz" in warning["message"]
    assert messages[-1]["type"] == "end"
    assert metrics.ADVISED.labels("sample_rate")._value.get() == before + 1


async def test_deepgrams_clients_are_not_told_what_their_protocol_has_no_place_for(fleet):
    audio = heard(brisk(8_000), 16_000) * 3
    url = f"ws://127.0.0.1:{fleet.port}/v1/listen?encoding=linear16&sample_rate=16000"
    async with websockets.connect(url, max_size=None) as socket:
        for at in range(0, len(audio), 64_000):
            await socket.send(audio[at : at + 64_000])
        await socket.send(json.dumps({"type": "CloseStream"}))
        kinds = {message["type"] for message in await rest(socket)}

    assert kinds <= {"Results", "Metadata"}
