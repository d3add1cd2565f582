"""Moonshine tiny (English) through onnxruntime; weights from the wheel moonshine-voice==0.1.0 (MIT).

Encoder: samples at 16 kHz -> hidden states, about 41.6 frames of 288 per second. Decoder: tokens and a key/value cache
-> logits. The engine holds weights only; all of a session's state comes in and goes out as tokens.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnxruntime as ort

from shared.errors import Misconfigured
from workers.engines.runtime import session
from workers.engines.vocabulary import Vocabulary

F16 = npt.NDArray[np.float16]
F32 = npt.NDArray[np.float32]

BOS, EOS = 1, 2
LAYERS, HEADS, HEAD_WIDTH = 6, 8, 36
# The decoder's mask is as long as the audio in samples; the model reads every 384th value of it, one a frame.
STRIDE = 384
# Shorter audio is put in the middle of a second of silence: of 60 isolated digits 43 % were right instead of 17 %
# (under 895 samples the convolutions fail altogether).
MIN_SAMPLES = 16_000


@dataclass(frozen=True, slots=True)
class Hypothesis:
    tokens: tuple[int, ...]
    # Natural logarithm of each token's probability, forced ones included; empty unless asked for.
    logprobs: tuple[float, ...] = ()


def assets() -> Path:
    """Folder with the weights. Raises Misconfigured."""
    spec = find_spec("moonshine_voice")
    folder = (
        Path(spec.submodule_search_locations[0]) / "assets" / "tiny-en"
        if spec and spec.submodule_search_locations
        else None
    )
    if folder is None or not folder.is_dir():
        raise Misconfigured(
            "the Moonshine weights are missing: pip install 'moonshine-voice==0.1.0' (later wheels lack them)"
        )
    return folder


class MoonshineEngine:
    """Encoder and decoder of Moonshine tiny."""

    def __init__(
        self, encoder: ort.InferenceSession, decoder: ort.InferenceSession, vocabulary: Vocabulary
    ) -> None:
        self._encoder = encoder
        self._decoder = decoder
        self.vocabulary = vocabulary
        self._outputs = [
            output.name.replace("present", "past_key_values") for output in decoder.get_outputs()[1:]
        ]

    @classmethod
    def load(cls, threads: int = 1) -> "MoonshineEngine":
        """Open the models and run them once, so that the first session does not pay for it."""
        folder = assets()
        engine = cls(
            session(folder / "encoder_model.ort", threads),
            session(folder / "decoder_model_merged.ort", threads),
            Vocabulary.read(folder / "tokenizer.bin"),
        )
        engine.decode(engine.encode(np.zeros(16_000, np.float32)), limit=2)
        return engine

    def encode(self, samples: F32) -> F16:
        """Samples [n] -> hidden states [frames, 288]. Half precision: it is what travels between stages."""
        if len(samples) < MIN_SAMPLES:
            missing = MIN_SAMPLES - len(samples)
            samples = np.pad(samples, (missing // 2, missing - missing // 2))
        mask = np.ones((1, len(samples)), np.int64)
        hidden = self._encoder.run(None, {"input_values": samples[None], "attention_mask": mask})[0]
        return np.asarray(hidden[0], np.float16)

    def decode(
        self,
        hidden: F16,
        *,
        forced: Sequence[int] = (),
        guess: Sequence[int] = (),
        limit: int,
        scored: bool = False,
    ) -> Hypothesis:
        """Greedy search that must begin with `forced`, and verifies `guess` after it in the same single call.

        The longest part of the guess that greedy search agrees with is kept, and only what follows is generated
        (speculative decoding with a known draft). At most `limit` tokens in all. The cost is one call, plus one
        for each new token; scores cost another 0.1 ms a token.
        """
        fixed = {
            "encoder_hidden_states": hidden[None].astype(np.float32),
            "encoder_attention_mask": np.ones((1, len(hidden) * STRIDE), np.int64),
        }
        given = [*forced, *guess][:limit]
        logits, cache = self._run(fixed, self._empty_cache(len(hidden)), [BOS, *given], cached=False)
        best = logits.argmax(-1)
        kept = min(len(forced), limit)
        while kept < len(given) and best[kept] == given[kept]:
            kept += 1
        tokens, following = given[:kept], int(best[kept])
        scores = [_logprob(logits[i], token) for i, token in enumerate(tokens)] if scored else []
        row = logits[kept]
        past = {n: v[:, :, : kept + 1] if ".decoder." in n else v for n, v in cache.items()}
        while following != EOS and len(tokens) < limit:
            tokens.append(following)
            if scored:
                scores.append(_logprob(row, following))
            logits, cache = self._run(fixed, past, [following], cached=True)
            past = {n: past[n] if ".encoder." in n else v for n, v in cache.items()}
            row = logits[0]
            following = int(row.argmax())
        return Hypothesis(tuple(tokens), tuple(scores))

    def _run(
        self, fixed: dict[str, Any], past: dict[str, F32], tokens: list[int], *, cached: bool
    ) -> tuple[F32, dict[str, F32]]:
        feeds = {
            "input_ids": np.array([tokens], np.int64),
            "use_cache_branch": np.array([cached]),
            **fixed,
            **past,
        }
        logits, *cache = self._decoder.run(None, feeds)
        return logits[0], dict(zip(self._outputs, cache, strict=True))

    def _empty_cache(self, frames: int) -> dict[str, F32]:
        shapes = {"decoder": (1, HEADS, 0, HEAD_WIDTH), "encoder": (1, HEADS, frames, HEAD_WIDTH)}
        return {
            name: np.zeros(shapes["decoder" if ".decoder." in name else "encoder"], np.float32)
            for name in self._outputs
        }


def _logprob(row: F32, token: int) -> float:
    peak = row.max()
    return float(row[token] - peak - np.log(np.exp(row - peak).sum()))
