"""Silero VAD through onnxruntime. The package is never imported: importing it loads torch and sets its threads.

Model: input [1, 576] (64 samples of context, 512 new), state [2, 1, 128], sr -> probability [1, 1], state.
"""

from importlib.util import find_spec
from pathlib import Path

import numpy as np
import onnxruntime as ort

from shared.errors import Misconfigured
from workers.engines.runtime import session
from workers.stages.frontend import F32, VadState

_CONTEXT = 64
_RATE = np.array(16_000, np.int64)


def model_path() -> Path:
    """Path of silero_vad.onnx in the installed wheel. Raises Misconfigured."""
    spec = find_spec("silero_vad")
    if spec is None or not spec.submodule_search_locations:
        raise Misconfigured("silero-vad is not installed: pip install 'silero-vad>=6.2.3'")
    return Path(spec.submodule_search_locations[0]) / "data" / "silero_vad.onnx"


class SileroDetector:
    """Weights only; the state of every session is passed in and out."""

    def __init__(self, model: ort.InferenceSession) -> None:
        self._model = model

    @classmethod
    def load(cls) -> "SileroDetector":
        return cls(session(model_path(), threads=1))

    def probability(self, state: VadState, frame: F32) -> tuple[float, VadState]:
        window = np.concatenate([state.context, frame[None]], axis=1)
        probability, hidden = self._model.run(None, {"input": window, "state": state.hidden, "sr": _RATE})
        return float(probability[0, 0]), VadState(hidden, window[:, -_CONTEXT:])
