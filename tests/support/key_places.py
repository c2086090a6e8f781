"""A provider's key, and a command that prints one."""

from __future__ import annotations

import sys
from pathlib import Path

KEY = "sk-test-0123456789abcdefghijWXYZ"


def program(home: Path, body: str) -> str:
    """A command line that runs a Python body."""
    script = home / "get key.py"
    script.write_text(body)
    return f"'{sys.executable}' -I -S '{script}' {{provider}}"
