"""Checks of Redis, by doing on scratch keys what gateway and workers do. The keys expire after 10 s."""

import secrets
from collections.abc import AsyncIterator, Awaitable, Iterator
from hashlib import sha1
from typing import Any

from ops.finding import Finding
from ops.topology_check import check_topology
from shared.clock import wall_ms
from shared.errors import Misconfigured, RedisUnavailable, ScribeError
from shared.redis_client import RedisClients, translated
from shared.settings import RedisSettings

# XAUTOCLAIM and exclusive ranges came with 6.2.
_OLDEST = (6, 2)
_SHARDED = (7, 0)
# Latency figures compare stamps of several machines: a skew beyond this makes them useless.
_SKEW_MS = 100
_SCRATCH_TTL_MS = 10_000
_SCRIPT = "return redis.call('HGET', KEYS[1], 'field')"


async def check_redis(settings: RedisSettings) -> AsyncIterator[Finding]:
    """Stops at the first finding that makes the rest meaningless."""
    try:
        clients = RedisClients(settings)
    except Misconfigured as error:
        yield Finding("Redis", "failure", str(error), "see SCRIBE_REDIS_URL in the README")
        return
    try:
        reached = await _reachable(clients)
        yield reached
        if reached.verdict == "failure":
            return
        yield await check_topology(clients)
        yield await _policy(clients)
        yield await _rights(clients)
        yield await _partitions(clients)
        yield await _clock(clients)
    except ScribeError as error:
        yield Finding(
            "Redis", "failure", str(error), "allow this user the commands in the error, then run doctor again"
        )
    finally:
        await clients.stop()


async def _reachable(clients: RedisClients) -> Finding:
    try:
        with translated():
            await clients.commands.ping()
            await clients.look_up()
        infos = await clients.infos("server")
    except ScribeError as error:
        advice = "check that the server runs, and user, password and address in SCRIBE_REDIS_URL"
        return Finding("Redis", "failure", str(error), advice)
    versions = sorted({str(info["redis_version"]) for info in infos}, key=_version)
    found = ", ".join(sorted({_named(info) for info in infos}))
    if _version(versions[0]) < _OLDEST:
        return Finding("Redis", "failure", found, "upgrade to Redis 6.2 or later, or any Valkey")
    if clients.keys.sharded and _version(versions[0]) < _SHARDED:
        return Finding(
            "Redis", "failure", found, "unset SCRIBE_REDIS_SHARDED_PUBSUB, which needs Redis 7.0 or later"
        )
    return Finding("Redis", "ok", found)


def _named(info: dict[str, Any]) -> str:
    name = "Valkey" if "valkey_version" in info else "Redis"
    return f"{name} {info.get('valkey_version', info['redis_version'])}"


def _version(text: str) -> tuple[int, ...]:
    return tuple(map(int, text.split(".")[:2]))


async def _policy(clients: RedisClients) -> Finding:
    policies = {str(info["maxmemory_policy"]) for info in await clients.infos("memory")}
    policy = ", ".join(sorted(policies))
    if policies != {"noeviction"}:
        advice = "set maxmemory-policy noeviction: eviction would delete audio and state of running sessions"
        return Finding("eviction", "failure", policy, advice)
    return Finding("eviction", "ok", policy)


def tried_commands(clients: RedisClients, sid: str) -> Iterator[tuple[Any, ...]]:
    """Every command that gateway, workers and scripts send, on keys of a session that no worker is told about."""
    state, stream = clients.keys.state(sid, "frontend"), clients.keys.inputs(sid, "frontend")
    yield "HSET", state, "field", "1"
    yield "PEXPIRE", state, _SCRATCH_TTL_MS
    yield "HSETNX", state, "field", "1"
    yield "HGET", state, "field"
    yield "HMGET", state, "field"
    yield "HKEYS", state
    yield "HEXISTS", state, "field"
    yield "HINCRBY", state, "field", 1
    yield "HDEL", state, "field"
    yield "XGROUP CREATE", stream, "doctor", "0", "MKSTREAM"
    yield "PEXPIRE", stream, _SCRATCH_TTL_MS
    yield "XADD", stream, "1-0", "k", "audio"
    yield "XRANGE", stream, "-", "+"
    yield "XLEN", stream
    yield "XINFO", "GROUPS", stream
    yield "XREAD", "STREAMS", stream, "0"
    yield "XREADGROUP", "GROUP", "doctor", "doctor", "STREAMS", stream, ">"
    yield "XPENDING", stream, "doctor"
    yield "XCLAIM", stream, "doctor", "doctor", 0, "1-0"
    yield "XAUTOCLAIM", stream, "doctor", "doctor", 0, "0"
    yield "XACK", stream, "doctor", "1-0"
    yield "XDEL", stream, "1-0"
    yield "XTRIM", stream, "MINID", "2-0"
    yield "DEL", clients.keys.events(sid)
    yield "XGROUP DELCONSUMER", stream, "doctor", "doctor"
    yield "ZADD", clients.keys.open_sessions_of(sid), 1, sid
    yield "ZSCORE", clients.keys.open_sessions_of(sid), sid
    yield "ZRANGEBYSCORE", clients.keys.open_sessions_of(sid), 0, 1
    yield "ZCARD", clients.keys.open_sessions_of(sid)
    yield "ZCOUNT", clients.keys.open_sessions_of(sid), 0, 1
    yield "ZREMRANGEBYSCORE", clients.keys.open_sessions_of(sid), 0, 0
    yield "ZREM", clients.keys.open_sessions_of(sid), sid
    yield "EXISTS", state
    yield "HGETALL", state
    yield ("TIME",)
    yield "SET", clients.keys.probe(), "1", "PX", _SCRATCH_TTL_MS
    yield "EXPIRE", state, _SCRATCH_TTL_MS // 1000
    yield "EVAL", _SCRIPT, 1, state
    yield "EVALSHA", sha1(_SCRIPT.encode(), usedforsecurity=False).hexdigest(), 1, state
    yield "SPUBLISH" if clients.keys.sharded else "PUBLISH", clients.keys.channel(sid), ""


async def _rights(clients: RedisClients) -> Finding:
    sid = f"doctor{secrets.token_hex(8)}"
    denied = [name async for name in _denied(clients, sid)]
    if denied:
        detail = f"not allowed under {clients.settings.prefix}:*: {', '.join(denied)}"
        allow = " ".join(f"+{name.lower().replace(' ', '|')}" for name in denied)
        return Finding(
            "rights", "failure", detail, f"ACL SETUSER … {allow}, with the prefix's keys and channels"
        )
    return Finding("rights", "ok", "every command we use")


async def _denied(clients: RedisClients, sid: str) -> AsyncIterator[str]:
    for command in tried_commands(clients, sid):
        if await _is_denied(clients.commands.execute_command(*command)):
            yield command[0]
    if await _is_denied(_subscribe(clients, clients.keys.channel(sid))):
        yield "SSUBSCRIBE" if clients.keys.sharded else "SUBSCRIBE"


async def _is_denied(command: Awaitable[Any]) -> bool:
    try:
        with translated():
            await command
    except Misconfigured:
        return True
    except RedisUnavailable as error:
        # Only say that XGROUP CREATE or EVAL was denied before.
        if not any(text in str(error) for text in ("NOGROUP", "forgotten a script")):
            raise
    return False


async def _subscribe(clients: RedisClients, channel: str) -> None:
    async with clients.pubsub.pubsub() as subscription:
        if clients.keys.sharded:
            await subscription.ssubscribe(channel)
            read = subscription.get_sharded_message if clients.cluster else subscription.get_message
            await read(timeout=1)
        else:
            await subscription.subscribe(channel)
            await subscription.get_message(timeout=1)


async def _partitions(clients: RedisClients) -> Finding:
    with translated():
        theirs = await clients.commands.hget(clients.keys.deployment(), "partitions")
    mine = clients.settings.partitions
    if theirs is None:
        return Finding("partitions", "ok", f"{mine}; nothing is deployed under this prefix yet")
    if int(theirs) != mine:
        detail = f"this process is set to {mine}, the deployment has {int(theirs)}"
        return Finding(
            "partitions", "failure", detail, f"set SCRIBE_REDIS_PARTITIONS={int(theirs)}, or another prefix"
        )
    return Finding("partitions", "ok", str(mine))


async def _clock(clients: RedisClients) -> Finding:
    asked = wall_ms()
    with translated():
        seconds, microseconds = await clients.commands.time()
    answered = wall_ms()
    skew_ms = seconds * 1000 + microseconds / 1000 - (asked + answered) / 2
    detail = f"{abs(skew_ms):.1f} ms off Redis' (± {(answered - asked) / 2:.1f})"
    if abs(skew_ms) > _SKEW_MS:
        return Finding("clock", "warning", detail, "run NTP on both machines: latency figures would be wrong")
    return Finding("clock", "ok", detail)
