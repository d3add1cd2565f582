"""How fast speech is played, from its sound alone: 8 kHz audio taken for 16 kHz is speech at twice its pace.

Theory. Played faster, a voice's pitch, its formants and the rate at which its spectrum changes all rise by the same factor; no
speaker changes all three. So statistics of a quarter of a minute are put into one linear regression of log2(pace):
- the mean of cepstra 1 … 7 over 24 bands on a logarithmic scale of frequency: where the formants are;
- the logarithm of the standard deviation of cepstra 0 … 7;
- how much of the variance of cepstrum 0, and of cepstra 1 … 3, comes within 16, 32, 64, 128 and 256 ms: the rate of change;
- five percentiles of the pitch.

A regression has an answer for noise and music, too. So each statistic is first expressed in standard deviations from what it
is in speech at its own pace, and their mean square, the *strangeness*, says whether it sounds like speech at all.

The numbers are in gateway/pace_model.py, made by `python -m ops.bench.pace --write`; that also tests them on speakers they were
not made from.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]
Doubles = NDArray[np.float64]

RATE = 16_000
_FRAME, _HOP = 1_024, 256  # 64 ms holds two periods of a low voice played at half its pace
_BANDS, _CEPSTRA = 24, 8
_LAGS = (1, 2, 4, 8, 16)
_MIN_LOUD = 120  # frames: 2 s
_FLOOR = 1e-9  # of a band's power: -90 dB of full scale
# Pitch: autocorrelation at 8 kHz of what lies below 1.2 kHz, for voices of 40 to 800 Hz as they are heard.
_PITCH_BINS = 77
_LAG_RATE = 8_000
_SHORTEST, _LONGEST = 10, 200
_VOICED = 0.6
# A peak at half the lag counts where it is nearly as high: else the pitch is told an octave low.
_NEARLY = 0.88
_REFERENCE_HZ = 150
_FARTHEST = 5.0  # standard deviations that count at most


class Pace(NamedTuple):
    octaves: float  # log2 of the factor: 1.0 is twice as fast as people speak
    strangeness: float  # 1 for speech at its own pace on average


def pace(samples: Floats, model: Doubles) -> Pace | None:
    """Of 16 kHz mono; None where less than 2 s of it are loud."""
    found = statistics(samples)
    return judge(found, model) if found is not None else None


def judge(found: Doubles, model: Doubles) -> Pace:
    """`model`: for each statistic its mean and deviation in speech, and its weight; last the weight of 1."""
    mean, deviation, weight = model[:-1].T
    z = np.clip((found - mean) / deviation, -_FARTHEST, _FARTHEST)
    return Pace(float(z @ weight + model[-1, 2]), float(np.mean(z * z)))


def statistics(samples: Floats) -> Doubles | None:
    """What the regression is made from."""
    if len(samples) < _FRAME:
        return None
    power = _power(samples)
    level = 10 * np.log10(power.mean(axis=1) + 1e-12)
    loud = level > max(float(np.percentile(level, 95)) - 30, -78)
    if loud.sum() < _MIN_LOUD:
        return None
    cepstra: Floats = np.log(power @ _FILTERS + _FLOOR) @ _COSINES
    mean, variance = cepstra[loud].mean(axis=0), cepstra[loud].var(axis=0) + _FLOOR
    return np.concatenate(
        (mean[1:], np.log(variance) / 2, _changes(cepstra, loud, variance), _pitch(power, loud))
    )


def _power(samples: Floats) -> Floats:
    frames = np.lib.stride_tricks.sliding_window_view(samples, _FRAME)[::_HOP]
    spectrum = np.fft.rfft(frames * _WINDOW)
    return np.asarray((spectrum.real**2 + spectrum.imag**2) / np.sum(_WINDOW**2), np.float32)


def _changes(cepstra: Floats, loud: NDArray[np.bool_], variance: Floats) -> Doubles:
    shares = []
    for lag in _LAGS:
        both = loud[lag:] & loud[:-lag]
        moved = (cepstra[lag:] - cepstra[:-lag])[both]
        share = (moved**2).mean(axis=0) / variance if len(moved) else np.ones(_CEPSTRA)
        shares += [share[0], share[1:4].mean()]
    changes: Doubles = np.log(np.array(shares) + _FLOOR)
    return changes


def _pitch(power: Floats, loud: NDArray[np.bool_]) -> Doubles:
    """Percentiles, in octaves."""
    correlation = np.fft.irfft(power[loud, :_PITCH_BINS], _FRAME * _LAG_RATE // RATE)[:, : _LONGEST + 2]
    correlation = correlation / (correlation[:, :1] + 1e-12) / _OWN
    inner, before, after = correlation[:, 1:-1], correlation[:, :-2], correlation[:, 2:]
    peaks = np.where((inner > before) & (inner >= after), inner, -1)[:, _SHORTEST - 1 :]
    best = peaks.max(axis=1)
    lag = (peaks > _NEARLY * best[:, None]).argmax(axis=1) + _SHORTEST
    voiced = lag[best > _VOICED]
    if len(voiced) < 20:
        return np.zeros(5)
    percentiles: Doubles = np.percentile(np.log2(_LAG_RATE / voiced / _REFERENCE_HZ), (10, 25, 50, 75, 90))
    return percentiles


def _filters() -> Floats:
    """Triangles from 100 to 7,600 Hz."""
    edges = 100 * 76 ** (np.arange(_BANDS + 2) / (_BANDS + 1))
    hertz = np.fft.rfftfreq(_FRAME, 1 / RATE)[:, None]
    low, middle, high = edges[:-2], edges[1:-1], edges[2:]
    weights = np.minimum((hertz - low) / (middle - low), (high - hertz) / (high - middle)).clip(0)
    filters: Floats = (weights / weights.sum(axis=0)).astype(np.float32)
    return filters


def _own() -> Doubles:
    """The window's own autocorrelation, which falls with the lag and would favour high voices."""
    correlation = np.fft.irfft(np.abs(np.fft.rfft(_WINDOW, 2 * _FRAME)) ** 2)
    own: Doubles = correlation[: 2 * (_LONGEST + 2) : RATE // _LAG_RATE] / correlation[0]
    return own


_WINDOW = np.hanning(_FRAME).astype(np.float32)
_FILTERS = _filters()
_COSINES = np.cos(np.pi * np.outer(np.arange(_BANDS) + 0.5, np.arange(_CEPSTRA)) / _BANDS).astype(np.float32)
_OWN = _own()
