"""Compare models: what their vectors are worth, how fast they are, how much memory and disk they take.

    python benchmarks/models.py [--home FOLDER] [--only NAMES] [--sets FOLDER ...] [--threads N]

FOLDER of --home holds installed models, by default those of this user; the embedded one is always there. Each FOLDER of
--sets holds a set of messages and questions (messages.jsonl.gz, queries.jsonl.gz); each question is asked among the
messages of its own conversation, by vectors alone and as ``crystal search`` does it. Every model has a process of its
own, and times are those of the processor, so that a busy machine matters less. The tables that come out are those of
docs/explanation/models.md.
"""

from __future__ import annotations

import argparse
import functools
import gzip
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"):
    os.environ[name] = "1"
sys.path.insert(0, str(Path(__file__).parent.parent))

DEPTH = 50
NOW = 1_795_000_000_000
TOKENS = (40, 120, 400)


def embedder_of(name: str, home: Path, threads: int) -> Any:
    from crystal.embedding.chosen_embedder import make_embedder

    return (
        make_embedder("embedded") if name == "embedded" else make_embedder("local", name, models=home, threads=threads)
    )


# ----------------------------------------------------------------------------------------------------------- speed


def measure_speed(name: str, home: Path, threads: int, chunks: int, many: int) -> dict[str, Any]:
    """In a fresh process: ready, a question, chunks a second, tokens' vectors, memory before and after many texts."""
    import numpy as np  # what everybody pays

    assert np.ones(1).all()
    embedder = embedder_of(name, home, threads)
    ready = timed(lambda: embedder.embed_query("ready when this is done")) * 1000
    asked = [" ".join(words) for words in zip(*[iter(realistic(1, 240)[0].split())] * 8, strict=False)]
    query = median(timed(lambda text=text: embedder.embed_query(text)) for text in asked) * 1000
    texts = realistic(chunks, 300)
    found = {"ready_ms": ready, "query_ms": query, "chunks": chunks / timed(lambda: embedder.embed_documents(texts))}
    for tokens in TOKENS if embedder.has_token_vectors else ():
        some = realistic(max(8, chunks * 40 // tokens), tokens * 3 // 4)
        found[f"tokens_{tokens}"] = len(some) / timed(lambda some=some: embedder.token_vectors(some))
    short = realistic(many, 12)
    embedder.embed_documents(short[: many // 10])
    found["rss_before"] = rss()
    embedder.embed_documents(short)
    return found | {"rss_after": rss()}


def realistic(count: int, words: int) -> list[str]:
    """Zipfian text of the embedded vocabulary's own words: 300 words are 400 tokens or so."""
    from crystal.embedding.static import DATA

    known = [token for token in (DATA / "vocabulary.txt").read_text("utf-8").split("\n")[1996:] if token.isalpha()]
    weights = [1 / (place + 5) for place in range(len(known))]
    draw = random.Random(7)
    return [" ".join(draw.choices(known, weights, k=words)).capitalize() + "." for _ in range(count)]


def timed(work: Callable[[], object]) -> float:
    """Seconds of processor time: what else runs on the machine counts less."""
    start = time.process_time()
    work()
    return time.process_time() - start


def median(numbers: Iterable[float]) -> float:
    held = sorted(numbers)
    return held[len(held) // 2]


def rss() -> float:
    """Memory of this process now, MB; its peak where the system does not tell."""
    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6
    except (OSError, IndexError):
        import resource

        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1e3 if sys.platform == "linux" else 1e6)


# --------------------------------------------------------------------------------------------------------- quality


def measure_worth(name: str, home: Path, threads: int, folder: Path) -> dict[str, Any]:
    """Both ways of asking a set, with one store for the whole of it."""
    from crystal.search.index import bring_up_to_date
    from crystal.store import Store

    messages, queries = (read(folder / each) for each in ("messages.jsonl.gz", "queries.jsonl.gz"))
    session_of = {one["id"]: one["session"] for one in messages}
    with tempfile.TemporaryDirectory() as place, Store.open(Path(place) / "crystal.db") as store:
        fill(store, messages)
        bring_up_to_date(store, now=NOW, budget_seconds=600)
        asked: Any = None if name == "keywords" else embedder_of(name, home, threads)
        started = time.perf_counter()
        by_vectors = vectors_of(store, asked) if asked is not None else None
        taken = time.perf_counter() - started
        sums = {"alone": [0.0] * 6, "hybrid": [0.0] * 6}
        for query in queries:
            for way, ranked in (
                ("alone", by_vectors(query) if by_vectors else []),
                ("hybrid", by_search(store, asked, query)),
            ):
                sessions = list(dict.fromkeys(session_of[one] for one in ranked))
                made = [*hits(ranked, query["gold"]), *hits(sessions, query["gold_sessions"])]
                sums[way] = [a + b for a, b in zip(sums[way], made, strict=True)]
    return {way: [total / len(queries) for total in held] for way, held in sums.items()} | {
        "questions": len(queries),
        "seconds": taken,
    }


def read(path: Path) -> list[dict[str, Any]]:
    return [json.loads(one) for one in gzip.decompress(path.read_bytes()).splitlines()]


def fill(store: Any, messages: Sequence[dict[str, Any]]) -> None:
    from datetime import datetime

    from crystal.model.capture import Origin, Project, Turn
    from crystal.store.capture.turns import add_turns
    from crystal.text.chunking import split

    with store.transaction():
        for place, one in enumerate(messages):
            named = one.get("speaker") not in (None, "", "user", "assistant")
            text = f"{one['speaker']}: {one['text']}" if named else one["text"]
            if not text.strip():
                continue
            at = int(datetime.fromisoformat(one["ts"].replace("Z", "+00:00")).timestamp() * 1000)
            cwd = f"/sets/{one['conv']}"
            role = "user" if one["role"] == "user" else "assistant"
            turn = Turn(one["id"], 0, role, text, place, at, cwd=cwd, full_length=len(text))
            add_turns(
                store,
                Origin("x", "x", one["session"]),
                [(turn, None, split(text))],
                {cwd: Project(cwd, name=cwd)},
                None,
            )


def vectors_of(store: Any, embedder: Any) -> Callable[[dict[str, Any]], list[str]]:
    """Fill the store with a model's vectors, and give what ranks a conversation's messages by them alone."""
    from crystal.model.recall import Filters
    from crystal.search.index import bring_up_to_date
    from crystal.store.search import vectors
    from crystal.store.search.scope import scope_of

    generation = vectors.ensure_generation(store, embedder.provider, embedder.model, embedder.dimension, NOW)
    while waiting := vectors.pending_chunks(store, generation, 512):
        made = embedder.embed_documents([text for _, _, text in waiting])
        vectors.put_vectors(
            store, generation, [(ident, vector) for (ident, _, _), vector in zip(waiting, made, strict=True)]
        )
    vectors.promote(store, generation)
    bring_up_to_date(store, now=NOW, budget_seconds=600)
    uuids = dict(store.rows("SELECT c.id, t.uuid FROM chunks AS c JOIN turns AS t ON t.id = c.turn"))

    def ranked(query: dict[str, Any]) -> list[str]:
        scope = scope_of(store, Filters(project=f"/sets/{query['conv']}"))
        near = vectors.nearest(store, generation, embedder.embed_query(query["query"]), 400, scope.sql, scope.values)
        return list(dict.fromkeys(uuids[ident] for ident, _ in near))

    return ranked


def by_search(store: Any, embedder: Any, query: dict[str, Any]) -> list[str]:
    from crystal.model.recall import Filters
    from crystal.search.engine import search
    from crystal.search.request import MemorySource, SearchOptions, SearchRequest

    scope = Filters(project=f"/sets/{query['conv']}")
    request = SearchRequest(query["query"], NOW, DEPTH, scope, SearchOptions(late=late))
    return [hit.uuid for hit in search([MemorySource(store, embedder=embedder)], request).hits]


@functools.cache
def late() -> Any:
    """Late interaction with the embedded table, as every search has it."""
    from crystal.embedding.late import TokenComparer
    from crystal.embedding.static import static_model

    return TokenComparer(static_model())


def hits(ranked: Sequence[str], gold: Sequence[str]) -> tuple[float, float, float]:
    wanted = set(gold)
    first = next((place for place, ident in enumerate(ranked, 1) if ident in wanted), None)
    return (0.0, 0.0, 0.0) if first is None else (float(first == 1), float(first <= 5), 1 / first)


# ---------------------------------------------------------------------------------------------------------- output


def child(*words: str) -> dict[str, Any]:
    """Run this file for one measurement, in a process of its own."""
    done = subprocess.run([sys.executable, __file__, *words], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(done.stderr)
    return dict(json.loads(done.stdout.splitlines()[-1]))


def models_in(home: Path, only: str | None) -> dict[str, tuple[int, int]]:
    """Names with dimension and bytes."""
    from crystal.embedding.local.manifest import ModelManifest, installed_models
    from crystal.embedding.static import DATA

    found = {"embedded": (256, sum(one.stat().st_size for one in DATA.iterdir()))}
    found |= {one.name: (one.dimension, one.size) for one in installed_models(home) if isinstance(one, ModelManifest)}
    return {name: facts for name, facts in found.items() if only is None or name in only.split(",")}


def print_speed(facts: dict[str, tuple[int, int]], given: argparse.Namespace) -> None:
    print("| model | numbers | on disk | ready | a question | chunks/s | memory | after many texts |")
    print("|---|---|---|---|---|---|---|---|")
    tokens = []
    for name, (dimension, size) in facts.items():
        one = child("--measure", "speed", "--model", name, *passed(given))
        print(
            f"| `{name}` | {dimension} | {size / 1e6:.0f} MB | {one['ready_ms']:.0f} ms | {one['query_ms']:.2f} ms"
            f" | {one['chunks']:,.0f} | {one['rss_before']:.0f} MB | {one['rss_after']:.0f} MB |",
            flush=True,
        )
        if f"tokens_{TOKENS[0]}" in one:
            tokens.append((name, *(one[f"tokens_{size}"] for size in TOKENS)))
    print("\n| vectors of tokens, texts/s | " + " | ".join(f"{size} tokens" for size in TOKENS) + " |")
    print("|---|---|---|---|")
    for name, *speeds in tokens:
        print(f"| `{name}` | " + " | ".join(f"{speed:,.0f}" for speed in speeds) + " |", flush=True)


def print_worth(names: Sequence[str], given: argparse.Namespace) -> None:
    for folder in given.sets:
        print(f"\n| {folder.name} | turn hit@1 | hit@5 | MRR | session hit@1 | hit@5 | MRR |")
        print("|---|---|---|---|---|---|---|")
        for name in ("keywords", *names):
            one = child("--measure", "worth", "--model", name, "--sets", str(folder), *passed(given))
            rows = [("keywords alone", "hybrid")]
            if name != "keywords":
                rows = [(f"`{name}`, vectors alone", "alone"), (f"`{name}`, with keywords", "hybrid")]
            for label, way in rows:
                print(f"| {label} | " + " | ".join(f"{number:.3f}" for number in one[way]) + " |", flush=True)


def passed(given: argparse.Namespace) -> list[str]:
    return [
        "--home",
        str(given.home),
        "--threads",
        str(given.threads),
        "--chunks",
        str(given.chunks),
        "--many",
        str(given.many),
    ]


def main() -> None:
    from crystal.app.context import default_paths

    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--home", type=Path, default=default_paths().models)
    parser.add_argument("--only", help="names with commas between them")
    parser.add_argument("--sets", type=Path, nargs="*", default=[])
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--chunks", type=int, default=200)
    parser.add_argument("--many", type=int, default=10_000)
    parser.add_argument("--measure", choices=["speed", "worth"], help=argparse.SUPPRESS)
    parser.add_argument("--model", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.measure == "speed":
        print(json.dumps(measure_speed(given.model, given.home, given.threads, given.chunks, given.many)))
    elif given.measure == "worth":
        print(json.dumps(measure_worth(given.model, given.home, given.threads, given.sets[0])))
    else:
        facts = models_in(given.home, given.only)
        print_speed(facts, given)
        print_worth(list(facts), given)


if __name__ == "__main__":
    main()
