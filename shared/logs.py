"""Logging set-up: structlog to standard error, for people or as JSON lines. Never transcript text at INFO."""

import logging
import sys
from typing import Any

import structlog

from shared.settings import LogSettings


def configure(settings: LogSettings, **bound: Any) -> None:
    """Set up logging of this process; `bound` (role, worker id) is on every line."""
    renderer: Any = (
        structlog.processors.JSONRenderer()
        if settings.json_lines
        # Plain tracebacks: prettier ones print local variables, and those hold transcript text.
        else structlog.dev.ConsoleRenderer(
            colors=sys.stderr.isatty(), exception_formatter=structlog.dev.plain_traceback
        )
    )
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso"),
            structlog.processors.format_exc_info if settings.json_lines else _as_is,
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(getattr(logging, settings.level.upper())),
        logger_factory=structlog.WriteLoggerFactory(file=sys.stderr),
        cache_logger_on_first_use=False,
    )
    structlog.contextvars.bind_contextvars(**bound)


def _as_is(_logger: Any, _name: str, event: Any) -> Any:
    return event
