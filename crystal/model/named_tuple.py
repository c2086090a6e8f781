"""Provide named tuples that are quick to define: a turn of the worker loads some 80 of them.

``typing.NamedTuple`` compiles each annotation, and a constructor for each class, which took a fifth of the time of a
turn's imports (docs/adr/0006-libraries.md). These have the same fields, defaults and methods; type checkers see the
standard ones.
"""

# ruff: noqa: ANN001, ANN002, ANN003, ANN202, ANN204 - type checkers do not see these

from __future__ import annotations

import sys
from operator import itemgetter

TYPE_CHECKING = False  # as type checkers understand it, without the time that importing ``typing`` takes
if TYPE_CHECKING or sys.version_info >= (3, 14):  # no annotation is compiled
    from typing import NamedTuple as NamedTuple  # noqa: PLC0414 - for others to import
else:
    _MISSING = object()

    class _Definition(type):
        """Makes a class of tuples from the body of a class."""

        def __new__(cls, name, bases, namespace):
            """Return the class."""
            fields = tuple(namespace.get("__annotations__", ()))
            defaults = {field: namespace.pop(field) for field in fields if field in namespace}
            rest = (*[_MISSING] * (len(fields) - len(defaults)), *defaults.values())
            namespace.update((field, property(itemgetter(at))) for at, field in enumerate(fields))
            namespace.update(
                __slots__=(), __match_args__=fields, _fields=fields, _field_defaults=defaults, _rest=rest,
                _needed=len(fields) - len(defaults), _places={field: at for at, field in enumerate(fields)},
                __new__=_new, _make=classmethod(_make), _replace=_replace, _asdict=_asdict, __getnewargs__=_values,
            )  # fmt: skip
            namespace.setdefault("__repr__", _repr)
            return type(name, (tuple, *(base for base in bases if base is not NamedTuple)), namespace)

    def _new(cls, *values, **named):
        if named or not cls._needed <= len(values) <= len(cls._fields):
            values = _completed(cls, values, named)
        return tuple.__new__(cls, values + cls._rest[len(values) :])

    def _completed(cls, values, named):
        """Return the values of all fields, or raise a TypeError."""
        given, places = len(values), cls._places
        found = [*values, *cls._rest[given:]]
        is_once = given <= len(places)
        for name, value in named.items():
            if places.get(name, -1) < given:
                is_once = False
            else:
                found[places[name]] = value
        if not is_once or any(found[at] is _MISSING for at in range(given, cls._needed)):
            raise TypeError(f"{cls.__name__} has the fields {', '.join(cls._fields)}, each is given once")
        return tuple(found)

    def _make(cls, values):
        values = tuple(values)
        return tuple.__new__(cls, values) if len(values) == len(cls._fields) else cls(*values)

    def _replace(self, **named):
        values, places = list(self), self._places
        for name, value in named.items():
            if name not in places:
                return type(self)(*self, **named)  # raises the standard error
            values[places[name]] = value
        return tuple.__new__(type(self), values)

    def _asdict(self):
        return dict(zip(self._fields, self, strict=True))

    def _values(self):
        return tuple(self)

    def _repr(self):
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in self._asdict().items())})"

    NamedTuple = type.__new__(_Definition, "NamedTuple", (), {})
