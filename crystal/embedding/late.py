"""Compare a question and a text token by token (late interaction).

Each token of the question has the weight of its word. With the static table, reading some dozens of chunks takes
milliseconds: a token has one vector wherever it occurs, so each is compared once for all texts. A transformer's
token vectors depend on the surrounding words and are better; if one is in use, both results are added.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from itertools import accumulate

import numpy as np
import numpy.typing as npt

from crystal.embedding.embedder import TokenRows, TokenVectors
from crystal.embedding.static import StaticModel
from crystal.embedding.wordpiece import words_of
from crystal.errors import CrystalError
from crystal.model.named_tuple import NamedTuple
from crystal.text.query import MARKS

WeightOf = Callable[[str], float]


class Likeness(NamedTuple):
    """Similarity of a text to the question, about 0 to 1: alone and together with its neighbours; and its tokens."""

    similarity: float
    tokens: Sequence[int]
    together: float = 0.0


Floats = npt.NDArray[np.float32]

READ_CHARACTERS = 16_000
"""Maximum characters that a transformer reads for one question: about a third of a second on one core."""
READ_EACH = 1_000
"""Maximum characters of each text."""
STATIC_SHARE = 0.4
TRANSFORMER_SHARE = 2.5
"""Weights of table and transformer when both are used; the table alone has 1 (measured: docs/adr/0018-ranking.md)."""

ON_ONE_THREAD = 1 << 18
"""Below this many multiplications OpenBLAS starts no threads, which would wait for more work in busy loops."""

_WORD = re.compile(rf"[\w{MARKS}]+")


class TokenComparer:
    """Compares with the embedded table, which is available whatever model makes the vectors of chunks.

    Args:
        table: Compares all texts.
        model: A transformer for token vectors; it also compares as many of the first texts as time allows. None to use
            only the table.
    """

    def __init__(self, table: StaticModel, model: TokenVectors | None = None) -> None:
        self._table, self._model = table, model

    @property
    def knows_context(self) -> bool:
        """Return True if a token's vector depends on the surrounding words."""
        return self._model is not None

    def tokens(self, texts: Sequence[str]) -> list[Sequence[int]]:
        """Return the tokens of texts, by the table."""
        return [self._table.tokens(text) for text in texts]

    def late(
        self, question: str, texts: Sequence[str], weight_of: WeightOf, beside: Sequence[Sequence[int]] = ()
    ) -> list[Likeness]:
        """Return for each text the weighted mean of the question tokens' best cosines, and the text's tokens.

        0 for a text or a question without known tokens. ``weight_of`` returns the weight of a question's word. With
        a model, a text that the model did not read gets the lowest score of the others, and the last number is how well
        the text and those at the indexes in ``beside`` match the question together.
        """
        by_table = self._by_table(question, texts, weight_of)
        if self._model is None:
            return by_table
        words = list(dict.fromkeys(_WORD.findall(question)))
        try:
            asked, *vectors = self._model.token_vectors([question, *words, *_readable(texts)])
        except CrystalError:  # a failing model costs nothing else; its error is reported where it is called first
            return by_table
        weighed = _weighed((tokens, weight_of(word)) for (tokens, _), word in zip(vectors, words, strict=False))
        share, said = _shares([weighed.get(token, 0.0) for token in asked[0]]), vectors[len(words) :]
        met = [_best_cosines(asked, one) for one in said]
        likes = [float(share @ one) for one in met]
        around = [[other for other in others if other < len(met)] for others in beside] or [[]] * len(met)
        both = [
            float(share @ np.maximum.reduce([one, *(met[other] for other in others)]))
            for one, others in zip(met, around, strict=False)
        ]
        missing = len(texts) - len(met)
        likes += [min(likes, default=0.0)] * missing
        both += [min(both, default=0.0)] * missing
        return [
            Likeness(STATIC_SHARE * static + TRANSFORMER_SHARE * like, tokens, together)
            for (static, tokens, _), like, together in zip(by_table, likes, both, strict=True)
        ]

    def _by_table(self, question: str, texts: Sequence[str], weight_of: WeightOf) -> list[Likeness]:
        words = dict.fromkeys(_WORD.findall(question))
        weighed = _weighed((self._table.tokens(word), weight_of(word)) for word in words)
        said = self.tokens(texts)
        lists = [list(dict.fromkeys(tokens)) for tokens in said if tokens]
        if not lists or not weighed:
            return [Likeness(0.0, tokens) for tokens in said]
        distinct, places = np.unique(np.concatenate(lists), return_inverse=True)
        cosines = _product(self._table.rows(distinct.tolist()), self._table.rows(list(weighed)).T)
        begins = np.cumsum([0, *(len(tokens) for tokens in lists[:-1])])
        share = _shares(list(weighed.values()))
        best = iter(np.maximum.reduceat(cosines[places], begins, axis=0) @ share)
        return [Likeness(float(next(best)) if tokens else 0.0, tokens) for tokens in said]


class LiteralComparer:
    """Replaces ``TokenComparer`` for exact questions: similarities are 0, and the tokens of a text are its words."""

    knows_context = False

    def late(self, _question: str, texts: Sequence[str], *_: object) -> list[Likeness]:
        """Return no similarity for any text, and its words as tokens."""
        return [Likeness(0.0, [hash(word) for word in words_of(text)]) for text in texts]


Comparer = TokenComparer | LiteralComparer


def _weighed(words: Iterable[tuple[Sequence[int], float]]) -> dict[int, float]:
    weighed: dict[int, float] = {}
    for tokens, weight in words:
        for token in tokens:
            weighed[token] = max(weight, weighed.get(token, 0.0))
    return {token: weight for token, weight in weighed.items() if weight > 0}


def _shares(weights: Sequence[float]) -> Floats:
    total = sum(weights)
    return np.array([weight / total if total > 0 else 0.0 for weight in weights], np.float32)


def _product(rows: Floats, columns: Floats) -> Floats:
    """Multiply two matrices on one thread."""
    step = max(1, ON_ONE_THREAD // columns.size)
    return np.concatenate([rows[start : start + step] @ columns for start in range(0, len(rows), step)])


def _best_cosines(asked: TokenRows, said: TokenRows) -> Floats:
    """Return each question token's best cosine with a token of a text."""
    if not asked[0] or not said[0]:
        return np.zeros(len(asked[0]), np.float32)
    return np.asarray((asked[1] @ said[1].T).max(axis=1), np.float32)


def _readable(texts: Sequence[str]) -> list[str]:
    beginnings = [text[:READ_EACH] for text in texts]
    starts = accumulate(map(len, beginnings), initial=0)
    return [text for text, start in zip(beginnings, starts, strict=False) if start <= READ_CHARACTERS]
