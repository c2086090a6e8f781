"""Measure the embedded default: how fast it is ready, how fast it embeds, what its vectors are worth.

    python benchmarks/embedding.py [--sets FOLDER]

FOLDER holds sets of messages and questions (``<set>/messages.jsonl.gz``, ``<set>/queries.jsonl.gz``); each question is
asked among the messages of its own conversation, by vectors alone. Without it only speed is measured. One core.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import random
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"):
    os.environ[name] = "1"

READY = """
import time; start = time.perf_counter()
import numpy; middle = time.perf_counter()
from crystal.embedding.embedded import StaticEmbedder
StaticEmbedder().embed_query("ready when this is done")
print((middle - start) * 1000, (time.perf_counter() - middle) * 1000)
"""


def measure_ready(runs: int = 7) -> str:
    found = []
    for _ in range(runs):
        done = subprocess.run([sys.executable, "-c", READY], capture_output=True, text=True, check=True)
        found.append(tuple(map(float, done.stdout.split())))
    numpy, ready = (sorted(column)[runs // 2] for column in zip(*found, strict=True))
    return f"ready in {ready:.0f} ms (median of {runs}) after NumPy's own {numpy:.0f} ms"


def realistic_chunks(count: int, words: int = 300) -> list[str]:
    """Text of 400 tokens or so, Zipfian, from the model's own words."""
    from crystal.embedding.static import DATA

    tokens = (DATA / "vocabulary.txt").read_text("utf-8").split("\n")[1996:]
    known = [token for token in tokens if token.isalpha()]
    weights = [1 / (place + 5) for place in range(len(known))]
    draw = random.Random(7)
    return [" ".join(draw.choices(known, weights, k=words)).capitalize() + "." for _ in range(count)]


def measure_speed(texts: list[str]) -> str:
    from crystal.embedding.embedded import StaticEmbedder

    embedder = StaticEmbedder()
    tokens = sum(len(embedder.model._words.encode(text)) for text in texts) / len(texts)
    start = time.perf_counter()
    embedder.embed_documents(texts)
    taken = time.perf_counter() - start
    start = time.perf_counter()
    for text in texts[:200]:
        embedder.embed_query(text[:60])
    query = (time.perf_counter() - start) / min(200, len(texts)) * 1e6
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1024 if sys.platform == "linux" else 1024**2)
    return (
        f"{len(texts) / taken:,.0f} chunks/s of {tokens:.0f} tokens; a short query {query:.0f} µs; "
        f"peak RSS of this process {memory:.0f} MB"
    )


def measure_queue(texts: list[str]) -> str:
    from crystal.embedding.choice import make_embedder
    from crystal.embedding.pending import embed_pending
    from crystal.store import Store
    from tests.support.embedding_store import NOW, add_chunk

    with tempfile.TemporaryDirectory() as folder, Store.open(Path(folder) / "crystal.db") as store:
        with store.transaction():
            for text in texts:
                add_chunk(store, text)
        start = time.perf_counter()
        report = embed_pending(store, make_embedder("embedded"), now=NOW, budget_seconds=600)
        taken = time.perf_counter() - start
        start = time.perf_counter()
        for _ in range(100):
            embed_pending(store, make_embedder("embedded"), now=NOW)
        idle = (time.perf_counter() - start) * 10
    return f"queue to stored vectors {report.embedded / taken:,.0f} chunks/s; nothing new costs {idle:.2f} ms"


def measure_worth(folder: Path) -> str:
    import numpy as np

    from crystal.embedding.static import StaticModel

    model = StaticModel()
    draw = np.random.default_rng(7)
    messages, queries = (
        [json.loads(line) for line in gzip.decompress((folder / name).read_bytes()).splitlines()]
        for name in ("messages.jsonl.gz", "queries.jsonl.gz")
    )
    vectors = np.stack([model.vector(message["text"]) for message in messages])
    places: dict[str, list[int]] = {}
    for place, message in enumerate(messages):
        places.setdefault(message["conv"], []).append(place)
    lines = []
    for label, scores in (
        ("static", lambda query, at: vectors[at] @ model.vector(query["query"])),
        ("random", lambda _, at: draw.random(len(at))),
    ):
        sums = np.zeros(6)
        for query in queries:
            at = np.array(places[query["conv"]])
            ranked = [messages[i] for i in at[np.argsort(-scores(query, at), kind="stable")]]
            sums += [
                *hits([m["id"] for m in ranked], query["gold"]),
                *hits(list(dict.fromkeys(m["session"] for m in ranked)), query["gold_sessions"]),
            ]
        turn1, turn5, turn_mrr, session1, session5, session_mrr = sums / len(queries)
        turns = f"turn hit@1 {turn1:.3f} hit@5 {turn5:.3f} MRR {turn_mrr:.3f}, " if turn_mrr else ""
        lines.append(f"  {label}: {turns}session hit@1 {session1:.3f} hit@5 {session5:.3f} MRR {session_mrr:.3f}")
    return f"{folder.name}, {len(queries)} questions\n" + "\n".join(lines)


def hits(ranked: list[str], gold: list[str]) -> tuple[float, float, float]:
    first = next((place for place, ident in enumerate(ranked) if ident in set(gold)), None)
    return (0.0, 0.0, 0.0) if first is None else (float(first < 1), float(first < 5), 1 / (first + 1))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--sets", type=Path)
    parser.add_argument("--chunks", type=int, default=3000)
    given = parser.parse_args()
    print(measure_ready())
    texts = realistic_chunks(given.chunks)
    print(measure_speed(texts))
    print(measure_queue(texts))
    if given.sets:
        for folder in sorted(file.parent for file in given.sets.glob("*/queries.jsonl.gz")):
            print(measure_worth(folder), flush=True)


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parent.parent))
    main()
