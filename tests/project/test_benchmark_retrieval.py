"""The measuring of retrieval measures: its metrics, its readers, and a whole run on invented talk."""

from __future__ import annotations

import gzip
import json
import math
import os
import random
import re
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.table import each_row

ROOT = Path(__file__).parent.parent.parent
BENCHMARKS = ROOT / "benchmarks"
sys.path.append(str(BENCHMARKS))

from retrieval_data import DataSet, Message, read_sets, sample  # noqa: E402
from retrieval_metrics import METRICS, estimates, ranks_of, values_of  # noqa: E402
from retrieval_page import write_page  # noqa: E402
from retrieval_report import CRYSTAL, Run, compared, report, verdicts  # noqa: E402


def metric(name: str, ranks: list[int], gold: int) -> float:
    return values_of(ranks, gold)[METRICS.index(name)]


# ------------------------------------------------------------------------------------------------------------ metrics


@each_row(
    ("ranks", "gold", "expected"),
    [
        ([1], 1, {"hit@1": 1, "hit@5": 1, "all@5": 1, "share@1": 1, "MRR": 1, "nDCG@10": 1}),
        ([], 3, {"hit@1": 0, "hit@10": 0, "all@10": 0, "share@10": 0, "MRR": 0, "nDCG@10": 0}),
        ([2, 7], 2, {"hit@1": 0, "hit@5": 1, "all@5": 0, "all@10": 1, "share@5": 0.5, "share@10": 1, "MRR": 0.5}),
        ([6], 1, {"hit@5": 0, "hit@10": 1, "MRR": 1 / 6, "nDCG@10": 1 / math.log2(7)}),
        ([11], 1, {"hit@10": 0, "MRR": 1 / 11, "nDCG@10": 0}),
        ([1, 3], 3, {"all@10": 0, "share@10": 2 / 3, "nDCG@10": 1.5 / (1 + 1 / math.log2(3) + 0.5)}),
    ],
)
def test_metrics_are_what_their_definitions_say(ranks, gold, expected):
    for name, value in expected.items():
        assert metric(name, ranks, gold) == pytest.approx(value), name


@pytest.mark.slow
@given(st.sets(st.integers(1, 60)), st.integers(0, 5))
def test_metrics_stay_between_0_and_1_and_in_their_order(ranks, unfound):
    gold = max(1, len(ranks) + unfound)
    value = dict(zip(METRICS, values_of(sorted(ranks), gold), strict=True))
    assert all(0 <= one <= 1 for one in value.values())
    for k in ("5", "10"):
        assert value[f"all@{k}"] <= value[f"share@{k}"] <= value[f"hit@{k}"]
    assert value["hit@1"] <= value["MRR"] <= 1


def test_what_is_given_twice_takes_one_rank():
    assert ranks_of(["a", "b", "a", "c", "c", "d"], frozenset("acd")) == [1, 3, 4]


def test_an_interval_holds_the_mean_and_is_the_same_each_time():
    draw = np.random.default_rng(1)
    rows = draw.random((200, 3))
    first, again = estimates(rows), estimates(rows)
    assert first == again
    for one, column in zip(first, rows.T, strict=True):
        assert one.low < one.mean < one.high
        assert one.mean == pytest.approx(column.mean())
        half = 1.96 * column.std() / math.sqrt(200)
        assert one.high - one.low == pytest.approx(2 * half, rel=0.15)


# --------------------------------------------------------------------------------------------------------------- data


def write_set(folder: Path, messages: list[dict[str, Any]], queries: list[dict[str, Any]]) -> Path:
    folder.mkdir(parents=True)
    for name, rows in (("messages", messages), ("queries", queries)):
        raw = "".join(json.dumps(row) + "\n" for row in rows).encode()
        (folder / f"{name}.jsonl.gz").write_bytes(gzip.compress(raw))
    return folder


THINGS = "tulip anvil compass walnut lantern harp kettle ladder magnet needle oar pillow quilt rudder saddle".split()


def invented(folder: Path, seed: int = 7) -> Path:
    """Two conversations of two people, in sessions of six messages; each tells where one of the things was put."""
    draw = random.Random(seed)
    messages, queries = [], []
    for conv, names in (("talk/one", ("Ada", "Ben")), ("talk/two", ("Cyd", "Dan"))):
        for number, thing in enumerate(THINGS):
            session, place = f"{conv}/s{number}", draw.choice(("attic", "garden", "cellar", "shed"))
            said = [
                "Hello, how was your day?",
                "Long, and it rained.",
                f"I put the {thing} into the {place}, {number}.",
            ]
            said += ["Good to know.", "We should eat soon.", "Yes, soup it is."]
            for seq, text in enumerate(said):
                messages.append({
                    "id": f"{session}/{seq}", "conv": conv, "session": session, "seq": seq,
                    "ts": f"2026-0{1 + number // 10}-{1 + number % 28:02d}T10:{seq:02d}:00Z",
                    "role": ("user", "assistant")[seq % 2], "speaker": names[seq % 2], "text": text,
                    "tools": ["Read a/b.py"] if seq == 5 else [],
                })  # fmt: skip
            queries.append({
                "qid": f"{session}/q", "conv": conv, "query": f"-- where did {names[0]} put the {thing}?",
                "category": draw.choice(("things", "places")), "now": "2026-05-01T00:00:00Z",
                "gold": [f"{session}/2"], "gold_sessions": [session],
            })  # fmt: skip
    return write_set(folder, messages, queries)


def test_a_set_is_read_in_the_order_of_its_sessions_and_a_folder_of_sets_set_by_set(tmp_path):
    row = {
        "conv": "c",
        "ts": "2026-01-01T00:00:00+01:00",
        "role": "user",
        "speaker": "Ada",
        "text": "half \ud800 of it",
    }
    messages = [{**row, "id": f"{s}{n}", "session": s, "seq": n} for n, s in ((1, "x"), (0, "y"), (0, "x"))]
    query = {"qid": "1", "conv": "c", "query": "what", "gold": ["x0"], "now": "2026-01-02T00:00:00Z"}
    write_set(tmp_path / "one", messages, [query])
    write_set(tmp_path / "two", messages, [query | {"gold": ["gone"]}])
    one, two = read_sets([tmp_path])
    assert [message.ident for message in one.messages] == ["x0", "x1", "y0"]
    assert one.messages[0].when == 1_767_222_000_000
    assert one.messages[0].said == "Ada: half ? of it"
    assert one.questions[0].gold_sessions == {"x"}
    assert "1 questions have gold that is in no message" in two.notes[0]
    assert (one.notes, [found.name for found in read_sets([tmp_path / "two"])]) == ([], ["two"])


@each_row("make", ["nothing", "empty", "twice"])
def test_what_is_no_set_is_refused_in_words(tmp_path, make):
    if make == "empty":
        write_set(tmp_path / "a", [], [])
    if make == "twice":
        invented(tmp_path / "x" / "same")
        invented(tmp_path / "y" / "same")
    paths = [tmp_path / "x", tmp_path / "y"] if make == "twice" else [tmp_path]
    with pytest.raises(SystemExit, match=r"holds no messages|0 messages|two sets have one name"):
        read_sets(paths)


def test_a_sample_is_spread_over_the_questions(tmp_path):
    whole = read_sets([invented(tmp_path / "talk")])[0]
    assert sample(whole, None) is whole
    assert len(sample(whole, 7).questions) == 7
    assert {one.conv for one in sample(whole, 4).questions} == {"talk/one", "talk/two"}


HAYSTACK = [
    [{"role": "user", "content": "I put the harp into the attic.", "has_answer": True},
     {"role": "assistant", "content": "Noted."}],
    [{"role": "user", "content": "It rains."}, {"role": "assistant", "content": "Then stay inside."}],
]  # fmt: skip


def longmemeval(path: Path) -> Path:
    entry = {
        "question_type": "single-session-user", "question": "Where is the harp?", "answer": "in the attic",
        "question_date": "2023/05/30 (Tue) 23:40", "answer_session_ids": ["answer_1"],
        "haystack_session_ids": ["answer_1", "filler"], "haystack_sessions": HAYSTACK,
        "haystack_dates": ["2023/05/20 (Sat) 02:21", "2023/05/21 (Sun) 10:00"],
    }  # fmt: skip
    rows = [{**entry, "question_id": "one"}, {**entry, "question_id": "two"}, {**entry, "question_id": "three_abs"}]
    path.write_text(json.dumps(rows))
    return path


def test_each_question_of_longmemeval_has_its_own_haystack(tmp_path):
    found = read_sets([longmemeval(tmp_path / "longmemeval_s.json")])[0]
    assert (found.name, found.kind, len(found.messages)) == ("longmemeval_s", "longmemeval", 12)
    one, two, three = found.questions
    assert one.gold_sessions == {"one/answer_1"}
    assert two.gold == {"two/answer_1/0.0"}
    # Asked at the end of its day: an answer may be dated later on it.
    assert (one.conv, one.now, three.category) == ("one", 1_685_491_198_000, "abstention")
    first = found.messages[0]
    assert (first.conv, first.session, first.said) == ("one", "one/answer_1", "I put the harp into the attic.")
    assert first.when == 1_684_549_260_000


def test_longmemeval_is_scored_in_both_published_ways():
    from retrieval_longmemeval import published

    rows = [("a", [1, 5], 2), ("b", [1, 6], 2), ("c_abs", [3], 1), ("d_abs", [], 1), ("e", [], 0)]
    assert published(rows) == {"recall_all@5": (1 / 3, 3), "recall_any@5": (3 / 5, 5)}


# ------------------------------------------------------------------------------------------------------------- report


def run_of(ours: list[int], theirs: list[int], name: str = "made") -> Run:
    run = Run(everywhere=False, embedding="embedded")
    messages = [Message("m0", "c", "s", 0, "user", "user", "x")]
    rows = [
        {"set": name, "qid": str(place), "category": "ab"[place % 2], "turns": 1, "sessions": 1, "ms": 1.5,
         "systems": {CRYSTAL: [[a], [a]], "other": [[b], [b]]}}
        for place, (a, b) in enumerate(zip(ours, theirs, strict=True))
    ]  # fmt: skip
    run.add(DataSet(name, messages, []), rows)
    return run


@each_row(
    ("ours", "theirs", "expected"),
    [([1] * 100, [2] * 100, "clear"), ([1] * 51 + [9] * 49, [1] * 50 + [9] * 50, "better"), ([2] * 9, [1] * 9, "not")],
)
def test_a_verdict_is_clear_only_when_the_whole_interval_is_above_the_best(ours, theirs, expected):
    found = {(one.level, one.metric): one for one in verdicts(run_of(ours, theirs))}
    assert found["turns", "hit@1"].verdict == expected
    assert set(found) == {(level, name) for level in ("turns", "sessions") for name in ("hit@1", "hit@5", "MRR")}


def test_a_run_is_the_same_after_writing_and_reading_and_differs_from_another_by_its_questions(tmp_path):
    old, new = run_of([2] * 40, [3] * 40), run_of([1] * 30 + [4] * 10, [3] * 40)
    old.write(tmp_path / "old.json")
    assert Run.read(tmp_path / "old.json") == old
    words = compared(old, new)
    assert re.search(r"^made, turns \(40\): hit@1 0\.750 \+0\.750 \(\+0\.6\d+ to \+0\.8\d+\)", words, re.MULTILINE)
    assert "30 better, 10 worse" in words


def test_the_report_names_every_system_and_metric():
    words = report(run_of([1, 2], [2, 1]), by_category=True)
    assert "made, turns (2 questions)" in words
    assert "made, b, sessions (1 questions)" in words
    assert all(name in words for name in (*METRICS, CRYSTAL, "other"))


def test_a_page_keeps_what_others_wrote_and_its_plot_is_a_picture(tmp_path):
    page = tmp_path / "retrieval.md"
    page.write_text("# Words of a person\n\nTheir text.\n")
    write_page(run_of([1] * 9, [2] * 9), page)
    once = page.read_text()
    write_page(run_of([3] * 9, [2] * 9), page)
    twice = page.read_text()
    assert once.startswith("# Words of a person\n\nTheir text.\n\n<!-- measured: project, embedded -->\n")
    assert once.count("\n") == twice.count("\n")
    assert "| turns | hit@5 | 1.000 (1.000–1.000) | other |" in once
    picture = ET.fromstring((tmp_path / "retrieval-project-embedded.svg").read_text())
    assert len(picture.findall("{http://www.w3.org/2000/svg}circle")) == 2 * 3 * 2
    assert "(retrieval-project-embedded.svg)" in twice


def test_a_page_of_several_sets_has_each_beside_its_best_baseline_and_all_systems_for_their_sum(tmp_path):
    run, page = run_of([1] * 9, [2] * 9, "first"), tmp_path / "retrieval.md"
    run.kinds["second"] = run.kinds["first"]
    run.sizes["second"] = 1
    run.rows += [{**row, "set": "second"} for row in run.rows]
    for row in run.rows:
        row["systems"]["worse"] = [[5], [5]]
    write_page(run, page)
    written = page.read_text()
    assert [written.count(f"\n| {name} | 0") for name in ("other", "worse")] == [2, 2]
    assert all(f"\n| {name} | turns | other | 0.000" in written for name in ("first", "second"))
    assert "| turns | worse |" not in written
    for row in run.rows:
        row["systems"] = {CRYSTAL: row["systems"][CRYSTAL]}
    write_page(run, page)
    assert "| second | sessions | crystal | **1.000**" in page.read_text()


# ---------------------------------------------------------------------------------------------------------- whole runs


def retrieval(*arguments: object, home: Path) -> str:
    env = {key: value for key, value in os.environ.items() if not key.startswith(("CRYSTAL_", "LDM_", "CLAUDE"))}
    env |= {"HOME": str(home), "TMPDIR": str(home)}
    done = subprocess.run(
        [sys.executable, str(BENCHMARKS / "retrieval.py"), *map(str, arguments)],
        env=env, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode in (0, 1), done.stderr
    assert "Traceback" not in done.stderr, done.stderr
    return done.stdout


@pytest.mark.slow
def test_a_run_asks_python_the_command_and_all_baselines_and_keeps_what_it_found(tmp_path):
    talk, kept, page = invented(tmp_path / "talk"), tmp_path / "kept.json", tmp_path / "page.md"
    haystacks = longmemeval(tmp_path / "longmemeval_s.json")
    printed = retrieval(talk, haystacks, "--json", kept, "--out", page, "--cli", "4", home=tmp_path)
    assert "talk: 180 messages of 30 sessions" in printed
    assert "talk: 30 questions by the API: median " in printed
    assert "4 by command gave the same" in printed
    assert "longmemeval_s, as published, crystal: recall_all@5 1.000 on 2, recall_any@5 1.000 on 3" in printed
    assert printed.count("verdict: ") == 6
    run = Run.read(kept)
    rows = run.of("talk")
    assert len(rows) == 30
    assert all(row["systems"][CRYSTAL][0] and row["systems"][CRYSTAL][1] for row in rows)
    assert len(run.systems) == 10
    assert page.with_name("page-project-embedded.svg").exists()
    again = retrieval("--from", kept, "--compare", kept, home=tmp_path)
    assert "talk, turns (30): hit@1 " in again
    assert "0 better, 0 worse" in again


@pytest.mark.slow
def test_a_run_over_everything_takes_the_baselines_of_an_earlier_one(tmp_path):
    talk, kept = invented(tmp_path / "talk"), tmp_path / "kept.json"
    options = ("--everywhere", "--folder", tmp_path / "folder", "--questions", "6")
    retrieval(talk, *options, "--json", kept, "--cli", "0", home=tmp_path)
    printed = retrieval(talk, *options, "--reuse", "--baselines", kept, "--cli", "2", home=tmp_path)
    assert "chunks already" in printed
    assert "2 by command gave the same" in printed
    assert "OpenClaw blend, any word" in printed
