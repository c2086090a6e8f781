"""Log the relay's events: one line per event, as JSON or as text, on standard error.

A line has time, level, event, and the fields given by the caller. Messages of exceptions are left out, except those of
the disk and the database, because others may quote what a client sent.
"""

from __future__ import annotations

import json
import logging
import sys
import traceback
from typing import Any, TextIO

from relay_worker.errors import CannotServeError


def _fields(record: logging.LogRecord) -> dict[str, Any]:
    found = dict(getattr(record, "fields", {}))
    if record.exc_info and record.exc_info[1] is not None:
        error = record.exc_info[1]
        found["error"] = type(error).__name__
        if isinstance(error, (OSError, CannotServeError)) or type(error).__module__.startswith(("apsw", "psycopg")):
            found["reason"] = str(error).partition("\n")[0][:500]  # further lines of PostgreSQL's messages quote rows
        found["at"] = [f"{one.filename}:{one.lineno} {one.name}" for one in traceback.extract_tb(error.__traceback__)]
    return found


class LineFormatter(logging.Formatter):
    """Writes time (in JSON milliseconds since 1970), level, event and fields of a record."""

    def __init__(self, log_format: str) -> None:
        super().__init__()
        self._is_json = log_format == "json"

    def format(self, record: logging.LogRecord) -> str:
        """Format a record."""
        level, event, fields = record.levelname.lower(), record.getMessage().strip(), _fields(record)
        if self._is_json:
            line = {"time": int(record.created * 1000), "level": level, "event": event, **fields}
            return json.dumps(line, separators=(",", ":"), default=str)
        return f"{self.formatTime(record)} {level} {event}" + "".join(
            f" {key}={value}" for key, value in fields.items()
        )


def configure(log_format: str, stream: TextIO | None = None) -> None:
    """Send all logging of the process to ``stream`` (standard error) in this format.

    uvicorn's own messages below an error are dropped, because the relay logs the same events.
    """
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(LineFormatter(log_format))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.INFO)
    logging.getLogger("uvicorn.error").setLevel(logging.ERROR)
    logging.getLogger("uvicorn.access").disabled = True
    logging.getLogger("asyncio").setLevel(logging.WARNING)
