"""Containers decoded while they come in, each by a child that may die, hang or be held up."""

import asyncio
import os
import signal
from pathlib import Path

import numpy as np
import pytest

from gateway.container_stream import ContainerDecoders, ContainerStream, Passed
from shared.errors import BadInput, Overloaded
from shared.stream_wire import Start
from tests.conftest import wait_until
from tests.containers import FORMATS, KINDS, container, pieces, tone, wav

pytestmark = pytest.mark.slow

SECOND = 32_000  # bytes
ADPCM = 0x11


@pytest.fixture
async def decoders():
    decoders = ContainerDecoders(4, stuck_s=20)
    await decoders.start()
    yield decoders
    await decoders.stop(5)


async def send(
    stream: ContainerStream, data: bytes, step: int = 1_000, marks: dict[int, bytes] | None = None
) -> None:
    """All of it, with marks after so many bytes, and its end."""
    for n, piece in enumerate(pieces(data, step)):
        await stream.feed(piece)
        if mark := (marks or {}).get((n + 1) * step):
            stream.mark(mark)
    stream.end()


async def decode(
    decoders: ContainerDecoders,
    data: bytes,
    start: Start,
    step: int = 1_000,
    marks: dict[int, bytes] | None = None,
) -> list[bytes | Passed]:
    stream = await decoders.open("a test file", start)
    sending = asyncio.create_task(send(stream, data, step, marks))
    try:
        return [heard async for heard in stream]
    finally:
        await asyncio.gather(sending)
        await stream.close()


def samples(heard: list[bytes | Passed]) -> np.ndarray:
    return np.frombuffer(b"".join(part for part in heard if isinstance(part, bytes)), "<i2")


@pytest.mark.parametrize("kind", KINDS)
async def test_every_kind_keeps_its_tone_and_its_length(decoders, kind):
    heard = samples(await decode(decoders, container(kind), Start(FORMATS[kind])))

    assert len(heard) == pytest.approx(16_000, abs=2_500)  # codecs add their padding
    spectrum = np.abs(np.fft.rfft(heard[:16_000] * np.hanning(len(heard[:16_000]))))
    assert spectrum.argmax() * 16_000 / len(heard[:16_000]) == pytest.approx(440, abs=3)


@pytest.mark.parametrize("kind", ["flac", "mp3", "webm opus", "fragmented m4a"])
async def test_the_split_does_not_matter(decoders, kind):
    data, start = container(kind), Start(FORMATS[kind])
    whole = samples(await decode(decoders, data, start, len(data)))

    for step in (1, 333):
        assert samples(await decode(decoders, data, start, step)).tolist() == whole.tolist()


@pytest.mark.parametrize(("kind", "frame_ms"), [
    ("flac", 72), ("mp3", 36), ("ogg opus", 20), ("webm opus", 20), ("aac", 64), ("fragmented m4a", 100), ("aiff", 128), ("amr", 20),
])  # fmt: skip
async def test_what_was_sent_is_heard_at_once(decoders, kind, frame_ms):
    """A mark tells what is withheld: at most 200 ms besides what the codec puts into one frame, or page, or fragment."""
    rate = KINDS[kind]["rate"]
    # Of noise all seconds take as many bytes. What the header takes matters least at the end.
    data = container(kind, np.random.default_rng(1).normal(0, 0.1, 6 * rate).astype(np.float32))
    marks = {at: str(at).encode() for at in range(500, len(data), 500)}
    heard = await decode(decoders, data, Start(FORMATS[kind]), 500, marks)

    total, so_far, withheld = len(samples(heard)) / 16, 0.0, []
    for part in heard:
        if isinstance(part, Passed):
            withheld.append(int(part.token) / len(data) * total - so_far)
        else:
            so_far += len(part) / 32
    assert len(withheld) == len(marks)
    assert max(withheld[len(withheld) * 3 // 4 :]) < 200 + frame_ms


async def test_a_mark_lies_between_the_samples_before_it_and_those_after(decoders):
    data = container("mp3")
    heard = await decode(decoders, data, Start("mp3"), len(data) // 2, {len(data) // 2: b"half"})

    at = next(n for n, part in enumerate(heard) if isinstance(part, Passed))
    assert heard[at].token == b"half"
    assert len(samples(heard[:at])) == heard[at].taken == pytest.approx(8_000, abs=2 * 576)


async def test_text_of_a_live_stream_need_not_wait_for_its_end(decoders):
    data = container("webm opus", seconds=3)
    stream = await decoders.open("a test file", Start("matroska"))
    await stream.feed(data[: len(data) // 2])
    so_far = 0
    async with asyncio.timeout(10):
        async for part in stream:
            so_far += len(part)
            if so_far > SECOND:
                break
    await stream.close()


async def test_a_file_whose_index_comes_last_is_decoded_at_its_end(decoders):
    heard = await decode(decoders, container("m4a"), Start("mov"), 500, {500: b"early"})

    assert heard[0] == Passed(b"early", 0)
    assert len(samples(heard)) > 15_000


async def test_such_a_file_may_not_be_too_large():
    decoders = ContainerDecoders(1, spool_bytes=1 << 20)
    with pytest.raises(BadInput, match=r"index \(moov\) comes after its samples, and not within 1 MB"):
        await decode(decoders, container("m4a")[:100] + bytes(2 << 20), Start("mov"), 1 << 16)
    await decoders.stop(5)


async def test_channels_are_mixed_down_or_left_apart(decoders):
    both = np.stack([tone(16_000), np.zeros(16_000, np.float32)], axis=1)
    stereo = container("flac", both)

    mixed = samples(await decode(decoders, stereo, Start("flac")))
    apart = samples(await decode(decoders, stereo, Start("flac", channels=2))).reshape(-1, 2)

    assert np.abs(mixed * 2.0 - apart[:, 0]).max() <= 2
    assert not apart[:, 1].any()
    with pytest.raises(BadInput, match=r"2 channel\(s\) where channels=4 was announced"):
        await decode(decoders, stereo, Start("flac", channels=4))


@pytest.mark.parametrize("kind", ["flac", "ogg opus"])
async def test_a_container_that_is_sent_again_goes_on_exactly_where_it_was(decoders, kind):
    data = container(kind, seconds=2)
    half = len(data) // 2 // 100 * 100
    heard = await decode(decoders, data, Start(FORMATS[kind]), 100, {half: b"flush"})
    at = next(n for n, part in enumerate(heard) if isinstance(part, Passed))
    rest = samples(heard[at:])

    again = await decode(decoders, data, Start(FORMATS[kind], skip=heard[at].taken))

    assert samples(again).tolist() == rest.tolist()


@pytest.mark.parametrize(("format", "data", "why"), [
    ("matroska", b"\x1aE\xdf\xa3" + bytes(5_000), "FFmpeg can not read it"),
    ("flac", b"fLaC" + bytes(5_000), "no audio"),
    ("wav", wav(bytes(3_000), 1, rate=1_092_676), "1092676 Hz"),
    ("mp3", b"ID3\x04\0\0\0\0\0\0" + bytes(5_000), "no audio"),
])  # fmt: skip
async def test_what_is_no_audio_is_named(decoders, format, data, why):  # noqa: A002
    with pytest.raises(BadInput, match=f"a test file arrived, but .*{why}"):
        await decode(decoders, data, Start(format))


async def child_of(stream: ContainerStream) -> int:
    return stream._process.pid


async def test_a_segmentation_fault_costs_only_its_own_stream(decoders):
    doomed = await decoders.open("a doomed file", Start("flac"))
    await doomed.feed(container("flac")[:5_000])
    os.kill(await child_of(doomed), signal.SIGSEGV)

    with pytest.raises(BadInput, match="a doomed file arrived, but it crashed the decoder"):
        await asyncio.gather(anext(skip_samples(doomed)), doomed.feed(bytes(1 << 20)))
    await doomed.close()
    assert len(samples(await decode(decoders, container("flac"), Start("flac")))) == 16_000


async def skip_samples(stream):
    async for part in stream:
        if isinstance(part, Passed):
            yield part


async def test_a_child_that_hangs_is_given_up():
    decoders = ContainerDecoders(1, stuck_s=0.3)
    stream = await decoders.open("a hanging file", Start("flac"))
    os.kill(await child_of(stream), signal.SIGSTOP)
    stream.mark(b"anyone?")

    with pytest.raises(BadInput, match="got stuck"):
        await anext(skip_samples(stream))
    await stream.close()
    await decoders.stop(5)


async def test_a_client_that_sends_nothing_is_no_hanging_child():
    decoders = ContainerDecoders(1, stuck_s=0.05)
    stream = await decoders.open("a slow file", Start("flac"))
    heard = asyncio.create_task(anext(skip_samples(stream)))
    await asyncio.wait([heard], timeout=0.5)
    assert not heard.done()
    stream._stuck_s = 20
    stream.mark(b"there")

    assert await heard == Passed(b"there", 0)
    await stream.close()
    await decoders.stop(5)


def memory(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


async def test_who_does_not_read_holds_up_who_feeds_and_nobody_collects_anything(decoders):
    """Silence packs 1000 to 1: unread, an hour of it would be 115 MB."""
    hour = container("flac", np.zeros(600 * 16_000, np.float32))
    stream = await decoders.open("a bomb", Start("flac"))
    feeding = asyncio.create_task(send(stream, hour * 6, 1 << 12))
    first = await anext(aiter(stream))
    _, waiting = await asyncio.wait([feeding], timeout=1)

    assert first
    assert memory(await child_of(stream)) < 200 << 20
    assert len(stream._stdout._buffer) < 1 << 20
    del waiting
    feeding.cancel()
    await asyncio.gather(feeding, return_exceptions=True)
    await stream.close()


async def test_only_so_many_are_decoded_at_a_time():
    decoders = ContainerDecoders(1)
    first = await decoders.open("a file", Start("flac"))

    with pytest.raises(Overloaded, match="1 containers are being decoded"):
        await decoders.open("a file", Start("flac"))

    await first.close()
    await (await decoders.open("a file", Start("flac"))).close()
    await decoders.stop(5)


def gone(pid: int) -> bool:
    return not Path(f"/proc/{pid}").exists()


async def test_no_child_outlives_its_stream_or_the_gateway():
    decoders = ContainerDecoders(2)
    stream = await decoders.open("a file", Start("flac"))
    used, spare = await child_of(stream), (await decoders._spare).pid

    await stream.close()
    assert gone(used)
    await decoders.stop(5)
    assert gone(spare)


async def test_a_child_ends_even_when_nobody_waits_for_its_end_any_more(decoders):
    for turns in range(1, 12):  # of the event loop, before the wait is cancelled
        closing = asyncio.create_task((await decoders.open("a file", Start("flac"))).close())
        for _ in range(turns):
            await asyncio.sleep(0)
        closing.cancel()
        await asyncio.gather(closing, return_exceptions=True)

        await wait_until(lambda: not decoders._open)


async def test_a_spare_that_died_is_replaced(decoders):
    await (await decoders.open("a file", Start("flac"))).close()
    spare = await decoders._spare
    spare.kill()
    await spare.wait()

    assert len(samples(await decode(decoders, container("flac"), Start("flac")))) == 16_000


async def test_a_child_can_not_open_files_or_write_any(decoders):
    """An MP4 may name other files; playlists are not among the formats."""
    stream = await decoders.open("a file", Start("hls"))
    await asyncio.gather(send(stream, b"#EXTM3U\n#EXTINF:1,\n/etc/passwd\n#EXT-X-ENDLIST\n"))

    with pytest.raises(BadInput, match="can not read it"):
        await anext(skip_samples(stream))
    await stream.close()
