"""What a fleet uses, from outside: /proc for its processes, INFO for its Redis."""

from dataclasses import dataclass

import psutil

from shared.redis_client import RedisClients


@dataclass(frozen=True)
class Sample:
    """One look. `memory` is each process's RSS in bytes; the other counts are over all processes but Redis."""

    seconds: float
    memory: dict[str, int]
    threads: int
    files: int
    redis_bytes: int
    keys: int
    sessions: int  # over so far

    def series(self) -> dict[str, int]:
        """Everything that must not grow, by name."""
        counts = {name: getattr(self, name) for name in ("threads", "files", "redis_bytes", "keys")}
        return {f"memory of {name}": rss for name, rss in self.memory.items()} | counts


class Meters:
    """Reads the children of this process, which are the fleet's parts."""

    def __init__(self, clients: RedisClients) -> None:
        self._clients = clients
        found = {_name(process): process for process in psutil.Process().children(recursive=True)}
        self._processes = {name: process for name, process in sorted(found.items()) if name}

    async def read(self, seconds: float, sessions: int) -> Sample:
        """Raises psutil.NoSuchProcess when a part of the fleet has died."""
        memory = {name: process.memory_info().rss for name, process in self._processes.items()}
        info = await self._clients.commands.info("memory")
        return Sample(
            seconds,
            memory,
            sum(process.num_threads() for process in self._processes.values()),
            sum(process.num_fds() for process in self._processes.values()),
            info["used_memory"],
            await self._clients.commands.dbsize(),
            sessions,
        )


def _name(process: psutil.Process) -> str:
    """Of a gateway or worker, with its number; empty for the rest: Redis is asked for its own figures."""
    words = process.cmdline()
    if "-m" not in words:
        return ""
    module, *stages = words[words.index("-m") + 1 :]
    return " ".join([module.removesuffix("s"), *stages, *([f"({process.pid})"] if stages else [])])
