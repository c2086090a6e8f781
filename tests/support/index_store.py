"""A small store to index, and what the index must say of it, worked out the slow way."""

import random
from array import array
from collections import Counter

import numpy as np

from crystal.search.index.bm25 import FLAT, FREE, FREE_PADDED, K1, SPAN, SPAN_PADDED
from crystal.search.index.open_index import Absent, open_index
from crystal.search.index.refresh import drop, refresh
from crystal.search.index.terms import document_words
from crystal.search.index.words import TIMES
from crystal.store import Store
from crystal.store.search import vectors
from crystal.store.search.space import delete_chunks
from crystal.store.search.tokenizer import tokenizer
from crystal.store.texts import text_hash

NOW = 1_790_000_000_000
DIMENSION = 32
WORDS = "alpha beta gamma delta walking walked FindMostRecent parser 東京都 München 4711 naïve foo_bar".split()


class IndexStore:
    """A store with an index beside it, and the means to change it as crystal does."""

    def __init__(self, folder, seed=0):
        self.folder = folder / "index" / "crystal"
        self.store = Store.open(folder / "crystal.db")
        self.dice = random.Random(seed)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def text(self):
        return " ".join(self.dice.choices(WORDS, k=self.dice.choice([0, 1, 3, 8, 40, 90])))

    def add(self, count=1, text=None, **values):
        with self.store.transaction():
            return [self._add(self.text() if text is None else text, values) for _ in range(count)]

    def _add(self, text, values):
        store, dice = self.store, self.dice
        session = values.get("session", dice.choice([None, 1, 2, 3]))
        ts = values.get("ts", dice.choice([None, NOW + dice.randrange(50) * 86_400_000]))
        turn = None
        if session is not None:
            store.execute(
                "INSERT INTO sessions (id, session_id, agent, device) VALUES (?, ?, 'cc', 'desk') ON CONFLICT DO NOTHING",
                (session, f"session-{session}"),
            )
            uuid = f"turn-{dice.getrandbits(64)}"
            store.execute(
                "INSERT INTO turns (uuid, part, session, offset, role, ts, full_length) VALUES (?, 0, ?, ?, 'user', ?, 0)",
                (uuid, session, dice.randrange(1000), ts),
            )
            turn = store.value("SELECT id FROM turns WHERE uuid = ?", (uuid,))
        row = {
            "turn": turn,
            "start": dice.choice([0, 700]),
            "body": text,
            "text_sha256": text_hash(text),
            "source": dice.choice(["conversation", "file"]),
            "role": dice.choice(["user", "assistant", "tool_call"]),
            "session": session,
            "project": None,
            "agent": dice.choice(["cc", "other"]),
            "device": dice.choice(["desk", "lap"]),
            "branch": dice.choice([None, "main", "fix/ä"]),
            "subagent": dice.choice([None, None, "explore"]),
            "ts": ts,
        } | values
        store.execute(f"INSERT INTO chunks ({', '.join(row)}) VALUES ({', '.join('?' * len(row))})", list(row.values()))
        return store.value("SELECT max(id) FROM chunks")

    def ids(self):
        return [ident for (ident,) in self.store.rows("SELECT id FROM chunks ORDER BY id")]

    def delete(self, ids):
        with self.store.transaction():
            delete_chunks(self.store, list(ids))

    def change(self, ident, text):
        sha = text_hash(text)
        with self.store.transaction():
            self.store.execute("UPDATE chunks SET body = ?, text_sha256 = ? WHERE id = ?", (text, sha, ident))

    def embed(self, ids=None, model="dice"):
        """Give chunks vectors; gives the generation."""
        generation = vectors.ensure_generation(self.store, "test", model, DIMENSION, NOW)
        waiting = [ident for ident, _, _ in vectors.pending_chunks(self.store, generation, 100_000)]
        some = waiting if ids is None else [ident for ident in ids if ident in waiting]
        vectors.put_vectors(self.store, generation, [(ident, vector((ident, model))) for ident in some])
        return generation

    def refresh(self, now=NOW, budget=60.0):
        return refresh(self.store, self.folder, now=now, budget_seconds=budget)

    def open(self):
        found = open_index(self.store, self.folder)
        assert not isinstance(found, Absent), found
        return found

    def close(self):
        self.store.close()


def rebuild(world):
    drop(world.store, world.folder)
    refresh(world.store, world.folder, now=NOW, budget_seconds=3600)


def vector(seed):
    dice = np.random.default_rng(abs(hash(seed)) if isinstance(seed, int) else [seed[0], len(seed[1])])
    numbers = dice.standard_normal(DIMENSION)
    return array("f", numbers / np.linalg.norm(numbers)).tobytes()


def reference(world, index, terms, *, ids):
    """Own and padded scores of all documents, by chunk, with the neighbours that their part gives them."""
    tokenize = tokenizer(world.store)
    rows = world.store.rows(
        "SELECT c.id, c.text, c.ts, c.session, c.subagent, t.offset, t.part, c.start FROM chunks c"
        " LEFT JOIN turns t ON t.id = c.turn"
    )
    counts, lengths, thread, order = {}, {}, {}, {}
    for ident, text, ts, session, subagent, offset, part, start in rows:
        words = document_words(tokenize, text, ts)
        counts[ident] = Counter([*words.header, *words.text, *words.parts])
        lengths[ident] = len(words.text)
        thread[ident] = (session, subagent) if session is not None else ("alone", ident)
        order[ident] = (-(2**63) if ts is None else ts, offset or 0, part or 0, start, ident)
    own, padded = dict.fromkeys(ids, 0.0), dict.fromkeys(ids, 0.0)
    home = dict(zip(ids, np.searchsorted(index._starts, index.find(ids), side="right") - 1, strict=True))
    for number, part in enumerate(index._parts):
        members = [int(ident) for ident in part.arrays["id"] if int(ident) in counts]
        threads = {}
        for ident in sorted(members, key=order.__getitem__):
            threads.setdefault(thread[ident], []).append(ident)
        for line in threads.values():
            for at, ident in enumerate(line):
                if home[ident] != number:  # changed since: it is void here
                    continue
                around = line[max(0, at - 1) : at + 2]
                length, wide = lengths[ident], sum(lengths[one] for one in around)
                k = K1 * (FLAT + max(0, length - FREE) / SPAN)
                kp = K1 * (FLAT + max(0, wide - FREE_PADDED) / SPAN_PADDED)
                for words, weight in terms:
                    tf = sum(kept_times(counts[ident][word]) for word in dict.fromkeys(words))
                    tp = sum(kept_times(counts[one][word]) for one in around for word in dict.fromkeys(words))
                    own[ident] += weight * tf * (K1 + 1) / (tf + k)
                    padded[ident] += weight * tp * (K1 + 1) / (tp + kp)
    return own, padded


def kept_times(count):
    """The number of times that four bits keep."""
    return max((times for times in TIMES.tolist() if times <= count), default=0)
