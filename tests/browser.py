"""Headless Chromium for tests of the pages: with a microphone that plays a file, and an ear for what goes wrong."""

import asyncio
import wave
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import numpy as np
import pytest
from playwright.async_api import Page, async_playwright

CHROMIUM = Path("/usr/bin/chromium")
# Without the background services, so that nothing but the page asks for anything.
ARGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--use-fake-device-for-media-stream",
)
LETS_IN = "--use-fake-ui-for-media-stream"

needs_chromium = pytest.mark.skipif(
    not CHROMIUM.exists(), reason=f"no {CHROMIUM}: apt-get install chromium, to test the pages"
)


@dataclass
class Visit:
    page: Page
    errors: list[str] = field(default_factory=list)  # on the console, or thrown
    asked: list[str] = field(default_factory=list)  # every address

    def strangers(self, url: str) -> list[str]:
        """Addresses that are not the gateway's own."""
        ours = (url, url.replace("http", "ws", 1), "blob:", "data:")
        return [address for address in self.asked if not address.startswith(ours)]


@asynccontextmanager
async def visit(
    url: str, microphone: Path | None = None, *, allowed: bool = True, **context: Any
) -> AsyncIterator[Visit]:
    """A page open at an address. The microphone plays the WAV file once; without one it beeps. `allowed`: to the page."""
    sound = [f"--use-file-for-fake-audio-capture={microphone}%noloop"] if microphone else []
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(
            executable_path=str(CHROMIUM),
            args=[*ARGS, *sound, LETS_IN if allowed else f"{LETS_IN}=deny"],
            timeout=30_000,
        )
        try:
            page = await (await browser.new_context(**context)).new_page()
            page.set_default_timeout(20_000)
            seen = Visit(page)
            page.on(
                "console", lambda m: seen.errors.append(m.text) if m.type in {"error", "warning"} else None
            )
            page.on("pageerror", lambda error: seen.errors.append(str(error)))
            page.on("request", lambda request: seen.asked.append(request.url))
            page.on("websocket", lambda socket: seen.asked.append(socket.url))
            await page.goto(url)
            yield seen
        finally:
            await browser.close()


def write_wav(path: Path, samples: np.ndarray, rate: int = 16_000) -> Path:
    with wave.open(str(path), "wb") as out:
        out.setnchannels(1)
        out.setsampwidth(2)
        out.setframerate(rate)
        out.writeframes(samples.tobytes())
    return path


class Cable:
    """TCP from a port of its own to another; `cut` is what a train in a tunnel does."""

    def __init__(self, port: int) -> None:
        self._to = port
        self._ends: set[asyncio.StreamWriter] = set()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        self.cut()
        await self._server.wait_closed()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    def cut(self) -> None:
        for end in self._ends:
            end.transport.abort()

    def unplug(self) -> None:
        """Cut, and nobody answers any more."""
        self._server.close()
        self.cut()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        up_reader, up_writer = await asyncio.open_connection("127.0.0.1", self._to)
        both = {writer, up_writer}
        self._ends |= both
        await asyncio.gather(_pump(reader, up_writer), _pump(up_reader, writer))
        self._ends -= both


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while data := await reader.read(1 << 16):
            writer.write(data)
            await writer.drain()
    writer.transport.abort()
