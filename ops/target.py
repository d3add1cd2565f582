"""Where a tool sends its audio: the gateway that was named, or a fleet of its own."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from urllib.parse import urlsplit

from ops.client import StreamClient
from shared.errors import BadInput, Misconfigured
from shared.settings import GatewaySettings


@asynccontextmanager
async def gateway_at(url: str | None, *, smallest: bool = False) -> AsyncIterator[str]:
    """Address of a running gateway. Without one given, embedded Redis, gateway and workers live as long as the block.

    The smallest fleet has one worker process per stage group; otherwise there are as many as there are cores.

    Raises Misconfigured when nothing listens at the address.
    """
    if url is not None:
        await _knock(url)
        yield url
        return
    from ops.fleet import DEFAULT_LAYOUT, SMALLEST_LAYOUT, Fleet  # noqa: PLC0415 - only when there is one to start

    # A free port, and no log lines between the tool's own: what goes wrong is in the warnings.
    quietly = {"SCRIBE_LOG_LEVEL": "WARNING"}
    layout = SMALLEST_LAYOUT if smallest else DEFAULT_LAYOUT
    async with Fleet(gateway=GatewaySettings(port=0), layout=layout, environment=quietly) as fleet:
        yield fleet.url


async def _knock(url: str) -> None:
    """Fail once and early: otherwise every file would fail with the same line."""
    parts = urlsplit(StreamClient(url).url)
    try:
        port = parts.port or {"wss": 443}.get(parts.scheme, 80)
        async with asyncio.timeout(10):
            _, writer = await asyncio.open_connection(parts.hostname, port)
    except ValueError as error:
        raise BadInput(f"{url} is no gateway address: use http://host:port") from error
    except OSError as error:
        raise Misconfigured(f"no gateway answers at {url}: start one with `streamscribe serve`") from error
    writer.close()
    await writer.wait_closed()
