"""Provide patterns that are compiled at their first use: all together would take longer than a turn of the worker."""

import re
from typing import Any, AnyStr, cast

_METHODS = ("findall", "finditer", "fullmatch", "match", "search", "split", "sub")


class _LazyPattern:
    __slots__ = ("_flags", "_pattern", *_METHODS)

    def __init__(self, pattern: str | bytes, flags: int) -> None:
        self._pattern, self._flags = pattern, flags

    def __getattr__(self, name: str) -> Any:
        real = re.compile(self._pattern, self._flags)
        for method in _METHODS:
            object.__setattr__(self, method, getattr(real, method))
        return object.__getattribute__(self, name)


def lazy_pattern(pattern: AnyStr, flags: int = 0) -> re.Pattern[AnyStr]:
    """Return a pattern of ``re`` that is compiled at the first use of one of its methods."""
    return cast("re.Pattern[AnyStr]", _LazyPattern(pattern, flags))
