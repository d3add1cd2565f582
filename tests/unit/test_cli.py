"""The command line: help at once, errors that say what to do, and what it reads."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from ops.manifests import continuous, read_manifest
from shared.errors import BadInput


def streamscribe(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [Path(sys.executable).with_name("streamscribe"), *arguments],
        check=False,
        capture_output=True,
        text=True,
        timeout=30,
        env=os.environ | {"COLUMNS": "200", "NO_COLOR": "1"} | environment,
    )


def test_help_names_every_command_and_loads_nothing_heavy():
    shown = streamscribe("--help")
    heavy = ["numpy", "pydantic", "redis", "websockets", "av", "onnxruntime", "torch", "ops.fleet"]
    loaded = subprocess.run(
        [sys.executable, "-c", f"import ops.cli, sys; print([m for m in {heavy} if m in sys.modules])"],
        check=True,
        capture_output=True,
        text=True,
        timeout=30,
    )

    assert shown.returncode == 0
    for command in ["serve", "gateway", "worker", "transcribe", "listen", "evaluate", "doctor", "demo"]:
        assert f" {command} " in shown.stdout
    assert loaded.stdout.strip() == "[]"


@pytest.mark.parametrize(
    "command", ["serve", "gateway", "worker", "transcribe", "listen", "evaluate", "doctor", "demo"]
)
def test_every_command_explains_itself(command):
    shown = streamscribe(command, "--help")

    assert shown.returncode == 0
    assert f"streamscribe {command}" in shown.stdout


@pytest.mark.parametrize(
    ("arguments", "advice"),
    [
        (
            ["evaluate", "/nowhere.tsv"],
            "/nowhere.tsv (No such file or directory): give the path of a .tsv file",
        ),
        (["transcribe", "x.wav", "--url", "http://127.0.0.1:1"], "start one with `streamscribe serve`"),
        (["transcribe", "x.wav", "--url", "http://h:99999"], "use http://host:port"),
        (["transcribe", "a/x.wav", "b/x.wav", "--output", "out"], "give them to separate commands"),
        (["listen", "abc", "--redis-url", ""], "--redis-url or SCRIBE_REDIS_URL"),
        (["listen", "abc", "--redis-url", "redis://127.0.0.1:1"], "`streamscribe doctor`"),
        (["serve", "--worker", "ears"], "use frontend, acoustic, decoder"),
    ],
)
def test_an_error_is_one_line_with_what_to_do_and_exit_code_1(arguments, advice):
    failed = streamscribe(*arguments)

    assert failed.returncode == 1
    assert failed.stderr.startswith("error: ")
    assert failed.stderr.count("\n") == 1
    assert advice in failed.stderr
    assert failed.stdout == ""


def test_a_wrong_environment_variable_is_named():
    failed = streamscribe("serve", SCRIBE_GATEWAY_PORT="http")

    assert failed.returncode == 1
    assert failed.stderr.startswith("error: GatewaySettings: port: ")
    assert failed.stderr.count("\n") == 1


@pytest.mark.parametrize(
    "arguments",
    [
        ["transcribe"],
        ["transcribe", "a.wav", "--format", "doc"],
        ["transcribe", "a.wav", "b.wav", "--format", "srt"],
        ["transcribe", "/tmp", "--format", "srt"],
        ["transcribe", "-", "a.wav"],
        ["transcribe", "-", "--output", "out"],
        ["transcribe", "a.wav", "--raw", "16000"],
        ["transcribe", "-", "--raw", "44"],
        ["evaluate", "m.tsv", "--sessions", "0"],
        ["evaluate", "m.tsv", "--offline", "--loop", "60"],
        ["serve", "--worker", "all=many"],
        ["fly"],
    ],
)
def test_wrong_usage_is_exit_code_2(arguments):
    assert streamscribe(*arguments).returncode == 2


HEADER = "path\tseconds\ttranscript\n"


def test_manifest_rows_keep_their_quotes_and_paths_are_relative_to_it(tmp_path):
    (tmp_path / "m.tsv").write_text(HEADER + 'clean/a.flac\t1.0\t"so" they say\nb.flac\t2.0\t\n')

    first, second = read_manifest(tmp_path / "m.tsv")

    assert (first.name, first.subset, first.reference) == ("clean/a.flac", "clean", '"so" they say')
    assert first.files == (tmp_path / "clean/a.flac",)
    assert (second.subset, second.reference) == (tmp_path.name, "")


def test_manifest_filter_and_limit_choose_rows(tmp_path):
    (tmp_path / "m.tsv").write_text(HEADER + "".join(f"{s}/{n}.wav\t1\tx\n" for s in "ab" for n in range(3)))

    assert [take.name for take in read_manifest(tmp_path / "m.tsv", pattern="b/*", limit=2)] == [
        "b/0.wav",
        "b/1.wav",
    ]
    with pytest.raises(BadInput, match=r"matches 'c/\*'"):
        read_manifest(tmp_path / "m.tsv", pattern="c/*")


@pytest.mark.parametrize("content", ["", "path,transcript\na,b\n", "\x00\x01", HEADER])
def test_what_is_no_manifest_is_refused(tmp_path, content):
    (tmp_path / "m.tsv").write_text(content)

    with pytest.raises(BadInput, match=r"m\.tsv"):
        read_manifest(tmp_path / "m.tsv")


def test_continuous_sessions_start_apart_and_repeat_the_list(tmp_path):
    (tmp_path / "m.tsv").write_text(HEADER + "".join(f"{n}.wav\t1\tword{n}\n" for n in range(4)))
    takes = read_manifest(tmp_path / "m.tsv")

    one, two = continuous(takes, sessions=2, seconds=5, second_of={take.name: 1.5 for take in takes})

    assert one.reference == "word0 word1 word2 word3"
    assert two.reference == "word2 word3 word0 word1"
    assert [file.name for file in two.files] == ["2.wav", "3.wav", "0.wav", "1.wav"]
