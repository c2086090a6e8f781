"""The process that asks crystal through its Python API, or its embedder for vectors: started by ``retrieval.py``.

    python benchmarks/retrieval_ask.py ask LIMIT TIME < questions.jsonl  a line of JSON for each question
    python benchmarks/retrieval_ask.py embed texts.jsonl vectors         float32, one after the other

It runs in the HOME whose memory is meant. A question is ``{qid, queries, project, now}``, in one wording or several;
``project`` null is everything.
TIME names the argument of ``Crystal.search`` that takes the time of the question, ``-`` for none.
"""

from __future__ import annotations

import json
import sys
import time
from itertools import islice
from pathlib import Path
from typing import Any


def ask(limit: int, time_name: str) -> None:
    from crystal import Crystal

    with Crystal() as memory:
        memory.search("is everything loaded", limit=limit)
        for line in sys.stdin:
            question: dict[str, Any] = json.loads(line)
            more = {} if time_name == "-" else {time_name: question["now"]}
            start = time.perf_counter()
            result = memory.search(*question["queries"], limit=limit, project=question["project"], **more)
            taken = (time.perf_counter() - start) * 1000
            hits = [[hit.id, hit.uuid, hit.session_id] for hit in result.hits]
            print(json.dumps({"qid": question["qid"], "ms": taken, "mode": result.mode, "hits": hits}), flush=True)


def embed(texts: Path, target: Path) -> None:
    """A line is ``[kind, text]``, kind ``document`` or ``question``."""
    from crystal.app.context import open_reader

    with open_reader() as machine, texts.open(encoding="utf-8") as lines, target.open("wb") as out:
        embedder = machine.asking_embedder()
        if embedder is None:
            raise SystemExit("no embedding model is configured")
        while block := [json.loads(line) for line in islice(lines, 4096)]:
            documents = [text for kind, text in block if kind == "document"]
            out.writelines(_embedded(embedder.embed_documents, documents))
            out.writelines(embedder.embed_query(text) for kind, text in block if kind == "question")


def _embedded(embed_documents: Any, texts: list[str]) -> list[bytes]:
    """Batch by batch, texts of one length together: a batch costs a model as much as its longest."""
    order = sorted(range(len(texts)), key=lambda place: len(texts[place]))
    found: dict[int, bytes] = {}
    for start in range(0, len(order), 64):
        batch = order[start : start + 64]
        found.update(zip(batch, embed_documents([texts[place] or " " for place in batch]), strict=True))
    return [found[place] for place in range(len(texts))]


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parent.parent))
    if sys.argv[1] == "ask":
        ask(int(sys.argv[2]), sys.argv[3])
    else:
        embed(Path(sys.argv[2]), Path(sys.argv[3]))
