"""`streamscribe keys`: make, list and end API keys, in a file or in Redis. Gateways notice within seconds."""

import asyncio
import os
import shutil
import tempfile
from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Protocol

import tomlkit
from pydantic import ValidationError
from rich.console import Console
from rich.table import Table

from gateway.keyring import read_key_file
from shared.access import Key, new_secret
from shared.errors import BadInput, Misconfigured
from shared.redis_client import RedisClients, translated
from shared.settings import AuthSettings, RedisSettings

_ERR = Console(stderr=True, highlight=False)


class Store(Protocol):
    """Where keys are kept."""

    def read(self) -> dict[str, Key]: ...

    def write(self, key_id: str, key: Key) -> None: ...


class FileStore:
    """A TOML file; comments and order in it are kept."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def read(self) -> dict[str, Key]:
        return read_key_file(self._path) if self._path.exists() else {}

    def write(self, key_id: str, key: Key) -> None:
        self.read()  # a broken file is not written over
        page = tomlkit.parse(self._path.read_text(encoding="utf-8") if self._path.exists() else "")
        keys = page.setdefault("keys", tomlkit.table(is_super_table=True))
        keys[key_id] = key.model_dump(exclude_none=True, exclude_defaults=True)
        try:
            _replace(self._path, tomlkit.dumps(page))
        except OSError as error:
            raise Misconfigured(f"cannot write {self._path}: {error.strerror}") from error


class RedisStore:
    """A hash in Redis, for all gateways at once."""

    def __init__(self, settings: RedisSettings) -> None:
        self._settings = settings

    def read(self) -> dict[str, Key]:
        stored = self._ask(lambda c: c.commands.hgetall(c.keys.access()))
        try:
            return {key_id.decode(): Key.model_validate_json(raw) for key_id, raw in stored.items()}
        except ValidationError as error:
            raise Misconfigured(f"a key in Redis is broken: {error.errors(include_input=False)[0]}") from None

    def write(self, key_id: str, key: Key) -> None:
        self._ask(lambda c: c.commands.hset(c.keys.access(), key_id, key.model_dump_json(exclude_none=True)))

    def _ask(self, what: Callable[[RedisClients], Awaitable[Any]]) -> Any:
        async def ask() -> Any:
            clients = RedisClients(self._settings)
            try:
                with translated():
                    return await what(clients)
            finally:
                await clients.stop()

        return asyncio.run(ask())


def store_of(file: Path | None, redis: RedisSettings) -> Store:
    """The file given, or the gateway's, or Redis. Raises Misconfigured when there is neither."""
    if path := file or AuthSettings().keys_file:
        return FileStore(path)
    if redis.url:
        return RedisStore(redis)
    raise Misconfigured(
        "keys need a place: give --file or SCRIBE_AUTH_KEYS_FILE, or a Redis with --redis-url or SCRIBE_REDIS_URL"
    )


def add(store: Store, fields: dict[str, Any]) -> None:
    """Make a key and print its secret, which is not kept anywhere."""
    key_id, secret = new_secret()
    store.write(key_id, Key.new(secret, **fields))
    _ERR.print(f"key {key_id} for {fields['name']}; its secret is shown this once:", style="dim")
    print(secret)


def show(store: Store) -> None:
    """All keys, without anything secret."""
    table = Table("key", "name", "scopes", "limits", "expires")
    for key_id, key in sorted(store.read().items(), key=lambda item: (item[1].name, item[0])):
        limits = ", ".join(
            f"{name} {value:g}" for name, value in key.limits.model_dump(exclude_none=True).items()
        )
        until = f"{key.expires:%Y-%m-%d %H:%M}" if key.expires else "never"
        table.add_row(
            key_id, key.name, " ".join(key.scopes), limits, f"{until} (over)" if key.expired else until
        )
    Console(highlight=False).print(table)


def revoke(store: Store, key_id: str) -> None:
    """End a key now. It stays listed: the last key's end must not open a gateway to everybody."""
    keys = store.read()
    if key_id not in keys:
        raise BadInput(f"no key {key_id!r}: `streamscribe keys list` shows their ids, in the first column")
    store.write(key_id, keys[key_id].model_copy(update={"expires": datetime.now(UTC)}))
    _ERR.print(f"key {key_id} ({keys[key_id].name}) is over; gateways notice within seconds")


def _replace(path: Path, text: str) -> None:
    """In one step, so that no gateway reads half of it; a new file has mode 600."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
        if path.exists():  # the gateway's user must still be able to read it
            before = path.stat()
            shutil.copymode(path, temporary)
            with suppress(PermissionError):
                os.chown(temporary, before.st_uid, before.st_gid)
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
