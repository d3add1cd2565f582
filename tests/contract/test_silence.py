"""No text from silence: the real voice detector opens nothing where nobody speaks."""

from pathlib import Path

import numpy as np
import pytest
import soundfile
import soxr

from tests.pipeline import Pipeline, audio_chunks
from workers.engines.silero import SileroDetector
from workers.stages.frontend import Frontend

RATE = 16_000
WITH_WORDS = {"initialSilence5s.wav"}
DATA = Path(__file__).parents[3] / "shared/data/odd/silence"
SECONDS = np.arange(10 * RATE) / RATE


def noise(level: float) -> np.ndarray:
    return np.random.default_rng(7).normal(0, level, len(SECONDS))


SIGNALS = {
    "digital silence": np.zeros(len(SECONDS)),
    "an open microphone": noise(0.001),
    "loud white noise": noise(0.1),
    "mains hum": 0.1 * np.sin(2 * np.pi * 50 * SECONDS) + 0.03 * np.sin(2 * np.pi * 150 * SECONDS),
    "a dial tone": 0.2 * np.sin(2 * np.pi * 425 * SECONDS),
    "clicks": np.where(SECONDS % 0.5 < 0.001, 0.8, 0.0),
    "a constant offset": np.full(len(SECONDS), 0.3),
}


def opened(samples: np.ndarray) -> list:
    return Pipeline([Frontend(SileroDetector.load())]).feed(
        audio_chunks((samples * 32767).astype(np.int16))[:-1]
    )


@pytest.mark.parametrize("signal", SIGNALS)
def test_nothing_is_heard_in(signal):
    assert opened(SIGNALS[signal]) == []


@pytest.mark.skipif(not DATA.exists(), reason="the larger data of ../shared/data is not here")
def test_nothing_is_heard_in_recorded_silence_and_noise():
    heard = {}
    for path in sorted(DATA.iterdir()):
        if path.name in WITH_WORDS:
            continue
        samples, rate = soundfile.read(path, dtype="float32", always_2d=True)
        heard[path.name] = opened(soxr.resample(samples.mean(axis=1), rate, RATE))

    assert heard
    assert {name: items for name, items in heard.items() if items} == {}
