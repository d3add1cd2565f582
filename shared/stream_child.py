"""The process that decodes one untrusted container while it comes in, for gateway/container_stream.py. Run by its path.

    stream_child.py MEMORY_BYTES CPU_S SPOOL_BYTES

It speaks shared/stream_wire.py on its standard input and output, and ends after one container. What it has been given is decoded
at once, as far as it goes: FFmpeg asks for more bytes only when it has used up those it had, so that is when a mark is passed on.
"""

import io
import os
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO

import av

sys.path.insert(0, str(Path(__file__).parents[1]))
from shared import stream_wire as wire
from shared.audio_frames import FlacFrames, Mp3Frames
from shared.media_sandbox import Block, Interleave, Refused, To16k, allow_cpu, confine

_READ = 32_768
# Without them FFmpeg listens to 5 s or 5 MB before it gives the first sample. "nobuffer" would drop what it has heard.
_AT_ONCE = {"probesize": "32", "analyzeduration": "0", "protocol_whitelist": "none"}
_CODEC = {FlacFrames: "flac", Mp3Frames: "mp3"}


def _nothing() -> None:
    pass


class Output:
    """Decoded audio on its way to the parent."""

    def __init__(self, stream: BinaryIO, start: wire.Start) -> None:
        self._stream = stream
        self._channels = start.channels
        self._skip = start.skip
        self._resampler = To16k(max(1, start.channels), quick=True)
        self._blocks_of = Interleave()
        self.taken = 0  # samples of each channel, at the container's rate

    def frame(self, frame: Any) -> None:
        for block, rate in self._blocks_of(frame):
            skipped = max(0, min(self._skip - self.taken, len(block)))
            self.taken += len(block)
            self._pcm(self._resampler.feed(self._mixed(block)[skipped:], rate))

    def mark(self, token: bytes) -> None:
        if self.taken >= self._skip:
            self._pcm(self._resampler.finish())
        self.say(wire.MARK, wire.PLACE.pack(self.taken) + token)

    def end(self) -> None:
        if not self.taken:
            raise Refused("it holds no audio")
        self._pcm(self._resampler.finish())
        self.say(wire.DONE)

    def say(self, kind: bytes, payload: bytes = b"") -> None:
        wire.give(self._stream, kind, payload)

    def _mixed(self, block: Block) -> Any:
        channels = block.shape[1]
        if not self._channels:
            return block.mean(axis=1)
        if channels != self._channels:
            raise Refused(f"it has {channels} channel(s) where channels={self._channels} was announced")
        return block if channels > 1 else block[:, 0]

    def _pcm(self, pcm: bytes) -> None:
        if pcm:
            self.say(wire.PCM, pcm)


class Input:
    """What the parent sends, as a file that can only be read on."""

    def __init__(self, stream: BinaryIO, output: Output, cpu_s: int) -> None:
        self._stream = stream
        self._output = output
        self._cpu_s = cpu_s
        self._data = b""
        self._at = 0
        self._over = False
        self.before_mark: Callable[[], None] = _nothing

    def read(self, size: int) -> bytes:
        """At most so many bytes, but at least one unless it is the end."""
        while self._at == len(self._data) and not self._over:
            self._hear()
        piece = self._data[self._at : self._at + size]
        self._at += len(piece)
        return piece

    def rest(self) -> None:
        """Hear the parent out, where the container ends before its input."""
        while self.read(_READ):
            pass

    def put_back(self, data: bytes) -> None:
        self._data, self._at = data + self._data[self._at :], 0

    def _hear(self) -> None:
        said = wire.take(self._stream)
        if said is None:  # nobody wants the rest
            os._exit(0)
        kind, payload = said
        allow_cpu(self._cpu_s)
        if kind == wire.DATA:
            self._data, self._at = payload, 0
        elif kind == wire.MARK:
            self.before_mark()
            self._output.mark(payload)
        elif kind == wire.PAUSE:
            self._output.say(wire.PAUSE)
        else:
            self._over = True


def decode(name: str, source: Input, output: Output, spool_bytes: int) -> None:
    if name in ("flac", "mp3"):
        _framed(FlacFrames() if name == "flac" else Mp3Frames(), source, output)
    else:
        _demuxed(name, _spooled(source, spool_bytes) if name == "mov" else source, output)
    source.rest()
    output.end()


def _framed(frames: FlacFrames | Mp3Frames, source: Input, output: Output) -> None:
    codec = av.CodecContext.create(_CODEC[type(frames)], "r")

    def play(frame: bytes) -> None:
        if isinstance(frames, FlacFrames) and not codec.extradata:
            codec.extradata = frames.stream_info
        _play(codec, av.Packet(frame), output)

    def before_mark() -> None:
        if frame := frames.at_mark():
            play(frame)

    source.before_mark = before_mark
    while data := source.read(_READ):
        for frame in frames.feed(data):
            play(frame)
    before_mark()
    _play(codec, None, output)


def _demuxed(name: str, source: Input | io.BytesIO, output: Output) -> None:
    """The first audio stream. Damaged packets are left out."""
    container: Any = av.open(source, format=name, options=_AT_ONCE | {"format_whitelist": name})
    with container:
        if not container.streams.audio:
            raise Refused("it has no audio stream")
        for packet in container.demux(container.streams.audio[0]):
            _play(packet.stream.codec_context, packet, output)


def _play(codec: Any, packet: Any, output: Output) -> None:
    with suppress(av.InvalidDataError):
        for frame in codec.decode(packet):
            output.frame(frame)


def _spooled(source: Input, most: int) -> Input | io.BytesIO:
    """An MP4 whose index comes before its samples is read on; else all of it must be there first."""
    heard = b""
    while len(head := _exactly(source, 8)) == 8:
        heard += head
        size, kind = int.from_bytes(head[:4]), head[4:]
        if kind == b"mdat" or not 8 <= size <= most:
            break
        heard += _exactly(
            source, size - 8
        )  # the index too: FFmpeg steps back in it, which it can't over short reads
        if kind in (b"moov", b"moof"):
            source.put_back(heard)
            return source
    whole = io.BytesIO()
    whole.write(heard)
    while data := source.read(_READ):
        if whole.tell() + len(data) > most:
            raise Refused(
                f"its index (moov) comes after its samples, and not within {most >> 20} MB: "
                "write it with -movflags +faststart, or fragmented"
            )
        whole.write(data)
    whole.seek(0)
    return whole


def _exactly(source: Input, size: int) -> bytes:
    data = b""
    while len(data) < size and (piece := source.read(size - len(data))):
        data += piece
    return data


def main(memory_bytes: int, cpu_s: int, spool_bytes: int) -> None:
    confine(memory_bytes)
    said = wire.take(sys.stdin.buffer)
    if said is None:
        return
    start = wire.Start.load(said[1])
    output = Output(sys.stdout.buffer, start)
    try:
        decode(start.format, Input(sys.stdin.buffer, output, cpu_s), output, spool_bytes)
    except Refused as refused:
        output.say(wire.PROBLEM, str(refused).encode())
    except MemoryError:
        output.say(
            wire.PROBLEM, b"it needs more memory to decode than a stream may; convert it with ffmpeg first"
        )
    except (av.FFmpegError, ValueError):
        output.say(wire.PROBLEM, b"FFmpeg can not read it")


if __name__ == "__main__":
    with suppress(BrokenPipeError):
        main(*map(int, sys.argv[1:]))
