"""A process that is killed at a statement of its store, or at a call."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import pytest

from crystal.store import Store


class Killed(BaseException):
    """The process ends here."""


@dataclass(slots=True)
class Run:
    """What was run: how many statements began, and whether it was killed."""

    statements: int = 0
    is_killed: bool = False


@contextmanager
def killed_at(store: Store, statement: int = 0) -> Iterator[Run]:
    """End the block at a statement of this number, from 1 on; at none if it is 0. Afterwards none but ROLLBACK works."""
    run, db = Run(), store.db

    def trace(_cursor: object, sql: str, _values: object) -> bool:
        run.statements += 1
        if 0 < statement <= run.statements and not sql.startswith("ROLLBACK"):
            raise Killed
        return True

    db.exec_trace = trace
    try:
        yield run
    except Killed:
        run.is_killed = True
    finally:
        db.exec_trace = None


@contextmanager
def killed_at_call(calls: Iterable[tuple[ModuleType, str]], moment: int) -> Iterator[Run]:
    """End the block before or after a call of some functions: every call has these two moments, counted from 0 on."""
    run, moments = Run(), itertools.count()

    def mortal(act: Callable[..., Any]) -> Callable[..., Any]:
        def acted(*given: Any, **named: Any) -> Any:
            if next(moments) == moment:
                raise Killed
            done = act(*given, **named)
            if next(moments) == moment:
                raise Killed
            return done

        return acted

    with pytest.MonkeyPatch.context() as patch:
        for module, name in calls:
            patch.setattr(module, name, mortal(getattr(module, name)))
        try:
            yield run
        except Killed:
            run.is_killed = True
