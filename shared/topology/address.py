"""SCRIBE_REDIS_URL taken apart. A URL may hold a password, so no message here quotes one."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal
from urllib.parse import unquote, urlsplit

from redis.connection import parse_url

from shared.errors import Misconfigured

SHAPES = """one of
  redis://[user:password@]host:6379/0
  unix:///path/redis.sock?db=0
  redis+sentinel://[user:password@]host:26379,host2:26379/service[/0]
  redis+cluster://[user:password@]host:7000,host2:7000
or, over TLS, rediss://, rediss+sentinel:// or rediss+cluster://, with ?ssl_ca_certs=FILE&ssl_certfile=FILE&ssl_keyfile=FILE
as needed; characters other than letters and digits in user and password percent-encoded"""

_PORTS = {"single": 6379, "sentinel": 26379, "cluster": 6379}
_FILES = ("ssl_ca_certs", "ssl_certfile", "ssl_keyfile")
# What the three clients need to be ours.
_OURS = {"protocol", "legacy_responses", "decode_responses", "timeout", "retry_on_timeout", "retry"}
_SENTINEL_ONLY = ("sentinel_username", "sentinel_password")

Kind = Literal["single", "sentinel", "cluster"]


@dataclass(frozen=True)
class Address:
    """`options` are redis-py's for a connection to a Redis server, `sentinel_options` for one to a Sentinel."""

    kind: Kind
    nodes: tuple[tuple[str, int], ...] = ()  # host and port; none for a unix socket
    service: str = ""
    tls: bool = False
    options: dict[str, Any] = field(default_factory=dict, repr=False)
    sentinel_options: dict[str, Any] = field(default_factory=dict, repr=False)

    def __str__(self) -> str:
        """For people: without user, password and options."""
        hosts = ",".join(f"{host}:{port}" for host, port in self.nodes) or str(self.options.get("path"))
        how = {"single": "", "sentinel": "Sentinel ", "cluster": "Cluster "}[self.kind]
        return f"{how}{hosts}{f' service {self.service}' if self.service else ''}{' over TLS' * self.tls}"


def parse(url: str) -> Address:
    """Raises Misconfigured, which says what a right URL looks like."""
    scheme = url.split("://", 1)[0] if "://" in url else ""
    base, _, kind = scheme.partition("+")
    if base not in ("redis", "rediss", "unix") or kind not in ("", "sentinel", "cluster"):
        raise _wrong(f"it does not begin with a scheme we know ({scheme or 'none'})")
    if base == "unix" and kind:
        raise _wrong(f"{kind} works over TCP only")
    found: Kind = "single" if not kind else "sentinel" if kind == "sentinel" else "cluster"
    return _unix(url) if base == "unix" else _tcp(url, found, tls=base == "rediss")


def _unix(url: str) -> Address:
    options = _options(url)
    if not options.get("path"):
        raise _wrong("a unix:// URL needs the path of the socket")
    return Address("single", options=options)


def _tcp(url: str, kind: Kind, *, tls: bool) -> Address:
    nodes = _nodes(url, _PORTS[kind])
    service, options = "", _options(_plain(url, nodes[0]))
    if tls:
        options["ssl"] = True
    path = [unquote(part) for part in urlsplit(url).path.split("/") if part]
    if kind == "sentinel":
        if not path:
            raise _wrong("a Sentinel URL names the service after the hosts")
        service = path.pop(0)
    if len(path) > 1 or not all(part.isdigit() for part in path):
        raise _wrong("what follows the host is the number of the database")
    if path:
        options["db"] = int(path[0])
    if kind == "cluster" and options.pop("db", 0):
        raise _wrong("a Cluster has only database 0")
    if kind == "single" and len(nodes) > 1:
        raise _wrong("several hosts need redis+sentinel:// or redis+cluster://")
    own = {name: options.pop(f"sentinel_{name}", None) for name in ("username", "password")}
    shared = {name: value for name, value in options.items() if name.startswith("ssl")}
    sentinel = shared | {name: value for name, value in own.items() if value}
    if kind == "single":
        options["host"], options["port"] = nodes[0]
    return Address(kind, nodes, service, tls, options, sentinel)


def _nodes(url: str, default: int) -> tuple[tuple[str, int], ...]:
    hosts = urlsplit(url).netloc.rpartition("@")[2]
    nodes = []
    for each in hosts.split(","):
        try:
            parts = urlsplit(f"//{each}")
            nodes.append((parts.hostname or "localhost", parts.port or default))
        except ValueError:
            raise _wrong(
                "a port is not a number; if it is part of the password, percent-encode its characters"
            ) from None
    return tuple(nodes)


def _plain(url: str, node: tuple[str, int]) -> str:
    """The URL as redis-py reads one: a single host, no service."""
    parts = urlsplit(url)
    user = parts.netloc.rpartition("@")[0]
    host = f"[{node[0]}]" if ":" in node[0] else node[0]
    return f"redis://{user + '@' if user else ''}{host}:{node[1]}?{parts.query}"


def _options(url: str) -> dict[str, Any]:
    try:
        options: dict[str, Any] = dict(parse_url(url))
    except ValueError:
        raise _wrong("an option after the ? has a value that it can't have") from None
    for name in ("connection_class", "host", "port"):
        options.pop(name, None)
    if taken := sorted(_OURS & set(options)):
        raise _wrong(f"{', '.join(taken)} can't be chosen here")
    for name in _FILES:
        if name in options and not Path(options[name]).is_file():
            raise _wrong(f"{name}: there is no file {options[name]}")
    return options


def _wrong(why: str) -> Misconfigured:
    return Misconfigured(f"SCRIBE_REDIS_URL: {why}. It is {SHAPES}")
