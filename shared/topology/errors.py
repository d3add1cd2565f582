"""redis-py's errors, and those of our scripts, turned into ours."""

import re
from collections.abc import Iterator
from contextlib import contextmanager

import redis

from shared.errors import (
    BadInput,
    Misconfigured,
    Overloaded,
    RedisUnavailable,
    Replaced,
    ScribeError,
    SessionLost,
    SessionOver,
    Stale,
)
from shared.topology.clients import MISLED

# Errors of our scripts and of servers that have no class in redis-py, by a word of the message.
_BY_WORD: dict[str, type[ScribeError]] = {
    "STALE": Stale,
    "LOST": SessionLost,
    "GONE": SessionOver,
    "TAKEN": Replaced,
    "CONFLICT": BadInput,
    "OOM": Overloaded,
    "MISCONF": RedisUnavailable,  # its disk is full
    # Those of a failover, or of a slot on its way to another shard.
    **dict.fromkeys(MISLED, RedisUnavailable),
    "LOADING": RedisUnavailable,
    "CLUSTERDOWN": RedisUnavailable,
    "TRYAGAIN": RedisUnavailable,
    "MOVED": RedisUnavailable,
    "NOGROUP": RedisUnavailable,
    "NOPERM": Misconfigured,
    "NOAUTH": Misconfigured,
    "WRONGPASS": Misconfigured,
}


@contextmanager
def translated() -> Iterator[None]:
    """Turn redis-py's errors into ours: RedisUnavailable, Overloaded, Stale, BadInput, Misconfigured."""
    try:
        yield
    except redis.OutOfMemoryError as error:
        raise Overloaded("Redis is out of memory") from error
    except (redis.AuthenticationError, redis.exceptions.NoPermissionError) as error:
        raise Misconfigured(f"Redis refused us: {error}") from error
    except redis.exceptions.NoScriptError as error:
        raise RedisUnavailable("Redis has forgotten a script") from error
    except (redis.ConnectionError, redis.TimeoutError) as error:
        raise RedisUnavailable(f"Redis does not answer: {error}") from error
    except (redis.exceptions.ClusterError, redis.RedisClusterException) as error:
        raise _of_cluster(error) from error
    except redis.ResponseError as error:
        # A pipeline puts the command in front, a script's caller "ERR": the first word we know decides.
        kind = next((_BY_WORD[word] for word in re.findall(r"[A-Z]+", str(error)) if word in _BY_WORD), None)
        if kind is None:
            raise
        raise kind(str(error)) from error


def _of_cluster(error: Exception) -> Exception:
    """Of redis-py's own Cluster errors, those that mean a mistake of ours stay as they are."""
    if isinstance(error.__cause__, redis.AuthenticationError):
        return Misconfigured(f"Redis refused us: {error.__cause__}")
    if "Cluster mode is not enabled" in str(error):
        return Misconfigured(
            "SCRIBE_REDIS_URL: this is no Redis Cluster, or its user may not call CLUSTER SLOTS; "
            "for one server use redis://"
        )
    if any(word in str(error) for word in ("must map to the same", "No way to dispatch", "blocked")):
        return error
    return RedisUnavailable(f"Redis Cluster does not answer: {error}")
