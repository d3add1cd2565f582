"""A TCP proxy between processes and a Redis: loses replies, cuts, delays."""

import asyncio
import hashlib
import random

import hiredis

from shared.redis_client import script_source

# Most lost replies show as a lost connection; one in so many shows as silence, until the client's time-out.
SILENT = 10


class Proxy:
    """`lose`, `cut` and `delay_s` act on all connections; `lost` and `cuts` count what was done."""

    def __init__(self, upstream: tuple[str, int], seed: int) -> None:
        self.delay_s = 0.0
        self.lost = 0
        self.cuts = 0
        self._upstream = upstream
        self._random = random.Random(seed)
        self._name = b""
        self._sha = b""
        self._one_in = 0
        self._seen = 0
        self._is_cut = False
        self._writers: set[asyncio.StreamWriter] = set()

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self._server.sockets[0].getsockname()[1]}/0"

    async def stop(self) -> None:
        self._server.close()
        self._drop_all()
        await self._server.wait_closed()

    def lose(self, command: str, one_in: int) -> None:
        """From now on lose the reply of every so-manieth command: its name, or `EVALSHA script`. It is executed."""
        name, _, script = command.partition(" ")
        self._name, self._one_in = name.encode(), one_in
        self._sha = hashlib.sha1(script_source(script).encode()).hexdigest().encode() if script else b""

    def heal(self) -> None:
        self._name, self.delay_s = b"", 0.0

    async def cut(self, seconds: float) -> None:
        """Drop every connection, and refuse new ones for so long."""
        self._is_cut = True
        self.cuts += 1
        self._drop_all()
        await asyncio.sleep(seconds)
        self._is_cut = False

    def _drop_all(self) -> None:
        for writer in self._writers:
            writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._is_cut:
            writer.transport.abort()
            return
        try:
            up_reader, up_writer = await asyncio.open_connection(*self._upstream)
        except OSError:  # the server is down: so are we
            writer.transport.abort()
            return
        both = {writer, up_writer}
        self._writers |= both
        link = _Link(self)
        tasks = [
            asyncio.create_task(_pump(reader, up_writer, link.request)),
            asyncio.create_task(_pump(up_reader, writer, link.reply)),
        ]
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._writers -= both
        for end in both:
            end.transport.abort()

    def doomed(self, command: list[bytes]) -> bool:
        """Whether this command's reply is to be lost."""
        if not self._name or command[0].upper() != self._name or (self._sha and command[1] != self._sha):
            return False
        self._seen += 1
        return self._seen % self._one_in == 0

    def loses(self) -> bool:
        """Count a lost reply; False when the connection is to go with it."""
        self.lost += 1
        return self._random.randrange(SILENT) == 0


class _Link:
    """One connection. redis-py has one request at a time in flight on it, so the next bytes are its reply."""

    def __init__(self, proxy: Proxy) -> None:
        self._proxy = proxy
        self._commands = hiredis.Reader()
        self._doomed = False
        self._silent = False

    async def request(self, data: bytes) -> bytes | None:
        self._commands.feed(data)
        while (command := self._commands.gets()) is not False:
            self._doomed = self._doomed or self._proxy.doomed(command)
        return data

    async def reply(self, data: bytes) -> bytes | None:
        """What to pass on; None to close."""
        if self._doomed and not self._silent:
            self._silent = self._proxy.loses()
            return b"" if self._silent else None
        await asyncio.sleep(self._proxy.delay_s)
        return b"" if self._silent else data


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, through) -> None:
    while data := await reader.read(1 << 16):
        passed = await through(data)
        if passed is None:
            return
        writer.write(passed)
        await writer.drain()
