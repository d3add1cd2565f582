"""Pipecat's Deepgram service in a pipeline. Arguments: host:port, key, file of 16 kHz s16le.

Speaks, says that the user has stopped, waits for the transcription of the turn. Prints one JSON object a line. Runs with the
Python that has Pipecat (test_agents_deepgram.py).
"""

import asyncio
import json
import sys

from pipecat.frames.frames import (
    ErrorFrame,
    InputAudioRawFrame,
    InterimTranscriptionFrame,
    TranscriptionFrame,
    VADUserStartedSpeakingFrame,
    VADUserStoppedSpeakingFrame,
)
from pipecat.pipeline.worker import PipelineParams
from pipecat.services.deepgram.stt import DeepgramSTTService
from pipecat.tests.utils import SleepFrame, run_test

RATE = 16_000


async def main(address: str, key: str, path: str) -> None:
    with open(path, "rb") as file:  # noqa: ASYNC230, PTH123 - a script
        pcm = file.read()
    service = DeepgramSTTService(api_key=key, base_url=f"ws://{address}", sample_rate=RATE)
    audio = [InputAudioRawFrame(pcm[i : i + 640], RATE, 1) for i in range(0, len(pcm), 640)]
    turn = [
        VADUserStartedSpeakingFrame(),
        *audio,
        SleepFrame(0.5),
        VADUserStoppedSpeakingFrame(),
        SleepFrame(3),
    ]
    told, back = await run_test(
        service,
        frames_to_send=turn,
        pipeline_params=PipelineParams(audio_in_sample_rate=RATE),
        start_timeout=10,
    )
    for each in told:
        if isinstance(each, TranscriptionFrame | InterimTranscriptionFrame):
            final = isinstance(each, TranscriptionFrame)
            fields = {"kind": "final" if final else "interim", "text": each.text}
            sys.stdout.write(json.dumps({**fields, "finalized": final and each.finalized}) + "\n")
    for each in back:
        if isinstance(each, ErrorFrame):
            sys.stdout.write(json.dumps({"kind": "error", "text": each.error}) + "\n")


asyncio.run(main(*sys.argv[1:]))
