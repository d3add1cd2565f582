"""`streamscribe doctor`: is this machine, and the Redis it points to, fit to run the fleet?"""

import asyncio
from collections.abc import Sequence

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from ops.embedded import EmbeddedRedis
from ops.finding import Finding
from ops.machine_checks import check_machine
from ops.redis_checks import check_redis
from shared.errors import ScribeError
from shared.settings import RedisSettings

_STYLE = {"ok": "green", "warning": "yellow", "failure": "bold red"}


def doctor(settings: RedisSettings, console: Console | None = None) -> int:
    """Run every check and print the findings. Exit code: 1 when one is a failure."""
    findings = [*check_machine(), *asyncio.run(examine_redis(settings))]
    (console or Console()).print(_table(findings))
    return int(any(finding.verdict == "failure" for finding in findings))


async def examine_redis(settings: RedisSettings) -> list[Finding]:
    """Check the Redis of the settings; without a URL, an embedded one started for the purpose, without data."""
    if settings.url:
        return [finding async for finding in check_redis(settings)]
    server = EmbeddedRedis()
    try:
        url = server.start()
        return [finding async for finding in check_redis(settings.model_copy(update={"url": url}))]
    except ScribeError as error:
        return [
            Finding("embedded Redis", "failure", str(error), "or set SCRIBE_REDIS_URL to a running server")
        ]
    finally:
        server.stop()


def _table(findings: Sequence[Finding]) -> Table:
    table = Table("what", "", "found", "what to do", box=None, pad_edge=False)
    for finding in findings:
        style = _STYLE[finding.verdict]
        table.add_row(
            finding.what, f"[{style}]{finding.verdict}[/]", escape(finding.detail), escape(finding.advice)
        )
    return table
