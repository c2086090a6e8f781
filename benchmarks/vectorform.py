"""Measure what rounding vectors costs: recall@10 against float32, of all bytes and as the index finds them.

    python benchmarks/vectorform.py [--sets FOLDER] [--messages 20000] [--questions 300]

FOLDER holds sets of messages and questions (``<set>/messages.jsonl.gz``, ``<set>/queries.jsonl.gz``): the questions of
people. Without it the messages are made up, and each question is half of the words of one. Ends with 1 below 0.99.
"""

from __future__ import annotations

import argparse
import gzip
import json
import random
import sys
from pathlib import Path

import numpy as np
from models import realistic

from crystal.embedding.embedded import StaticEmbedder
from crystal.search.index.part_vectors import PartVectors, best, build_arrays, likely, measured
from crystal.store.vector_bytes import round_rows, turned

TARGET = 0.99
TOP = 10


def read_texts(folder: Path, name: str, keys: tuple[str, ...]) -> list[str]:
    texts = []
    for path in sorted(folder.glob(f"*/{name}.jsonl.gz")):
        with gzip.open(path, "rt", encoding="utf-8") as lines:
            rows = [json.loads(line) for line in lines]
        texts += [text for row in rows for key in keys if isinstance(text := row.get(key), str) and text.strip()]
    return texts


def invented(messages: int, questions: int) -> tuple[list[str], list[str]]:
    draw = random.Random(3)
    texts = [text for count in range(10) for text in _pieces(realistic(messages // 100 + 1, 300), count)][:messages]
    asked = [text.split() for text in draw.sample(texts, min(questions, len(texts)))]
    return texts, [" ".join(draw.sample(words, max(1, len(words) // 2))) for words in asked]


def _pieces(chunks: list[str], offset: int) -> list[str]:
    return [" ".join(words[at : at + 28 + offset]) for words in map(str.split, chunks) for at in range(offset, 270, 27)]


def recall(asked: np.ndarray, exact: np.ndarray, rows: np.ndarray) -> float:
    """Return the share of the nearest rows by ``exact`` that are also the nearest by ``rows``."""
    rows = rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-30)
    found = 0
    for question, plain in zip(asked, exact, strict=True):
        near = np.argpartition(-(rows @ question), TOP)[:TOP]
        # A row as near as the tenth is as good as it: equal texts have equal vectors.
        found += int((plain[near] >= np.partition(plain, -TOP)[-TOP] - 1e-6).sum())
    return found / (TOP * len(asked))


def found_by_index(asked: np.ndarray, exact: np.ndarray, rows: np.ndarray) -> float:
    """Return the same share of what the index finds: by signs, then by two bits a number, then by the store's bytes."""
    data = [row.tobytes() for row in rows]
    part = PartVectors(build_arrays(enumerate(data), *rows.shape))
    found = 0
    for question, plain in zip(turned(asked).astype(np.float32), exact, strict=True):
        near = likely([part], question, TOP, [None])
        near, _ = best(near, measured(question, [data[at] for at in near]), TOP)
        found += int((plain[near] >= np.partition(plain, -TOP)[-TOP] - 1e-6).sum())
    return found / (TOP * len(asked))


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--sets", type=Path)
    parser.add_argument("--messages", type=int, default=20_000)
    parser.add_argument("--questions", type=int, default=300)
    options = parser.parse_args()
    if options.sets is None:
        texts, questions = invented(options.messages, options.questions)
    else:
        draw = random.Random(1)
        texts = list(dict.fromkeys(read_texts(options.sets, "messages", ("text",))))
        questions = list(dict.fromkeys(read_texts(options.sets, "queries", ("text", "query", "question"))))
        texts = draw.sample(texts, min(options.messages, len(texts)))
        questions = draw.sample(questions, min(options.questions, len(questions)))
    embedder = StaticEmbedder()
    plain = np.frombuffer(b"".join(embedder.embed_documents(texts)), "<f4").reshape(len(texts), -1).astype(np.float64)
    asked = np.array([np.frombuffer(embedder.embed_query(text), "<f4") for text in questions], np.float64)
    exact = asked @ plain.T
    ways = {"rounded": recall(asked, exact, round_rows(plain).astype(np.float64))}
    ways["turned, then rounded"] = recall(turned(asked), exact, round_rows(turned(plain)).astype(np.float64))
    ways["as the index finds them"] = found_by_index(asked, exact, round_rows(turned(plain)))
    print(f"{len(texts):,} texts, {len(questions):,} questions, {plain.shape[1]} numbers in a vector")
    for way, found in ways.items():
        print(f"recall@{TOP} {found:.4f}  {way}")
    missed = min(ways["turned, then rounded"], ways["as the index finds them"]) < TARGET
    print(f"target {TARGET}: {'MISSED' if missed else 'met'}")
    return int(missed)


if __name__ == "__main__":
    sys.exit(main())
