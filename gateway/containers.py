"""Names the container or codec that a file's first bytes belong to."""

# (offset, signature, what it is). Random PCM starts like a given four bytes once in 2^32 sessions.
_SIGNATURES = (
    (0, b"RIFF", "a WAV file"),
    (0, b"RIFX", "a WAV file"),
    (0, b"RF64", "a WAV file"),
    (0, b"OggS", "an Ogg file (Opus, Vorbis or Speex)"),
    (0, b"fLaC", "a FLAC file"),
    (0, b"ID3\x02", "an MP3 file"),
    (0, b"ID3\x03", "an MP3 file"),
    (0, b"ID3\x04", "an MP3 file"),
    (0, b"\x1aE\xdf\xa3", "a WebM or Matroska file"),
    (4, b"ftyp", "an MP4 (m4a) file"),
    (0, b"#!AMR", "an AMR file"),
    (0, b".snd", "a Sun AU file"),
    (0, b"FORM", "an AIFF file"),
    (0, b"caff", "a CAF file"),
    (0, b"NIST_1A", "a NIST SPHERE file"),
)
_AGREEING_FRAMES = 5  # MPEG sync words occur in PCM; five headers at the distances they announce do not

# MPEG audio layer III by version bits: bit rates by index, sample rates, bytes per frame = factor * bits / rate.
_KBPS_1 = (0, 32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320)
_KBPS_2 = (0, 8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 144, 160)
_LAYER_3 = {
    3: (_KBPS_1, (44_100, 48_000, 32_000), 144),
    2: (_KBPS_2, (22_050, 24_000, 16_000), 72),
    0: (_KBPS_2, (11_025, 12_000, 8_000), 72),
}


def container_of(head: bytes) -> str | None:
    """The kind of file that starts like this, with its article; None for everything else."""
    return _signed(head) or _mpeg(head)


def _signed(head: bytes) -> str | None:
    return next((what for at, mark, what in _SIGNATURES if head[at : at + len(mark)] == mark), None)


def _mpeg(head: bytes) -> str | None:
    for name, frame_bytes in (("an MP3 file", _mp3_frame_bytes), ("an AAC (ADTS) file", _adts_frame_bytes)):
        at = agreeing = 0
        while (size := frame_bytes(head[at : at + 6])) and head[at : at + 2] == head[:2]:
            at, agreeing = at + size, agreeing + 1
            if agreeing == _AGREEING_FRAMES:
                return name
    return None


def _mp3_frame_bytes(header: bytes) -> int:
    """Bytes from this layer III frame header to the next; 0 when it is none."""
    if len(header) < 4 or header[0] != 0xFF or header[1] & 0xE6 != 0xE2:
        return 0
    version, bit_rate, rate = header[1] >> 3 & 3, header[2] >> 4, header[2] >> 2 & 3
    if version not in _LAYER_3 or bit_rate in (0, 15) or rate == 3:
        return 0
    kbps, rates, factor = _LAYER_3[version]
    return factor * kbps[bit_rate] * 1_000 // rates[rate] + (header[2] >> 1 & 1)


def _adts_frame_bytes(header: bytes) -> int:
    """Bytes from this ADTS frame header to the next; 0 when it is none."""
    if len(header) < 6 or header[0] != 0xFF or header[1] & 0xF6 != 0xF0 or header[2] >> 2 & 15 > 12:
        return 0
    size = (header[3] & 3) << 11 | header[4] << 3 | header[5] >> 5
    return size if size > 7 else 0
