"""The doctor, on healthy and on spoilt real servers."""

import os
import re
from collections.abc import Iterator
from importlib.resources import files

import pytest

from ops.doctor import doctor, examine_redis
from ops.embedded import EmbeddedRedis
from ops.finding import Finding
from ops.machine_checks import check_machine
from ops.redis_checks import tried_commands
from shared.redis_client import RedisClients
from shared.settings import RedisSettings


@pytest.fixture
def url() -> Iterator[str]:
    server = EmbeddedRedis()
    try:
        yield server.start()
    finally:
        server.stop()


async def tell(url: str, *command: str) -> object:
    clients = RedisClients(RedisSettings(url=url))
    try:
        return await clients.commands.execute_command(*command)
    finally:
        await clients.stop()


async def finding(url: str, what: str, **settings) -> Finding:
    found = {f.what: f for f in await examine_redis(RedisSettings(url=url, **settings))}
    return found[what]


async def test_a_fresh_server_passes_and_keeps_no_key_for_good(url: str):
    found = await examine_redis(RedisSettings(url=url))
    assert [f.verdict for f in found] == ["ok"] * 6
    keys = await tell(url, "KEYS", "*")
    assert [await tell(url, "PTTL", key) for key in keys] == [pytest.approx(10_000, abs=5_000)] * len(keys)


async def test_without_a_url_the_embedded_server_is_examined():
    assert [f.verdict for f in await examine_redis(RedisSettings(url=""))] == ["ok"] * 6


async def test_an_evicting_server_fails(url: str):
    await tell(url, "CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
    found = await finding(url, "eviction")
    assert (found.verdict, found.detail) == ("failure", "allkeys-lru")
    assert "noeviction" in found.advice


async def test_a_user_with_too_few_rights_learns_which_are_missing(url: str):
    await tell(
        url, "ACL", "SETUSER", "app", "on", ">pw", "~*", "&*", "+@all", "-xclaim", "-xgroup", "-subscribe"
    )
    found = await finding(url.replace("unix://", "unix://app:pw@"), "rights")
    assert found.verdict == "failure"
    assert found.detail.endswith(": XGROUP CREATE, XCLAIM, XGROUP DELCONSUMER, SUBSCRIBE")
    assert "+xgroup|create +xclaim +xgroup|delconsumer +subscribe" in found.advice


async def test_every_command_of_our_scripts_is_tried():
    scripts = (files("shared") / "scripts").iterdir()
    used = {name for script in scripts for name in re.findall(r"redis\.call\('(\w+)'", script.read_text())}
    clients = RedisClients(RedisSettings(url="unix:///nowhere"))
    tried = {command[0].split()[0] for command in tried_commands(clients, "doctor")}
    await clients.stop()
    assert used
    assert used <= tried


@pytest.mark.parametrize("command", ["xinfo", "xgroup", "evalsha", "eval", "publish"])
async def test_a_missing_right_is_found(url: str, command: str):
    await tell(url, "ACL", "SETUSER", "app", "on", ">pw", "~*", "&*", "+@all", f"-{command}")
    found = await finding(url.replace("unix://", "unix://app:pw@"), "rights")
    assert f"+{command}" in found.advice


async def test_a_user_of_another_prefix_fails(url: str):
    await tell(url, "ACL", "SETUSER", "app", "on", ">pw", "~other:*", "&other:*", "+@all")
    mine = url.replace("unix://", "unix://app:pw@")
    assert (await finding(mine, "rights")).verdict == "failure"
    assert (await finding(mine, "rights", prefix="other")).verdict == "ok"


async def test_other_partitions_than_the_deployment_fail(url: str):
    await tell(url, "HSET", "scribe:deployment", "partitions", "8")
    found = await finding(url, "partitions")
    assert (found.verdict, "SCRIBE_REDIS_PARTITIONS=8" in found.advice) == ("failure", True)


@pytest.mark.parametrize("bad", ["unix:///nowhere/redis.sock", "http://localhost", "unix://app:wrong@{path}"])
async def test_a_server_that_cannot_be_reached_fails_with_one_finding(url: str, bad: str):
    found = await examine_redis(RedisSettings(url=bad.format(path=url.removeprefix("unix://"))))
    assert [(f.what, f.verdict) for f in found] == [("Redis", "failure")]
    assert found[0].advice


@pytest.mark.slow
def test_this_machine_passes():
    assert [f for f in check_machine() if f.verdict == "failure"] == []


@pytest.mark.slow
def test_the_table_names_the_failure_and_the_exit_code_is_1(capsys: pytest.CaptureFixture[str]):
    assert doctor(RedisSettings(url="unix:///nowhere/redis.sock")) == 1
    out = capsys.readouterr().out
    assert "failure" in out
    assert "SCRIBE_REDIS_URL" in "".join(out.split(os.linesep))
