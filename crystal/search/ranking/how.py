"""How to search, where the user has a choice."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import tzinfo
from typing import TYPE_CHECKING, get_args

from crystal.errors import UsageProblem
from crystal.model.capture import Fusion, Recency

if TYPE_CHECKING:
    from crystal.search.deep import Deep
    from crystal.search.ranking.late import LateModel


@dataclass(frozen=True, slots=True)
class How:
    """How to search, where the user has a choice.

    Attributes:
        recency: How much what is new is preferred among answers that are nearly as good.
        fusion: ``weighted``, or ``rrf``: Reciprocal Rank Fusion with k = 60, or ``similarity``: by meaning alone, each
            score a cosine from 0 to 1; then nothing is preferred.
        deep: The model asked for other wordings and for the order of the best answers; None for none.
        late: What compares a question with texts token by token; None leaves that out.
        tz: The zone in which time words are understood; None for the machine's.

    Raises:
        UsageProblem: A value that is no choice, or two that exclude each other.
    """

    recency: Recency = "light"
    fusion: Fusion = "weighted"
    deep: Deep | None = None
    late: Callable[[], LateModel] | None = None
    tz: tzinfo | None = None

    def __post_init__(self) -> None:
        """Refuse what is no choice."""
        for name, value, known in (("recency", self.recency, Recency), ("fusion", self.fusion, Fusion)):
            if value not in get_args(known):
                raise UsageProblem(f"{name} is {value!r}", hint=f"use {', '.join(get_args(known))}")
        if self.deep is not None and self.fusion == "similarity":
            raise UsageProblem(
                "a deep search has an order of its own, and fusion is similarity", hint="with --deep: --fusion weighted"
            )
