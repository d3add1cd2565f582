"""Which files `streamscribe transcribe` is to do, where each transcript goes, and which are there already."""

import os
import secrets
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ops.formats import Format
from shared.errors import BadInput

_SUFFIX: dict[Format, str] = {"text": ".txt", "srt": ".srt", "vtt": ".vtt", "jsonl": ".jsonl"}
# What is looked for in folders; a file that is named is tried whatever it is called. MPEG transport streams are also
# called .ts, but so is TypeScript.
EXTENSIONS = (  # noqa: SIM905 - a page of quotes
    ".3gp .aac .ac3 .aif .aifc .aiff .amr .ape .asf .au .avi .caf .flac .flv .gsm .m2ts .m4a .m4b .m4v .mka .mkv "
    ".mov .mp2 .mp3 .mp4 .mpeg .mpg .mts .oga .ogg .ogv .opus .rm .snd .sph .spx .tta .w64 .wav .wave .webm .wma "
    ".wmv .wv"
).split()


@dataclass(frozen=True, slots=True)
class Source:
    """A file to do, or a folder with what is wrong with it."""

    file: Path
    name: Path  # within the folder that was named
    problem: str = ""

    @property
    def size(self) -> int:
        """Bytes; 0 of what is not there, which is told when it is its turn."""
        seen = None if self.problem else version(self.file)
        return seen[1] if seen else 0


def version(file: Path) -> tuple[int, int] | None:
    """When it was last written, and its size. Both stay while nobody writes to it."""
    try:
        seen = file.stat()
    except OSError:
        return None
    return seen.st_mtime_ns, seen.st_size


def sources(arguments: Sequence[Path]) -> list[Source]:
    """Files in the order given, those of a folder sorted; each once."""
    found: dict[str, Source] = {}
    for argument in arguments:
        for source in _in_folder(argument) if argument.is_dir() else [Source(argument, Path(argument.name))]:
            found.setdefault(os.path.abspath(source.file), source)  # noqa: PTH100 - Path's leaves a/../a
    return list(found.values())


def targets(wanted: Sequence[Source], output: Path, form: Format) -> dict[Path, Path]:
    """Where each file's transcript goes. Raises BadInput when two would overwrite each other.

    talk.mp3's is talk.txt; beside talk.wav both keep their whole names.
    """
    short = {
        source.file: output / source.name.parent / (source.name.stem + _SUFFIX[form]) for source in wanted
    }
    times = Counter(short.values())
    found: dict[Path, Path] = {}
    taken: dict[Path, Path] = {}
    for source in wanted:
        target = short[source.file]
        if times[target] > 1:
            target = target.with_name(source.name.name + _SUFFIX[form])
        if target in taken:
            raise BadInput(
                f"{taken[target]} and {source.file} would both be written to {target}: name a folder that holds both, "
                "or give them to separate commands"
            )
        taken[target] = source.file
        found[source.file] = target
    return found


def is_done(file: Path, target: Path) -> bool:
    """Whether the transcript is there and newer than its file."""
    read, written = version(file), version(target)
    return read is not None and written is not None and written[0] > read[0]


def write(target: Path, transcript: str) -> None:
    """All of it or nothing, also when we are killed or the disk is full. Raises BadInput."""
    part = target.with_name(f".{secrets.token_hex(6)}.part")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        try:
            with part.open("w", encoding="utf-8") as file:
                file.write(transcript)
                file.flush()
                os.fsync(file.fileno())
            part.replace(target)
        finally:
            part.unlink(missing_ok=True)
    except OSError as error:
        raise BadInput(f"cannot write {target}: {error.strerror}") from error


def _in_folder(folder: Path) -> list[Source]:
    """Its audio and video, at any depth. Links to folders are not followed: they may lead round in circles."""
    files: list[Path] = []
    problems: list[Source] = []

    def unreadable(error: OSError) -> None:
        problems.append(Source(Path(error.filename), Path(), f"cannot be read: {error.strerror}"))

    for at, below, names in os.walk(folder, onerror=unreadable):
        below[:] = [name for name in below if not name.startswith(".")]
        files += [Path(at, name) for name in names if _wanted(name)]
    if not files and not problems:
        looked_for = " ".join(EXTENSIONS)
        problems.append(Source(folder, Path(), f"holds no audio or video; looked for {looked_for}"))
    return [*(Source(file, file.relative_to(folder)) for file in sorted(files)), *problems]


def _wanted(name: str) -> bool:
    return not name.startswith(".") and Path(name).suffix.lower() in EXTENSIONS
