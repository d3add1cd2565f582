"""LiveKit Agents' Deepgram plugin, as an agent uses it. Arguments: host:port, key, file of 16 kHz s16le.

Speaks, flushes, waits for the end of the turn, speaks again, ends; then has the whole recognised at once. Prints one JSON
object a line. Runs with the Python that has the plugin (test_agents_deepgram.py).
"""

import asyncio
import json
import sys

import aiohttp
from livekit import rtc
from livekit.agents.stt import SpeechEventType
from livekit.plugins import deepgram

RATE = 16_000


def say(**fields: object) -> None:
    sys.stdout.write(json.dumps(fields) + "\n")


def frame(pcm: bytes) -> rtc.AudioFrame:
    return rtc.AudioFrame(pcm, sample_rate=RATE, num_channels=1, samples_per_channel=len(pcm) // 2)


async def main(address: str, key: str, path: str) -> None:
    with open(path, "rb") as file:  # noqa: ASYNC230, PTH123 - a script
        pcm = file.read()
    async with aiohttp.ClientSession() as http:
        engine = deepgram.STT(api_key=key, base_url=f"http://{address}/v1/listen", http_session=http)
        stream = engine.stream()
        turns = 0
        for i in range(0, len(pcm), 3_200):
            stream.push_frame(frame(pcm[i : i + 3_200]))
        stream.flush()
        async for event in stream:
            text = event.alternatives[0].text if event.alternatives else ""
            words = len(event.alternatives[0].words or ()) if event.alternatives else 0
            say(kind=event.type.value, text=text, words=words)
            if event.type is SpeechEventType.END_OF_SPEECH:
                turns += 1
                if turns == 2:
                    stream.push_frame(frame(pcm[:RATE]))
                    stream.end_input()
        await stream.aclose()
        whole = await engine.recognize(frame(pcm))
        say(kind="recognized", text=whole.alternatives[0].text, words=len(whole.alternatives[0].words or ()))


asyncio.run(main(*sys.argv[1:]))
