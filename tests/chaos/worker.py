"""`python -m tests.chaos.worker STAGES`: the real worker process with the engines of tests/fakes.py.

A worker with models needs 3 s of CPU to start, and one is killed every second.
"""

import os
import signal
from collections.abc import Sequence

import numpy as np

from shared.settings import WorkerSettings
from tests.chaos.clock import steppable
from tests.fakes import LoudnessDetector, NumberVocabulary, PitchEngine
from workers.__main__ import main
from workers.compute import AnyStage
from workers.stages.acoustic import Acoustic
from workers.stages.decoder import Decoder
from workers.stages.frontend import Frontend, VadState

# One chunk of it takes the worker down as a bug in a native library would.
POISON = np.full(5120, 16384, np.int16)


class FragileDetector(LoudnessDetector):
    def probability(self, state: VadState, frame: np.ndarray) -> tuple[float, VadState]:
        if (frame == 0.5).all():
            os.kill(os.getpid(), signal.SIGSEGV)
        return super().probability(state, frame)


def build(names: Sequence[str], _settings: WorkerSettings) -> list[AnyStage]:
    engine = PitchEngine()
    every = [Frontend(FragileDetector()), Acoustic(engine), Decoder(engine, NumberVocabulary())]
    return [stage for stage in every if stage.name in names]


if __name__ == "__main__":
    steppable()
    main(build)
