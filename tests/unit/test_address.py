"""What SCRIBE_REDIS_URL may be, and what is said when it is something else."""

import pytest

from shared.errors import Misconfigured, RedisUnavailable
from shared.redis_client import RedisClients, connect
from shared.settings import RedisSettings
from shared.topology.address import parse
from tests.rigs import Server


@pytest.mark.parametrize(
    ("url", "kind", "nodes", "service", "options"),
    [
        ("redis://h", "single", [("h", 6379)], "", {"host": "h", "port": 6379}),
        ("redis://u:p%40%2F@h:1/2", "single", [("h", 1)], "", {"username": "u", "password": "p@/", "db": 2}),
        ("redis://:p@[::1]:7/0", "single", [("::1", 7)], "", {"host": "::1", "password": "p"}),
        (
            "rediss://h:1?ssl_check_hostname=no",
            "single",
            [("h", 1)],
            "",
            {"ssl": True, "ssl_check_hostname": False},
        ),
        ("unix:///run/redis.sock?db=3", "single", [], "", {"path": "/run/redis.sock", "db": 3}),
        ("unix://u:p@/run/redis.sock", "single", [], "", {"path": "/run/redis.sock", "username": "u"}),
        ("redis+sentinel://a,b:2/main/4", "sentinel", [("a", 26379), ("b", 2)], "main", {"db": 4}),
        (
            "redis+sentinel://u:p@a/main",
            "sentinel",
            [("a", 26379)],
            "main",
            {"username": "u", "password": "p"},
        ),
        ("rediss+cluster://a:1,b:2", "cluster", [("a", 1), ("b", 2)], "", {"ssl": True}),
    ],
)
def test_a_url_says_where_redis_is_and_how_to_get_in(url, kind, nodes, service, options):
    address = parse(url)

    assert (address.kind, list(address.nodes), address.service) == (kind, nodes, service)
    assert {name: address.options.get(name) for name in options} == options


def test_sentinels_have_their_own_user_and_the_same_certificates(tmp_path):
    (ca := tmp_path / "ca.pem").touch()
    address = parse(f"rediss+sentinel://u:p@a/main?sentinel_username=s&sentinel_password=q&ssl_ca_certs={ca}")

    assert address.sentinel_options == {
        "username": "s", "password": "q", "ssl": True, "ssl_ca_certs": str(ca)
    }  # fmt: skip
    assert "sentinel_password" not in address.options


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("localhost:6379", "does not begin with a scheme"),
        ("http://h", r"a scheme we know \(http\)"),
        ("redis+proxy://h", "a scheme we know"),
        ("unix+cluster:///s", "works over TCP only"),
        ("unix://", "path of the socket"),
        ("redis+sentinel://a:1,b:2", "names the service"),
        ("redis+sentinel://a:1/main/zero", "number of the database"),
        ("redis://h/zero", "number of the database"),
        ("redis+cluster://a/3", "only database 0"),
        ("redis://a,b", "several hosts need"),
        ("redis://u:s3cret/x@h:1", "port is not a number"),
        ("redis://h:port", "port is not a number"),
        ("rediss://h?ssl_ca_certs=/no/ca.pem", "ssl_ca_certs: there is no file /no/ca.pem"),
        ("redis://h?socket_timeout=soon", "a value that it can't have"),
        ("redis://h?protocol=2", "protocol can't be chosen"),
        ("redis://h?colour=red", "no option colour"),
        ("redis+cluster://u:s3cret@h?colour=red", "no option colour"),
        ("redis+sentinel://u:s3cret@h/main?colour=red", "no option colour"),
    ],
)
async def test_what_is_wrong_with_a_url_is_said_with_what_would_be_right(url, why):
    with pytest.raises(Misconfigured, match=why) as raised:
        RedisClients(RedisSettings(url=url))

    assert "redis+sentinel://[user:password@]host:26379,host2:26379/service" in str(raised.value)
    assert "s3cret" not in str(raised.value)
    assert raised.value.__cause__ is None


@pytest.mark.parametrize(
    "url",
    [
        "redis://u:s3cret@127.0.0.1:1/0",
        "unix://u:s3cret@/nowhere/redis.sock",
        "redis+sentinel://u:s3cret@127.0.0.1:1/main?sentinel_password=s3cret",
        "redis+cluster://u:s3cret@127.0.0.1:1",
    ],
)
async def test_no_password_is_told_when_nobody_answers(url, capfd):
    settings = RedisSettings(url=url)
    with pytest.raises(RedisUnavailable) as raised:
        await connect(settings)

    told = [
        str(raised.value),
        repr(raised.value.__cause__),
        repr(settings),
        str(parse(url)),
        repr(parse(url)),
    ]
    assert "s3cret" not in "".join([*told, *capfd.readouterr()])


@pytest.mark.parametrize("url", ["redis+cluster://{}", "redis://u:s3cret@{}"])
async def test_a_server_of_another_kind_or_without_our_user_is_said(url):
    with Server() as server, pytest.raises(Misconfigured, match=r"no Redis Cluster|refused us") as raised:
        await connect(RedisSettings(url=url.format(f"127.0.0.1:{server.port}")))
    assert "s3cret" not in str(raised.value)
