"""The blocking client of a thread that must not depend on the event loop."""

from collections.abc import Callable, Sequence
from time import monotonic
from typing import Any

import redis
from redis.backoff import NoBackoff
from redis.cluster import ClusterNode
from redis.retry import Retry
from redis.sentinel import Sentinel, SentinelConnectionPool

from shared.topology.address import Address
from shared.topology.clients import COMMON, misled
from shared.topology.scripts import Script
from shared.topology.watch import POLL_S

# A thread that renews leases has a few tries a second: the next one is better than waiting for this one.
_OPTIONS: dict[str, Any] = {"socket_timeout": 1, "socket_connect_timeout": 1, **COMMON}


class SyncClient:
    """Connects when first used, so that making one needs no server. Raises redis-py's errors."""

    def __init__(self, address: Address) -> None:
        self._address = address
        self._client: Any = None
        self._pool: Any = None  # with Sentinel: it knows how to ask for the master
        self._asked_at = 0.0

    def register_script(self, source: str) -> Callable[..., Any]:
        """Give a function of `keys` and `args` that runs the script."""
        script = Script(source)

        def run(*, keys: Sequence[str], args: Sequence[Any]) -> Any:
            return self._do(lambda c: script.run_sync(c, keys, args))

        return run

    def hdel(self, key: str, *fields: str) -> int:
        return int(self._do(lambda c: c.hdel(key, *fields)))

    def close(self) -> None:
        if self._client is not None:
            self._client.close()

    def _do(self, work: Callable[[Any], Any]) -> Any:
        if self._client is None:
            self._client = self._connect()
        if self._pool is not None and monotonic() > self._asked_at + POLL_S:
            self._pool.get_master_address()  # drops idle connections when it has moved
            self._asked_at = monotonic()
        try:
            return work(self._client)
        except redis.ResponseError as error:
            if misled(error) and self._address.kind != "cluster":
                self._client.connection_pool.disconnect()
            raise

    def _connect(self) -> Any:
        address = self._address
        options = _OPTIONS | {"retry": Retry(NoBackoff(), 1)} | address.options
        if address.kind == "cluster":
            nodes = [ClusterNode(host, port) for host, port in address.nodes]
            return redis.RedisCluster(startup_nodes=nodes, require_full_coverage=False, **options)
        if address.kind == "single":
            path = options.pop("path", None)
            return redis.Redis(unix_socket_path=path, **options)
        asking = COMMON | {
            "socket_timeout": 0.5,
            "socket_connect_timeout": 0.5,
            "retry": Retry(NoBackoff(), 0),
        }
        sentinel = Sentinel(address.nodes, sentinel_kwargs=asking | address.sentinel_options)
        self._pool = SentinelConnectionPool(address.service, sentinel, **options)
        return redis.Redis.from_pool(self._pool)
