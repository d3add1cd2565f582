"""The API keys in force: those in a file and those in Redis, read again when they change."""

import asyncio
import tomllib
from collections.abc import Mapping
from pathlib import Path

import structlog
from pydantic import BaseModel, ConfigDict, ValidationError

from shared.access import Key
from shared.errors import Misconfigured, ScribeError
from shared.redis_client import RedisClients, translated
from shared.tasks import cancel

log = structlog.get_logger()

# A revoked key is refused this long after at the latest.
RELOAD_S = 2.0


class KeyFile(BaseModel):
    """The TOML file: one table [keys.ID] for each key."""

    model_config = ConfigDict(extra="forbid")

    keys: dict[str, Key] = {}


def read_key_file(path: Path) -> dict[str, Key]:
    """Keys by id. Raises Misconfigured, naming what is wrong but never a value: it may be a secret."""
    try:
        return KeyFile.model_validate(tomllib.loads(path.read_text(encoding="utf-8"))).keys
    except OSError as error:
        raise Misconfigured(f"cannot read the keys in {path}: {error.strerror}") from error
    except ValidationError as error:
        raise Misconfigured(f"{path}: {_where(error)}") from None
    except ValueError as error:
        raise Misconfigured(f"{path} is no TOML: {error}") from error


class KeyRing:
    """start ──> reloading ──stop──> stopped. Look-ups never wait."""

    def __init__(self, clients: RedisClients, file: Path | None) -> None:
        self._clients = clients
        self._file = file
        self._file_seen: tuple[int, ...] = ()
        self._from_file: Mapping[str, Key] = {}
        self._from_redis: Mapping[str, Key] = {}
        self._task: asyncio.Task[None] | None = None
        # Once there were keys, losing the last one lets nobody in: it must not open the door.
        self.configured = file is not None

    async def start(self) -> None:
        """Read all keys. Raises Misconfigured for a broken file: at the start there are no last good ones."""
        if self._file:
            self._from_file, self._file_seen = read_key_file(self._file), _stamp(self._file)
        await self._read_redis()
        self._task = asyncio.create_task(self._run(), name="key ring")

    def quiet(self) -> None:
        """Nothing to stop taking: running sessions still need the keys."""

    async def stop(self, _deadline_s: float = 0) -> None:
        await cancel([self._task])

    def find(self, key_id: str) -> Key | None:
        return self._from_file.get(key_id) or self._from_redis.get(key_id)

    async def reload(self) -> None:
        """Read what has changed. What can't be read leaves the last good keys in force."""
        try:
            if self._file and (stamp := _stamp(self._file)) != self._file_seen:
                self._file_seen = stamp
                self._from_file = read_key_file(self._file)
                log.info("keys_reloaded", file=str(self._file), keys=len(self._from_file))
        except Misconfigured as error:
            log.error("keys_not_reloaded", why=str(error), still_valid=sorted(self._from_file))  # noqa: TRY400
        try:
            await self._read_redis()
        except ScribeError as error:
            log.warning("keys_in_redis_not_read", why=str(error), still_valid=sorted(self._from_redis))

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(RELOAD_S)
            try:
                await self.reload()
            except Exception:
                # The top of the loop: without it a revoked key would open the door for ever.
                log.exception("key_ring_failed")

    async def _read_redis(self) -> None:
        with translated():
            stored: dict[bytes, bytes] = await self._clients.commands.hgetall(self._clients.keys.access())
        found = {}
        for key_id, raw in stored.items():
            try:
                found[key_id.decode()] = Key.model_validate_json(raw)
            except ValidationError as error:
                log.error("key_in_redis_is_broken", key=key_id.decode(errors="replace"), why=_where(error))  # noqa: TRY400
        self._from_redis = found
        self.configured = self.configured or bool(stored)


def _stamp(file: Path) -> tuple[int, ...]:
    """What changes when a file is written or replaced; empty when there is none."""
    try:
        found = file.stat()
    except OSError:
        return ()
    return found.st_mtime_ns, found.st_size, found.st_ino


def _where(error: ValidationError) -> str:
    first = error.errors(include_input=False)[0]
    return f"{'.'.join(str(part) for part in first['loc'])}: {first['msg']}"
