"""LiveKit Agents' and Pipecat's Deepgram plugins, unmodified, pointed at us by their base URL.

They want other versions of our libraries, so they live in an environment of their own, whose Python SCRIBE_AGENTS_PYTHON
names (default: ../venv-agents): `pip install livekit-agents livekit-plugins-deepgram 'pipecat-ai[deepgram]'`.
"""

import asyncio
import json
import os
import subprocess
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from ops.keys import FileStore
from shared.access import Key, new_secret
from shared.settings import AuthSettings
from tests.e2e.test_stream import expected_texts
from tests.unit.test_stages import silence, speech

pytestmark = pytest.mark.slow

PYTHON = os.environ.get("SCRIBE_AGENTS_PYTHON", str(Path(__file__).parents[3] / "venv-agents/bin/python"))
SCRIPTS = Path(__file__).parent / "agents"
KEY_ID, SECRET = new_secret()
# LiveKit asks for an endpoint after 25 ms; ours comes after 200 at the soonest.
TALK = np.concatenate([silence(0.4), speech(2.2, 7), silence(1.1), speech(1.5, 8)])


@pytest.fixture
def auth_settings(tmp_path) -> AuthSettings:
    FileStore(tmp_path / "keys.toml").write(KEY_ID, Key.new(SECRET, name="acme", scopes=["transcribe"]))
    return AuthSettings(keys_file=tmp_path / "keys.toml")


@cache
def lacks(module: str) -> bool:
    if not Path(PYTHON).exists():
        return True
    return (
        subprocess.run([PYTHON, "-c", f"import {module}"], capture_output=True, check=False).returncode != 0
    )


async def run(fleet, tmp_path, script: str) -> list[dict]:
    """What the script has printed."""
    (tmp_path / "talk.raw").write_bytes(TALK.tobytes())
    arguments = [PYTHON, str(SCRIPTS / script), f"127.0.0.1:{fleet.port}", SECRET, str(tmp_path / "talk.raw")]
    process = await asyncio.create_subprocess_exec(
        *arguments, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    try:
        out, err = await asyncio.wait_for(process.communicate(), 50)
    except TimeoutError:
        process.kill()
        raise
    assert process.returncode == 0, err.decode()[-3_000:]
    return [json.loads(line) for line in out.splitlines() if line.startswith(b"{")]


async def test_livekit_agents_hears_turns_by_its_deepgram_plugin(fleet, tmp_path):
    if lacks("livekit.plugins.deepgram"):
        pytest.skip(f"no livekit-plugins-deepgram for {PYTHON}")

    told = await run(fleet, tmp_path, "livekit_deepgram.py")

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


async def test_pipecat_gets_its_turn_finalized_by_its_deepgram_service(fleet, tmp_path):
    if lacks("pipecat.services.deepgram.stt"):
        pytest.skip(f"no pipecat-ai[deepgram] for {PYTHON}")

    told = await run(fleet, tmp_path, "pipecat_deepgram.py")

    said = [each for each in told if each["kind"] == "final"]
    assert [each["text"] for each in said] == expected_texts(TALK)
    assert [each["finalized"] for each in said] == [False, True]
    assert {each["kind"] for each in told} == {"interim", "final"}
