"""One set measured: imported, asked by Python and by command, and put to the baselines."""

from __future__ import annotations

import statistics
import time
from dataclasses import dataclass
from pathlib import Path

import retrieval_baselines as baselines
from retrieval_crystal import LIMIT, Answer, Crystal
from retrieval_data import DataSet, Question
from retrieval_metrics import ranks_of
from retrieval_report import CRYSTAL, Row, Run


@dataclass(frozen=True)
class Plan:
    """How to measure.

    ``by_command`` is how many questions of a set are asked by command too, None for all. ``former`` holds what the
    baselines gave before, None to ask them; ``with_baselines`` False leaves them out. ``today`` keeps from crystal when
    a question was asked; ``reworded`` asks crystal in three wordings at once.
    """

    everywhere: bool
    embedding: str
    by_command: int | None
    with_baselines: bool
    former: Run | None
    reuse: bool
    today: bool
    reworded: bool


def measure(dataset: DataSet, home: Path, plan: Plan, run: Run) -> None:
    """Import a set into an empty home, ask, add the ranks to the run, and print what it took."""
    start = time.perf_counter()
    memory = Crystal(dataset, home, plan.embedding, reuse=plan.reuse, today=plan.today, reworded=plan.reworded)
    print(f"{dataset.name}: {memory.said()}", *dataset.notes, sep="; ", flush=True)
    answers = memory.ask(everywhere=plan.everywhere)
    by_command = memory.ask_by_command(answers, plan.by_command, everywhere=plan.everywhere)
    rows = {one.ident: _row(dataset, one, answers[one.ident]) for one in dataset.questions}
    if plan.former is not None:
        _take_baselines(plan.former, plan, list(rows.values()))
    elif plan.with_baselines:
        _ask_baselines(dataset, memory, rows, plan)
    run.add(dataset, list(rows.values()))
    taken = sorted(answer.milliseconds for answer in answers.values())
    p95 = taken[min(len(taken) - 1, round(len(taken) * 0.95))]
    same = f"{len(by_command)} by command gave the same"
    same += f" (median {statistics.median(by_command):.0f} ms)" if by_command else ""
    words_alone = sum(answer.mode == "keywords" for answer in answers.values())
    print(
        f"{dataset.name}: {len(answers)} questions by the API: median {statistics.median(taken):.1f} ms, "
        f"p95 {p95:.1f} ms; {words_alone} answered by words alone; {same}; {time.perf_counter() - start:.0f} s in all",
        flush=True,
    )


def _row(dataset: DataSet, question: Question, answer: Answer) -> Row:
    return {
        "set": dataset.name,
        "qid": question.ident,
        "category": question.category,
        "turns": len(question.gold),
        "sessions": len(question.gold_sessions),
        "ms": round(answer.milliseconds, 2),
        "systems": {CRYSTAL: _ranks(question, answer.turns, answer.sessions)},
    }


def _ranks(question: Question, turns: list[str], sessions: list[str]) -> list[list[int]]:
    return [ranks_of(turns, question.gold), ranks_of(sessions, question.gold_sessions)]


def _ask_baselines(dataset: DataSet, memory: Crystal, rows: dict[str, Row], plan: Plan) -> None:
    kinds = (baselines.one_chunk_a_turn(dataset.messages), baselines.windows(dataset.messages))
    texts = [chunk.text for chunks in kinds for chunk in chunks]
    vectors, questions = memory.vectors(texts, [one.text for one in dataset.questions])
    split = len(kinds[0])
    turns = baselines.Index(kinds[0], dataset.messages, vectors[:split])
    pieces = baselines.Index(kinds[1], dataset.messages, vectors[split:])
    systems = baselines.all_systems(turns, pieces)
    for one in baselines.asked(dataset, questions, LIMIT, everywhere=plan.everywhere, today=plan.today):
        for name, (system, index) in systems.items():
            rows[one.question.ident]["systems"][name] = _ranks(one.question, *baselines.answered(system, index, one))


def _take_baselines(former: Run, plan: Plan, rows: list[Row]) -> None:
    """Put in what the baselines gave to the same questions before: they do not change when crystal does."""
    if (former.everywhere, former.embedding) != (plan.everywhere, Path(plan.embedding).name):
        raise SystemExit("the run whose baselines are to be taken had another scope or another model")
    known = {(row["set"], row["qid"]): row["systems"] for row in former.rows}
    for row in rows:
        systems = known.get((row["set"], row["qid"]))
        if systems is None:
            raise SystemExit(f"the run whose baselines are to be taken has no question {row['qid']} of {row['set']}")
        row["systems"] |= {name: ranks for name, ranks in systems.items() if name != CRYSTAL}
