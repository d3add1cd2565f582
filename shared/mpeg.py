"""Frame headers of MPEG audio: layer III (MP3) and ADTS (AAC)."""

# Layer III by version bits: bit rates by index, sample rates, bytes per frame = factor * bits / rate.
_KBPS_1 = (0, 32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320)
_KBPS_2 = (0, 8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 144, 160)
_LAYER_3 = {
    3: (_KBPS_1, (44_100, 48_000, 32_000), 144),
    2: (_KBPS_2, (22_050, 24_000, 16_000), 72),
    0: (_KBPS_2, (11_025, 12_000, 8_000), 72),
}


def mp3_frame_bytes(header: bytes) -> int:
    """Bytes from this layer III frame header to the next; 0 when it is none."""
    if len(header) < 4 or header[0] != 0xFF or header[1] & 0xE6 != 0xE2:
        return 0
    version, bit_rate, rate = header[1] >> 3 & 3, header[2] >> 4, header[2] >> 2 & 3
    if version not in _LAYER_3 or bit_rate in (0, 15) or rate == 3:
        return 0
    kbps, rates, factor = _LAYER_3[version]
    return factor * kbps[bit_rate] * 1_000 // rates[rate] + (header[2] >> 1 & 1)


def adts_frame_bytes(header: bytes) -> int:
    """Bytes from this ADTS frame header to the next; 0 when it is none."""
    if len(header) < 6 or header[0] != 0xFF or header[1] & 0xF6 != 0xF0 or header[2] >> 2 & 15 > 12:
        return 0
    size = (header[3] & 3) << 11 | header[4] << 3 | header[5] >> 5
    return size if size > 7 else 0
