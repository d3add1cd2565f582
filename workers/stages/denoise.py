"""Streaming noise reduction: a spectral gain with all of its memory in an explicit state.

Per 16 ms: noise power from the probability that a bin holds speech (Gerkmann and Hendriks, IEEE TASLP 20(4), 2012),
signal-to-noise ratio by the decision-directed rule (Ephraim and Malah, 1984), Wiener gain with a floor.
Output lags input by 256 to 511 samples (16 to 32 ms at 16 kHz) until `flush`.
"""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]

FRAME = 512
HOP = 256
_BINS = FRAME // 2 + 1
# Square root of the periodic Hann window, before and after: halves overlap to exactly 1.
_WINDOW = np.sin(np.pi * np.arange(FRAME) / FRAME).astype(np.float32)

_GAIN_FLOOR = np.float32(0.56)  # -5 dB; ops/decisions/0003-noise-reduction.md compares
_LEARNING_FRAMES = 6  # the first 100 ms are taken for noise; speech there is unlearned within a second
_SNR_IF_SPEECH = np.float32(10**1.5)  # 15 dB, and the two smoothing constants: as published
_NOISE_SMOOTHING = np.float32(0.8)
_PRESENCE_SMOOTHING = np.float32(0.9)
_SNR_SMOOTHING = np.float32(0.98)  # decision-directed, as published
_SILENCE = np.float32(1e-9)  # power per bin of a signal near 1 bit of 16: keeps divisions finite


@dataclass(frozen=True, slots=True)
class DenoiseState:
    pending: Floats  # [< 512] input from the next sample to be put out
    padding: (
        int  # leading samples of pending that are not input: they give the first samples their two windows
    )
    overlap: Floats  # [256] second half of the last frame put out
    noise: Floats  # [257] noise power
    speech: Floats  # [257] power of the last frame after the gain
    presence: Floats  # [257] smoothed probability of speech
    frames: int


def initial() -> DenoiseState:
    flat = np.zeros(_BINS, np.float32)
    half = np.zeros(HOP, np.float32)
    return DenoiseState(half, HOP, half, flat, flat, flat, 0)


def denoise(state: DenoiseState, samples: Floats) -> tuple[DenoiseState, Floats]:
    """Take any number of 16 kHz samples in -1 … 1; give those that are finished."""
    pending = np.concatenate([state.pending, samples])
    padding, out = state.padding, [np.zeros(0, np.float32)]
    while len(pending) >= FRAME:
        state, finished = _frame(state, pending[:FRAME])
        out.append(finished[padding:])
        pending, padding = pending[HOP:], 0
    return replace(state, pending=pending.copy(), padding=padding), np.concatenate(out)


def flush(state: DenoiseState) -> tuple[DenoiseState, Floats]:
    """Give the samples still held. What was learned about the noise is kept for the audio that follows."""
    owed = len(state.pending) - state.padding
    _, out = denoise(state, np.zeros(FRAME, np.float32))
    learned = replace(
        state, pending=np.zeros(HOP, np.float32), padding=HOP, overlap=np.zeros(HOP, np.float32)
    )
    return learned, out[:owed]


def _frame(state: DenoiseState, samples: Floats) -> tuple[DenoiseState, Floats]:
    # One transform per frame: batched ones may round differently, and chunking must not matter.
    spectrum = np.fft.rfft(samples * _WINDOW)
    power = np.maximum(spectrum.real**2 + spectrum.imag**2, _SILENCE)
    noise, presence = _track_noise(state, power)
    snr = _SNR_SMOOTHING * state.speech / noise + (1 - _SNR_SMOOTHING) * np.maximum(power / noise - 1, 0)
    gain = np.maximum(snr / (1 + snr), _GAIN_FLOOR)
    cleaned = np.fft.irfft(spectrum * gain, FRAME).astype(np.float32) * _WINDOW
    after = replace(
        state,
        overlap=cleaned[HOP:],
        noise=noise,
        speech=gain * gain * power,
        presence=presence,
        frames=state.frames + 1,
    )
    return after, state.overlap + cleaned[:HOP]


def _track_noise(state: DenoiseState, power: Floats) -> tuple[Floats, Floats]:
    """The noise power after this frame, and the smoothed probability of speech."""
    if state.frames < _LEARNING_FRAMES:
        return (state.noise * state.frames + power) / np.float32(state.frames + 1), state.presence
    # Equal odds of speech and none; the exponent is capped where the probability is 1 anyway.
    exponent = np.minimum(power / state.noise * (_SNR_IF_SPEECH / (1 + _SNR_IF_SPEECH)), 80)
    probability = 1 / (1 + (1 + _SNR_IF_SPEECH) * np.exp(-exponent))
    presence = _PRESENCE_SMOOTHING * state.presence + (1 - _PRESENCE_SMOOTHING) * probability
    # A bin that claims speech without a pause for long is noise that became louder: let it be learned.
    probability = np.where(presence > 0.99, np.minimum(probability, np.float32(0.99)), probability)
    estimate = probability * state.noise + (1 - probability) * power
    return _NOISE_SMOOTHING * state.noise + (1 - _NOISE_SMOOTHING) * estimate, presence
