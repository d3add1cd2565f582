"""Names the container or codec that a file's first bytes belong to."""

from typing import NamedTuple

from shared.mpeg import adts_frame_bytes, mp3_frame_bytes


class Container(NamedTuple):
    what: str  # with its article
    format: str  # FFmpeg's name


_WAV = Container("a WAV file", "wav")
_MP3 = Container("an MP3 file", "mp3")
_AAC = Container("an AAC (ADTS) file", "aac")
# (offset, signature, what it is). Random PCM starts like a given four bytes once in 2^32 sessions.
_SIGNATURES = (
    (0, b"RIFF", _WAV),
    (0, b"RIFX", _WAV),
    (0, b"RF64", _WAV),
    (0, b"OggS", Container("an Ogg file (Opus, Vorbis or Speex)", "ogg")),
    (0, b"fLaC", Container("a FLAC file", "flac")),
    (0, b"ID3\x02", _MP3),
    (0, b"ID3\x03", _MP3),
    (0, b"ID3\x04", _MP3),
    (0, b"\x1aE\xdf\xa3", Container("a WebM or Matroska file", "matroska")),
    (4, b"ftyp", Container("an MP4 (m4a) file", "mov")),
    (0, b"#!AMR", Container("an AMR file", "amr")),
    (0, b".snd", Container("a Sun AU file", "au")),
    (0, b"FORM", Container("an AIFF file", "aiff")),
    (0, b"caff", Container("a CAF file", "caf")),
    (0, b"NIST_1A", Container("a NIST SPHERE file", "nistsphere")),
)
KNOWN = "WAV, FLAC, MP3, Ogg, WebM, MP4, AAC, AIFF, AU, CAF, AMR or SPHERE"
_AGREEING_FRAMES = 5  # MPEG sync words occur in PCM; five headers at the distances they announce do not
_HEADER = 6


def container_of(head: bytes) -> Container | None:
    """The kind of file that starts like this; None for everything else."""
    signed = (kind for at, mark, kind in _SIGNATURES if head[at : at + len(mark)] == mark)
    return next(signed, None) or next((kind for kind, agree, _ in _mpeg(head) if agree), None)


def undecided(head: bytes) -> bool:
    """Whether more bytes may make a container of what is none so far."""
    longer = any(
        mark.startswith(head[at : at + len(mark)])
        for at, mark, _ in _SIGNATURES
        if len(head) < at + len(mark)
    )
    return longer or any(more for _, _, more in _mpeg(head))


def _mpeg(head: bytes) -> list[tuple[Container, bool, bool]]:
    """By codec: whether enough frames agree, and whether all that are there do."""
    found = []
    for kind, frame_bytes in ((_MP3, mp3_frame_bytes), (_AAC, adts_frame_bytes)):
        at = agreeing = 0
        while agreeing < _AGREEING_FRAMES and head[at : at + 2] == head[:2]:
            if not (size := frame_bytes(head[at : at + _HEADER])):
                break
            at, agreeing = at + size, agreeing + 1
        found.append(
            (
                kind,
                agreeing == _AGREEING_FRAMES,
                (agreeing > 0 or head[:1] == b"\xff") and len(head) < at + _HEADER,
            )
        )
    return found
