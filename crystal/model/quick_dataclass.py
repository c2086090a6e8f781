"""Provide frozen dataclasses that are quick to define: a search loads some fifty of them.

The standard ones compile source code for each method of each class, which took a twelfth of ``crystal search``
(docs/adr/0006-libraries.md). These have the same fields, defaults and methods, which look the fields up when they are
called. Type checkers see the standard ones. A class with other options becomes a standard one.
"""

# ruff: noqa: ANN001, ANN002, ANN003, ANN201, ANN202, ANN204, SLF001 - type checkers do not see these

from __future__ import annotations

import sys

TYPE_CHECKING = False  # as type checkers understand it, without the time that importing ``typing`` takes
if TYPE_CHECKING or sys.version_info >= (3, 14):
    from dataclasses import dataclass as dataclass  # noqa: PLC0414 - for others to import
    from dataclasses import replace as replace  # noqa: PLC0414
else:
    import dataclasses
    import types
    from dataclasses import MISSING, Field, FrozenInstanceError

    _OWN = frozenset({"__init__", "__eq__", "__hash__", "__setattr__", "__delattr__", "__slots__", "__getstate__"})

    _FROZEN = types.SimpleNamespace(frozen=True)  # for standard ones that are made from these

    def dataclass(**options):
        """Return a decorator that makes a dataclass of a class."""

        def make(cls):
            return _quick(cls) or dataclasses.dataclass(**options)(cls)

        return make if options == {"frozen": True, "slots": True} else dataclasses.dataclass(**options)

    def _quick(cls):
        """Return a class with the same body, fields from its annotations and the methods below; None if impossible."""
        body = dict(cls.__dict__)
        kinds = body.get("__annotations__", {})
        own = {name: body.pop(name, MISSING) for name in kinds}
        if not (_is_plain(cls) and all(map(_has_known_options, kinds.values(), own.values()))):
            return None
        base = cls.__base__
        known = {**getattr(base, "_quick", {}), **own}
        for name in ("__dict__", "__weakref__"):
            body.pop(name, None)
        fields = tuple(known)
        body.update(
            __slots__=tuple(name for name in kinds if not hasattr(base, name)), __match_args__=fields, _quick=known,
            __init__=_init, __eq__=_eq, __hash__=_hash, __setattr__=_refuse, __delattr__=_refuse,
            __getstate__=_state, __setstate__=_restore,
            __dataclass_fields__=_StandardFields(), __dataclass_params__=_FROZEN,
        )  # fmt: skip
        body.setdefault("__repr__", _repr)
        made = type(cls)(cls.__name__, cls.__bases__, body)
        made._places = tuple(getattr(made, name) for name in fields)
        return made

    def _is_plain(cls):
        """Return True if a class defines no method made here, and its one base is ``object`` or a quick dataclass."""
        base = cls.__base__
        return _OWN.isdisjoint(vars(cls)) and cls.__bases__ == (base,) and (base is object or "_quick" in vars(base))

    def _has_known_options(kind, given):
        """Return True if an annotation and its default are a field whose options this module knows."""
        if "ClassVar" in str(kind) or "InitVar" in str(kind):
            return False
        return not isinstance(given, Field) or (given.init and given.compare and given.hash is None)

    def _init(self, *values, **named):
        places = self._places
        if named or len(values) != len(places):
            values = _completed(type(self), values, named)
        _restore(self, values)
        if hasattr(self, "__post_init__"):
            self.__post_init__()

    def _completed(cls, values, named):
        """Return the values of all fields, or raise a TypeError."""
        found, given = list(values), list(cls._quick.items())[len(values) :]
        found += [named.pop(name) if name in named else _default(one) for name, one in given]
        if named or len(found) != len(cls._quick) or any(value is MISSING for value in found):
            raise TypeError(f"{cls.__name__} has the fields {', '.join(cls._quick)}, each is given once")
        return found

    def _default(given):
        if not isinstance(given, Field):
            return given
        return given.default if given.default_factory is MISSING else given.default_factory()

    def _values(self):
        return tuple([place.__get__(self) for place in self._places])

    def _eq(self, other):
        return _values(self) == _values(other) if other.__class__ is self.__class__ else NotImplemented

    def _hash(self):
        return hash(_values(self))

    def _state(self):
        return list(_values(self))

    def _restore(self, state):
        for place, value in zip(self._places, state, strict=True):
            place.__set__(self, value)

    def _refuse(_, name, *__):
        raise FrozenInstanceError(f"cannot assign to field {name!r}")

    def _repr(self):
        shown = [name for name, given in self._quick.items() if not isinstance(given, Field) or given.repr]
        return f"{type(self).__qualname__}({', '.join(f'{name}={getattr(self, name)!r}' for name in shown)})"

    class _StandardFields:
        """The fields in the form for the functions of ``dataclasses``, made at their first use."""

        def __get__(self, _, cls):
            if "_standard" not in vars(cls):
                rows = [
                    (name, object, given if isinstance(given, Field) else dataclasses.field(default=given))
                    for name, given in cls._quick.items()
                ]
                cls._standard = dataclasses.make_dataclass(cls.__name__, rows).__dataclass_fields__
            return cls._standard

    def replace(one, /, **changes):
        """Return a copy with other values for some fields."""
        if "_quick" not in vars(type(one)):
            return dataclasses.replace(one, **changes)
        return type(one)(**{**dict(zip(one._quick, _values(one), strict=True)), **changes})
