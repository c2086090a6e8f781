"""What is asked: kinds of questions about the invented memories, each with its filter and the vector of its meaning."""

from __future__ import annotations

import base64
import json
import random
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from datetime import datetime, timezone
from typing import Any

import numpy as np
from search_stores import SEED, Place
from search_text import BATCH, END, RARE_BRANCH, SESSION, TWO_YEARS, Clusters, Memories

from crystal.model.recall import Filters

MONTH = 30 * 86_400_000
NAMED = {"identifier": "_", "path": "src/"}
NATURAL = (
    "how did we {common} the {middling} when the {common} of {middling} was not in the {common} and {middling}",
    "what was the reason that the {common} has to {middling} before it is {middling} by the {common} {middling}",
    "why does {middling} not {common} with the {middling} {common} that we have for the {common} of {middling}",
    "where is it that you said that the {common} {middling} should be {common} on {middling} or {middling} {common}",
)


@dataclass(frozen=True)
class Question:
    """One question; ``vector`` is float32."""

    kind: str
    text: str
    vector: bytes = field(repr=False)
    filters: dict[str, Any] = field(default_factory=dict)

    def as_json(self) -> str:
        return json.dumps({**asdict(self), "vector": base64.b64encode(self.vector).decode()})

    @classmethod
    def from_json(cls, line: str) -> Question:
        given = json.loads(line)
        return cls(**{**given, "vector": base64.b64decode(given["vector"])})

    @property
    def crystal_filters(self) -> Filters | None:
        return Filters(**self.filters) if self.filters else None

    @property
    def numbers(self) -> np.ndarray:
        return np.frombuffer(self.vector, np.float32)


def questions(place: Place, count: int, seed: int = 1) -> list[Question]:
    """So many of each kind, shuffled. The kinds with filters ask what ``natural`` asks: they can be compared."""
    memories, clusters = Memories(SEED), Clusters(SEED, place.dimension)
    dice, draw = random.Random(seed), np.random.default_rng([seed, 4])
    named = random.Random(seed)
    batch = memories.batch(0, min(BATCH, place.chunks))
    stored = clusters.batch(0, min(BATCH, place.chunks))

    def vector() -> bytes:
        return clusters.near(stored[dice.randrange(len(stored))], draw).tobytes()

    def words(shape: str) -> str:
        makers: dict[str, Callable[[random.Random], str]] = {"common": memories.common, "middling": memories.middling}
        for name, make in makers.items():
            while "{" + name + "}" in shape:
                shape = shape.replace("{" + name + "}", make(dice), 1)
        return shape

    found = []
    for at in range(count):
        text = dice.choice(batch.texts)
        said = [word.strip(".") for word in text.split() if word.strip(".").isalpha()]
        start = dice.randrange(len(said) - 3)
        natural, meaning = words(NATURAL[at % len(NATURAL)]), vector()
        session = dice.randrange(len(batch.sessions))
        since = END - TWO_YEARS + dice.randrange(TWO_YEARS - MONTH)
        filters: dict[str, dict[str, Any]] = {
            "natural": {},
            "project": {"project": f"project-{batch.projects[session]}"},
            "session": {"session": batch.sessions[session]},
            "role": {"role": dice.choice(("user", "assistant", "tool_result"))},
            "month": {"since": since, "before": since + MONTH},
            "1 in 1,000": {"branch": RARE_BRANCH},
        }
        found += [
            Question("rare", _rare(text, batch.texts[session * SESSION], dice), vector()),
            Question("middling", words("{middling} {middling} {middling}"), vector()),
            Question("common", words("{common} {common} {common}"), vector()),
            *(Question(kind, natural, meaning, chosen) for kind, chosen in filters.items()),
            Question("phrase", f'"{" ".join(said[start : start + 3])}" {memories.middling(dice)}', vector()),
            Question("prefix", memories.stems[dice.randrange(300, 3_000)][:5], vector()),
            *(Question(kind, named.choice(memories.names(shape)), meaning) for kind, shape in NAMED.items()),
            Question("time words", f"{natural} in {_month(since)}", meaning),
        ]
    dice.shuffle(found)
    return found


def _month(moment: int) -> str:
    return datetime.fromtimestamp(moment / 1000, timezone.utc).strftime("%B %Y")


def _rare(text: str, other: str, dice: random.Random) -> str:
    """A word that hardly any other chunk has: what stands last in a text with a hash, else a long one."""
    for one in (text, other):
        last = one.split()[-1].strip("().")
        if any(character.isdigit() for character in last):
            return last
    return max(
        (word.strip(".") for word in text.split() if word.strip(".").isalpha()),
        key=lambda word: (len(word), dice.random()),
    )
