"""Run by the Python that has livekit-agents: its OpenAI plugin against URL with KEY and the samples (24 kHz) in PATH.

Prints one JSON line for each transcript: streamed at first, then the whole as one request.
"""

import asyncio
import json
import sys

from livekit import rtc
from livekit.agents import stt, utils
from livekit.plugins import openai

RATE = 24_000


def told(kind: str, event: stt.SpeechEvent) -> None:
    text = event.alternatives[0].text if event.alternatives else ""
    sys.stdout.write(json.dumps({"kind": kind, "text": text}) + "\n")


async def main(url: str, key: str, path: str, utterances: int) -> None:
    with open(path, "rb") as file:  # noqa: ASYNC230, PTH123 - before anything runs
        pcm = file.read()
    frames = [
        rtc.AudioFrame(pcm[at : at + 2_400], RATE, 1, len(pcm[at : at + 2_400]) // 2)
        for at in range(0, len(pcm), 2_400)
    ]
    async with utils.http_context.open():
        live = openai.STT(model="gpt-4o-transcribe", use_realtime=True, base_url=url, api_key=key)
        stream = live.stream()
        for frame in frames:
            stream.push_frame(frame)
        finals = 0
        async for event in stream:
            told(event.type.value, event)
            finals += event.type == stt.SpeechEventType.FINAL_TRANSCRIPT
            if finals == utterances:
                break
        await stream.aclose()
        await live.aclose()
        for model in ("gpt-4o-transcribe", "whisper-1"):
            told(model, await openai.STT(model=model, base_url=url, api_key=key).recognize(frames))


asyncio.run(main(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4])))
