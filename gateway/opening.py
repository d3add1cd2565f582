"""What a client's audio is, from its first bytes: mostly those of its first message."""

import asyncio

from gateway.audio import AudioDecoder, WavDecoder
from gateway.container_stream import ContainerDecoders
from gateway.containers import KNOWN, Container, container_of, undecided
from gateway.lines import Lines
from gateway.pcm import Layout
from gateway.rate_check import RateCheck
from gateway.sources import Contained, Samples, Source
from gateway.wav import layout_in
from shared.errors import BadInput
from shared.stream_wire import Start

# A WAV file's format may come after chunks of notes; after so many bytes FFmpeg shall say what is wrong.
_WAV_HEAD = 1 << 16


class Opening:
    """Holds bytes back until they tell. Audio announced as raw need not tell."""

    def __init__(
        self, lines: Lines, decoders: ContainerDecoders, trouble: asyncio.Future[None], check: RateCheck
    ) -> None:
        self._lines = lines
        self._decoders = decoders
        self._trouble = trouble
        self._check = check
        self._options = lines.options
        self.head = b""

    def raw(self) -> Source | None:
        """Where it is known beforehand that raw samples come."""
        goes_on = self._lines.sample > 0
        if self._lines.known_container or not (
            goes_on or self._options.encoding not in ("auto", "container")
        ):
            return None
        return self._samples()

    async def source(self, *, all_there: bool = False) -> Source | None:
        """The source that `head` is for; None where more bytes have to tell. Raises BadInput, Overloaded."""
        kind = container_of(self.head)
        if kind is None:
            return self._uncontained(all_there=all_there)
        layout: Layout | None = None
        try:
            if kind.format == "wav":
                layout = layout_in(self.head)
        except IndexError:
            if not all_there and len(self.head) < _WAV_HEAD:
                return None
        source = self._wav(layout) if layout else await self._contained(kind)
        self._lines.contain()
        return source

    def _uncontained(self, *, all_there: bool) -> Source | None:
        if not all_there and undecided(self.head):
            return None
        if self._lines.known_container:
            raise BadInput("resume: the session is one of a container: send it again from its first byte")
        if self._options.encoding == "container":
            raise BadInput(
                f"no container arrived where encoding=container was announced: send {KNOWN}, or announce how "
                "raw samples are written"
            )
        return self._samples()

    def _samples(self) -> Source:
        return Samples(AudioDecoder(self._options, taken=self._lines.sample), self._lines, self._check)

    def _wav(self, layout: Layout) -> Source:
        options = self._options
        if options.multichannel and layout.channels != options.channels:
            raise BadInput(
                f"a WAV file with {layout.channels} channel(s) arrived where channels={options.channels} was announced"
            )
        taken = self._lines.start.base_theirs
        return Samples(WavDecoder(layout, taken, multichannel=options.multichannel), self._lines)

    async def _contained(self, kind: Container) -> Source:
        channels = self._options.channels if self._options.multichannel else 0
        start = Start(kind.format, channels, skip=self._lines.start.base_theirs)
        return Contained(await self._decoders.open(kind.what, start), self._lines, self._trouble)
