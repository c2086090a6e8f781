"""One test for a table of cases: collected once, set up once, and a failure names its row."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable
from typing import Any

import pytest

Test = Callable[..., None]


def each_row(names: str | tuple[str, ...], rows: Iterable[Any]) -> Callable[[Test], Test]:
    """Run a test for each row, with the row's values under these names; its fixtures are shared by all rows."""
    keys = (names,) if isinstance(names, str) else names
    table = [dict(zip(keys, (row,) if isinstance(names, str) else row, strict=True)) for row in rows]

    def decorate(test: Test) -> Test:
        @functools.wraps(test)
        def run(**given: Any) -> None:
            for row in table:
                try:
                    test(**given, **row)
                except (Exception, pytest.fail.Exception) as error:
                    raise AssertionError(f"in the row {row}") from error

        signature = inspect.signature(test)
        left = [one for name, one in signature.parameters.items() if name not in keys]
        run.__signature__ = signature.replace(parameters=left)  # type: ignore[attr-defined]
        return run

    return decorate
