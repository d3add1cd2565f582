"""The commands `streamscribe keys …`."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from ops.options import RedisUrl, given

app = typer.Typer(help="API keys: make, list, revoke.", no_args_is_help=True)

File = Annotated[
    Path | None,
    typer.Option(metavar="PATH", help="TOML file; default: SCRIBE_AUTH_KEYS_FILE, and without it Redis."),
]


@app.command()
def add(
    name: Annotated[
        str,
        typer.Argument(help="Whose it is. Keys of one name share sessions and quotas: so they are rotated."),
    ],
    scope: Annotated[
        list[str] | None,
        typer.Option(
            metavar="SCOPE", help="transcribe (default), listen (to everybody's sessions); may be repeated."
        ),
    ] = None,
    expires: Annotated[datetime | None, typer.Option(help="UTC.")] = None,
    sessions: Annotated[int | None, typer.Option(min=0, help="At a time.")] = None,
    audio_s_per_day: Annotated[
        float | None, typer.Option(min=0, help="Seconds of audio per UTC day.")
    ] = None,
    frame_bytes: Annotated[int | None, typer.Option(min=0, help="Largest message.")] = None,
    messages_per_s: Annotated[float | None, typer.Option(min=0, help="Of a session.")] = None,
    session_s: Annotated[float | None, typer.Option(min=0, help="Longest session.")] = None,
    file: File = None,
    redis_url: RedisUrl = None,
) -> None:
    """Make a key and print its secret, once. Limits not given are those of SCRIBE_LIMITS_…; 0: none."""
    from ops import keys

    limits = given(
        sessions=sessions,
        audio_s_per_day=audio_s_per_day,
        frame_bytes=frame_bytes,
        messages_per_s=messages_per_s,
        session_s=session_s,
    )
    until = expires.replace(tzinfo=UTC) if expires else None
    fields = {"name": name, "scopes": scope or ["transcribe"], "expires": until, "limits": limits}
    keys.add(_store(file, redis_url), fields)


@app.command(name="list")
def show(file: File = None, redis_url: RedisUrl = None) -> None:
    """All keys, without their secrets, which nobody has."""
    from ops import keys

    keys.show(_store(file, redis_url))


@app.command()
def revoke(
    key: Annotated[str, typer.Argument(metavar="ID", help="From `streamscribe keys list`.")],
    file: File = None,
    redis_url: RedisUrl = None,
) -> None:
    """End a key. Sessions that run with it go on to their end."""
    from ops import keys

    keys.revoke(_store(file, redis_url), key)


def _store(file: Path | None, redis_url: str | None):  # type: ignore[no-untyped-def]  # noqa: ANN202
    from ops.keys import store_of
    from shared.settings import RedisSettings

    return store_of(file, RedisSettings(**given(url=redis_url)))
