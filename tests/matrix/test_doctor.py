"""The doctor says what it found, wherever Redis is."""

import re

import pytest

from ops.redis_checks import check_redis

pytestmark = pytest.mark.slow

FOUND = {
    "sentinel": r"Sentinel 127.0.0.1:\d+,127.0.0.1:\d+,127.0.0.1:\d+ service scribe; 1 primary, 1 replica",
    "cluster": r"Cluster 127.0.0.1:\d+,127.0.0.1:\d+,127.0.0.1:\d+; 3 primaries, 3 replicas",
    "unix socket": r"/\S+/redis.sock; 1 primary, 0 replicas",
    "tls": r"localhost:\d+ over TLS; 1 primary, 0 replicas",
}


async def test_the_doctor_finds_the_topology_and_nothing_wrong(redis_settings, place):
    found = {f.what: f async for f in check_redis(redis_settings)}

    assert {what: f for what, f in found.items() if f.verdict == "failure"} == {}
    assert set(found) == {"Redis", "topology", "eviction", "rights", "partitions", "clock"}
    pattern = FOUND.get(place.split(",")[0], r"127.0.0.1:\d+; 1 primary, 0 replicas")
    assert re.fullmatch(pattern, found["topology"].detail)
