"""Log of the relay: one line per event, as JSON or as text, on standard error.

A line has time, level, event, and the fields given by the caller. Messages of exceptions are left out, except those of
the disk and the database: others may quote what a client sent.
"""

from __future__ import annotations

import json
import logging
import sys
import traceback
from typing import Any, TextIO

import apsw


def _fields(record: logging.LogRecord) -> dict[str, Any]:
    found = dict(getattr(record, "fields", {}))
    if record.exc_info and record.exc_info[1] is not None:
        error = record.exc_info[1]
        found["error"] = type(error).__name__
        if isinstance(error, (OSError, apsw.Error)):
            found["reason"] = str(error)[:500]
        found["at"] = [f"{one.filename}:{one.lineno} {one.name}" for one in traceback.extract_tb(error.__traceback__)]
    return found


class JsonFormatter(logging.Formatter):
    """Writes one JSON object per line; ``time`` in milliseconds since 1970."""

    def format(self, record: logging.LogRecord) -> str:
        """Format a record."""
        line = {
            "time": int(record.created * 1000),
            "level": record.levelname.lower(),
            "event": record.getMessage().strip(),
            **_fields(record),
        }
        return json.dumps(line, separators=(",", ":"), default=str)


class TextFormatter(logging.Formatter):
    """Writes time, level, event and fields for people."""

    def format(self, record: logging.LogRecord) -> str:
        """Format a record."""
        fields = "".join(f" {name}={value}" for name, value in _fields(record).items())
        event = record.getMessage().strip()
        return f"{self.formatTime(record)} {record.levelname.lower()} {event}{fields}"


def configure(log_format: str, stream: TextIO | None = None) -> None:
    """Send all logging of the process to ``stream`` (standard error) in this format.

    uvicorn's own messages below an error are dropped, because the relay logs the same events.
    """
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(JsonFormatter() if log_format == "json" else TextFormatter())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.INFO)
    logging.getLogger("uvicorn.error").setLevel(logging.ERROR)
    logging.getLogger("uvicorn.access").disabled = True
    logging.getLogger("asyncio").setLevel(logging.WARNING)
