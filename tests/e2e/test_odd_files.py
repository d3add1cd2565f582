"""Files that broke somebody's recogniser: decoded or refused in words, and nobody else notices.

The table is ../shared/data/odd/manifest.tsv: a file with a length there is audio, one without is not, but for EXCEPTIONS.
"""

import asyncio
import csv
import json
from pathlib import Path

import pytest

from gateway.refusal import CLOSE_BAD_INPUT
from ops.streaming import stream_pcm
from shared.errors import BadInput
from shared.events import End
from shared.media import MediaDecoder
from shared.protocol import SERVER_ADAPTER
from tests.e2e.conftest import rest
from tests.e2e.test_stream import expected_texts, talk, texts
from tests.odd_files import OUTCOMES

ODD = Path(__file__).parents[3] / "shared/data/odd"
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not ODD.exists(), reason="the larger data of ../shared/data is not here"),
]

NOT_AUDIO = "not audio that FFmpeg can read; raw PCM needs a WAV header first"
# File: seconds, or why it is refused.
EXCEPTIONS: dict[str, float | str] = {
    "malformed/awful.wav": "its header says 1092676 Hz, which no recorder writes",
    "containers/good_morning.pcm": NOT_AUDIO,  # headerless: the manifest's length is of what is meant
    "containers/8_Channel_ID.m4a": 8.064,  # takes a process that uses PyAV in the obvious way down
    "containers/p001.flac": 8.986,  # broken frames are left out
    "filetype/fixture-adts-mpeg4.aac": 16.0,
}
END = json.dumps({"type": "end"})
FRAME = 50_000


def manifest() -> dict[str, float | str]:
    if not ODD.exists():
        return {}
    with (ODD / "manifest.tsv").open(encoding="utf-8") as lines:
        rows = csv.DictReader(lines, delimiter="\t", quoting=csv.QUOTE_NONE)
        listed = {row["path"]: float(row["seconds"]) if row["seconds"] else NOT_AUDIO for row in rows}
    return listed | EXCEPTIONS


@pytest.fixture(scope="module")
def decoder():
    with MediaDecoder() as decoder:
        yield decoder


def decoded(decoder: MediaDecoder) -> dict[str, bytes]:
    """The samples of every file that has some."""
    return {file: decoder.decode(ODD / file) for file, is_ in manifest().items() if not isinstance(is_, str)}


@pytest.mark.parametrize("file", manifest())
def test_a_file_is_decoded_or_refused_with_the_reason(decoder, file):
    expected = manifest()[file]
    try:
        found: float | str = len(decoder.decode(ODD / file)) / 32_000
    except BadInput as error:
        found = str(error).removeprefix(f"{ODD / file}: ")

    assert found == (expected if isinstance(expected, str) else pytest.approx(expected, abs=0.002))


async def test_every_decoded_file_gets_to_its_end(fleet, decoder):
    pcm = await asyncio.to_thread(decoded, decoder)
    free = asyncio.Semaphore(8)

    async def one(samples: bytes) -> int:
        async with free:
            recording = await stream_pcm(fleet.url, samples)
        last = recording.heard[-1].event
        assert isinstance(last, End)
        return last.audio_ms

    heard = dict(zip(pcm, await asyncio.gather(*map(one, pcm.values())), strict=True))

    assert heard == {file: pytest.approx(len(samples) / 32, abs=1) for file, samples in pcm.items()}
    await still_serves(fleet)


async def test_every_file_sent_as_it_is_has_the_outcome_of_the_table(fleet):
    free = asyncio.Semaphore(8)

    async def one(file: str) -> tuple[int | str, int]:
        """Milliseconds heard, or the refusal; and how the socket was closed."""
        async with free, fleet.connect("") as socket:
            await asyncio.gather(_send_raw(socket, (ODD / file).read_bytes()), return_exceptions=True)
            messages = await rest(socket)
        for message in messages:
            SERVER_ADAPTER.validate_python(message)
        problem = next((message for message in messages if message["type"] == "problem"), None)
        if problem:
            assert (problem["code"], problem["retryable"]) == ("bad_input", False), file
            return problem["message"], socket.close_code
        return messages[-1]["audio_ms"], socket.close_code

    heard = dict(zip(OUTCOMES, await asyncio.gather(*map(one, OUTCOMES)), strict=True))

    closed = {file: CLOSE_BAD_INPUT if isinstance(is_, str) else 1000 for file, (_, is_) in OUTCOMES.items()}
    assert heard == {file: (is_, closed[file]) for file, (_, is_) in OUTCOMES.items()}
    await still_serves(fleet)


def test_the_table_has_every_file():
    assert set(OUTCOMES) == set(manifest())


async def _send_raw(socket, data: bytes) -> None:
    for at in range(0, len(data), FRAME):
        await socket.send(data[at : at + FRAME])
    await socket.send(END)


async def still_serves(fleet) -> None:
    recording = await stream_pcm(fleet.url, talk().tobytes())
    assert texts([h.event.model_dump() for h in recording.heard]) == expected_texts(talk())
