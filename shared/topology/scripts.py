"""How a script is called: by its hash, and with its text where the server has forgotten it.

redis-py's own Script loads and calls again, in two commands: a server that forgets in between, as one that is told
SCRIPT FLUSH or fails over at a bad moment, ends the session that called (seen once in 30 runs of that chaos row).
"""

from collections.abc import Sequence
from hashlib import sha1
from typing import Any

from redis.exceptions import NoScriptError


class Script:
    """A Lua text, for clients of both kinds."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._hash = sha1(text.encode(), usedforsecurity=False).hexdigest()

    async def run(self, client: Any, keys: Sequence[str], args: Sequence[Any]) -> Any:
        try:
            return await client.evalsha(self._hash, len(keys), *keys, *args)
        except NoScriptError:
            return await client.eval(self._text, len(keys), *keys, *args)

    def run_sync(self, client: Any, keys: Sequence[str], args: Sequence[Any]) -> Any:
        try:
            return client.evalsha(self._hash, len(keys), *keys, *args)
        except NoScriptError:
            return client.eval(self._text, len(keys), *keys, *args)
