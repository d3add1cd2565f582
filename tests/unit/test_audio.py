"""Whatever the client announces and however it splits it, the same 16 kHz mono comes out, or a clear error."""

import json
import re
import struct

import numpy as np
import pytest
import soxr
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.audio import AudioDecoder
from gateway.place import Place, restart_at
from shared.errors import BadInput
from shared.protocol import SessionOptions

ENCODINGS = ["pcm_s16le", "pcm_f32le", "mulaw", "alaw"]


def tone(rate: int, seconds: float = 1.0, hertz: float = 440.0) -> np.ndarray:
    return (0.5 * np.sin(2 * np.pi * hertz * np.arange(int(rate * seconds)) / rate)).astype(np.float32)


def s16(floats: np.ndarray) -> bytes:
    return np.rint(floats * 32_767).astype("<i2").tobytes()


def encoded(floats: np.ndarray, encoding: str) -> bytes:
    """Companded encodings get arbitrary codes: every byte is a valid one."""
    if encoding == "pcm_f32le":
        return floats.astype("<f4").tobytes()
    if encoding == "pcm_s16le":
        return s16(floats)
    return np.rint(floats * 100 + 128).astype(np.uint8).tobytes()


def decode(raw: bytes, sizes: list[int] | None = None, **options) -> np.ndarray:
    """Samples decoded from raw sent in frames of the given sizes, over and over; None: in one frame."""
    decoder, out, at, turn = AudioDecoder(SessionOptions(**options)), b"", 0, 0
    while at < len(raw):
        size = sizes[turn % len(sizes)] if sizes else len(raw)
        out += decoder.feed(raw[at : at + size])
        at, turn = at + size, turn + 1
    out += decoder.finish()
    decoder.require_whole()
    return np.frombuffer(out, "<i2")


def complaint(raw: bytes, frame: int = 640, **options) -> str:
    with pytest.raises(BadInput) as caught:
        decode(raw, [frame], **options)
    return str(caught.value)


def test_16_khz_mono_s16_passes_through_untouched():
    raw = s16(tone(16_000))
    assert decode(raw, [333]).tobytes() == raw


def test_floats_are_scaled_clipped_and_cleaned():
    raw = np.array([0.5, -1, 1, 7, -7, np.nan, np.inf, -np.inf, 1e-9], "<f4").tobytes()
    assert decode(raw, encoding="pcm_f32le").tolist() == [
        16_384,
        -32_768,
        32_767,
        32_767,
        -32_768,
        0,
        0,
        0,
        0,
    ]


@pytest.mark.parametrize(
    ("encoding", "codes", "values"),
    [
        # ITU-T G.711, tables 1 and 2, scaled to 16 bits
        ("mulaw", b"\xff\x7f\xfe\x7e\xef\x80\x00\x8f", [0, 0, 8, -8, 132, 32_124, -32_124, 16_764]),
        ("alaw", b"\xd5\x55\xd4\x54\xc5\xaa\x2a\x80", [8, -8, 24, -24, 264, 32_256, -32_256, 5_504]),
    ],
)
def test_g711_golden_values(encoding, codes, values):
    assert decode(codes, encoding=encoding).tolist() == values


def test_channels_are_mixed_down_by_their_mean():
    raw = np.array([[100, 300, -100], [1, 2, 3]], "<i2").tobytes()
    assert decode(raw, channels=3).tolist() == [100, 2]


@pytest.mark.parametrize("rate", [11_025, 22_050, 24_000, 44_100, 48_000])
def test_frames_of_20_ms_give_what_resampling_the_whole_file_gives(rate):
    floats = tone(rate) + np.float32(0.2) * tone(rate, hertz=3_100)
    raw = s16(floats)
    whole = soxr.resample(np.frombuffer(raw, "<i2").astype(np.float32) / 32_768, rate, 16_000, quality="HQ")
    streamed = decode(raw, [rate // 50 * 2], sample_rate=rate)
    assert streamed.tolist() == np.rint(whole * 32_768).tolist()


def test_frames_of_20_ms_at_8_khz_stay_close_to_the_whole_file():
    rate = 8_000
    raw = s16(tone(rate))
    whole = soxr.resample(np.frombuffer(raw, "<i2").astype(np.float32) / 32_768, rate, 16_000, quality="HQ")
    streamed = decode(raw, [rate // 50 * 2], sample_rate=rate)
    assert len(streamed) == len(whole)
    assert np.abs(streamed - whole * 32_768)[400:-400].max() < 3  # of 16,384: -75 dB


@settings(deadline=None)
@given(
    encoding=st.sampled_from(ENCODINGS),
    rate=st.sampled_from([8_000, 11_025, 16_000, 44_100, 48_000]),
    channels=st.integers(1, 3),
    sizes=st.lists(st.integers(0, 3_000), min_size=1, max_size=8).filter(lambda sizes: sum(sizes) > 20),
)
def test_how_the_audio_is_split_does_not_matter(encoding, rate, channels, sizes):
    mono = tone(rate, 0.15)
    raw = encoded(np.stack([mono * (c + 1) / channels for c in range(channels)], axis=1).ravel(), encoding)
    options = {"encoding": encoding, "sample_rate": rate, "channels": channels}
    assert decode(raw, sizes, **options).tolist() == decode(raw, **options).tolist()


def test_one_byte_at_a_time_is_the_same_audio():
    raw = s16(tone(48_000, 0.05))
    assert decode(raw, [1], sample_rate=48_000).tolist() == decode(raw, sample_rate=48_000).tolist()


def test_no_click_at_frame_edges():
    steps = np.abs(np.diff(decode(s16(tone(48_000)), [1_920], sample_rate=48_000).astype(int)))
    assert steps.max() < 16_384 * 2 * np.pi * 440 / 16_000 * 1.02  # the steepest step of the tone itself


@pytest.mark.parametrize("rate", [8_000, 48_000])
def test_a_flush_gives_all_audio_so_far_and_the_next_stretch_is_complete(rate):
    decoder, raw = AudioDecoder(SessionOptions(sample_rate=rate)), s16(tone(rate, 0.5))
    for _ in range(2):
        assert len(decoder.feed(raw) + decoder.finish()) == 8_000 * 2


def test_no_audio_at_all_is_no_error():
    assert decode(b"").tolist() == []


def test_half_a_sample_at_the_end_is_an_error_after_the_rest_was_decoded():
    decoder = AudioDecoder(SessionOptions(encoding="pcm_f32le", channels=2))
    assert decoder.feed(struct.pack("<2f", 0.5, 0.5) + b"\0\0\0") + decoder.finish() == struct.pack(
        "<h", 16_384
    )
    with pytest.raises(BadInput, match=r"3 of the 8 bytes .* pcm_f32le with 2 channel"):
        decoder.require_whole()


MP3_FRAME = bytes.fromhex("fff36864") + bytes(212)  # MPEG-2 layer III, 48 kbit/s at 16 kHz
ADTS_FRAME = bytes.fromhex("fff1604002000000") + bytes(8)  # 16 bytes


@pytest.mark.parametrize(
    ("start", "name"),
    [
        (b"RIFF\x24\x00\x00\x00WAVEfmt ", "WAV"),
        (b"RF64\xff\xff\xff\xffWAVEds64", "WAV"),
        (b"OggS\x00\x02", "Ogg"),
        (b"fLaC\x00\x00\x00\x22", "FLAC"),
        (b"ID3\x04\x00", "MP3"),
        (MP3_FRAME * 6, "MP3"),
        (ADTS_FRAME * 6, "AAC"),
        (b"\x1a\x45\xdf\xa3\x01", "WebM"),
        (b"\x00\x00\x00\x20ftypM4A ", "MP4"),
        (b"#!AMR\n", "AMR"),
        (b".snd\x00\x00\x00\x18", "AU"),
        (b"FORM\x00\x01\x02\x03AIFF", "AIFF"),
    ],
)
@pytest.mark.parametrize("encoding", ["pcm_s16le", "alaw"])
def test_a_file_instead_of_samples_is_named(start, name, encoding):
    told = complaint(start + bytes(32_000), encoding=encoding)
    assert re.search(rf"\b{name}\b.* arrived where raw {encoding} .* announced", told)
    assert "encoding=container" in told


def test_a_file_in_tiny_frames_or_shorter_than_the_first_look_is_named_too():
    assert "FLAC" in complaint(b"fLaC" + bytes(100), frame=1)
    assert "FLAC" in complaint(b"fLaC" + bytes(10))


def test_mpeg_sync_words_alone_are_no_mp3():
    assert len(decode(MP3_FRAME + bytes(3_000) + MP3_FRAME * 6)) > 1_000


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_text_is_refused(encoding):
    text = b"It was the best of times, it was the worst of times; 1775 was the year. " * 40
    assert "text arrived" in complaint(text, encoding=encoding)


def test_a_short_text_is_refused_at_the_end():
    assert "text arrived" in complaint(b"this is no audio at all.")


def test_json_in_a_binary_frame_is_refused_in_the_middle_of_audio():
    decoder = AudioDecoder(SessionOptions())
    decoder.feed(s16(tone(16_000)))
    with pytest.raises(BadInput, match="send control messages as text frames"):
        decoder.feed(json.dumps({"type": "end"}).encode())


@pytest.mark.parametrize("code", [0x55, 0x7E])
@pytest.mark.parametrize("encoding", ["mulaw", "alaw"])
def test_an_idle_telephone_line_is_no_text(encoding, code):
    assert len(decode(bytes([code, code ^ 1]) * 8_000, [160], encoding=encoding)) == 16_000


@pytest.mark.parametrize("silence", [0, 20_001])
def test_floats_announced_as_16_bit_are_refused(silence):
    raw = bytes(silence * 2) + tone(16_000).tobytes()
    assert "announce encoding pcm_f32le" in complaint(raw)


def test_16_bit_announced_as_floats_is_refused():
    assert "announce encoding pcm_s16le" in complaint(s16(tone(16_000) / 10), encoding="pcm_f32le")


def test_floats_on_the_scale_of_16_bit_are_refused():
    raw = (tone(16_000) * 32_768).tobytes()
    assert "divide 16-bit values by 32768" in complaint(raw, encoding="pcm_f32le")


@pytest.mark.parametrize("level", [0.0001, 0.01, 1.0])
def test_noise_of_any_level_is_what_it_is_announced_as(level):
    noise = np.random.default_rng(1).standard_normal(16_000).astype(np.float32).clip(-3, 3) * np.float32(
        level / 3
    )
    for encoding in ENCODINGS:
        assert len(decode(encoded(noise, encoding), [640], encoding=encoding)) == 16_000


@pytest.mark.parametrize("rate", [8_000, 11_025, 16_000, 22_050, 44_100, 48_000])
@pytest.mark.parametrize("flushed_at", [0, 7_001])
def test_audio_taken_up_again_after_a_cut_continues_sample_for_sample(rate, flushed_at):
    options = SessionOptions(sample_rate=rate)
    sound = np.sin(np.arange(3 * rate) * 900 / rate) * 9000 + np.random.default_rng(1).normal(
        0, 900, 3 * rate
    )
    pcm = sound.astype("<i2").tobytes()
    unbroken = AudioDecoder(options)
    whole = unbroken.feed(pcm[: 2 * flushed_at]) + (unbroken.finish() if flushed_at else b"")
    place = Place(0, 0, flushed_at, len(whole) // 2)
    whole += unbroken.feed(pcm[2 * flushed_at :]) + unbroken.finish()

    for done in (place.base_ours + 1, 20_000, 33_333):
        again = restart_at(place._replace(samples=done), rate)
        decoder = AudioDecoder(options, taken=again.sample)
        rest = (decoder.feed(pcm[2 * again.sample :]) + decoder.finish())[2 * again.skip :]
        difference = np.frombuffer(whole[2 * done :], "<i2").astype(int) - np.frombuffer(rest, "<i2")
        assert np.abs(difference).max() <= 1  # of 65,536 steps: the filter rounds in blocks
