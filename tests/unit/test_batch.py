"""Which files a batch does, where it writes to, what it leaves out."""

import os
from pathlib import Path

import pytest

from ops import batch
from ops.batch import EXTENSIONS, is_done, sources, targets, write
from shared.errors import BadInput


@pytest.fixture
def tree(tmp_path, monkeypatch):
    """A folder of recordings as people have them, and we are beside it."""
    for name in [
        "talks/b.mp3",
        "talks/a.WAV",
        "talks/day2/a.flac",
        "talks/day1/a.flac",
        "talks/.hidden.wav",
        "talks/.cache/c.wav",
        "talks/notes.txt",
        "other/a.wav",
    ]:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"audio")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def found(*arguments: str) -> list[str]:
    return [str(source.file) for source in sources([Path(each) for each in arguments])]


def written_to(*arguments: str, form: str = "text") -> list[str]:
    wanted = sources([Path(each) for each in arguments])
    return [str(target) for target in targets(wanted, Path("out"), form).values()]


def test_a_folder_gives_its_audio_at_any_depth_sorted_and_nothing_hidden(tree):
    assert found("talks") == ["talks/a.WAV", "talks/b.mp3", "talks/day1/a.flac", "talks/day2/a.flac"]


def test_files_keep_the_order_they_were_given_in_whatever_they_are_called(tree):
    assert found("talks/notes.txt", "talks/.hidden.wav", "talks/b.mp3", "other") == [
        "talks/notes.txt",
        "talks/.hidden.wav",
        "talks/b.mp3",
        "other/a.wav",
    ]


def test_a_file_named_twice_is_done_once(tree):
    assert found("talks/b.mp3", "talks", "./talks/../talks/b.mp3") == [
        "talks/b.mp3",
        "talks/a.WAV",
        "talks/day1/a.flac",
        "talks/day2/a.flac",
    ]


def test_a_link_back_up_is_not_followed(tree):
    (tree / "other/up").symlink_to(tree, target_is_directory=True)

    assert found("other") == ["other/a.wav"]


def test_a_folder_without_audio_says_what_was_looked_for(tree):
    (tree / "empty").mkdir()

    (empty,) = sources([Path("empty")])

    assert empty.file == Path("empty")
    assert empty.problem.startswith("holds no audio or video; looked for .3gp .aac ")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_folder_that_may_not_be_read_is_named_and_the_others_are_done(tree):
    (tree / "talks/day1").chmod(0)

    problems = {str(source.file): source.problem for source in sources([Path("talks")]) if source.problem}

    assert problems == {"talks/day1": "cannot be read: Permission denied"}


def test_every_kind_of_file_is_named_once_and_in_lower_case():
    assert len(set(EXTENSIONS)) == len(EXTENSIONS)
    assert all(name == name.lower() and name.startswith(".") for name in EXTENSIONS)


def test_transcripts_lie_as_their_files_do(tree):
    assert written_to("talks", form="srt") == ["out/a.srt", "out/b.srt", "out/day1/a.srt", "out/day2/a.srt"]


def test_transcripts_of_named_files_are_named_after_them(tree):
    assert written_to("talks/a.WAV", "b.c.mp3") == ["out/a.txt", "out/b.c.txt"]


def test_recordings_that_differ_in_their_kind_only_keep_their_whole_names(tree):
    (tree / "talks/b.wav").touch()

    assert written_to("talks")[:3] == ["out/a.txt", "out/b.mp3.txt", "out/b.wav.txt"]


def test_two_files_with_one_place_are_refused_before_anything_is_done(tree):
    (tree / "other/a.WAV").touch()

    with pytest.raises(BadInput, match="name a folder that holds both"):
        written_to("talks/a.WAV", "other/a.WAV")


def test_only_a_transcript_newer_than_its_file_counts(tree):
    audio, transcript = tree / "other/a.wav", tree / "a.txt"

    assert not is_done(audio, transcript)
    transcript.touch()
    os.utime(audio, ns=(0, 1_000))
    for written, done in [(999, False), (1_000, False), (1_001, True)]:
        os.utime(transcript, ns=(0, written))
        assert is_done(audio, transcript) is done
    audio.unlink()
    assert not is_done(audio, transcript)


def test_a_transcript_replaces_the_one_before_and_leaves_nothing_else(tmp_path):
    target = tmp_path / "deep/er/a.txt"

    write(target, "one\n")
    write(target, "two\n")

    assert target.read_text() == "two\n"
    assert list(target.parent.iterdir()) == [target]


def test_a_transcript_that_could_not_be_written_whole_is_not_there_and_the_older_one_stays(
    tmp_path, monkeypatch
):
    target = tmp_path / "a.txt"
    write(target, "one\n")

    def full(_descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(batch.os, "fsync", full)
    with pytest.raises(BadInput, match=r"cannot write .*a\.txt: No space left on device"):
        write(target, "two\n")

    assert target.read_text() == "one\n"
    assert list(tmp_path.iterdir()) == [target]
