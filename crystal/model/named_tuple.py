"""Named tuples that are quick to define: a turn of the worker loads some 80 of them.

``typing.NamedTuple`` compiles each annotation, and a constructor for each class, which took a fifth of the time of a
turn's imports (docs/adr/0006-libraries.md). These have the same fields, defaults and methods; type checkers see the
standard ones.
"""

# ruff: noqa: ANN001, ANN002, ANN003, ANN202, ANN204 - type checkers do not see these

from __future__ import annotations

import sys
from operator import itemgetter

TYPE_CHECKING = False  # as type checkers understand it, without the time that importing ``typing`` takes
if TYPE_CHECKING or sys.version_info >= (3, 14):  # where nothing is compiled for an annotation
    from typing import NamedTuple as NamedTuple  # noqa: PLC0414 - for others to import
else:

    class _Definition(type):
        """Makes a class of tuples from the body of a class."""

        def __new__(cls, name, bases, namespace):
            """Return the class."""
            fields = tuple(namespace.get("__annotations__", ()))
            defaults = {field: namespace.pop(field) for field in fields if field in namespace}
            tails = {len(fields) - at: tuple(defaults.values())[-at:] for at in range(1, len(defaults) + 1)}
            namespace.update((field, property(itemgetter(at))) for at, field in enumerate(fields))
            namespace.update(
                __slots__=(), __match_args__=fields, _fields=fields, _field_defaults=defaults, _tails=tails,
                __new__=_new, _make=classmethod(_make), _replace=_replace, _asdict=_asdict, __getnewargs__=_values,
            )  # fmt: skip
            namespace.setdefault("__repr__", _repr)
            return type(name, (tuple, *(base for base in bases if base is not NamedTuple)), namespace)

    def _new(cls, *values, **named):
        if named or len(values) != len(cls._fields):
            tail = None if named else cls._tails.get(len(values))
            values = _completed(cls, values, named) if tail is None else values + tail
        return tuple.__new__(cls, values)

    def _completed(cls, values, named):
        """Return the values of all fields, or raise a TypeError."""
        given = cls._fields[: len(values)]
        known = {**cls._field_defaults, **dict(zip(given, values, strict=False)), **named}
        if len(values) > len(given) or known.keys() != set(cls._fields) or not named.keys().isdisjoint(given):
            raise TypeError(f"{cls.__name__} has the fields {', '.join(cls._fields)}, each is given once")
        return [known[field] for field in cls._fields]

    def _make(cls, values):
        values = tuple(values)
        return tuple.__new__(cls, values) if len(values) == len(cls._fields) else cls(*values)

    def _replace(self, **named):
        return type(self)(**{**self._asdict(), **named})

    def _asdict(self):
        return dict(zip(self._fields, self, strict=True))

    def _values(self):
        return tuple(self)

    def _repr(self):
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in self._asdict().items())})"

    NamedTuple = type.__new__(_Definition, "NamedTuple", (), {})
