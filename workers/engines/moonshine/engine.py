"""Moonshine tiny (English), with the 8-bit weights of the wheel moonshine-voice==0.1.0 (MIT).

We run its layers in torch, not in onnxruntime: on the same machine a token takes 0.6, a pass over a growing
utterance 0.5 times as long, and batches, caches and attention are within reach (ops/decisions/0013).
"""

from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from shared.errors import Misconfigured
from workers.engines.draft import Draft
from workers.engines.hypothesis import Hypothesis
from workers.engines.moonshine import weights
from workers.engines.moonshine.decoder import Decoder
from workers.engines.moonshine.encoder import BLOCK_HOP, Encoder
from workers.engines.vocabulary import Vocabulary

F16 = npt.NDArray[np.float16]
F32 = npt.NDArray[np.float32]

BOS, EOS = 1, 2
# Shorter audio is put in the middle of a second of silence: of 60 isolated digits 43 % were right instead of 17 %
# (under 895 samples the convolutions fail altogether).
MIN_SAMPLES = 16_000


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
    """Encoder and decoder. All of a session's state comes in and goes out as tokens."""

    grid = BLOCK_HOP

    def __init__(self, encoder: Encoder, decoder: Decoder, vocabulary: Vocabulary) -> None:
        self._encoder = encoder
        self._decoder = decoder
        self.vocabulary = vocabulary
        self._sentence_ends = {t for t in range(len(vocabulary)) if vocabulary.piece(t) in (b".", b"?", b"!")}

    @classmethod
    def load(cls, threads: int = 1) -> "MoonshineEngine":
        """Read the weights and use them, so that the first session does not pay for it.

        The number of threads holds for all of torch in this process.
        """
        torch.set_num_threads(threads)
        folder = assets()
        engine = cls(
            Encoder(weights.read(folder / "encoder_model.ort")),
            Decoder(weights.read(folder / "decoder_model_merged.ort")),
            Vocabulary.read(folder / "tokenizer.bin"),
        )
        for _ in range(3):  # TorchScript compiles at the first call and optimises at the second
            engine.decode(
                engine.encode(np.zeros(MIN_SAMPLES, np.float32), cuts=[MIN_SAMPLES]), guess=[BOS], limit=3
            )
        return engine

    @torch.inference_mode()
    def encode(self, samples: F32, *, cuts: Sequence[int] = ()) -> F16:
        """Samples [n] -> hidden states [frames, 288]. Half precision: it is what travels between stages.

        With cuts (the first after at least a second), the result is slightly less exact, and what is computed up to
        the last of them is remembered for the next call.
        """
        if len(samples) < MIN_SAMPLES:
            missing = MIN_SAMPLES - len(samples)
            samples = np.pad(samples, (missing // 2, missing - missing // 2))
        return np.asarray(self._encoder(samples, cuts).numpy(), np.float16)

    @torch.inference_mode()
    def decode(
        self,
        hidden: F16,
        *,
        context: Sequence[int] = (),
        forced: Sequence[int] = (),
        guess: Sequence[int] = (),
        limit: int,
        scored: bool = False,
        sketch: bool = False,
    ) -> Hypothesis:
        """Greedy search for what follows `context`, beginning with `forced`; at most `limit` tokens in all.

        `guess` only saves time (workers/engines/draft.py): each call verifies what it proposes, and keeps what agrees.
        A sketch ends at the first sentence end beyond the guess: nearly always nothing follows, and finding that
        out takes a call.
        """
        room = 1 + len(context) + limit
        past = self._decoder.begin(torch.from_numpy(hidden.astype(np.float32)), room)
        tokens, known = list(forced[:limit]), len(forced) + len(guess)
        draft = Draft(guess)
        drafted = draft.next(limit - len(tokens))
        rows = len(drafted) + 1 + (len(tokens) if scored else 0)
        logits = self._decoder(past, [BOS, *context, *tokens, *drafted], last=rows)
        scores = _logprobs(logits, tokens) if scored else []
        logits = logits[-len(drafted) - 1 :]
        while len(tokens) < limit:
            best = logits.numpy().argmax(-1).tolist()  # torch takes 15 times as long for it
            agreed = next((i for i, token in enumerate(drafted) if token != best[i]), len(drafted))
            following = best[agreed]
            found = [*drafted[:agreed], following][: limit - len(tokens)]
            found = found[:-1] if found[-1] == EOS else found
            scores += _logprobs(logits, found) if scored else []
            tokens += found
            if following == EOS:
                break
            draft.heard(agreed, following)
            drafted = draft.next(limit - len(tokens))
            if sketch and following in self._sentence_ends and len(tokens) >= known and not drafted:
                break
            past.tokens = len(context) + len(tokens)  # with BOS, without the newest
            logits = self._decoder(past, [tokens[-1], *drafted], last=len(drafted) + 1)
        return Hypothesis(tuple(tokens), tuple(scores))


def _logprobs(logits: Tensor, tokens: Sequence[int]) -> list[float]:
    """Of each token, given the row of logits before it."""
    rows = logits[: len(tokens)].log_softmax(-1)
    return [float(row[token]) for row, token in zip(rows, tokens, strict=True)]
