"""Options that several commands share, and where their values come from when they are not given."""

from typing import Annotated, Any

import typer

Url = Annotated[
    str | None,
    typer.Option(
        metavar="URL", help="Gateway to use, http://host:port. Without it, a fleet of its own is started."
    ),
]
RedisUrl = Annotated[
    str | None,
    typer.Option(
        metavar="URL",
        help="redis://, rediss://, unix://, redis+sentinel:// or redis+cluster://; default: SCRIBE_REDIS_URL.",
    ),
]
Secret = Annotated[
    str | None,
    typer.Option(
        "--key",
        metavar="KEY",
        help="API key or token for the gateway. SCRIBE_KEY is better: others on this machine see options.",
    ),
]


def given(**options: object) -> dict[str, Any]:
    """Keep what was given on the command line; the rest comes from the environment."""
    return {name: value for name, value in options.items() if value is not None}


def key_of(key: str | None) -> str | None:
    """The key to show a gateway."""
    from shared.settings import ClientSettings

    found = ClientSettings(**given(key=key)).key
    return found.get_secret_value() if found else None
