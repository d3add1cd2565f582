"""The Deepgram plugins of LiveKit Agents and Pipecat."""

import numpy as np
import pytest

from ops.keys import FileStore
from shared.access import Key, new_secret
from shared.settings import AuthSettings
from tests.dialects.agents import run, wants
from tests.e2e.test_stream import expected_texts
from tests.unit.test_stages import silence, speech

pytestmark = pytest.mark.slow

KEY_ID, SECRET = new_secret()
# LiveKit asks for an endpoint after 25 ms; ours comes after 200 at the soonest.
TALK = np.concatenate([silence(0.4), speech(2.2, 7), silence(1.1), speech(1.5, 8)])


@pytest.fixture
def auth_settings(tmp_path) -> AuthSettings:
    FileStore(tmp_path / "keys.toml").write(KEY_ID, Key.new(SECRET, name="acme", scopes=["transcribe"]))
    return AuthSettings(keys_file=tmp_path / "keys.toml")


@pytest.fixture
def arguments(fleet, tmp_path) -> list[str]:
    """Where the scripts find the gateway, its key, and what to say."""
    (tmp_path / "talk.raw").write_bytes(TALK.tobytes())
    return [f"127.0.0.1:{fleet.port}", SECRET, str(tmp_path / "talk.raw")]


async def test_livekit_agents_hears_turns_by_its_deepgram_plugin(arguments):
    wants("livekit.plugins.deepgram")

    told = await run("livekit_deepgram.py", *arguments)

    turns = [
        each for each in told if each["kind"] in {"start_of_speech", "final_transcript", "end_of_speech"}
    ]
    assert [each["kind"] for each in turns] == ["start_of_speech", "final_transcript", "end_of_speech"] * 3
    said = [each for each in turns if each["kind"] == "final_transcript"]
    assert [each["text"] for each in said[:2]] == expected_texts(TALK)
    assert all(each["words"] == len(each["text"].split()) for each in said)
    assert "interim_transcript" in {each["kind"] for each in told}
    assert told[-1]["kind"] == "recognized"
    assert told[-1]["text"] == " ".join(expected_texts(TALK))


async def test_pipecat_gets_its_turn_finalized_by_its_deepgram_service(arguments):
    wants("pipecat.services.deepgram.stt")

    told = await run("pipecat_deepgram.py", *arguments)

    said = [each for each in told if each["kind"] == "final"]
    assert [each["text"] for each in said] == expected_texts(TALK)
    assert [each["finalized"] for each in said] == [False, True]
    assert {each["kind"] for each in told} == {"interim", "final"}
