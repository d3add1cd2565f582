"""How good the estimated word times are: `python -m ops.word_times MANIFEST`, a list of isolated words (data/fsdd).

Words of one speaker are joined with random pauses of 50 to 300 ms, so the true times are known: a word is where its
recording is within 30 dB of its loudest 10 ms. The utterances go through a fleet; words that were recognised are
compared.
"""

import asyncio
import random
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import jiwer
import numpy as np
import numpy.typing as npt
from rich.console import Console
from whisper_normalizer.english import EnglishTextNormalizer

from ops.manifests import Take, read_manifest
from ops.streaming import stream_pcm
from ops.target import gateway_at
from shared.errors import ScribeError
from shared.events import Word
from shared.media import RATE, MediaDecoder

I16 = npt.NDArray[np.int16]

UTTERANCES, SEED = 60, 1


@dataclass(frozen=True, slots=True)
class Truth:
    text: str
    start_ms: float
    end_ms: float


def audible(samples: I16) -> tuple[int, int]:
    """(first, past last) sample of the 10 ms frames within 30 dB of the loudest."""
    frames = samples[: len(samples) // 160 * 160].reshape(-1, 160).astype(np.float64)
    power = (frames * frames).mean(axis=1)
    loud = np.flatnonzero(power >= power.max() / 1000)
    return int(loud[0]) * 160, int(loud[-1] + 1) * 160


def joined(words: Sequence[tuple[str, I16]], rng: random.Random) -> tuple[I16, list[Truth]]:
    """One utterance of 16 kHz samples, with half a second of silence around it, and its words' times."""
    pieces, truths, at = [np.zeros(RATE // 2, np.int16)], [], RATE // 2
    for text, samples in words:
        first, last = audible(samples)
        truths.append(Truth(text, (at + first) * 1000 / RATE, (at + last) * 1000 / RATE))
        pause = np.zeros(int(rng.uniform(0.05, 0.3) * RATE), np.int16)
        pieces += [samples, pause]
        at += len(samples) + len(pause)
    return np.concatenate([*pieces, np.zeros(RATE // 2, np.int16)]), truths


def matched(truths: Sequence[Truth], words: Sequence[Word]) -> Iterator[tuple[Truth, Word]]:
    """Pairs of a true word and the recognised one."""
    normal = EnglishTextNormalizer()
    said = [normal(truth.text) or "-" for truth in truths]
    heard = [(normal(word.text) or "-").replace(" ", "") for word in words]
    if not heard:
        return
    for chunk in jiwer.process_words(" ".join(said), " ".join(heard)).alignments[0]:
        if chunk.type == "equal":
            yield from zip(
                truths[chunk.ref_start_idx : chunk.ref_end_idx],
                words[chunk.hyp_start_idx : chunk.hyp_end_idx],
                strict=True,
            )


def utterances(takes: Sequence[Take]) -> Iterator[tuple[I16, list[Truth]]]:
    """Five to eight words of one speaker each; the speaker is the second part of a file's name."""
    rng = random.Random(SEED)  # noqa: S311 - the same utterances every time
    speakers = sorted({take.files[0].stem.split("_")[1] for take in takes})
    with MediaDecoder() as decoder:
        for _ in range(UTTERANCES):
            speaker = rng.choice(speakers)
            own = [take for take in takes if take.files[0].stem.split("_")[1] == speaker]
            chosen = rng.sample(own, rng.randint(5, 8))
            yield joined(
                [(take.reference, np.frombuffer(decoder.decode(take.files[0]), "<i2")) for take in chosen],
                rng,
            )


async def measure(takes: Sequence[Take]) -> list[tuple[Truth, Word]]:
    pairs: list[tuple[Truth, Word]] = []
    async with gateway_at(None) as url:
        for samples, truths in utterances(takes):
            recording = await stream_pcm(url, samples.tobytes(), pace=0)
            pairs += matched(truths, [word for final in recording.finals for word in final.words])
    return pairs


def main() -> None:
    if len(sys.argv) != 2:
        sys.exit("usage: python -m ops.word_times MANIFEST (a list of isolated words, such as data/fsdd)")
    try:
        pairs = asyncio.run(measure(read_manifest(Path(sys.argv[1]))))
    except ScribeError as error:
        sys.exit(f"word_times: {error}")
    starts = [abs(word.start_ms - truth.start_ms) for truth, word in pairs]
    ends = [abs(word.end_ms - truth.end_ms) for truth, word in pairs]
    Console().print(
        f"{len(pairs)} recognised words in {UTTERANCES} utterances: mean absolute error "
        f"{np.mean(starts):.0f} ms at starts, {np.mean(ends):.0f} ms at ends "
        f"(median {np.median(starts):.0f} and {np.median(ends):.0f})"
    )


if __name__ == "__main__":
    main()
