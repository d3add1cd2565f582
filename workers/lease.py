"""A thread that keeps this worker's lease and heartbeats alive. Inference and a blocked event loop can't starve it."""

import json
import threading
from collections.abc import Callable, Mapping

import structlog

from shared.errors import ScribeError
from shared.keys import Keys
from shared.redis_client import GROUP, script_source, sync_client, translated
from shared.settings import RedisSettings
from workers.tokens import Token

log = structlog.get_logger()

HEARTBEAT_TTL_S = 10


class LeaseKeeper:
    """Renews the token in hand, and tells the fleet that this worker takes work.

    A lease that could not be renewed in time is no concern of the worker: when a peer has taken the token over, the
    fence refuses the commit; when none has, the commit is as good as ever.
    """

    def __init__(
        self, settings: RedisSettings, schemas: Mapping[str, int], consumer: str, lease_s: float
    ) -> None:
        self._redis = sync_client(settings)
        self._renewal = self._redis.register_script(script_source("renew"))
        self._heartbeat = self._redis.register_script(script_source("beat"))
        self._keys = Keys(settings.prefix, settings.partitions)
        self._schemas = schemas  # of each stage served
        self._consumer = consumer
        # Four chances to renew before a lease runs out.
        self._interval_s = lease_s / 4
        self._held: Token | None = None
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
        if self._thread.is_alive():
            self._thread.join()
        self._redis.close()

    def hold(self, token: Token | None) -> None:
        """Renew this one from now on, and no other."""
        self._held = token

    def _run(self) -> None:
        while True:
            for work in (self._renew, self._beat):
                self._try(work)
            if self._stopping.wait(self._interval_s):
                break
        self._try(self._leave)

    def _try(self, work: Callable[[], None]) -> None:
        try:
            with translated():
                work()
        except ScribeError as error:
            # The next round tries again; if Redis stays away, so do the peers who could take our token.
            log.warning("lease_thread_failed", doing=work.__name__, error=str(error))
        except Exception:
            # The top of the thread: whatever it is, without the thread the worker would look dead.
            log.exception("lease_thread_failed", doing=work.__name__)

    def _renew(self) -> None:
        if token := self._held:
            self._renewal(keys=[token.ready], args=[GROUP, self._consumer, token.id])

    def _beat(self) -> None:
        if not self._beating:
            self._leave()
            return
        for stage, schema in self._schemas.items():
            beat = json.dumps({"in_flight": int(self._held is not None), "schema": schema})
            ttl_ms = HEARTBEAT_TTL_S * 1000
            self._heartbeat(keys=[self._keys.workers(stage)], args=[self._consumer, ttl_ms, beat])

    def _leave(self) -> None:
        for stage in self._schemas:
            self._redis.hdel(self._keys.workers(stage), self._consumer)
