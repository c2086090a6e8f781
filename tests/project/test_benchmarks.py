"""Every benchmark runs, also at a tiny size, and prints what its page says it prints. Targets are not judged here."""

from __future__ import annotations

import contextlib
import gzip
import os
import re
import subprocess
import sys
from pathlib import Path

import apsw
import orjson
import pytest

from crystal.config.harnesses import HARNESSES
from tests.support.postgres import programs

pytestmark = pytest.mark.slow

BENCHMARKS = Path(__file__).parent.parent.parent / "benchmarks"


def ran(name: str, *arguments: str, home: Path) -> str:
    """What a benchmark prints. 0: targets kept; 1: missed, which a tiny size may do."""
    env = {key: value for key, value in os.environ.items() if not key.startswith(("CRYSTAL_", "LDM_", "CLAUDE"))}
    env |= {"HOME": str(home), "TMPDIR": str(home)}
    words = [sys.executable, str(BENCHMARKS / name), *arguments]
    done = subprocess.run(words, env=env, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode in (0, 1), done.stderr
    assert "Traceback" not in done.stderr, done.stderr
    return done.stdout


def numbers(printed: str, line: str) -> list[float]:
    """The groups of the one line that looks so."""
    found = re.findall(line, printed, re.MULTILINE)
    assert len(found) == 1, printed
    return [float(number.replace(",", "")) for number in (found[0] if isinstance(found[0], tuple) else (found[0],))]


def test_latency_of_capture_is_printed(tmp_path):
    printed = ran("capture.py", "latency", "--runs", "1", home=tmp_path)
    for name in ("line written before the hook", "line written 50 ms after it"):
        median, of_a_start = numbers(
            printed, rf"^latency: from the hook's exit until found, {name}: median (\d+) ms, .* ([\d.]+) x a bare start"
        )
        assert median > 0
        assert of_a_start > 0


def test_throughput_of_capture_is_printed(tmp_path):
    printed = ran("capture.py", "throughput", "--size", "400KB", home=tmp_path)
    assert "throughput: 0.4 MB in " in printed
    assert numbers(printed, r"^throughput: crystal backfill --no-embed: .* ([\d.]+) MB/s")[0] > 0
    assert numbers(printed, r"^throughput: only reading and parsing .* ([\d.]+) times as fast$")[0] > 1
    assert numbers(printed, r" ([\d.]+) kB of database, ([\d.]+) kB of archive$")[0] > 0
    peak, quarter, _ = numbers(
        printed, r"^throughput: peak memory (\d+) MB .* (\d+) MB with a quarter of the bytes, ratio ([\d.]+)$"
    )
    assert not Path("/proc/self/statm").exists() or min(peak, quarter) > 0


def test_the_cost_of_nothing_new_is_printed(tmp_path):
    printed = ran("capture.py", "idle", "--chunks", "300", "--runs", "1", home=tmp_path)
    assert printed.startswith("idle: a store of 300 chunks, ")
    for case in ("hook", "worker, bookkeeping lines only", "worker, no new byte", "worker, sweep at session start"):
        wall, cpu = numbers(printed, rf"^idle: {case}: wall .*?, ratio ([\d.]+); cpu .*?, ratio ([\d.]+) ")
        assert wall > 0
        assert cpu > 0


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only Linux gives an orphan another parent")
def test_the_cost_of_a_turn_is_printed_for_the_whole_tree(tmp_path):
    printed = ran("worker_cost.py", "--runs", "1", home=tmp_path)
    for case in ("python -c pass", "a turn", "nothing new", "bookkeeping lines only", "a session's start, nothing new"):
        cost, ratio = numbers(printed, rf"^{case}: median (\d+) ms of CPU, ([\d.]+) x a bare start")
        assert cost > 0
        assert ratio > 0


def test_the_benchmark_of_the_hook_prints_its_ratio(tmp_path):
    printed = ran("hook_latency.py", "2", home=tmp_path)
    assert re.search(r"ratio\s+[\d.]+", printed)


def test_the_benchmark_of_the_work_index_prints_its_ratio(tmp_path):
    printed = ran("work_index.py", "--size", "300KB", home=tmp_path)
    assert numbers(printed, r"^index: [\d.]+ s for [\d,]+ calls, ([\d.]+) of capture")[0] > 0


def test_the_benchmark_of_agents_prints_its_rates(tmp_path):
    printed = ran("agents.py", "--size", "100kB", "--files", "200", home=tmp_path)
    assert set(re.findall(r"^([\w-]+) +[\d.]+ +[\d,]+ +[\d.]+ +[\d.]+ MB", printed, re.MULTILINE)) == {
        name for name, row in HARNESSES.items() if not row.is_store
    }
    assert re.search(r"^discovery: \d+ files in \d+ ms, [\d.]+ of os.walk", printed, re.MULTILINE)
    assert re.search(r"^a sweep with nothing new: \d+ ms", printed, re.MULTILINE)


def test_the_benchmark_of_models_prints_its_tables(tmp_path):
    said = [
        {"id": f"m{n}", "conv": "c", "session": f"s{n % 2}", "ts": "2026-01-01T00:00:00Z", "role": "user",
         "speaker": "Ana", "text": f"the {word} is in the cellar"}
        for n, word in enumerate(("wine", "bicycle", "ladder"))
    ]  # fmt: skip
    asked = [{"conv": "c", "query": "where is the bicycle", "gold": ["m1"], "gold_sessions": ["s1"]}]
    for name, rows in (("messages", said), ("queries", asked)):
        (tmp_path / f"{name}.jsonl.gz").write_bytes(gzip.compress(b"\n".join(map(orjson.dumps, rows))))
    options = ("--home", str(tmp_path / "none"), "--chunks", "4", "--many", "20", "--sets", str(tmp_path))
    printed = ran("models.py", *options, home=tmp_path)
    assert numbers(printed, r"^\| `embedded` \| 256 \| .* \| ([\d,.]+) ms \| .* \| ([\d,.]+) MB \|$")[0] > 0
    for label in ("keywords alone", "`embedded`, vectors alone", "`embedded`, with keywords"):
        assert numbers(printed, rf"^\| {label} \| ([\d.]+) \|")[0] == 1


def test_the_benchmark_of_sealing_prints_its_ratios(tmp_path):
    printed = ran("seal.py", "--runs", "3", home=tmp_path)
    for verb in ("seal", "open"):
        for size in ("1 KB", "64 KB", "1 MB"):
            for text in ("transcript", "noise"):
                assert numbers(printed, rf"^{verb} {size} of {text}: .* ratio ([\d.]+), at most ")[0] > 0


def test_the_benchmark_of_the_relay_prints_its_ratios_and_its_memory(tmp_path):
    options = ("--seconds", "1", "--rounds", "1", "--sizes", "4096", "200000", "--uploads", "4")
    printed = ran("relay_put.py", *options, "--folder", str(tmp_path), home=tmp_path)
    for size in (4096, 200_000):
        found = numbers(
            printed,
            rf"^ *{size} bytes: relay (\d+)/s, log (\d+)/s, no store (\d+)/s; relay is ([\d.]+) of the log, ([\d.]+) of",
        )
        assert all(number > 0 for number in found)
    assert numbers(printed, r"^memory: (\d+) MB at most while 4 uploads of 8 MiB came at once")[0] > 10


def test_the_benchmark_of_relays_on_postgresql_prints_its_ratios(tmp_path):
    pytest.importorskip("psycopg")
    if programs() is None:
        pytest.skip("PostgreSQL is not installed")
    printed = ran("relay_scale.py", "--seconds", "1.5", "--rounds", "1", "--nodes", "2", home=tmp_path)
    for name in ("SQLite", "PostgreSQL, 2"):
        for other in ("bare insert", "bare, same routes"):
            line = rf"^{name}: puts / {other}: ([\d.]+) \(.*\) in pace, ([\d.]+) \(.*\) in work$"
            assert all(number > 0 for number in numbers(printed, line))


def test_the_benchmark_of_waiting_devices_prints_what_they_cost(tmp_path):
    printed = ran("relay_idle.py", "--devices", "20", "--seconds", "2", "--wait", "1", "--nodes", "0", home=tmp_path)
    line = r"^SQLite, 20 devices: server ([\d.]+) ms, database ([\d.]+) ms .*; ([\d.]+) answers .* (\d+) early, (\d+) refused"
    *_, answers, early, refused = numbers(printed, line)
    assert (answers > 0, early, refused) == (True, 0, 0)


def test_the_benchmark_of_a_backlog_prints_its_ratios(tmp_path):
    options = ("--blobs", "60", "--plain", "30", "--sessions", "3")
    printed = ran("relay_backlog.py", *options, "--folder", str(tmp_path), home=tmp_path)
    assert numbers(printed, r"^backlog: 60 blobs polled and committed at ([\d.]+) blobs/s")[0] > 0
    assert min(numbers(printed, r"^ratio: ([\d.]+) times the plain way, ([\d.]+) times local ingest")) > 0


def test_the_benchmark_of_the_way_between_machines_prints_its_ratios(tmp_path):
    printed = ran("relay_latency.py", "--runs", "1", home=tmp_path)
    assert numbers(printed, r"^latency: said and found on one machine: median (\d+) ms, 95 % (\d+) ms$")[0] > 0
    for way in ("on the device, found at home", "at home, found on the device"):
        assert numbers(printed, rf"^latency: said {way}: median (\d+) ms, .*, ([\d.]+) x one machine$")[0] > 0
    assert numbers(printed, r"^hook: on one machine (\d+) ms, on a device (\d+) ms, ratio ([\d.]+)$")[0] > 0


def test_the_benchmark_of_the_mirror_prints_its_costs(tmp_path):
    printed = ran("mirror.py", "--size", "3MB", "--dimension", "16", home=tmp_path)
    assert numbers(printed, r"^first publish: .* ([\d.,]+) MB of database/s")[0] > 0
    assert numbers(printed, r"^first sync, interrupted half-way: .* (\d+) bytes fetched again$")[0] == 0
    assert re.search(
        r"^20 new chunks: up [\d,]+ bytes \(most [\d,]+, .*\), down [\d,]+ \(most [\d,]+\)", printed, re.MULTILINE
    )


def test_the_benchmark_of_the_page_prints_its_times(tmp_path):
    options = ("--sizes", "300", "--queries", "2", "--long", "300")
    printed = ran("web.py", *options, "--folder", str(tmp_path / "kept"), home=tmp_path)
    for words in ("Timeline", "Health", "the search alone", "a search as you type", "a page of a long session"):
        assert numbers(printed, rf"^{words} +([\d.]+) ms +([\d.]+) ms \(95 %\)$")[0] > 0


def test_the_benchmark_of_search_prints_its_ratios(tmp_path):
    options = ("--sizes", "300", "600", "--wide", "--command", "300", "--queries", "1", "--runs", "1")
    printed = ran("search.py", *options, "--folder", str(tmp_path / "kept"), home=tmp_path)
    assert printed.startswith("machine: ")
    for kind in ("rare", "middling", "common", "natural", "project", "session", "role", "month", "1 in 1,000",
                 "phrase", "prefix", "identifier", "path", "time words", "all"):  # fmt: skip
        rows = re.findall(
            rf"^{kind} +([\d.]+) +([\d.]+) +([\d.]+) +([\d.]+) +([\d.]+) +([\d.]+)$", printed, re.MULTILINE
        )
        assert len(rows) == 2, printed
        # A filter that leaves nothing of so few chunks is answered in no time. The ratios of one answer each come to 0.0
        # where the machine was busy for as long as it took.
        assert kind == "1 in 1,000" or all(float(number) > 0 for number in rows[0][:4])
    assert len(re.findall(r"^of these the question's embedding: [\d.]+ ms, p95 [\d.]+ ms$", printed, re.MULTILINE)) == 2
    assert re.findall(r"^vectors alone, crystal: .* recall@10 (1\.000)$", printed, re.MULTILINE) == ["1.000"] * 2
    assert len(re.findall(r"^filter 1 in 1,000: .* ratio [\d.]+; at least \d+ of 10 hits", printed, re.MULTILINE)) == 2
    assert len(re.findall(r"^cold, ratio plain / crystal: [\d.]+, of p95 [\d.]+$", printed, re.MULTILINE)) == 2
    assert (
        len(re.findall(r"^memory of a process that asked 14 questions: (?:[\d.]+ MB|not known)", printed, re.MULTILINE))
        == 2
    )
    assert numbers(printed, r"^command: .* median (\d+) ms, .* mode hybrid, \d+ hits; .* ratio ([\d.]+), bound ")[0] > 0
    assert numbers(printed, r"^scaling: 600 against 300 chunks: ([\d.]+) times at the median")[0] > 0
    again = ran("search.py", *options, "--only-build", "--folder", str(tmp_path / "kept"), home=tmp_path)
    assert "made " not in again


def test_the_stores_of_the_benchmark_of_search_are_the_same_every_time(tmp_path):
    options = ("--sizes", "200", "--wide", "--command", "--only-build")
    kept = []
    for name in ("one", "other"):
        ran("search.py", *options, "--folder", str(tmp_path / name), home=tmp_path)
        (bare,) = (tmp_path / name).rglob("vectors.f32")
        (plain,) = (tmp_path / name).rglob("plain.db")
        with contextlib.closing(apsw.Connection(str(plain))) as db:
            kept.append((bare.read_bytes(), list(db.execute("SELECT * FROM chunks ORDER BY id"))))
    assert kept[0] == kept[1]


def test_the_benchmark_of_growth_prints_its_costs(tmp_path):
    printed = ran("growth.py", "--chunks", "1200", "--turns", "10", "--folder", str(tmp_path), home=tmp_path)
    assert numbers(printed, r"^growth: 1,200 chunks on one core: .* \(([\d,]+) chunks/s\)")[0] > 0
    for label in ("ingest", "embedding"):
        assert numbers(printed, rf"^growth: {label} of a turn: .* empty one, ratio ([\d.]+); means ")[0] > 0
    deleted = numbers(printed, r"^growth: (\d+) of 1,2\d\d chunks deleted in .* ratio ([\d.]+)$")
    assert deleted[0] >= 500
    assert deleted[1] < 1
    assert list(tmp_path.glob("tmp*")) == []


@pytest.fixture(scope="module")
def transcripts(tmp_path_factory):
    folder = tmp_path_factory.mktemp("generated")
    printed = ran("transcripts.py", str(folder), "--size", "3MB", "--seed", "7", home=folder)
    return folder, printed


def test_generated_transcripts_have_the_size_that_was_asked_for_and_parse(transcripts):
    folder, printed = transcripts
    raw = b"".join(path.read_bytes() for path in sorted(folder.rglob("*.jsonl")))
    assert 3_000_000 <= len(raw) < 3_300_000
    kinds = {orjson.loads(line)["type"] for line in raw.split(b"\n")[:-1]}
    assert {"user", "assistant", "attachment", "system", "api-request", "queue-operation"} <= kinds
    assert printed.startswith(("3.0 MB in ", "3.1 MB in "))


def test_the_same_seed_gives_the_same_transcripts_and_another_gives_others(transcripts, tmp_path):
    folder, _ = transcripts
    again, other = tmp_path / "again", tmp_path / "other"
    ran("transcripts.py", str(again), "--size", "3MB", "--seed", "7", home=tmp_path)
    ran("transcripts.py", str(other), "--size", "200KB", "--seed", "8", home=tmp_path)

    def held(top: Path) -> dict[Path, bytes]:
        return {path.relative_to(top): path.read_bytes() for path in top.rglob("*.jsonl")}

    assert held(folder) == held(again)
    assert not held(folder).keys() & held(other).keys()


def test_the_benchmark_of_the_mcp_server_prints_its_ratios(tmp_path):
    printed = ran("mcp_latency.py", "--chunks", "300", "--runs", "1", "--questions", "1", home=tmp_path)
    for what in ("initialize", "tools/list after it"):
        found = numbers(printed, rf"^{what}: (\d+) ms, ratio to a bare start ([\d.]+), to import mcp ([\d.]+)$")
        assert all(number > 0 for number in found)
    for name in ("search", "recent", "status", "python, opened for it"):
        assert numbers(printed, rf"^{name}: ([\d.]+) ms, ratio to the call in Python ([\d.]+)$")[1] > 0


def test_scale_is_printed(tmp_path):
    printed = ran("scale.py", "--size", "300KB", "--chunks", "2000", home=tmp_path)
    assert numbers(printed, r"^disk: .* in crystal's folder: ([\d.]+) times \(target 1.6\)$")[0] > 0
    assert numbers(printed, r"^  index +([\d.]+)$")  # next to nothing at this size
    for name in ("doctor", "preview of 'the'"):
        assert numbers(printed, rf"^speed: 2,000 chunks: {name} ([\d.]+) s .* times a search")[0] > 0


def test_what_rounding_vectors_costs_is_printed(tmp_path):
    printed = ran("vectorform.py", "--messages", "400", "--questions", "20", home=tmp_path)
    assert numbers(printed, r"^recall@10 ([\d.]+)  turned, then rounded$")[0] > 0.9
    assert numbers(printed, r"^recall@10 ([\d.]+)  rounded$")[0] > 0.9
