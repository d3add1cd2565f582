"""Decoding files to 16 kHz mono, in a child that may die and may do little."""

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import av
import numpy as np
import pytest
import soundfile

from shared.errors import BadInput
from shared.media import MediaDecoder

pytestmark = pytest.mark.slow


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


EIGHT = Path("/work/shared/data/odd/containers/8_Channel_ID.m4a")


@pytest.mark.skipif(not EIGHT.exists(), reason="the recording that took PyAV's process down is not here")
def test_the_recording_that_took_the_process_down_is_decoded(decoder):
    assert len(decoder.decode(EIGHT)) > 2 * 16_000


def test_any_name_will_do(decoder, tmp_path):
    name = os.fsdecode(b"gr\xc3\xbc\xc3\x9fe \xff.wav")  # not all of it UTF-8
    soundfile.write(tmp_path / "a.wav", tone(16_000), 16_000)
    (tmp_path / "a.wav").rename(tmp_path / name)

    assert len(decoder.decode(tmp_path / name)) == 32_000


@pytest.mark.parametrize(
    "playlist",
    [
        "#EXTM3U\n#EXT-X-TARGETDURATION:1\n#EXTINF:1,\n{}\n#EXT-X-ENDLIST\n",
        "ffconcat version 1.0\nfile {}\n",
    ],
)
def test_a_file_can_not_make_the_decoder_open_another(decoder, tmp_path, playlist):
    """FFmpeg would: other files of ours, and addresses in our network."""
    write_container(tmp_path / "secret.mp3", np.stack([tone(48_000)] * 2, axis=1), "libmp3lame", "stereo")
    for suffix in ("m3u8", "mp3", "txt"):
        (tmp_path / f"list.{suffix}").write_text(playlist.format("secret.mp3"))

        with pytest.raises(BadInput, match="not audio"):
            decoder.decode(tmp_path / f"list.{suffix}")


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


def bomb(path: Path, hours: int) -> Path:
    """A small file that unfolds to much: silence packs well."""
    soundfile.write(path, np.zeros(hours * 3600 * 8_000, np.int16), 8_000)
    assert path.stat().st_size < hours * 3600 * 100
    return path


@pytest.fixture
def good(tmp_path) -> Path:
    soundfile.write(tmp_path / "good.wav", tone(16_000), 16_000)
    return tmp_path / "good.wav"


class Background(threading.Thread):
    """Decodes a file meanwhile; `problem` is what was wrong with it."""

    def __init__(self, decoder: MediaDecoder, path: Path) -> None:
        super().__init__()
        self.decoder, self.path, self.problem = decoder, path, ""
        self.start()

    def run(self) -> None:
        try:
            self.decoder.decode(self.path)
        except BadInput as error:
            self.problem = str(error)


def busy(pid: int) -> bool:
    """Whether it has used CPU time since a moment ago."""

    def used() -> int:
        fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
        return int(fields[11]) + int(fields[12])

    before, end = used(), time.monotonic() + 0.2
    while time.monotonic() < end and used() == before:
        time.sleep(0.01)
    return used() > before


def test_a_segmentation_fault_costs_only_the_file_it_happens_in(tmp_path, good):
    long = bomb(tmp_path / "long.flac", 4)
    with MediaDecoder() as decoder:
        decoder.decode(good)
        child = decoder._child.pid
        background = Background(decoder, long)
        while not busy(child):
            time.sleep(0.01)
        os.kill(child, signal.SIGSEGV)
        background.join(10)

        assert "long.flac: the decoder crashed" in background.problem
        assert len(decoder.decode(good)) == 32_000


def test_a_child_that_died_between_files_costs_one(good):
    with MediaDecoder() as decoder:
        decoder.decode(good)
        decoder._child.kill()
        decoder._child.wait()

        with pytest.raises(BadInput, match=r"good\.wav: the decoder crashed"):
            decoder.decode(good)

        assert len(decoder.decode(good)) == 32_000


def test_a_file_that_takes_too_long_is_given_up_with_its_child(tmp_path, good):
    long = bomb(tmp_path / "long.flac", 4)
    with MediaDecoder(timeout_s=0.2) as decoder:
        with pytest.raises(BadInput, match=r"long\.flac: not decoded within 0\.2 s"):
            decoder.decode(long)
        assert decoder._child is None

    with MediaDecoder() as decoder:
        assert len(decoder.decode(good)) == 32_000


def test_a_file_that_unfolds_to_more_than_is_allowed_is_refused_on_the_way(tmp_path, good):
    with MediaDecoder(longest_s=60) as decoder:
        with pytest.raises(BadInput, match="longer than 60 s"):
            decoder.decode(bomb(tmp_path / "bomb.flac", 1))

        assert len(decoder.decode(good)) == 32_000


def test_a_file_that_eats_memory_is_refused_and_the_next_is_decoded(tmp_path, good):
    with MediaDecoder(memory_bytes=400 << 20) as decoder:
        with pytest.raises(BadInput, match=r"more memory|crashed"):
            decoder.decode(bomb(tmp_path / "bomb.flac", 5))

        assert len(decoder.decode(good)) == 32_000


@pytest.mark.skipif(sys.platform != "linux", reason="read from /proc")
def test_the_child_has_no_more_than_decoding_needs(good, monkeypatch):
    monkeypatch.setenv("SCRIBE_REDIS_URL", "redis://:password@host")
    with MediaDecoder(timeout_s=7, memory_bytes=1 << 30) as decoder:
        decoder.decode(good)
        proc = Path(f"/proc/{decoder._child.pid}")
        soft = {line[:25].strip(): line[26:46].strip() for line in (proc / "limits").read_text().splitlines()}
        status = (proc / "status").read_text()

        assert int(soft["Max address space"]) == 1 << 30
        assert soft["Max file size"] == soft["Max core file size"] == "0"
        assert int(soft["Max open files"]) == 32
        assert 7 < int(soft["Max cpu time"]) < 60
        assert "NoNewPrivs:\t1" in status
        assert b"password" not in (proc / "environ").read_bytes()


ABANDONED = """
import sys
from pathlib import Path
from shared.media import MediaDecoder
decoder = MediaDecoder()
decoder.decode(Path(sys.argv[1]))
print(decoder._child.pid, flush=True)
decoder.decode(Path(sys.argv[2]))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="PR_SET_PDEATHSIG is Linux only")
def test_a_child_that_hangs_dies_with_its_parent(tmp_path, good):
    long = bomb(tmp_path / "long.flac", 4)
    command = [sys.executable, "-c", ABANDONED, str(good), str(long)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as parent:
        child = int(parent.stdout.readline())
        os.kill(child, signal.SIGSTOP)
        parent.kill()
    end = time.monotonic() + 5
    while alive(child):
        assert time.monotonic() < end
        time.sleep(0.01)


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False
