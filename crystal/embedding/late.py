"""Late interaction with static token vectors: a question and a text, compared token by token.

Each token's weight is the one that it has in a text's vector, where rare tokens count more. Reading fifty chunks takes
some milliseconds: a token has one vector wherever it stands, so each is compared once for all texts.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from crystal.embedding.static import StaticModel


class StaticLate:
    """Compares by the embedded table, which is there whatever model makes the vectors of chunks."""

    def __init__(self, model: StaticModel) -> None:
        self._model = model

    def late(self, question: str, texts: Sequence[str]) -> list[tuple[float, Sequence[int]]]:
        """For each text the weighted mean of the best cosines of the question's tokens, and the text's tokens.

        0 for a text or a question without known tokens.
        """
        asked = list(dict.fromkeys(self._model.tokens(question)))
        said = [self._model.tokens(text) for text in texts]
        weights = self._model.weights(asked)
        lists = [list(dict.fromkeys(tokens)) for tokens in said if tokens]
        if not lists or not asked or weights.sum() <= 0:
            return [(0.0, tokens) for tokens in said]
        distinct, places = np.unique(np.concatenate(lists), return_inverse=True)
        cosines = self._model.rows(distinct.tolist()) @ self._model.rows(asked).T
        begins = np.cumsum([0, *(len(tokens) for tokens in lists[:-1])])
        best = iter(np.maximum.reduceat(cosines[places], begins, axis=0) @ (weights / weights.sum()))
        return [(float(next(best)) if tokens else 0.0, tokens) for tokens in said]
