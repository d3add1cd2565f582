"""The tools against a real fleet: Redis, gateway, workers and model."""

import asyncio
import json
import os
import subprocess
import sys
from importlib.resources import files
from pathlib import Path

import numpy as np
import pytest
import soundfile

from ops.client import StreamClient
from ops.embedded import EmbeddedRedis
from ops.scoring import score
from ops.streaming import send_paced
from shared.events import parse_event
from shared.media import MediaDecoder

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]

STREAMSCRIBE = Path(sys.executable).with_name("streamscribe")
DEMO = Path(str(files("ops") / "assets" / "demo.flac"))
WORDS = DEMO.with_suffix(".txt").read_text()
FIRST_4_S = "it was the best of times it was the worst of times"


def streamscribe(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [STREAMSCRIBE, *arguments], check=False, capture_output=True, text=True, timeout=170
    )


@pytest.fixture(scope="module")
def redis_url():
    server = EmbeddedRedis()
    yield server.start()
    server.stop()


@pytest.fixture(scope="module")
def url(redis_url):
    command = [STREAMSCRIBE, "serve", "--port", "0", "--redis-url", redis_url]
    with subprocess.Popen(
        command, stderr=subprocess.PIPE, text=True, env=os.environ | {"SCRIBE_LOG_LEVEL": "ERROR"}
    ) as fleet:
        ready = next(line for line in fleet.stderr if line.startswith("ready: "))
        yield ready.removeprefix("ready: ").strip()
        fleet.terminate()
        fleet.stderr.read()
    assert fleet.returncode == 0


@pytest.fixture(scope="module")
def recordings(tmp_path_factory):
    """A short recording, one as an 8 kHz mu-law file, silence, and a file that is none; with a manifest."""
    folder = tmp_path_factory.mktemp("recordings")
    (folder / "read").mkdir()
    samples, rate = soundfile.read(DEMO, stop=4 * 16_000, dtype="int16")
    soundfile.write(folder / "read/short.wav", samples, rate)
    soundfile.write(folder / "read/phone.wav", samples[::2], rate // 2, subtype="ULAW")
    soundfile.write(folder / "silence.wav", np.zeros(2 * rate, np.int16), rate)
    (folder / "broken.wav").write_text("no audio")
    rows = [f"read/short.wav\t{FIRST_4_S}", f"read/phone.wav\t{FIRST_4_S}", "silence.wav\t"]
    (folder / "manifest.tsv").write_text("\n".join(["path\ttranscript", *rows, ""]))
    return folder


def test_demo_shows_the_words_and_where_the_time_went():
    shown = streamscribe("demo")

    assert shown.returncode == 0
    captions, tables = shown.stdout.split("Latency in ms")
    heard = score(WORDS, captions)
    assert heard.errors <= 0.15 * heard.words
    for part in ("p99", "frontend", "acoustic", "decoder", "relay to the client", "word error rate"):
        assert part in tables


def test_transcribe_names_each_file_that_fails_and_finishes_the_others(url, recordings, tmp_path):
    names = ["read/short.wav", "broken.wav", "silence.wav", "missing.wav"]

    done = streamscribe(
        "transcribe", *(recordings / name for name in names), "--url", url, "--output", tmp_path
    )

    assert done.returncode == 1
    assert score(FIRST_4_S, (tmp_path / "short.txt").read_text()).errors <= 2
    assert (tmp_path / "silence.txt").read_text() == ""
    assert "broken.wav: not audio" in done.stderr
    assert "missing.wav does not exist" in done.stderr
    assert {file.name for file in tmp_path.iterdir()} == {"short.txt", "silence.txt"}


def test_transcribe_prints_json_lines_whose_words_lie_in_the_audio(url, recordings):
    done = streamscribe("transcribe", recordings / "read/phone.wav", "--url", url, "--format", "jsonl")

    finals = [parse_event(line) for line in done.stdout.splitlines()]
    assert done.returncode == 0
    assert score(FIRST_4_S, " ".join(final.text for final in finals)).errors <= 3
    times = [ms for final in finals for word in final.words for ms in (word.start_ms, word.end_ms)]
    assert times == sorted(times)
    assert times[0] >= 0
    assert times[-1] <= 4_000


def test_evaluate_prints_one_json_object_with_the_figures(url, recordings):
    done = streamscribe(
        "evaluate", recordings / "manifest.tsv", "--url", url, "--pace", "1", "--sessions", "3", "--json"
    )

    report = json.loads(done.stdout)
    assert done.returncode == 0
    assert report["utterances"] == 3
    assert report["sessions"] == 3
    assert report["audio_seconds"] == pytest.approx(10.0, abs=0.01)
    assert report["wer_ci95"][0] <= report["wer"] <= report["wer_ci95"][1] <= 0.3
    assert 0 < report["latency_ms"]["p50"] <= report["latency_ms"]["p95"] <= report["latency_ms"]["p99"]
    assert set(report["latency_ms"]) == {"avg", "p50", "p95", "p99"}
    # Paced sessions side by side take as long as the longest: 4 of 10 seconds.
    assert report["rtf"] > 4 / 10
    assert (report["errors"], report["stability_violations"], report["words_without_reference"]) == (0, 0, 0)
    assert report["subsets"]["read"]["utterances"] == 2


def test_evaluate_counts_a_recording_that_fails_as_words_missed(recordings, tmp_path):
    manifest = recordings / "with_broken.tsv"
    manifest.write_text(
        f"path\ttranscript\nread/short.wav\t{FIRST_4_S}\nbroken.wav\tten words " + "x " * 8 + "\n"
    )

    done = streamscribe("evaluate", manifest, "--offline", "--json", "--details", tmp_path / "details.jsonl")

    report = json.loads(done.stdout)
    assert done.returncode == 1
    assert report["errors"] == 1
    assert report["subsets"]["read"]["wer"] <= 0.2
    assert report["wer"] >= 10 / 22
    assert "broken.wav" in done.stderr
    worst, _best = [json.loads(line) for line in (tmp_path / "details.jsonl").read_text().splitlines()]
    assert (worst["take"], worst["errors"], worst["heard"]) == ("broken.wav", 10, "")


def test_continuous_evaluation_repeats_the_list_in_one_session_each(url, recordings):
    arguments = ["--filter", "read/*", "--pace", "0", "--sessions", "2", "--loop", "10", "--json"]

    report = json.loads(
        streamscribe("evaluate", recordings / "manifest.tsv", "--url", url, *arguments).stdout
    )

    assert report["utterances"] == 6
    assert report["audio_seconds"] == pytest.approx(24.0, abs=0.01)
    assert report["wer"] <= 0.3


async def test_listen_shows_a_session_live_until_its_end(url, redis_url):
    with MediaDecoder() as decoder:
        pcm = decoder.decode(DEMO)[: 4 * 32_000]
    async with StreamClient(url) as client:
        command = [STREAMSCRIBE, "listen", client.ready.session, "--redis-url", redis_url, "--partials"]
        listener = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
        await send_paced(client, pcm, pace=2.0)
        await client.end()
        async for _message in client:
            pass
        shown, _ = await listener.communicate()

    lines = shown.decode().splitlines()
    assert listener.returncode == 0
    assert any(line.startswith("… ") for line in lines)
    assert score(FIRST_4_S, " ".join(line for line in lines if not line.startswith("… "))).errors <= 2
