"""Which pages may use a browser to reach us. Pure.

A browser sends cookies and reaches loopback on behalf of any page, but always says which page: in `Origin`. Programs
send none and pass. On loopback `Host` counts too: a page whose name was re-pointed to 127.0.0.1 (DNS rebinding) is
of the same origin for the browser, and only the name in `Host` gives it away.
"""

from ipaddress import ip_address
from urllib.parse import urlsplit

from shared.errors import Forbidden

_DEFAULT_PORT = {"http": 80, "https": 443}


def is_loopback(host: str) -> bool:
    """Whether a host name or address means this machine."""
    try:
        return ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def check_origin(host: str | None, origin: str | None, *, allowed: frozenset[str], on_loopback: bool) -> None:
    """Raise Forbidden for a page that has no business here. `allowed`: origins such as https://app.example.com."""
    if on_loopback and not (is_loopback(_name(host)) or _name(host) in {_name(each) for each in allowed}):
        raise Forbidden(
            "this gateway listens on loopback only and was addressed by another name: "
            "list https://NAME in SCRIBE_AUTH_ORIGINS if a proxy serves it under that name"
        )
    if origin is None or origin in allowed:
        return
    if on_loopback and is_loopback(_name(origin)):
        return
    if not on_loopback and _authority(origin, origin) == _authority(host, origin) is not None:
        return
    raise Forbidden(
        f"pages of {origin:.100} may not use this gateway: list the origin in SCRIBE_AUTH_ORIGINS"
    )


def _name(address: str | None) -> str:
    """Host name of an origin or a Host header; empty for nonsense."""
    try:
        return urlsplit(_absolute(address or "")).hostname or ""
    except ValueError:
        return ""


def _authority(address: str | None, origin: str) -> tuple[str, int | None] | None:
    """(name, port), the port completed as the origin's scheme has it: a proxy may have taken TLS off."""
    try:
        parts = urlsplit(_absolute(address or ""))
        port = parts.port or _DEFAULT_PORT.get(urlsplit(origin).scheme)
    except ValueError:
        return None
    return (parts.hostname, port) if parts.hostname else None


def _absolute(address: str) -> str:
    return address if "//" in address else f"//{address}"
