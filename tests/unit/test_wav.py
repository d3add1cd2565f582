"""WAV files that are streamed: any size in the header, any chunks around the samples, any split."""

import struct

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.audio import WavDecoder
from gateway.wav import layout_in
from shared.errors import BadInput
from tests.containers import pieces, tone, wav

SAMPLES = np.arange(-300, 300, dtype="<i2").tobytes()
LIST = b"LIST" + struct.pack("<I", 10) + b"INFOISFT\2\0"
SIZE_AT = 40  # of the header's data size


def decode(file: bytes, step: int = 1_000, **again: int) -> bytes:
    layout = layout_in(file)
    assert layout
    decoder = WavDecoder(layout, **again)
    out = b"".join(map(decoder.feed, pieces(file, step))) + decoder.finish()
    decoder.require_whole()
    return out


@pytest.mark.parametrize("size", [0, 0xFFFFFFFF, 0xFFFFFF9B, 0x7FFFFFFF, 57_000_000, len(SAMPLES)])
@pytest.mark.parametrize("step", [1, 7, 1_000])
def test_whatever_size_the_header_says_all_samples_are_taken(size, step):
    assert decode(wav(SAMPLES, size=size), step) == SAMPLES


def test_chunks_before_and_after_the_samples_are_left_out():
    file = wav(SAMPLES)
    early = file[:36] + LIST + file[36:] + LIST

    assert decode(early, 5) == SAMPLES


def test_samples_that_go_on_after_their_announced_end_are_taken():
    assert decode(wav(SAMPLES, size=100), 9) == SAMPLES


def test_files_one_after_the_other_are_one_recording():
    assert decode(wav(SAMPLES) + wav(SAMPLES) + wav(SAMPLES, size=0), 11) == SAMPLES * 3


def test_a_file_of_another_kind_after_the_first_is_named():
    with pytest.raises(BadInput, match=r"16000 Hz.* was followed by one with .*8000 Hz"):
        decode(wav(SAMPLES) + wav(SAMPLES, rate=8_000))


def test_a_rf64_file_says_its_size_elsewhere():
    plain = wav(SAMPLES, size=0xFFFFFFFF)
    ds64 = b"ds64" + struct.pack("<IQQQI", 28, 0, len(SAMPLES), 0, 0)

    assert decode(b"RF64" + plain[4:12] + ds64 + plain[12:] + LIST, 13) == SAMPLES


@pytest.mark.parametrize(
    ("tag", "bits", "codes", "values"),
    [
        (1, 8, b"\x80\xff\x00", [0, 32_512, -32_768]),
        (1, 16, struct.pack("<3h", 0, 1, -32_768), [0, 1, -32_768]),
        (1, 24, b"\0\0\0\0\1\0\0\0\x80", [0, 1, -32_768]),
        (1, 32, struct.pack("<3i", 0, 65_536, -(2**31)), [0, 1, -32_768]),
        (3, 32, struct.pack("<3f", 0, 0.5, -1), [0, 16_384, -32_768]),
        (3, 64, struct.pack("<4d", 0, 0.5, -1, 1e300), [0, 16_384, -32_768, 0]),
        (6, 8, b"\xd5\x55\x80", [8, -8, 5_504]),
        (7, 8, b"\xff\x00\x80", [0, -32_124, 32_124]),
    ],
)
def test_every_way_to_write_a_sample_is_known(tag, bits, codes, values):
    assert np.frombuffer(decode(wav(codes, tag, bits=bits), 4), "<i2").tolist() == values


def test_an_extensible_header_names_its_codec_in_its_tail():
    fmt = struct.pack("<HHIIHHHHI", 0xFFFE, 1, 16_000, 32_000, 2, 16, 22, 16, 4) + b"\1\0" + bytes(14)
    file = b"RIFF\0\0\0\0WAVEfmt " + struct.pack("<I", len(fmt)) + fmt + b"data\0\0\0\0" + SAMPLES

    assert decode(file) == SAMPLES


@pytest.mark.parametrize("tag", [2, 0x11, 0x31, 0x55])
def test_a_codec_that_is_more_than_samples_is_not_for_it(tag):
    assert layout_in(wav(SAMPLES, tag)) is None


def test_a_beginning_that_is_too_short_does_not_tell():
    file = wav(SAMPLES)
    for size in range(4, 36):
        with pytest.raises(IndexError):
            layout_in(file[:size])
    assert layout_in(file[:36])


def test_what_can_not_be_is_named():
    with pytest.raises(BadInput, match="1092676 Hz"):
        decode(wav(SAMPLES, rate=1_092_676))
    with pytest.raises(BadInput, match="no audio"):
        decode(wav(b""))
    with pytest.raises(BadInput, match="something else than a chunk"):
        decode(wav(SAMPLES)[:36] + bytes(100))


@settings(deadline=None, max_examples=40)
@given(st.integers(1, 400), st.sampled_from([8_000, 16_000, 44_100]), st.integers(1, 2))
def test_the_split_does_not_matter(step, rate, channels):
    raw = np.rint(tone(rate, 0.05) * 20_000).astype("<i2").repeat(channels).tobytes()
    file = wav(raw, rate=rate, channels=channels, size=0)

    assert decode(file, step) == decode(file, len(file))


@settings(deadline=None, max_examples=20)
@given(st.integers(0, 2_000))
def test_a_file_that_is_sent_again_goes_on_where_it_was(taken):
    raw = np.rint(tone(44_100, 0.1) * 20_000).astype("<i2").tobytes()
    file, later = wav(raw, rate=44_100), wav(raw[taken * 2 :], rate=44_100)

    assert decode(file, 99, taken=taken) == decode(later)
