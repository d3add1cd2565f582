"""`… | streamscribe transcribe -`: what comes in on standard input."""

import asyncio
import sys
from contextlib import asynccontextmanager
from pathlib import Path

import numpy as np
import pytest

from tests.containers import container
from tests.e2e.test_stream import expected_texts, talk

pytestmark = pytest.mark.slow

STREAMSCRIBE = Path(sys.executable).with_name("streamscribe")
PIPE = asyncio.subprocess.PIPE


@asynccontextmanager
async def transcribing(fleet, *options: str):
    command = [STREAMSCRIBE, "transcribe", "-", "--url", fleet.url, *options]
    process = await asyncio.create_subprocess_exec(*command, stdin=PIPE, stdout=PIPE, stderr=PIPE)
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


def floats(samples: np.ndarray) -> np.ndarray:
    return (samples / 32768).astype(np.float32)


@pytest.mark.parametrize("kind", ["flac", "m4a"])
async def test_a_container_gives_its_finals_whether_it_can_be_streamed_or_not(fleet, kind):
    async with transcribing(fleet) as process:
        out, err = await process.communicate(container(kind, floats(talk())))

    assert process.returncode == 0, err.decode()
    lines = out.decode().splitlines()
    assert len(lines) == 2
    if kind == "flac":
        assert lines == expected_texts(talk())


async def test_a_container_is_told_while_it_comes(fleet):
    file = container("flac", floats(np.concatenate([talk(), talk()])))
    async with transcribing(fleet) as process:
        process.stdin.write(file[: len(file) * 3 // 4])
        first = await process.stdout.readline()
        process.stdin.write(file[len(file) * 3 // 4 :])
        process.stdin.close()
        rest = await process.stdout.read()
        code = await process.wait()

    assert first.decode().strip() == expected_texts(talk())[0]
    assert rest
    assert code == 0


async def test_samples_without_a_header_are_taken_where_their_rate_is_said(fleet):
    async with transcribing(fleet, "--raw", "16000") as process:
        out, _ = await process.communicate(talk().tobytes())

    assert out.decode().splitlines() == expected_texts(talk())


@pytest.mark.parametrize("data", [b"", b"Dear reader, this is a letter.\n" * 100])
async def test_what_is_no_audio_is_said_to_be_none_and_what_to_do(fleet, data):
    async with transcribing(fleet) as process:
        out, err = await process.communicate(data)

    assert process.returncode == 1
    assert out == b""
    assert b"standard input: " in err
