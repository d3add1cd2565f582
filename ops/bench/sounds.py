"""Speech by speaker, and sounds that are none, for `python -m ops.bench.pace`."""

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import soundfile
import soxr

from gateway.pace import RATE, Floats
from ops.manifests import read_manifest
from shared.errors import ScribeError
from shared.media import MediaDecoder

FOLDERS = (
    "librispeech",
    "an4",
    "fsdd",
    "telephone_8k",
    "mandarin",
    "noisy",
    "noisy_mix",
    "codec_mix",
    "long",
    "odd",
)
# Of the folder odd, by parts of their names.
NO_SPEECH = (
    "noise1",
    "noise2",
    "noise3",
    "silence.wav",
    "empty",
    "dtmf",
    "fixture",
    "blank",
    "remix",
    "test_audio_16000",
)
PEAK = 0.5
PAUSE_S = 0.2


class Session(NamedTuple):
    """What one speaker says, one recording after the other."""

    folder: str
    speaker: str
    speech: bool
    rate: int
    samples: Floats


def recordings(data: Path, longest_s: float) -> Iterator[Session]:
    """Everything in `data`, by speakers."""
    with MediaDecoder() as decoder:
        for folder in FOLDERS:
            takes = read_manifest(data / folder / "manifest.tsv")
            spoken = sorted((speaker_of(folder, take.name), take.files[0]) for take in takes)
            for speaker, group in itertools.groupby(spoken, key=lambda each: each[0]):
                speech = not any(part in speaker for part in NO_SPEECH)
                for rate, samples in _joined([path for _, path in group], decoder, longest_s):
                    yield Session(folder, speaker, speech, rate, samples)


def speaker_of(folder: str, name: str) -> str:
    """Who speaks in a recording; in the folder odd nobody knows, so each file is somebody."""
    path = Path(name)
    match folder:
        case "an4":
            return path.parent.name
        case "fsdd":
            return path.name.split("_")[1]
        case "mandarin":
            return path.stem[:7]
        case "telephone_8k" | "noisy":
            return folder
        case "odd":
            return name
        case _:
            return path.stem.removeprefix("testother_").split("-")[0]


def synthetic(seconds: float) -> Iterator[Session]:
    """Noises, tones and music that were easy to make."""
    random = np.random.default_rng(5)
    n = int(seconds * RATE)
    time = np.arange(n) / RATE
    white = random.standard_normal(n)
    shaped = np.fft.rfft(white) / np.maximum(np.arange(n // 2 + 1), 20) ** 0.5
    keys = [
        (random.choice((697, 770, 852, 941)), random.choice((1209, 1336, 1477)))
        for _ in range(int(seconds * 3) + 1)
    ]
    low, high = np.repeat(keys, RATE // 3, axis=0)[:n].T
    sounds = {
        "white noise": white,
        "pink noise": np.fft.irfft(shaped, n),
        "swelling noise": white * (1.05 + np.sin(2 * np.pi * 0.7 * time)),
        "bursts": white * (np.repeat(random.random(n // 4_000 + 1), 4_000)[:n] > 0.7),
        "hum": sum(np.sin(2 * np.pi * 50 * k * time) / k for k in range(1, 9)),
        "dialling": (np.sin(2 * np.pi * low * time) + np.sin(2 * np.pi * high * time)) * (time * 3 % 1 < 0.5),
        "ringing": (np.sin(2 * np.pi * 440 * time) + np.sin(2 * np.pi * 480 * time)) * (time % 6 < 2),
        "low music": _music(n, 82, 0.5, random),
        "music": _music(n, 220, 0.25, random),
        "high music": _music(n, 660, 0.125, random),
    }
    for name, samples in sounds.items():
        quiet = samples + 0.001 * white
        yield Session("synthetic", name, False, RATE, _level(quiet.astype(np.float32)))  # noqa: FBT003


def noisy(samples: Floats) -> Floats:
    """With white noise, 10 dB below the whole."""
    noise = np.random.default_rng(len(samples)).standard_normal(len(samples)).astype(np.float32)
    power = float(np.mean(samples**2))
    return samples + noise * np.float32((power / 10) ** 0.5)


def companded(samples: Floats) -> Floats:
    """Through mu-law and back."""
    code = (
        np.round(np.sign(samples) * np.log1p(255 * np.abs(np.clip(samples, -1, 1))) / np.log(256) * 127) / 127
    )
    heard: Floats = (np.sign(code) * (256 ** np.abs(code) - 1) / 255).astype(np.float32)
    return heard


def _music(n: int, hertz: float, beat_s: float, random: np.random.Generator) -> np.ndarray:
    """Chords of plucked strings."""
    made = np.zeros(n)
    step = int(beat_s * RATE)
    for start in range(0, n, step):
        time = np.arange(min(2 * step, n - start)) / RATE
        for semitones in random.choice((0, 2, 4, 5, 7, 9, 11, 12), 3):
            tone = hertz * 2 ** (semitones / 12)
            string = sum(np.sin(2 * np.pi * tone * k * time) / k for k in range(1, 7))
            made[start : start + len(time)] += string * np.exp(-4 * time)
    return made


def _joined(paths: list[Path], decoder: MediaDecoder, longest_s: float) -> Iterator[tuple[int, Floats]]:
    """At the rate of the first, cut where it gets too long."""
    pieces: list[Floats] = []
    first = 0
    for path in paths:
        samples, rate = _read(path, decoder)
        first = first or rate
        if rate:
            own = samples if rate == first else soxr.resample(samples, rate, first)
            pieces += [own, np.zeros(int(PAUSE_S * first), np.float32)]
    if not first:
        return
    whole = np.concatenate(pieces)
    size = int(longest_s * first)
    for at in range(0, len(whole), size):
        yield first, _level(whole[at : at + size])


def _read(path: Path, decoder: MediaDecoder) -> tuple[Floats, int]:
    """Mono, and its rate; 0 where there is nothing to hear."""
    try:
        samples, rate = soundfile.read(path, dtype="float32", always_2d=True)
        mono = samples.mean(axis=1)
    except soundfile.LibsndfileError:
        try:
            mono, rate = np.frombuffer(decoder.decode(path), "<i2").astype(np.float32), RATE
        except ScribeError:
            return np.zeros(0, np.float32), 0
    return (mono, rate) if 1_000 <= rate <= 192_000 and np.isfinite(mono).all() else (mono, 0)


def _level(samples: Floats) -> Floats:
    loudest = float(np.abs(samples).max(initial=0))
    return samples * np.float32(PEAK / loudest) if loudest else samples
