"""`streamscribe transcribe -`: what comes in on standard input, as one session, told while it goes on."""

import asyncio
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import nullcontext
from pathlib import Path
from tempfile import NamedTemporaryFile

from rich.console import Console

from gateway.containers import container_of, undecided
from ops.batch_bars import Bars
from ops.captions import Captions
from ops.client import StreamClient
from ops.formats import Format, render
from ops.interrupt import at_interrupt
from ops.standard_input import StandardInput
from ops.streaming import Heard, converse, stream_pcm
from ops.target import gateway_at
from ops.transcribe import INTERRUPTED, Job
from shared.errors import BadInput, ScribeError
from shared.events import Final
from shared.media import MediaDecoder
from shared.protocol import Advice, SessionOptions

NAME = Path("standard input")
# Gateways end sessions that are silent for 60 s.
_IDLE_S = 10.0
_MOST_BYTES = 4 << 30
# Their index mostly comes last, and a gateway keeps less of them than a disk does.
_INDEXED = {"mov"}


def transcribe_input(job: Job, raw_hz: int | None, console: Console) -> int:
    """Print each utterance when it is finished; on a terminal as captions, that is, also while it is not. The exit code.

    `raw_hz`: it is s16le samples of one channel at this rate; None: a container that says what it is.
    """
    if sys.stdin.isatty():
        raise BadInput(
            "standard input is a terminal: pipe audio in, as in `arecord | streamscribe transcribe -`"
        )
    return asyncio.run(_transcribe(job, raw_hz, console))


async def _transcribe(job: Job, raw_hz: int | None, console: Console) -> int:
    audio = StandardInput()
    printer = _Printer(job.form)
    bars = Bars(console, {NAME: 0}, live=console.is_interactive and not printer.captions)
    interrupted = asyncio.Event()

    def stop() -> None:
        interrupted.set()
        audio.end()  # the last words are still told

    def advised(advice: Advice) -> None:
        bars.say(f"{NAME}: {advice.message}", style="yellow")

    def heard(new: Heard) -> None:
        bars.heard(NAME, new.event.through_ms / 1000)
        printer.show(new)

    error = ""
    async with gateway_at(job.url) as url:
        with at_interrupt(stop), bars, printer.captions or nullcontext():
            bars.opened(NAME, None)
            try:
                if raw_hz:
                    options = SessionOptions(encoding="pcm_s16le", sample_rate=raw_hz)
                    client = StreamClient(url, options, key=job.key, advised=advised)
                    await _live(client, audio.pieces(_IDLE_S), heard)
                else:
                    await _container(job, audio, url, heard)
            except ScribeError as failed:
                error = f"{NAME}: {failed}"
    printer.end()
    bars.finished(NAME, error)
    bars.summary()
    return INTERRUPTED if interrupted.is_set() else 1 if error else 0


async def _container(job: Job, audio: StandardInput, url: str, heard: Callable[[Heard], None]) -> None:
    """Sent as it comes where the gateway decodes it as it comes; else told when it is whole."""
    pieces = audio.pieces(_IDLE_S)
    head = b""
    while undecided(head) and (piece := await anext(pieces, None)) is not None:
        head += piece
    kind = container_of(head)
    whole = _joined(head, pieces)
    if kind and kind.format not in _INDEXED:
        client = StreamClient(url, SessionOptions(encoding="container"), key=job.key)
        await _live(client, whole, heard)
    else:
        await _spooled(job, whole, url, heard)


async def _live(client: StreamClient, pieces: AsyncIterator[bytes], heard: Callable[[Heard], None]) -> None:
    async with client:

        async def send(moved: Callable[[int], None]) -> None:
            async for piece in pieces:
                if piece:
                    await client.send(piece)
                    moved(len(piece))
                else:
                    await client.ping()
            await client.end()

        await converse(client, send, on_event=heard)


async def _spooled(job: Job, pieces: AsyncIterator[bytes], url: str, heard: Callable[[Heard], None]) -> None:
    with NamedTemporaryFile(prefix="streamscribe-") as spool, MediaDecoder() as decoder:
        async for piece in pieces:
            await asyncio.to_thread(spool.write, piece)
            if spool.tell() > _MOST_BYTES:
                raise BadInput(f"more than {_MOST_BYTES >> 30} GB: give it as a file")
        spool.flush()
        try:
            pcm = await asyncio.to_thread(decoder.decode, Path(spool.name))
        except BadInput as error:
            raise BadInput(str(error).removeprefix(f"{spool.name}: ")) from error
    await stream_pcm(url, pcm, key=job.key, on_event=heard)


async def _joined(head: bytes, rest: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    if head:
        yield head
    async for piece in rest:
        yield piece


class _Printer:
    """Finals to standard output as they come. Subtitles only at the end: players want them whole."""

    def __init__(self, form: Format) -> None:
        self.captions = Captions() if form == "text" and sys.stdout.isatty() else None
        self._form = form
        self._at_once = form in ("text", "jsonl")
        self._finals: list[Final] = []

    def show(self, new: Heard) -> None:
        if self.captions:
            self.captions.show(new.event)
        elif isinstance(new.event, Final):
            if self._at_once:
                print(render([new.event], self._form), end="", flush=True)
            else:
                self._finals.append(new.event)

    def end(self) -> None:
        """Also after a failure: what was heard before it counts."""
        if not self._at_once:
            print(render(self._finals, self._form), end="")
