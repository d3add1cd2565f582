"""Run by the Python that has pipecat-ai: its OpenAI services against URL with KEY and the samples (16 kHz) in PATH.

Prints one JSON line for each transcript: with the client's VAD, with ours, and as requests of one segment each.
"""

import asyncio
import json
import sys

from pipecat.frames.frames import (
    ErrorFrame,
    InputAudioRawFrame,
    TranscriptionFrame,
    VADUserStartedSpeakingFrame,
    VADUserStoppedSpeakingFrame,
)
from pipecat.pipeline.worker import PipelineParams
from pipecat.services.openai.stt import OpenAIRealtimeSTTService, OpenAISTTService
from pipecat.tests.utils import SleepFrame, run_test

RATE = 16_000


async def run(kind: str, service, frames) -> None:
    """Send frames, a little apart as a microphone does; then wait for what comes."""
    paced = [each for frame in frames for each in (frame, SleepFrame(sleep=0.002))]
    down, up = await run_test(
        service,
        frames_to_send=[SleepFrame(sleep=0.3), *paced, SleepFrame(sleep=3)],
        pipeline_params=PipelineParams(audio_in_sample_rate=RATE),
    )
    for frame in [*down, *up]:
        if isinstance(frame, TranscriptionFrame):
            told(kind, frame.text)
        elif isinstance(frame, ErrorFrame):
            told("error", frame.error)


def told(kind: str, text: str) -> None:
    sys.stdout.write(json.dumps({"kind": kind, "text": text}) + "\n")


async def main(url: str, key: str, path: str) -> None:
    with open(path, "rb") as file:  # noqa: ASYNC230, PTH123 - before anything runs
        pcm = file.read()
    audio = [InputAudioRawFrame(pcm[at : at + 640], RATE, 1) for at in range(0, len(pcm), 640)]
    turn = [VADUserStartedSpeakingFrame(), *audio, VADUserStoppedSpeakingFrame()]
    live = {"api_key": key, "base_url": url.replace("http", "ws", 1) + "/realtime"}
    await run("commit", OpenAIRealtimeSTTService(**live), turn)
    await run("server_vad", OpenAIRealtimeSTTService(turn_detection={"type": "server_vad"}, **live), audio)
    await run("segment", OpenAISTTService(api_key=key, base_url=url), turn)


asyncio.run(main(*sys.argv[1:4]))
