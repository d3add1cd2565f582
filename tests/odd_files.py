"""Files that broke somebody's recogniser, sent as they are with nothing announced: what becomes of each.

python -m tests.odd_files     writes docs/odd-files.md
"""

from pathlib import Path

PAGE = Path(__file__).parents[1] / "docs/odd-files.md"
# File of ../shared/data/odd: what it is; milliseconds heard, or why it is refused.
OUTCOMES: dict[str, tuple[str, int | str]] = {
    "malformed/ffmpeg-missing-chunksize.wav": (
        "streamed by ffmpeg: RIFF and data size 0xFFFFFFFF; stereo (music/tone), 44.1 kHz, 2 channel(s)",
        626,
    ),
    "malformed/issue-819.wav": (
        "bug report: RIFF size 0xFFFFFFBF, data size 0xFFFFFF9B, 16 kHz, 1 channel(s)",
        154,
    ),
    "malformed/enrollment_audio_katie.wav": (
        "data size 57 MB but 0.6 MB present (truncated file), English speech, 16 kHz, 1 channel(s)",
        18342,
    ),
    "malformed/missing_wav_header.wav": (
        "PCM with no RIFF header, extension wav; taken as what is the default, 16 kHz",
        1260,
    ),
    "malformed/only-a-test.wav": ("0 bytes", 0),
    "malformed/awful.wav": (
        "absurd sample rate 1092676, 1092.68 kHz, 1 channel(s)",
        "a WAV file arrived, but its header says 1092676 Hz, which no recorder writes",
    ),
    "malformed/evil.wav": ("chunk HURF instead of data", "a WAV file arrived, but it holds no audio"),
    "malformed/invalid.wav": (
        "30 bytes of text named wav",
        "text arrived where raw pcm_s16le (16000 Hz, 1 channel(s)) was announced: send raw samples, and control messages in text frames",
    ),
    "malformed/cortissimo.wav": ("RF64; not speech, 96 kHz, 2 channel(s)", 186),
    "malformed/broadcastwave_bext.wav": (
        "BWF bext, 8-bit, odd data size; not speech, 22.05 kHz, 1 channel(s)",
        322,
    ),
    "malformed/xmp_full.wav": ("_PMX chunk before data; not speech, 44.1 kHz, 1 channel(s)", 50),
    "malformed/cmn-wo3.wav": ("MP3 stream named .wav (Chinese syllable wo3), 22.05 kHz, 1 channel(s)", 1097),
    "containers/test_audio_16000.mp3": ("little or no speech, 16 kHz, 2 channel(s)", 2556),
    "containers/test_audio_16000.pcm": ("little or no speech; taken as what is the default, 16 kHz", 1013),
    "malformed_scipy/test-44100Hz-le-1ch-4bytes-early-eof-no-data.wav": (
        "tone, 44100Hz-le-1ch-4bytes-early-eof-no-data",
        "a WAV file arrived, but it holds no audio",
    ),
    "malformed_scipy/test-44100Hz-le-1ch-4bytes-early-eof.wav": (
        "tone, 44100Hz-le-1ch-4bytes-early-eof, 44.1 kHz, 1 channel(s)",
        5,
    ),
    "malformed_scipy/test-44100Hz-le-1ch-4bytes-rf64.wav": (
        "tone, 44100Hz-le-1ch-4bytes-rf64, 44.1 kHz, 1 channel(s)",
        100,
    ),
    "malformed_scipy/test-8000Hz-be-3ch-5S-24bit.wav": (
        "tone, 8000Hz-be-3ch-5S-24bit, 8 kHz, 3 channel(s)",
        0,
    ),
    "malformed_scipy/test-8000Hz-le-1ch-1byte-ulaw.wav": (
        "tone, 8000Hz-le-1ch-1byte-ulaw, 8 kHz, 1 channel(s)",
        1,
    ),
    "malformed_scipy/test-8000Hz-le-3ch-5S-24bit-inconsistent.wav": (
        "tone, 8000Hz-le-3ch-5S-24bit-inconsistent, 8 kHz, 3 channel(s)",
        0,
    ),
    "malformed_scipy/test-8000Hz-le-3ch-5S-24bit.wav": (
        "tone, 8000Hz-le-3ch-5S-24bit, 8 kHz, 3 channel(s)",
        0,
    ),
    "malformed_scipy/test-8000Hz-le-3ch-5S-64bit.wav": (
        "tone, 8000Hz-le-3ch-5S-64bit, 8 kHz, 3 channel(s)",
        0,
    ),
    "malformed_scipy/test-8000Hz-le-4ch-9S-12bit.wav": (
        "tone, 8000Hz-le-4ch-9S-12bit, 8 kHz, 4 channel(s)",
        1,
    ),
    "bitdepth/audio-mono-16-bit-44100Hz.flac": (
        "44.1 kHz speech, bit depth/channels in the name, 44.1 kHz, 1 channel(s)",
        2744,
    ),
    "bitdepth/audio-mono-16-bit-44100Hz.wav": (
        "44.1 kHz speech, bit depth/channels in the name, 44.1 kHz, 1 channel(s)",
        2744,
    ),
    "bitdepth/audio-mono-24-bit-44100Hz.flac": (
        "44.1 kHz speech, bit depth/channels in the name, 44.1 kHz, 1 channel(s)",
        2744,
    ),
    "bitdepth/audio-mono-24-bit-44100Hz.wav": (
        "44.1 kHz speech, bit depth/channels in the name, 44.1 kHz, 1 channel(s)",
        2744,
    ),
    "bitdepth/audio-mono-32-bit-44100Hz.wav": (
        "44.1 kHz speech, bit depth/channels in the name, 44.1 kHz, 1 channel(s)",
        2744,
    ),
    "bitdepth/audio-stereo-16-bit-44100Hz.aiff": (
        "44.1 kHz speech, bit depth/channels in the name, 44.1 kHz, 2 channel(s)",
        2744,
    ),
    "bitdepth/audio-stereo-16-bit-44100Hz.wav": (
        "44.1 kHz speech, bit depth/channels in the name, 44.1 kHz, 2 channel(s)",
        2744,
    ),
    "bitdepth/audio-stereo-24-bit-44100Hz.flac": (
        "44.1 kHz speech, bit depth/channels in the name, 44.1 kHz, 2 channel(s)",
        2744,
    ),
    "bitdepth/audio-stereo-32-bit-44100Hz.wav": (
        "44.1 kHz speech, bit depth/channels in the name, 44.1 kHz, 2 channel(s)",
        2744,
    ),
    "bitdepth/audio-stereo-8-bit-44100Hz.wav": (
        "44.1 kHz speech, bit depth/channels in the name, 44.1 kHz, 2 channel(s)",
        2744,
    ),
    "bitdepth/french.aiff": ("AIFF, French: et c'est la dictée numéro 1, 44.1 kHz, 1 channel(s)", 2532),
    "bitdepth/cold_corpus_24bit.wav": ("24-bit WAVE_FORMAT_EXTENSIBLE, 16 kHz, 1 channel(s)", 25717),
    "bitdepth/cold_corpus_32bit_float.wav": ("32-bit float, 16 kHz, 1 channel(s)", 25717),
    "bitdepth/sources_0.wav": ("64-bit float WAV, stereo, 16 kHz, 2 channel(s)", 4031),
    "bitdepth/remix-normalized.wav": ("192 kHz WAVE_FORMAT_EXTENSIBLE, 192 kHz, 1 channel(s)", 8000),
    "bitdepth/whatstheweatherlike.44khz.wav": ("44.1 kHz mono, 44.1 kHz, 1 channel(s)", 2030),
    "bitdepth/chan3.2chan.wav": ("11.025 kHz stereo, speech, 11.025 kHz, 2 channel(s)", 20871),
    "bitdepth/chan3.sph": ("NIST SPHERE, 11.025 kHz, 1 channel(s)", 20871),
    "rates/sample1_16kHz.wav": ("same English utterance at 8/16/32/48 kHz, 16 kHz, 1 channel(s)", 3448),
    "rates/sample1_32kHz.wav": ("same English utterance at 8/16/32/48 kHz, 32 kHz, 1 channel(s)", 3448),
    "rates/sample1_48kHz.wav": ("same English utterance at 8/16/32/48 kHz, 48 kHz, 1 channel(s)", 3448),
    "rates/sample2_16kHz.wav": ("same English utterance at 8/16/32/48 kHz, 16 kHz, 1 channel(s)", 2880),
    "rates/sample2_48kHz.wav": ("same English utterance at 8/16/32/48 kHz, 48 kHz, 1 channel(s)", 2880),
    "rates/test01_20s_8000.wav": (
        "20 s composite English, 2 s lead/trail silence, 8 kHz, 1 channel(s)",
        24000,
    ),
    "rates/test01_20s_48000.wav": (
        "20 s composite English, 2 s lead/trail silence, 48 kHz, 1 channel(s)",
        23999,
    ),
    "telephony/whatstheweatherlike-mulaw.wav": ("WAV mu-law, 16 kHz, 1 channel(s)", 2030),
    "telephony/alaw.wav": ("WAV codec alaw, short tone, 44.1 kHz, 2 channel(s)", 100),
    "telephony/mulaw.wav": ("WAV codec mulaw, short tone, 44.1 kHz, 2 channel(s)", 100),
    "telephony/gsm610.wav": ("WAV codec gsm610, short tone, 8 kHz, 1 channel(s)", 120),
    "telephony/dvi_adpcm.wav": ("WAV codec dvi_adpcm, short tone, 44.1 kHz, 2 channel(s)", 115),
    "telephony/mpeglayer3.wav": ("WAV codec mpeglayer3, short tone, 44.1 kHz, 2 channel(s)", 130),
    "telephony/fixture.amr": ("AMR, 8 kHz, 1 channel(s)", 840),
    "telephony/fixture.spx": ("Speex, 16 kHz, 1 channel(s)", 720),
    "telephony/lause2.spx": ("Speex, Estonian, 16 kHz, 2 channel(s)", 2840),
    "telephony/test.au": ("Sun AU, 44.1 kHz, 1 channel(s)", 979),
    "containers/jfk.mp3": ("mp3, 16 kHz, 1 channel(s)", 11088),
    "containers/jfk.flac": ("44.1 kHz stereo flac, 44.1 kHz, 2 channel(s)", 11000),
    "containers/8_Channel_ID.m4a": (
        "8-channel m4a, a voice names each channel; crashes a process that uses PyAV in the obvious way",
        8064,
    ),
    "containers/weather.flac": ("flac, 44.1 kHz, 1 channel(s)", 7096),
    "containers/sample1.webm": ("webm, 44.1 kHz, 1 channel(s)", 7115),
    "containers/blank.wav": ("no speech, 22.05 kHz, 2 channel(s)", 1240),
    "containers/good_morning.pcm": (
        "headerless 16 kHz PCM; taken as what is the default, 16 kHz, 16 kHz, 1 channel(s)",
        1007,
    ),
    "containers/p001.aac": (
        "9 s English read speech, same clip in each container, 44.1 kHz, 2 channel(s)",
        9009,
    ),
    "containers/p001.flac": (
        "9 s English read speech, same clip in each container; CORRUPT frames after a valid FLAC header: not decodable by libsndfile+ffmpeg (av.error.InvalidDataError)",
        8986,
    ),
    "containers/p001.mp3": (
        "9 s English read speech, same clip in each container, 44.1 kHz, 2 channel(s)",
        9038,
    ),
    "containers/p001.webm": (
        "9 s English read speech, same clip in each container, 44.1 kHz, 2 channel(s)",
        9013,
    ),
    "containers/silero_test.wav": (
        "60 s English talk with hesitations, VAD fixture, 16 kHz, 1 channel(s)",
        60000,
    ),
    "containers/silero_test.mp3": ("VAD fixture, music/voice, 44.1 kHz, 2 channel(s)", 2560),
    "containers/silero_test.opus": ("VAD fixture, 16 kHz, 1 channel(s)", 8064),
    "containers/common_voice_en_22058264.mp3": ("48 kHz mp3 one word, 48 kHz, 1 channel(s)", 4104),
    "containers/13697_11991_000000.opus": ("Spanish opus, 16 kHz, 1 channel(s)", 14850),
    "filetype/fixture.webm": ("container fixture, not speech, 44.1 kHz, 2 channel(s)", 88),
    "filetype/fixture.m4a": ("container fixture, not speech, 48 kHz, 2 channel(s)", 766),
    "filetype/fixture-adts-mpeg4.aac": ("container fixture, not speech", 16000),
    "filetype/fixture.aif": ("container fixture, not speech, 8 kHz, 2 channel(s)", 2936),
    "filetype/fixture.mkv": ("container fixture, not speech, 44.1 kHz, 2 channel(s)", 69),
    "filetype/fixture-corrupt.mkv": (
        "container fixture, not speech",
        "a WebM or Matroska file arrived, but FFmpeg can not read it",
    ),
    "filetype/fixture-bad-offset.mp3": ("container fixture, not speech, 44.1 kHz, 2 channel(s)", 522),
    "silence/pyannote_empty.wav": (
        "1 s of loud constant-ish garbage (DC -0.58, clipped), not silence despite its name, 16 kHz, 1 channel(s)",
        1000,
    ),
    "silence/silence.wav": ("silence, 16 kHz, 1 channel(s)", 4181),
    "silence/leopard_empty.wav": ("silence/no speech, 16 kHz, 1 channel(s)", 8212),
    "silence/initialSilence5s.wav": ("5 s silence then one weather question, 44.1 kHz, 2 channel(s)", 8374),
    "silence/noise1.wav": ("noise only, 16 kHz, 1 channel(s)", 33123),
    "silence/noise2.wav": ("noise only, 16 kHz, 1 channel(s)", 5000),
    "silence/noise3.wav": ("noise only, 16 kHz, 1 channel(s)", 8428),
    "silence/dtmf-1.wav": ("DTMF tone, 8 kHz, 1 channel(s)", 500),
    "multichannel/two_channel_16k.wav": ("2 channels, different speech, 16 kHz, 2 channel(s)", 6665),
    "multichannel/multi.wav": ("2 channels, 44.1 kHz, 2 channel(s)", 5154),
    "multichannel/stereo_diarization.wav": ("stereo, one voice per channel, 16 kHz, 2 channel(s)", 5000),
    "multichannel/michaelandsickmichael.wav": ("stereo, one voice per channel, 16 kHz, 2 channel(s)", 52440),
    "multichannel/multi_channel_35sec.wav": ("multichannel 35 s, 16 kHz, 2 channel(s)", 35686),
    "multichannel/spk1_snt1_and_2.wav": ("stereo, two different sentences, 16 kHz, 2 channel(s)", 3150),
    "degraded/do_clip_example1.flac": (
        "do_clip of example1 (real speech, simulated damage), 16 kHz, 1 channel(s)",
        3260,
    ),
    "degraded/add_noise_example1.flac": (
        "add_noise of example1 (real speech, simulated damage), 16 kHz, 1 channel(s)",
        3260,
    ),
    "degraded/drop_chunk_example1.flac": (
        "drop_chunk of example1 (real speech, simulated damage), 16 kHz, 1 channel(s)",
        3260,
    ),
    "degraded/drop_freq_example1.flac": (
        "drop_freq of example1 (real speech, simulated damage), 16 kHz, 1 channel(s)",
        3260,
    ),
    "degraded/speed_perturb_example1.flac": (
        "speed_perturb of example1 (real speech, simulated damage), 16 kHz, 1 channel(s)",
        2934,
    ),
    "degraded/speech.wav": ("clean, 16 kHz, 1 channel(s)", 3100),
    "degraded/deepxi_test_clean_speech_FB_FB10_07_voice-babble.wav": (
        "noisy/clean pair, 16 kHz, 1 channel(s)",
        2443,
    ),
    "degraded/deepxi_test_noisy_speech_FB_FB10_07_voice-babble_5dB.wav": (
        "noisy/clean pair, 16 kHz, 1 channel(s)",
        2443,
    ),
    "degraded/gsp1.wav": ("German, 16 kHz, 1 channel(s)", 4700),
}
_HEAD = """# Odd files

Real files that broke somebody's recogniser (`../shared/data/odd`), each sent over the WebSocket as it is, with nothing announced
([protocol.md](protocol.md), What you send). Generated by `python -m tests.odd_files`; `tests/e2e/test_odd_files.py` sends them all.

| file | what it is | outcome |
|---|---|---|
"""


def page() -> str:
    rows = (f"| `{file}` | {what} | {_said(outcome)} |\n" for file, (what, outcome) in OUTCOMES.items())
    return _HEAD + "".join(rows)


def _said(outcome: int | str) -> str:
    return f"refused: {outcome}" if isinstance(outcome, str) else f"heard: {outcome / 1000:.3f} s"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
