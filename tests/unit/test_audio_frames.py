"""FLAC and MP3 streams are cut at their frames, whatever lies between and however they arrive."""

import av
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shared.audio_frames import FlacFrames, Mp3Frames
from tests.containers import container, pieces

FLAC, MP3 = container("flac", seconds=3), container("mp3")
RATE = 16_000


def cut(frames: FlacFrames | Mp3Frames, data: bytes, step: int = 500) -> list[bytes]:
    whole = [frame for piece in pieces(data, step) for frame in frames.feed(piece)]
    return [*whole, *filter(None, [frames.at_mark()])]


def flac_samples(frames: list[bytes], stream_info: bytes) -> np.ndarray:
    codec = av.CodecContext.create("flac", "r")
    codec.extradata = stream_info
    decoded = [f.to_ndarray()[0] for frame in frames for f in codec.decode(av.Packet(frame))]
    return np.concatenate(decoded)


def test_flac_frames_put_together_are_the_samples_that_went_in():
    noise = np.random.default_rng(1).integers(-9_000, 9_000, 3 * RATE)
    frames = FlacFrames()

    found = cut(frames, container("flac", (noise / 32_768).astype(np.float32)))

    assert len(found) == -(-3 * RATE // 1_152)
    assert flac_samples(found, frames.stream_info).tolist() == noise.tolist()


@settings(deadline=None, max_examples=25)
@given(st.integers(1, 3_000))
def test_the_split_does_not_matter(step):
    assert cut(FlacFrames(), FLAC, step) == cut(FlacFrames(), FLAC)
    assert cut(Mp3Frames(), MP3, step) == cut(Mp3Frames(), MP3)


def test_a_flac_frame_is_given_when_the_next_one_begins():
    frames, given = FlacFrames(), 0
    for piece in pieces(FLAC, 100):
        given += len(list(frames.feed(piece)))
        pending = len(frames._data)
        assert pending < 2 * 2_400  # bytes of a frame of 72 ms


def test_half_a_flac_frame_is_not_given_at_a_mark():
    frames = FlacFrames()
    list(frames.feed(FLAC[:-5]))

    assert frames.at_mark() == b""
    list(frames.feed(FLAC[-5:]))
    assert frames.at_mark()


def test_a_lost_flac_frame_costs_no_other():
    frames = FlacFrames()
    found = cut(frames, FLAC)
    at = FLAC.index(found[5])
    broken = FLAC[:at] + b"\xff" * 50 + FLAC[at + len(found[5]) :]

    assert cut(FlacFrames(), broken)[5:] == found[6:]  # what is left of it is the fifth's end


def test_flac_without_an_end_to_its_frame_is_given_up():
    frames = FlacFrames()
    with pytest.raises(ValueError, match="no FLAC frame"):
        cut(frames, FLAC[:1_000] + bytes(3 << 20), 1 << 16)


def test_mp3_tags_and_garbage_are_left_out():
    tag = b"ID3\4\0\0" + bytes([0, 0, 2, 5]) + bytes(256 + 5)
    clean = cut(Mp3Frames(), MP3)

    assert cut(Mp3Frames(), tag + MP3) == clean
    assert cut(Mp3Frames(), b"\xff\xfbgarbage\xff" + MP3) == clean
    assert cut(Mp3Frames(), MP3 + tag + MP3[len(MP3) - sum(map(len, clean)) :]) == clean * 2


def test_mp3_gives_every_frame_as_soon_as_it_is_whole():
    frames = Mp3Frames()
    first, second, *others = cut(Mp3Frames(), MP3)
    assert list(frames.feed(first + second)) == [first, second]
    for frame in others:
        assert list(frames.feed(frame[:-1])) == []
        assert list(frames.feed(frame[-1:])) == [frame]
