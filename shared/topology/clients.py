"""redis-py's clients for an address.

A failover leaves connections to a server that is not the master any more. It says so (READONLY, NOREPLICAS …) while
redis-py would go on asking it: measured, 11 s until the first write is taken, against 1 s when the connection is
dropped (research/redis-pitfalls.md, fact 2). So such an answer ends the connection, and the next try looks for the
master anew: by asking the Sentinels, or by resolving the host's name.
"""

import re
import ssl
from collections.abc import Mapping
from typing import Any

import redis
import redis.asyncio
from redis.asyncio.cluster import ClusterNode
from redis.asyncio.connection import Connection, ConnectionPool, SSLConnection, UnixDomainSocketConnection
from redis.asyncio.retry import Retry
from redis.asyncio.sentinel import (
    Sentinel,
    SentinelConnectionPool,
    SentinelManagedConnection,
    SentinelManagedSSLConnection,
)
from redis.backoff import NoBackoff
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import ResponseError

from shared.errors import Misconfigured
from shared.topology.address import SHAPES, Address

# First words of the answers of a server that is not, or not yet, or not any more, the one to ask.
MISLED = {"READONLY", "NOREPLICAS", "MASTERDOWN", "UNBLOCKED"}
# More than one gateway has sessions in flight at a time; redis-py fails when the pool is empty instead of waiting.
MAX_CONNECTIONS = 512
COMMON: dict[str, Any] = {"protocol": 3, "legacy_responses": False}


def misled(error: Exception) -> bool:
    """A script's caller puts words in front, so any word counts."""
    return bool(MISLED & set(re.findall(r"[A-Z]{8,}", str(error))))


class _Leaves:
    """A connection that closes itself when its server is the wrong one."""

    async def send_packed_command(self, *args: Any, **kwargs: Any) -> None:
        try:
            await super().send_packed_command(*args, **kwargs)  # type: ignore[misc]
        except AttributeError as error:
            # Closed by another task just before, since the master has moved: redis-py writes to None (8.1).
            if self.is_connected:  # type: ignore[attr-defined]
                raise
            raise RedisConnectionError("the connection was closed meanwhile") from error

    async def read_response(self, *args: Any, **kwargs: Any) -> Any:
        try:
            return await super().read_response(*args, **kwargs)  # type: ignore[misc]
        except ResponseError as error:
            if not misled(error):
                raise
            await self.disconnect()  # type: ignore[attr-defined]
            raise RedisConnectionError(str(error)) from error


class _Plain(_Leaves, Connection):
    pass


class _Tls(_Leaves, SSLConnection):
    pass


class _Unix(_Leaves, UnixDomainSocketConnection):
    pass


class _Master(_Leaves, SentinelManagedConnection):
    pass


class _MasterTls(_Leaves, SentinelManagedSSLConnection):
    pass


def client(address: Address, sentinel: Sentinel | None, **options: Any) -> Any:
    """An asyncio client. `options` are a connection's. Raises Misconfigured on options that redis-py does not know."""
    options = {"socket_connect_timeout": 2, "max_connections": MAX_CONNECTIONS, **COMMON, **options}
    options |= address.options
    try:
        if address.kind == "cluster":
            return _cluster(address, options)
        tls = options.pop("ssl", False)
        if sentinel:
            kind: Any = _MasterTls if tls else _Master
            pool: Any = SentinelConnectionPool(address.service, sentinel, connection_class=kind, **options)
        else:
            kind = _Unix if "path" in options else _Tls if tls else _Plain
            pool = ConnectionPool(connection_class=kind, **options)
        pool.make_connection()  # only here redis-py looks at the options' names
        return redis.asyncio.Redis.from_pool(pool)
    except TypeError as error:
        raise unknown_option(error) from None
    except (ValueError, ssl.SSLError, redis.RedisError) as error:
        raise Misconfigured(f"SCRIBE_REDIS_URL: {type(error).__name__}. It is {SHAPES}") from None


def _cluster(address: Address, options: dict[str, Any]) -> Any:
    nodes = [ClusterNode(host, port) for host, port in address.nodes]
    return redis.asyncio.RedisCluster(
        startup_nodes=nodes,
        # Partitions of the shards that live go on while another has no primary.
        require_full_coverage=False,
        # A slot that moved is learned by itself; redis-py's way of reading all anew closes connections in use
        # (redis-py PR 4322). Servers that vanished are noticed all the same.
        reinitialize_steps=0,
        **options,
    )


async def xread(cluster: Any, after: Mapping[str, str], block_ms: int) -> Any:
    """XREAD of streams in one slot. redis-py would first ask a server, perhaps a dead one, where the keys are in it."""
    await cluster.initialize()
    node = cluster.get_node_from_key(next(iter(after)))
    words = ["COUNT", 100, "BLOCK", block_ms, "STREAMS", *after.keys(), *after.values()]
    return await cluster.execute_command("XREAD", *words, target_nodes=node)


async def infos(client: Any, section: str, *, cluster: bool) -> list[dict[str, Any]]:
    """INFO of the server, or of each primary."""
    if not cluster:
        return [await client.info(section)]
    found = await client.info(section, target_nodes=client.PRIMARIES)
    several = all(isinstance(each, dict) for each in found.values())
    return list(found.values()) if several else [found]  # redis-py gives that of a single one as it is


def sentinel_of(address: Address) -> Sentinel | None:
    """Short time-outs and no second try: the next Sentinel knows as much."""
    if address.kind != "sentinel":
        return None
    options = {"socket_timeout": 0.5, "socket_connect_timeout": 0.5, "retry": Retry(NoBackoff(), 0), **COMMON}
    try:
        return Sentinel(address.nodes, sentinel_kwargs=options | address.sentinel_options)
    except TypeError as error:
        raise unknown_option(error) from None


def unknown_option(error: TypeError) -> Misconfigured:
    named = re.search(r"argument '(\w+)'", str(error))
    what = f"there is no option {named[1]}" if named else "it has an option that there is not"
    return Misconfigured(f"SCRIBE_REDIS_URL: {what}. It is {SHAPES}")
