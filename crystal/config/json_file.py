"""Read the small JSON files that crystal keeps beside the archive."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from crystal.config.paths import refused
from crystal.errors import DamagedError

T = TypeVar("T")


def read_json(path: Path, make: Callable[[Any], T], hint: str) -> T | None:
    """Parse a file and return ``make(content)``; return None if there is no file.

    Raises:
        DamagedError: It is not JSON, or ``make`` rejects its content. ``hint`` says what to do.
        CrystalError: The system refuses to read it.
    """
    try:
        return make(json.loads(path.read_bytes()))
    except FileNotFoundError:
        return None
    except OSError as error:
        raise refused(error, path) from error
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        raise DamagedError(f"{path} is damaged", hint=hint) from error
