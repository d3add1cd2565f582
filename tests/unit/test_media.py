"""Decoding files to 16 kHz mono, in a child that may die."""

import av
import numpy as np
import pytest
import soundfile

from ops.media import MediaDecoder
from shared.errors import BadInput


@pytest.fixture(scope="module")
def decoder():
    with MediaDecoder(timeout_s=50) as decoder:
        yield decoder


def tone(rate: int, seconds: float = 1.0, hz: float = 440.0) -> np.ndarray:
    return 0.5 * np.sin(2 * np.pi * hz * np.arange(int(rate * seconds)) / rate)


def samples(pcm: bytes) -> np.ndarray:
    return np.frombuffer(pcm, "<i2").astype(np.float64) / 32_768


def write_container(path, samples_at_48k: np.ndarray, codec: str, layout: str):
    """samples_at_48k: float [n, channels]."""
    with av.open(str(path), "w") as container:
        stream = container.add_stream(codec, rate=48_000, layout=layout)
        frame = av.AudioFrame("flt", layout, len(samples_at_48k))
        frame.sample_rate = 48_000
        frame.planes[0].update(
            samples_at_48k.astype("<f4").tobytes().ljust(frame.planes[0].buffer_size, b"\0")
        )
        for packet in [*stream.encode(frame), *stream.encode(None)]:
            container.mux(packet)


def test_samples_already_in_the_right_form_come_through_unchanged(decoder, tmp_path):
    wave = np.array([0, 1, -1, 32_767, -32_768, 1234], np.int16)
    for suffix in ("wav", "flac", "aiff"):
        soundfile.write(tmp_path / f"exact.{suffix}", wave, 16_000, subtype="PCM_16")

        assert decoder.decode(tmp_path / f"exact.{suffix}") == wave.astype("<i2").tobytes()


def test_channels_are_averaged(decoder, tmp_path):
    soundfile.write(
        tmp_path / "two.wav", np.array([[1000, 3000], [-200, 0]], np.int16), 16_000, subtype="PCM_16"
    )

    assert decoder.decode(tmp_path / "two.wav") == np.array([2000, -100], "<i2").tobytes()


@pytest.mark.parametrize("rate", [8_000, 22_050, 44_100, 96_000])
def test_any_rate_is_resampled_without_audible_error(decoder, tmp_path, rate):
    soundfile.write(tmp_path / "tone.wav", tone(rate), rate, subtype="PCM_24")

    heard = samples(decoder.decode(tmp_path / "tone.wav"))

    assert len(heard) == pytest.approx(16_000, abs=2)
    inside = slice(800, 15_200)  # the ends ring
    assert np.abs(heard[inside] - tone(16_000)[inside]).max() < 1e-3


@pytest.mark.parametrize(
    ("name", "codec"),
    [("a.m4a", "aac"), ("a.webm", "libopus"), ("a.ogg", "libopus"), ("a.mp3", "libmp3lame")],
)
def test_compressed_containers_keep_the_tone(decoder, tmp_path, name, codec):
    write_container(tmp_path / name, np.stack([tone(48_000)] * 2, axis=1), codec, "stereo")

    heard = samples(decoder.decode(tmp_path / name))

    spectrum = np.abs(np.fft.rfft(heard[:16_000] * np.hanning(16_000)))
    assert len(heard) == pytest.approx(16_000, abs=2_000)  # codecs add their padding
    assert spectrum.argmax() == 440


def test_eight_channels_do_not_crash_anything(decoder, tmp_path):
    write_container(tmp_path / "eight.m4a", np.stack([tone(48_000)] * 8, axis=1), "aac", "7.1")

    assert len(decoder.decode(tmp_path / "eight.m4a")) > 30_000


def test_a_header_that_promises_nothing_is_read_to_the_end_of_the_file(decoder, tmp_path):
    soundfile.write(tmp_path / "a.wav", tone(16_000), 16_000, subtype="PCM_16")
    raw = bytearray((tmp_path / "a.wav").read_bytes())
    raw[4:8] = raw[40:44] = b"\0\0\0\0"  # as written by a recorder that could not seek back
    (tmp_path / "streamed.wav").write_bytes(raw)

    assert len(decoder.decode(tmp_path / "streamed.wav")) == 32_000


def test_infinite_and_undefined_samples_become_loud_and_silent(decoder, tmp_path):
    soundfile.write(tmp_path / "f.wav", np.array([np.nan, np.inf, -np.inf, 0.0]), 16_000, subtype="FLOAT")

    assert list(samples(decoder.decode(tmp_path / "f.wav"))) == [0.0, 32_767 / 32_768, -1.0, 0.0]


@pytest.mark.parametrize(
    ("content", "reason"),
    [(b"", "not audio"), (b"just some text\n" * 50, "not audio"), (b"RIFF\0\0\0\0WAVEfmt ", "not audio")],
)
def test_what_is_no_audio_is_named_with_the_reason(decoder, tmp_path, content, reason):
    (tmp_path / "bad.wav").write_bytes(content)

    with pytest.raises(BadInput, match=rf"bad\.wav: .*{reason}"):
        decoder.decode(tmp_path / "bad.wav")


def test_an_absurd_rate_and_an_empty_recording_are_refused(decoder, tmp_path):
    soundfile.write(tmp_path / "fast.wav", np.zeros(100, np.int16), 1_092_676)
    soundfile.write(tmp_path / "empty.wav", np.zeros(0, np.int16), 16_000)

    with pytest.raises(BadInput, match="1092676 Hz"):
        decoder.decode(tmp_path / "fast.wav")
    with pytest.raises(BadInput, match="no audio"):
        decoder.decode(tmp_path / "empty.wav")


def test_missing_files_and_folders_are_told_apart(decoder, tmp_path):
    with pytest.raises(BadInput, match=r"nothing\.wav does not exist"):
        decoder.decode(tmp_path / "nothing.wav")
    with pytest.raises(BadInput, match="is a folder"):
        decoder.decode(tmp_path)


def test_a_file_that_kills_the_child_costs_only_itself(tmp_path):
    soundfile.write(tmp_path / "good.wav", tone(16_000), 16_000)
    with MediaDecoder() as decoder:
        decoder.decode(tmp_path / "good.wav")
        decoder._child.kill()
        decoder._child.wait()

        with pytest.raises(BadInput, match=r"good\.wav: the decoder crashed"):
            decoder.decode(tmp_path / "good.wav")

        assert len(decoder.decode(tmp_path / "good.wav")) == 32_000


def test_a_file_that_takes_too_long_is_given_up_with_its_child(tmp_path):
    soundfile.write(tmp_path / "slow.wav", tone(16_000), 16_000)
    with MediaDecoder(timeout_s=0) as decoder:
        with pytest.raises(BadInput, match="not decoded within 0 s"):
            decoder.decode(tmp_path / "slow.wav")

        assert decoder._child is None
