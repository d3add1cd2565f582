"""Engines whose answers follow from the samples alone, fast enough for property tests.

They keep the real ones' shape (tests/contract runs both): half precision in between, forced and guessed tokens
respected, the last word of a hypothesis unsure while more audio may follow.
"""

from collections.abc import Sequence

import numpy as np

from workers.engines.hypothesis import Hypothesis
from workers.stages.frontend import VadState

# One token per 160 ms of audio.
TOKEN_SAMPLES = 2560


class LoudnessDetector:
    """Speech is what is loud."""

    def probability(self, state: VadState, frame: np.ndarray) -> tuple[float, VadState]:
        loud = float(np.sqrt(np.mean(frame * frame)))
        return min(1.0, loud * 10), VadState(state.hidden, frame[None, -64:])


class PitchEngine:
    """Encodes each 160 ms as its level; decodes levels to tokens, each the start of a word."""

    grid = 1

    def encode(self, samples: np.ndarray, *, cuts: Sequence[int] = ()) -> np.ndarray:
        whole = max(1, len(samples) // TOKEN_SAMPLES)
        padded = np.pad(samples, (0, max(0, whole * TOKEN_SAMPLES - len(samples))))
        levels = np.abs(padded[: whole * TOKEN_SAMPLES]).reshape(whole, TOKEN_SAMPLES).mean(axis=1)
        return levels[:, None].astype(np.float16)

    def decode(
        self,
        hidden: np.ndarray,
        *,
        context: Sequence[int] = (),
        forced: Sequence[int] = (),
        guess: Sequence[int] = (),
        limit: int,
        scored: bool = False,
        sketch: bool = False,
    ) -> Hypothesis:
        heard = [3 + int(level * 1000) for level in hidden[:, 0]]
        # As with a quantised decoder, a guess may tip a doubtful token: here, an even one that the guess has as odd.
        heard = heard[len(context) :]
        tipped = [
            g if g - 1 == h and h % 2 == 0 else h for g, h in zip([*forced, *guess], heard, strict=False)
        ]
        tokens = [*forced, *[*tipped, *heard[len(tipped) :]][len(forced) :]][:limit]
        return Hypothesis(tuple(tokens), tuple(-0.1 for _ in tokens) if scored else ())


class NumberVocabulary:
    """Token 17 is the word "17"."""

    def starts_word(self, token: int) -> bool:
        return True

    def text(self, tokens: Sequence[int]) -> str:
        return " ".join(str(token) for token in tokens)
