"""Stage names to stages: the one place that pairs pure stages with engines."""

from collections.abc import Sequence

from shared.errors import Misconfigured
from shared.keys import STAGES
from shared.settings import WorkerSettings
from workers.compute import AnyStage
from workers.stages.acoustic import Acoustic
from workers.stages.decoder import Decoder
from workers.stages.frontend import Frontend


def parse(spec: str) -> list[str]:
    """`frontend`, `acoustic+decoder`, `all` … to stage names in order. Raises Misconfigured."""
    names = list(STAGES) if spec == "all" else spec.split("+")
    if not set(names) <= set(STAGES):
        raise Misconfigured(f"unknown stages {spec!r}: expected all, or {', '.join(STAGES)} joined by +")
    return [stage for stage in STAGES if stage in names]


def build(names: Sequence[str], settings: WorkerSettings) -> list[AnyStage]:
    """Load and warm up the engines these stages need; acoustic and decoder share one."""
    # Imported here: a frontend worker must not pay for the recogniser's weights, nor the reverse.
    stages: list[AnyStage] = []
    if "frontend" in names:
        from workers.engines.silero import SileroDetector

        stages.append(Frontend(SileroDetector.load()))
    if {"acoustic", "decoder"} & set(names):
        from workers.engines.moonshine.engine import MoonshineEngine

        engine = MoonshineEngine.load(settings.threads)
        both: list[AnyStage] = [Acoustic(engine), Decoder(engine, engine.vocabulary)]
        stages += [stage for stage in both if stage.name in names]
    return stages
