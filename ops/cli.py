"""The command `streamscribe`. Each command imports what it needs when it runs: `--help` answers at once."""

import sys
from pathlib import Path
from typing import Annotated, NoReturn

import typer

from ops.cli_keys import app as keys_app
from ops.cli_transcribe import transcribe
from ops.options import RedisUrl, Secret, Url, given, key_of
from shared.errors import Overloaded, RedisUnavailable, ScribeError

app = typer.Typer(
    name="streamscribe",
    help="Real-time speech to text: a fleet of workers on Redis Streams, and the tools around it.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

# What to try when the message itself does not say.
_NEXT: dict[type[ScribeError], str] = {
    RedisUnavailable: "check --redis-url or SCRIBE_REDIS_URL; `streamscribe doctor` tries it",
    Overloaded: "try again in a few seconds, or add workers",
}

app.add_typer(keys_app, name="keys")


def main() -> None:
    """Run the command line. Errors become one red line and exit code 1; wrong usage 2; Ctrl-C 130."""
    try:
        app()
    except ScribeError as error:
        _fail(str(error), _NEXT.get(type(error), ""))
    except ValueError as error:
        from pydantic import ValidationError

        if not isinstance(error, ValidationError):
            raise
        first = error.errors()[0]
        where = "_".join(str(part) for part in first["loc"])
        _fail(f"{error.title}: {where}: {first['msg']}", "correct the option, or the SCRIBE_… variable")


@app.command()
def serve(
    host: Annotated[str | None, typer.Option(help="Address to listen on; default 127.0.0.1.")] = None,
    port: Annotated[
        int | None, typer.Option(min=0, max=65535, help="0: any free port; default 8080.")
    ] = None,
    redis_url: RedisUrl = None,
    data_dir: Annotated[
        Path | None, typer.Option(help="Keep the embedded Redis' data here; default: in memory.")
    ] = None,
    worker: Annotated[
        list[str] | None,
        typer.Option(
            metavar="STAGES[=N]", help="Worker processes, such as acoustic+decoder=2. May be repeated."
        ),
    ] = None,
) -> None:
    """Start Redis, gateway and workers, and stay up until Ctrl-C, which lets sessions finish."""
    from ops.fleet import DEFAULT_LAYOUT, Fleet
    from ops.launch import worker_group
    from ops.serve import serve as run
    from shared.settings import GatewaySettings, RedisSettings

    fleet = Fleet(
        redis=RedisSettings(**given(url=redis_url, data_dir=data_dir)),
        gateway=GatewaySettings(**given(host=host, port=port)),
        layout=[worker_group(each) for each in worker] if worker else DEFAULT_LAYOUT,
    )
    raise typer.Exit(run(fleet))


@app.command()
def gateway(
    host: Annotated[str | None, typer.Option(help="Address to listen on; default 127.0.0.1.")] = None,
    port: Annotated[int | None, typer.Option(min=0, max=65535, help="Default 8080.")] = None,
    redis_url: RedisUrl = None,
) -> None:
    """Run one gateway process, in place of this one."""
    from ops.launch import become

    become("gateway", SCRIBE_GATEWAY_HOST=host, SCRIBE_GATEWAY_PORT=port, SCRIBE_REDIS_URL=redis_url)


@app.command()
def worker(
    stages: Annotated[str, typer.Argument(help="frontend, acoustic, decoder, some joined by +, or all.")],
    redis_url: RedisUrl = None,
    threads: Annotated[int | None, typer.Option(min=1, help="Of one inference; default 1.")] = None,
    metrics_port: Annotated[
        int | None, typer.Option(min=0, max=65535, help="Prometheus; default: none.")
    ] = None,
) -> None:
    """Run one worker process, in place of this one."""
    from ops.launch import become

    become(
        "workers",
        stages,
        SCRIBE_REDIS_URL=redis_url,
        SCRIBE_WORKER_THREADS=threads,
        SCRIBE_WORKER_METRICS_PORT=metrics_port,
    )


app.command()(transcribe)


@app.command()
def listen(
    session: Annotated[
        str, typer.Argument(help="Session id, from the `ready` message or the gateway's log.")
    ],
    redis_url: RedisUrl = None,
    url: Annotated[
        str | None, typer.Option(metavar="URL", help="Gateway to read from, instead of Redis.")
    ] = None,
    key: Secret = None,
    partials: Annotated[
        bool, typer.Option("--partials", help="Also print unfinished text when not on a terminal.")
    ] = False,
) -> None:
    """Show a running session's captions until it ends, from its transcript channel or a gateway."""
    from ops.listen import listen as run
    from ops.listen import listen_at
    from shared.settings import RedisSettings

    if url is not None:
        listen_at(url, session, key_of(key), partials=partials or None)
    else:
        run(session, RedisSettings(**given(url=redis_url)), partials=partials or None)


@app.command()
def evaluate(
    manifest: Annotated[
        Path, typer.Argument(help="Tab-separated, columns path and transcript; paths relative to it.")
    ],
    url: Url = None,
    key: Secret = None,
    pace: Annotated[
        float, typer.Option(min=0, help="1: as fast as it was spoken; 0: as fast as it goes.")
    ] = 1.0,
    sessions: Annotated[int, typer.Option(min=1, help="Concurrent sessions.")] = 1,
    limit: Annotated[int | None, typer.Option(min=1, help="Only the first N recordings.")] = None,
    pattern: Annotated[str, typer.Option("--filter", metavar="GLOB", help="Only matching paths.")] = "*",
    loop: Annotated[
        float | None,
        typer.Option(
            metavar="SECONDS", min=1, help="Each session speaks continuously for so long, repeating the list."
        ),
    ] = None,
    offline: Annotated[
        bool, typer.Option("--offline", help="Whole recordings through the model, without a fleet.")
    ] = False,
    details: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write what was heard in each, worst first, as JSON lines."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print exactly one JSON object.")] = False,
) -> None:
    """Measure word error rate, speed and latency on recordings with known words.

    Every recording is one session. Latency runs from the gateway having a chunk complete to its event's arrival
    here; the real-time factor is wall time (offline: computing time) per second of audio.
    """
    if offline and loop is not None:
        raise typer.BadParameter("is for sessions through a fleet: leave out --offline", param_hint="--loop")
    from ops.evaluate import Plan, run

    plan = Plan(
        manifest=manifest,
        pattern=pattern,
        limit=limit,
        url=url,
        key=key_of(key),
        offline=offline,
        pace=pace,
        sessions=sessions,
        loop_s=loop,
        details=details,
    )
    raise typer.Exit(run(plan, as_json=as_json))


@app.command()
def doctor(redis_url: RedisUrl = None) -> None:
    """Check Redis, models, rights and clock, and say what to do about what is wrong."""
    from ops.doctor import doctor as run
    from shared.settings import RedisSettings

    raise typer.Exit(run(RedisSettings(**given(url=redis_url))))


@app.command()
def demo() -> None:
    """Caption a bundled recording live through a fleet of its own, and show where the time went."""
    from rich.console import Console

    from ops.demo import demo as run

    run(Console(highlight=False))


def _fail(message: str, advice: str) -> NoReturn:
    typer.secho(f"error: {message}" + (f" ({advice})" if advice else ""), fg="red", err=True)
    sys.exit(1)
