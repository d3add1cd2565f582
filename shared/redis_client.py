"""What the rest knows of Redis: three clients, our scripts, our errors. Only shared/topology imports redis too.

Three clients, because one set of rules does not fit all (research: redis-py 8 repeats commands by itself and times
out longer BLOCKs):
- `commands` retries: everything sent through it may be repeated (numbered XADD, fenced scripts, reads);
- `blocking` never retries: a repeated XREADGROUP would skip the entry whose reply was lost;
- `pubsub` checks its connection's health, since a silent one looks like a quiet channel.
"""

from collections.abc import Mapping, Sequence
from importlib.resources import files
from typing import Any

import redis
from redis.asyncio.retry import Retry
from redis.backoff import ExponentialWithJitterBackoff, NoBackoff

from shared.errors import Misconfigured, ScribeError
from shared.keys import STAGES, Keys
from shared.settings import RedisSettings
from shared.topology import address as addresses
from shared.topology import clients as topology
from shared.topology.errors import translated
from shared.topology.scripts import Script
from shared.topology.sync import SyncClient
from shared.topology.watch import MasterWatch

__all__ = ["BLOCK_MS", "GROUP", "RedisClients", "connect", "sync_client", "translated"]

# One group name on every ready stream, so that one blocking read covers all stages of a fused worker
# (ops/decisions/0002).
GROUP = "workers"

# Short blocks, so that a silent server is noticed and a worker told to stop does not wait long.
BLOCK_MS = 1000


class RedisClients:
    """The three clients of one process, its scripts and its key names. Raises Misconfigured on a bad URL."""

    def __init__(self, settings: RedisSettings) -> None:
        self.settings = settings
        self.keys = Keys(settings.prefix, settings.partitions, settings.sharded_pubsub)
        self.ttl_ms = settings.session_ttl_s * 1000
        jitter = ExponentialWithJitterBackoff(base=0.02, cap=0.5)
        self.address = _address(settings)
        sentinel = topology.sentinel_of(self.address)
        patience = BLOCK_MS / 1000 + 2

        def client(**options: Any) -> Any:
            # redis-py's annotations are unions over every protocol version; ours says bytes, and tests say so too.
            return topology.client(self.address, sentinel, **options)

        self.commands = client(retry=Retry(jitter, 3), socket_timeout=2)
        self.blocking = client(retry=Retry(NoBackoff(), 0), socket_timeout=patience)
        self.pubsub = client(retry=Retry(jitter, 3), socket_timeout=patience, health_check_interval=5)
        self._every = (self.commands, self.blocking, self.pubsub)
        self._watch = MasterWatch(sentinel, self.address.service, self._every) if sentinel else None
        self._scripts = {name: Script(script_source(name)) for name in _SCRIPT_NAMES}

    async def run(self, script: str, keys: Sequence[str], args: Sequence[Any]) -> Any:
        """Run a script of shared/scripts."""
        with translated():
            return await self._scripts[script].run(self.commands, keys, args)

    @property
    def cluster(self) -> bool:
        """Whether no command may touch two partitions."""
        return self.address.kind == "cluster"

    async def look_up(self) -> None:
        """Learn where the slots of a Cluster are now, for `pubsub`, which sends no commands that would tell."""
        if self.cluster:
            await self.pubsub.initialize()
            await self.pubsub.nodes_manager.initialize()

    async def peek(self, after: Mapping[str, str], block_ms: int) -> dict[str, list[str]]:
        """Numbers of the newer entries of streams of one partition, taking none; {} after `block_ms` without any."""
        with translated():
            reply = await topology.xread(self.blocking, after, block_ms)
        return {stream.decode(): [i.decode() for i, _ in entries] for stream, entries in reply.items()}

    async def infos(self, section: str) -> list[dict[str, Any]]:
        """INFO of the server, or of each primary of a Cluster."""
        with translated():
            return await topology.infos(self.commands, section, cluster=self.cluster)

    async def meta_field(self, session: str, field: str) -> bytes | None:
        """One field of a session's meta hash; None when the session is gone."""
        with translated():
            value: bytes | None = await self.commands.hget(self.keys.meta(session), field)
        return value

    async def start(self) -> None:
        """Create the consumer groups and agree with the deployment on what can't change later. Again is no harm."""
        if self._watch:
            self._watch.start()
        with translated():
            await self.commands.ping()
            await self.look_up()
            if self.keys.sharded:
                await self._try_sharded()
            await self._agree()
            for partition in range(self.keys.partitions):
                for stage in STAGES:
                    await self.ensure_group(self.keys.ready(partition, stage))

    async def ensure_group(self, ready: str) -> None:
        """Create the group from the beginning: tokens written before the first worker came must not be skipped."""
        try:
            await self.commands.xgroup_create(ready, GROUP, id="0", mkstream=True)
        except redis.ResponseError as error:
            if "BUSYGROUP" not in str(error):
                raise

    async def _agree(self) -> None:
        mine = {"partitions": self.settings.partitions, "sharded_pubsub": int(self.settings.sharded_pubsub)}
        for name, value in mine.items():
            await self.commands.hsetnx(self.keys.deployment(), name, str(value))
            theirs = int(await self.commands.hget(self.keys.deployment(), name) or 0)
            if theirs != value:
                raise Misconfigured(
                    f"this deployment has {name} = {theirs}, this process is set to {value}: set "
                    f"SCRIBE_REDIS_{name.upper()}={theirs}, or another SCRIBE_REDIS_PREFIX for a new deployment"
                )

    async def _try_sharded(self) -> None:
        try:
            await self.commands.execute_command("SPUBLISH", self.keys.channel("probe"), "")
        except redis.ResponseError as error:
            if "unknown command" not in str(error):
                raise
            raise Misconfigured(
                "SCRIBE_REDIS_SHARDED_PUBSUB needs Redis 7.0 or later, or any Valkey: this server has no SPUBLISH"
            ) from error

    async def stop(self) -> None:
        if self._watch:
            await self._watch.stop()
        for client in self._every:
            await client.aclose()


async def connect(settings: RedisSettings) -> RedisClients:
    """Open and check the clients. Raises RedisUnavailable or Misconfigured, saying what to do."""
    clients = RedisClients(settings)
    try:
        await clients.start()
    except ScribeError:
        await clients.stop()
        raise
    return clients


def sync_client(settings: RedisSettings) -> SyncClient:
    """A blocking client for the renewal thread, which must not depend on the event loop."""
    return SyncClient(_address(settings))


_SCRIPT_NAMES = (
    "admit",
    "append",
    "beat",
    "claim",
    "commit",
    "emit",
    "forget",
    "heal",
    "keepalive",
    "load",
    "open",
    "peers",
    "renew",
    "restore",
    "settle",
    "take",
    "waiting",
)


def script_source(name: str) -> str:
    """The Lua text of a script in shared/scripts."""
    return (files("shared") / "scripts" / f"{name}.lua").read_text()


def _address(settings: RedisSettings) -> addresses.Address:
    if settings.partitions & (settings.partitions - 1) or not 1 <= settings.partitions <= 64:
        raise Misconfigured("SCRIBE_REDIS_PARTITIONS must be a power of two from 1 to 64")
    return addresses.parse(settings.url)
