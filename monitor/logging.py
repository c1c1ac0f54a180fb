"""Structured logs: JSON for machines, console for people; ids and versions, never text.

`configure` is called once, by the composition root of each executable.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterable
from typing import Final

import structlog

from monitor.config import LogSettings

# At DEBUG these write requests with their whole text; at INFO they say what nobody asked.
TALKATIVE: Final = (
    "anthropic",
    "httpx",
    "httpx2",
    "httpcore",
    "httpcore2",
    "asyncio",
    "aiokafka",
    "uvicorn",
    "alembic",
)


def configure(settings: LogSettings, *, filters: Iterable[logging.Filter] = ()) -> None:
    """Send structlog and the standard library's loggers to stderr in one format. `filters` sit on the handler."""
    as_json = settings.format == "json" or (settings.format == "auto" and not sys.stderr.isatty())
    shared: list[structlog.types.Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_logger_name,
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.format_exc_info,
    ]
    renderer: structlog.types.Processor = (
        structlog.processors.JSONRenderer()
        if as_json
        else structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty())
    )
    formatter = structlog.stdlib.ProcessorFormatter(
        foreign_pre_chain=shared,
        processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, renderer],
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(formatter)
    for item in filters:
        handler.addFilter(item)
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(settings.level.upper())
    for name in TALKATIVE:
        logging.getLogger(name).setLevel(max(logging.WARNING, root.level))
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            *shared,
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        logger_factory=structlog.stdlib.LoggerFactory(),
        cache_logger_on_first_use=True,
    )
