"""Print a command as the README gives it, so that what CI runs cannot drift from what people are told.

Usage: python .ci/readme.py start|tests
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

README = Path(__file__).resolve().parent.parent / "README.md"


def command(name: str, text: str) -> str:
    """The one line in the code block that follows ``<!-- command: name -->``."""
    found = re.findall(rf"<!-- command: {re.escape(name)} -->\n+```\w*\n(.+)\n```", text)
    if len(found) != 1:
        sys.exit(f"README.md has {len(found)} one-line blocks marked 'command: {name}', expected 1")
    return str(found[0]).removeprefix("$ ")


if __name__ == "__main__":
    print(command(sys.argv[1], README.read_text(encoding="utf-8")))
