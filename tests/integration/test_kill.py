"""Real worker processes with the real models, killed in the middle of an utterance."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import soundfile

from gateway.ingest import Ingest
from gateway.sessions import open_session
from ops.tether import tethered
from shared.protocol import SessionOptions
from shared.settings import child_environment
from tests.conftest import wait_until
from tests.pipeline import Pipeline, audio_chunks, finals
from workers.engines.moonshine.engine import MoonshineEngine
from workers.engines.silero import SileroDetector
from workers.stages.acoustic import Acoustic
from workers.stages.decoder import Decoder
from workers.stages.frontend import Frontend

pytestmark = pytest.mark.slow

RECORDING = Path(__file__).parents[2] / "ops/assets/demo.flac"


@pytest.fixture
def start_worker(redis_settings):
    """Starts worker processes; all are gone afterwards."""
    processes = []

    def start() -> subprocess.Popen:
        environment = child_environment(
            SCRIBE_REDIS_URL=redis_settings.url,
            SCRIBE_REDIS_PREFIX=redis_settings.prefix,
            SCRIBE_REDIS_PARTITIONS="4",
            SCRIBE_WORKER_LEASE_S="0.5",
            SCRIBE_LOG_LEVEL="WARNING",
        )
        processes.append(
            subprocess.Popen(tethered([sys.executable, "-m", "workers", "all"]), env=environment)
        )
        return processes[-1]

    yield start
    for process in processes:
        process.kill()
        process.wait()


def recording(seconds: float) -> np.ndarray:
    samples, _ = soundfile.read(RECORDING, dtype="int16")
    return samples[: int(seconds * 16_000)]


def unbroken(samples: np.ndarray) -> list[dict]:
    engine = MoonshineEngine.load()
    stages = [Frontend(SileroDetector.load()), Acoustic(engine), Decoder(engine, engine.vocabulary)]
    return finals(Pipeline(stages).run(audio_chunks(samples), [1] * 100))


async def workers_seen(clients) -> int:
    return await clients.commands.hlen(clients.keys.workers("acoustic"))


async def position(clients, session: str) -> int:
    return int(await clients.commands.hget(clients.keys.state(session, "decoder"), "seq") or 0)


async def test_killing_workers_in_the_middle_of_an_utterance_changes_no_byte_of_the_finals(
    clients, start_worker
):
    samples = recording(8)
    expected = unbroken(samples)
    victims = [start_worker(), start_worker()]
    await wait_until(lambda: _at_least(workers_seen(clients), 2), 40)
    held = await open_session(clients, SessionOptions())
    session, ingest = held.session, Ingest(clients, held)

    async def send(chunks) -> None:
        for chunk in chunks:
            await ingest.append(chunk.kind, chunk.payload, 0)

    chunks = audio_chunks(samples)
    await send(chunks[:8])
    await wait_until(lambda: _at_least(position(clients, session), 3))
    victims[0].kill()
    await send(chunks[8:14])
    await wait_until(lambda: _at_least(position(clients, session), 9))
    start_worker()
    victims[1].kill()
    await send(chunks[14:])
    await wait_until(lambda: _ended(clients, session), 40)

    stored = await clients.commands.xrange(clients.keys.events(session))
    events = [json.loads(fields[b"e"]) for _, fields in stored]
    assert [event["event"] for event in events] == list(range(1, len(events) + 1))
    assert json.dumps([_bare(event) for event in finals(events)]) == json.dumps(expected)


def _bare(event: dict) -> dict:
    return {key: value for key, value in event.items() if key not in ("event", "v", "session", "trace")}


async def _at_least(value, least: int) -> bool:
    return await value >= least


async def _ended(clients, session: str) -> bool:
    return await clients.meta_field(session, "status") == b"ended"
