"""A thread that keeps this worker's leases and heartbeat alive. Inference and a blocked event loop can't starve it."""

import json
import threading
from collections import defaultdict
from collections.abc import Sequence

import structlog

from shared.clock import wall_ms
from shared.errors import ScribeError
from shared.keys import Keys
from shared.redis_client import GROUP, script_sha, sync_client, translated
from shared.settings import RedisSettings
from workers.tokens import Token

log = structlog.get_logger()

HEARTBEAT_TTL_S = 10


class LeaseKeeper:
    """Renews the tokens it is told to hold, and tells the fleet that this worker takes work."""

    def __init__(self, settings: RedisSettings, stages: Sequence[str], consumer: str, lease_s: float) -> None:
        self._redis = sync_client(settings)
        self._keys = Keys(settings.prefix, settings.partitions)
        self._stages = stages
        self._consumer = consumer
        # Four chances to renew before a lease runs out.
        self._interval_s = lease_s / 4
        self._held: dict[str, Token] = {}
        self._lock = threading.Lock()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="leases", daemon=True)
        self._beating = True

    def start(self) -> None:
        self._thread.start()

    def quiet(self) -> None:
        """Leave the heartbeat set; go on renewing what is in flight."""
        self._beating = False

    def stop(self) -> None:
        self.quiet()
        self._stopping.set()
        self._thread.join()
        self._redis.close()

    def hold(self, token: Token) -> None:
        with self._lock:
            self._held[token.id] = token

    def drop(self, token: Token) -> None:
        with self._lock:
            self._held.pop(token.id, None)

    def _run(self) -> None:
        while True:
            try:
                with translated():
                    self._beat()
                    self._renew()
            except ScribeError as error:
                # The next round tries again; if Redis stays away, so do the peers who could take our tokens.
                log.warning("lease_renewal_failed", error=str(error))
            if self._stopping.wait(self._interval_s):
                break
        try:
            with translated():
                self._leave()
        except ScribeError as error:
            log.warning("heartbeat_not_removed", error=str(error), expires_in_s=HEARTBEAT_TTL_S)

    def _renew(self) -> None:
        by_stream: dict[str, list[str]] = defaultdict(list)
        with self._lock:
            for token in self._held.values():
                by_stream[token.ready].append(token.id)
        source, _ = script_sha("renew")
        for stream, tokens in by_stream.items():
            self._redis.eval(source, 1, stream, GROUP, self._consumer, *tokens)

    def _beat(self) -> None:
        if not self._beating:
            self._leave()
            return
        beat = json.dumps({"seen_ms": wall_ms(), "in_flight": len(self._held)})
        for stage in self._stages:
            self._redis.hset(self._keys.workers(stage), self._consumer, beat)
            self._redis.expire(self._keys.workers(stage), HEARTBEAT_TTL_S)

    def _leave(self) -> None:
        for stage in self._stages:
            self._redis.hdel(self._keys.workers(stage), self._consumer)
