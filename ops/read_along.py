"""A session's events from a gateway over HTTP, for who has a key but no access to Redis."""

from collections.abc import Iterator
from http.client import HTTPException
from urllib.error import HTTPError
from urllib.parse import urlsplit, urlunsplit
from urllib.request import Request, urlopen

from ops.answers import error_of
from shared.errors import BadInput, Misconfigured
from shared.events import TranscriptEvent, parse_event

# The gateway sends a comment every 15 s.
_SILENT_S = 40


def events_from(url: str, session: str, key: str | None) -> Iterator[TranscriptEvent]:
    """Every event up to the last one. Raises the gateway's error, or Misconfigured when none answers."""
    parts = urlsplit(url if "//" in url else f"http://{url}")
    if parts.scheme not in {"http", "https"}:
        raise BadInput(f"{url} is no gateway address: use http://host:port")
    address = urlunsplit((parts.scheme, parts.netloc, f"/v1/sessions/{session}/events", "", ""))
    request = Request(address, headers={"Authorization": f"Bearer {key}"} if key else {})  # noqa: S310 - checked
    try:
        with urlopen(request, timeout=_SILENT_S) as response:  # noqa: S310 - checked
            for line in response:
                if line.startswith(b"data: "):
                    yield parse_event(line.removeprefix(b"data: "))
    except HTTPError as error:
        raise error_of(url, error.code, error.read(4096)) from error
    except (OSError, HTTPException) as error:
        raise Misconfigured(f"no gateway answers at {url}, or it stopped: {error}") from error
