"""Invented memories of any size, fast: text, its places in sessions, and clustered vectors. Seeded, batch by batch.

A batch is 100 sessions of 100 turns and the same whatever comes after it, so a small memory is the beginning of a large
one. Stop words come at their frequency in English, content words by the law of Zipf with endings that a stemmer takes
off; every session has words of its own, as talk has. Identifiers, paths, versions and hashes are strewn in.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate

import numpy as np
from words import NOUNS, VERBS, Writer

SESSION = 100
BATCH_SESSIONS = 100
BATCH = SESSION * BATCH_SESSIONS
PROJECTS = 40
TWO_YEARS = 2 * 365 * 86_400_000
END = 1_790_000_000_000
RARE_BRANCH = "hotfix/one-in-a-thousand"
ROLES = ("user", "assistant", "thinking", "tool_call", "tool_result")
ROLE_WEIGHTS = (0.15, 0.35, 0.1, 0.2, 0.2)

# Occurrences in a million words of general English.
STOP_WORDS = {
    "the": 61800, "of": 29400, "and": 26800, "a": 21600, "to": 25600, "in": 18200, "it": 10900, "is": 10000,
    "that": 11100, "was": 9200, "i": 8900, "for": 8400, "you": 7000, "he": 6800, "be": 6600, "with": 6600, "on": 6500,
    "by": 5100, "at": 4800, "are": 4700, "not": 4600, "this": 4600, "but": 4600, "they": 4300, "his": 4300,
    "from": 4100, "had": 4500, "she": 3800, "which": 3700, "or": 3700, "we": 3600, "an": 3400, "were": 3200,
    "been": 2700, "have": 4700, "their": 2600, "has": 2600, "would": 2600, "what": 2500, "will": 2500, "there": 2500,
    "if": 2400, "can": 2400, "all": 2300, "her": 3000, "as": 6500, "who": 2100, "do": 2000, "one": 2000, "so": 1900,
    "up": 1800, "when": 1700, "no": 1700, "out": 1600, "more": 1600, "could": 1600, "my": 1500, "them": 1700,
    "its": 1600, "into": 1600, "me": 1300, "then": 1600, "about": 1500, "than": 1400, "some": 1700, "now": 1300,
    "just": 1200, "your": 1300, "over": 1100, "how": 1000, "our": 900, "should": 1100, "did": 1000, "why": 500,
    "where": 900, "because": 1000, "does": 600, "these": 1200, "after": 1100, "before": 900, "again": 700, "too": 700,
}  # fmt: skip
STOP_SHARE = 0.40
ENDINGS = {"": 0.5, "s": 0.2, "ed": 0.1, "ing": 0.1, "er": 0.04, "ation": 0.03, "able": 0.03}
STEMS = 40_000
COMMON = 60
MIDDLING = (300, 3_000)
NAMES = 20_000
TOPIC = 60
TOPIC_SHARE = 0.3
NAME_SHARE = 0.03
TOKENS = (100, 210, 340)


@dataclass(frozen=True)
class Batch:
    """Some sessions in order: for each chunk its text, role and time; for each session its project and id."""

    number: int
    texts: list[str]
    roles: list[str]
    times: list[int]
    branches: list[str]
    projects: list[int]
    sessions: list[str]


class Memories:
    """Makes the batches of one seed."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        writer = Writer(seed)
        invented = (word for word in (writer.invent() for _ in range(4 * STEMS)) if len(word) > 3)
        by_use = sorted(dict.fromkeys(invented), key=lambda word: len(word) + 4 * writer.random.random())
        stems = dict.fromkeys([*_shuffled(seed, [*NOUNS, *VERBS]), *by_use])  # what is said often is short
        self.stems = [word for word in stems if word not in STOP_WORDS][:STEMS]
        names = [_name(writer, self.stems) for _ in range(NAMES)]
        words = [*STOP_WORDS, *(stem + ending for stem in self.stems for ending in ENDINGS), *names]
        self._content = len(STOP_WORDS)
        self._names = len(words) - NAMES
        self._count = len(words)
        self.strings = [*words, *(word + "." for word in words), *(word[:1].upper() + word[1:] for word in words)]
        self._general = _table(
            [STOP_SHARE * share / sum(STOP_WORDS.values()) for share in STOP_WORDS.values()]
            + [(1 - STOP_SHARE) * stem * ending for stem in _zipf(len(self.stems), 2.7) for ending in ENDINGS.values()]
        )
        self._topic = _table(_zipf(TOPIC, 2.7))
        self._named = _table(_zipf(NAMES, 50))

    def batches(self, chunks: int) -> Iterator[Batch]:
        """The memories of so many chunks; whole batches, but for the last."""
        for number in range(-(-chunks // BATCH)):
            yield self.batch(number, min(BATCH, chunks - number * BATCH))

    def batch(self, number: int, chunks: int = BATCH) -> Batch:
        """One batch."""
        draw = np.random.default_rng([self.seed, 1, number])
        lengths = draw.triangular(*TOKENS, size=BATCH).astype(np.int64)
        tokens = self._tokens(draw, lengths)
        texts = self._texts(draw, tokens, lengths)
        start = END - TWO_YEARS + draw.integers(0, TWO_YEARS - 86_400_000, BATCH_SESSIONS)
        times = (start[:, None] + np.cumsum(draw.integers(2_000, 90_000, (BATCH_SESSIONS, SESSION)), axis=1)).ravel()
        roles = draw.choice(len(ROLES), BATCH, p=ROLE_WEIGHTS)
        is_rare = draw.random(BATCH) < 1 / 1_000
        branches = [RARE_BRANCH if rare else f"feature/{at % 7}" for at, rare in enumerate(is_rare.tolist())]
        projects = draw.choice(PROJECTS, BATCH_SESSIONS, p=_zipf(PROJECTS, 2.7))
        ids = [_session_id(draw) for _ in range(BATCH_SESSIONS)]
        used = -(-chunks // SESSION)
        return Batch(
            number,
            texts[:chunks],
            [ROLES[role] for role in roles[:chunks]],
            times[:chunks].tolist(),
            branches[:chunks],
            projects[:used].tolist(),
            ids[:used],
        )

    def common(self, dice: random.Random) -> str:
        """A content word that a good part of all chunks has."""
        return self._word(dice, 0, COMMON)

    def middling(self, dice: random.Random) -> str:
        """A word that some chunks in a thousand have."""
        return self._word(dice, *MIDDLING)

    def names(self, shape: str) -> list[str]:
        """The names that have some characters."""
        return [name for name in self.strings[self._names : self._count] if shape in name]

    def _word(self, dice: random.Random, first: int, last: int) -> str:
        (ending,) = dice.choices(list(ENDINGS), weights=list(ENDINGS.values()))
        return self.stems[dice.randrange(first, min(last, len(self.stems)))] + ending

    def _tokens(self, draw: np.random.Generator, lengths: np.ndarray) -> np.ndarray:
        total = int(lengths.sum())
        tokens = np.searchsorted(self._general, draw.random(total, dtype=np.float64)).astype(np.int64)
        session = np.repeat(np.arange(BATCH) // SESSION, lengths)
        pools = self._content + draw.integers(COMMON, 8_000, (BATCH_SESSIONS, TOPIC)) * len(ENDINGS)
        kind = draw.random(total)
        at = np.flatnonzero(kind < TOPIC_SHARE)
        endings = np.searchsorted(_table(list(ENDINGS.values())), draw.random(len(at)))
        tokens[at] = pools[session[at], np.searchsorted(self._topic, draw.random(len(at)))] + endings
        at = np.flatnonzero(kind > 1 - NAME_SHARE)
        tokens[at] = self._names + np.searchsorted(self._named, draw.random(len(at)))
        ends = np.flatnonzero(draw.random(total - 1) < 1 / 12)
        tokens[ends + 1] = tokens[ends + 1] % self._count + 2 * self._count
        tokens[ends] = tokens[ends] % self._count + self._count
        return tokens

    def _texts(self, draw: np.random.Generator, tokens: np.ndarray, lengths: np.ndarray) -> list[str]:
        word = self.strings.__getitem__
        spread = iter(tokens.tolist())
        hashes = draw.bytes(20 * BATCH).hex()
        shapes = draw.random(BATCH).tolist()
        texts = []
        for at, length in enumerate(lengths.tolist()):
            text = " ".join([word(next(spread)) for _ in range(length)])
            digest, shape = hashes[40 * at : 40 * at + 40], shapes[at]
            tail = f" commit {digest}" if shape < 0.1 else f" ({digest[:8]})" if shape < 0.2 else ""
            texts.append(text + (f"\nERR-{digest[:6].upper()}" if 0.2 < shape < 0.25 else tail))
        return texts


def _name(writer: Writer, stems: Sequence[str]) -> str:
    pick, number = writer.random.choice, writer.random.randrange
    one, two, three = pick(VERBS), pick(NOUNS), stems[number(len(stems))]
    shape = writer.random.random()
    if shape < 0.35:
        return f"{one}_{two}_{three}"
    if shape < 0.6:
        return f"src/{two}/{three}/{one}.py"
    if shape < 0.8:
        return f"{three.title()}{two.title()}.{one}()"
    return f"{three}-{number(20)}.{number(50)}.{number(100)}" if shape < 0.9 else f"{two}[{number(1_000)}]"


def _session_id(draw: np.random.Generator) -> str:
    text = draw.bytes(16).hex()
    return f"{text[:8]}-{text[8:12]}-4{text[13:16]}-9{text[17:20]}-{text[20:]}"


def _shuffled(seed: int, words: list[str]) -> list[str]:
    found = list(dict.fromkeys(word for word in words if word not in STOP_WORDS))
    random.Random(seed).shuffle(found)
    return found


def _zipf(count: int, shift: float) -> list[float]:
    weights = [1 / (rank + shift) for rank in range(1, count + 1)]
    return [weight / sum_ for sum_ in [sum(weights)] for weight in weights]


def _table(weights: Sequence[float]) -> np.ndarray:
    """Cumulative probabilities whose last is 1 whatever rounding says."""
    summed = np.array(list(accumulate(weights)))
    return np.minimum(summed / summed[-1], 1.0)


# --------------------------------------------------------------------------------------------------------- vectors

CENTRES = 2_000
GROUPS = 60


class Clusters:
    """Unit vectors around centres that lie in groups, wide along few axes and with a common direction, as models give.

    A session keeps to three centres. Neighbours in a cluster have a cosine of about 0.6, strangers of about 0.2.
    """

    def __init__(self, seed: int, dimension: int) -> None:
        self.seed, self.dimension = seed, dimension
        draw = np.random.default_rng([seed, 2, dimension])
        self._axes = ((np.arange(dimension) + 4.0) ** -0.35).astype(np.float32)
        self._axes /= np.linalg.norm(self._axes)
        middle = draw.standard_normal(dimension, dtype=np.float32) * self._axes
        groups = draw.standard_normal((GROUPS, dimension), dtype=np.float32) * self._axes
        own = draw.standard_normal((CENTRES, dimension), dtype=np.float32) * self._axes
        self._centres = 0.45 * middle + 0.55 * groups[draw.integers(0, GROUPS, CENTRES)] + 0.65 * own

    def batch(self, number: int, count: int = BATCH) -> np.ndarray:
        """The vectors of a batch's chunks, in order."""
        draw = np.random.default_rng([self.seed, 3, self.dimension, number])
        centres = draw.integers(0, CENTRES, (BATCH_SESSIONS, 3))
        chosen = np.repeat(centres, SESSION, axis=0)[np.arange(BATCH), draw.integers(0, 3, BATCH)]
        found = 0.75 * draw.standard_normal((BATCH, self.dimension), dtype=np.float32) * self._axes
        found += self._centres[chosen]
        found /= np.linalg.norm(found, axis=1, keepdims=True)
        return found[:count]

    def near(self, vector: np.ndarray, draw: np.random.Generator) -> np.ndarray:
        """A question's vector: a stored one with noise, of a cosine of about 0.75 to it."""
        found = vector + 0.75 * draw.standard_normal(self.dimension, dtype=np.float32) * self._axes
        return (found / np.linalg.norm(found)).astype(np.float32)
