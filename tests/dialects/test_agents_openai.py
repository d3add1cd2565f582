"""The OpenAI plugins of LiveKit Agents and Pipecat."""

import numpy as np
import pytest

from tests.dialects.agents import run, wants
from tests.unit.test_stages import silence, speech

pytestmark = pytest.mark.slow


@pytest.fixture
def recording(tmp_path):
    """Two utterances of 16 kHz, and the silence that ends the second."""
    audio = np.concatenate([silence(0.6), speech(3, 7), silence(1.8), speech(2.4, 8), silence(1.8)])
    (tmp_path / "pcm").write_bytes(audio.tobytes())
    return str(tmp_path / "pcm")


async def test_livekit_agents_hears_every_utterance(fleet, recording):
    wants("livekit.plugins.openai")

    told = await run("livekit_openai.py", f"{fleet.url}/v1", "any", recording, "2")

    by_kind = {each["kind"] for each in told}
    finals = [each["text"] for each in told if each["kind"] == "final_transcript"]
    assert {"start_of_speech", "end_of_speech"} <= by_kind
    assert len(finals) == 2
    assert all(finals)
    whole = [each["text"] for each in told if each["kind"] in {"gpt-4o-transcribe", "whisper-1"}]
    assert len(whole) == 2
    assert all(whole)


async def test_pipecat_hears_by_commits_by_our_vad_and_by_segments(fleet, recording):
    wants("pipecat.services.openai.stt")

    told = await run("pipecat_openai.py", f"{fleet.url}/v1", "any", recording)

    assert not [each["text"] for each in told if each["kind"] == "error"]
    texts = {
        kind: [each["text"] for each in told if each["kind"] == kind]
        for kind in ("commit", "server_vad", "segment")
    }
    assert len(texts["commit"]) == len(texts["segment"]) == 1
    assert len(texts["server_vad"]) == 2
    assert all(texts["commit"] + texts["server_vad"] + texts["segment"])
