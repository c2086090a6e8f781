"""How long the hook keeps the user waiting, as a ratio to a bare interpreter start in the same run.

Both are started alternately, each once the worker of the run before has ended, and medians are compared: the machine's
speed and what else it does cancel out. The hook is the real file; its worker is one that ends at once.

The status line is measured in processor time, on a memory with 2,000 turns, against a start that loads ``site`` too.

Run: python benchmarks/hook_latency.py [RUNS]; exits 1 where the ratio is above the limit.
"""

from __future__ import annotations

import json
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from crystal.assist.facts import MAX_FACTS, MAX_KEYS, Fact, encode_facts
from crystal.assist.packet import packet_facts
from crystal.context.choosing import SessionContext
from crystal.context.prepared import PreparedContext, Rules, write_contexts
from crystal.hook import event as hook
from crystal.hook.assist import MOMENTS, PACKET, SUFFIX
from crystal.hook.matching import MAX_FILE_BYTES, plain_line
from crystal.hook.session_start import context_file
from crystal.work.cures import WorkStep

LIMIT = 3.0
SLOWEST_LIMIT = 5.0
"""Maximum ratio of the hook's 95th percentile to that of a bare start."""
WORKER = "import os\ndef main():\n    open(os.environ['LDM_HOME'] + '/done', 'a').write('x')\n"
PROMPT = {"hook_event_name": "UserPromptSubmit", "prompt": "fix the login, please. " * 50}
SESSION = "1f35fa49-0000-4000-8000-{:012d}"
EDITED = 200
"""Lines of one edit, which one fact is about."""
LINE = "x = compute(number {}, of the many that there are)"
EDIT = {
    "hook_event_name": "PreToolUse",
    "tool_input": {"file_path": "ROOT/a.py", "old_string": "\n".join(LINE.format(n) for n in range(EDITED))},
}
CASES = {
    "a short answer": {"hook_event_name": "Stop", "last_assistant_message": "done. " * 20},
    "an answer of 1.6 MB": {"hook_event_name": "Stop", "last_assistant_message": "a long answer, " * 110_000},
    "a prompt": PROMPT,
    "a prompt to remember": {**PROMPT, "prompt": "remember that we deploy on Fridays"},
    "an edit, nothing known": {
        **EDIT,
        "tool_input": {"file_path": "ROOT/other.py", "old_string": "an unknown line\n" * 200},
    },
    "an edit that is told": EDIT,
    "an edit of a whole file": {**EDIT, "tool_input": {"file_path": "ROOT/a.py", "content": "x = 1\n" * 5_000}},
    "a failed command": {
        **EDIT,
        "hook_event_name": "PostToolUseFailure",
        "error": "cannot do what is asked here\n" * 400,
    },
    "a prompt with errors": {**PROMPT, "prompt": "cannot do what is asked here\n" * 400},
    "a subagent that is told": {**EDIT, "hook_event_name": "SubagentStart", "agent_type": "a", "agent_id": "a1"},
    "a compaction's summary": {
        "hook_event_name": "SubagentStop",
        "agent_type": "",
        "last_assistant_message": "x " * 9_000,
    },
    "a compaction that is told": {"hook_event_name": "SessionStart", "source": "compact"},
    "a start": {"hook_event_name": "SessionStart", "source": "startup"},
    "a start with context": {"hook_event_name": "SessionStart", "source": "startup"},
}
COMMAND = "from crystal.__main__ import main; main()"
QUIET = (
    "a prompt",
    "a prompt with errors",
    "an edit, nothing known",
    "an edit that is told",
    "an edit of a whole file",
    "a failed command",
    "a subagent that is told",
)
"""No worker is started, so none is waited for."""


def main(runs: int) -> int:
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        root = Path(folder)
        package = root / "crystal"
        (package / "hook").mkdir(parents=True)
        (package / "__init__.py").touch()
        (package / "worker.py").write_text(WORKER)
        for part in Path(hook.__file__).parent.glob("*.py"):
            shutil.copy(part, package / "hook" / part.name)
        (root / "t.jsonl").write_bytes(b"{}\n")
        lines = [
            *EDIT["tool_input"]["old_string"].split("\n"),
            *(f"y_{at} = {at} + an_other_line" for at in range(7_000)),
        ]
        (root / "a.py").write_text("\n".join(lines)[:MAX_FILE_BYTES], "utf-8")
        worst = 0.0
        for name, said in CASES.items():
            if name.endswith("context"):
                lay_ready(root)
            if "edit" in name:
                lay_facts(root)
                lay_packets(root, runs)
            worst = max(worst, ratio(name, said, root, runs))
        worst = max(worst, statusline_ratio(root, runs))
    print(f"limit {LIMIT:.1f}: {'kept' if worst <= LIMIT else 'EXCEEDED'}")
    return 0 if worst <= LIMIT else 1


def lay_ready(root: Path) -> None:
    """Put a context of the usual length where the hook looks for it."""
    told = SessionContext('- "we deploy on Fridays" [fact, this project, 2026-11-21]\n' * 30, (), 0, 600)
    write_contexts(
        root / "memory", Rules("/none", "-", {}), [PreparedContext(None, told), PreparedContext(str(root), told)]
    )


def lay_facts(root: Path) -> None:
    """Put as many facts as there may be where the hook looks for them."""
    write_contexts(root / "memory", Rules("/none", "-", {}, moments=(*MOMENTS.values(),), assist_tokens="2000"), [])
    body = "The lines that this edit replaces were written for a reason that is told here. " * 6
    keys = [[("line", "a.py", plain_line(LINE.format(n)))] for n in range(MAX_KEYS)]
    each = MAX_KEYS // MAX_FACTS
    facts = [
        Fact(tuple(parts for key in keys[at : at + each] for parts in key), at, "s", f"{at} {body}")
        for at in range(EDITED, MAX_KEYS, each)
    ]
    facts.append(Fact(tuple(parts for key in keys[:EDITED] for parts in key), MAX_KEYS, "s", f"told: {body}"))
    path = root / "memory" / "context" / f"{context_file(str(root))}{SUFFIX}"
    path.write_bytes(encode_facts(str(root), "p", facts, b"k" * 16, b"i"))


def lay_packets(root: Path, runs: int) -> None:
    """Put a packet of the usual length for each session where the hook looks for it."""
    done = [WorkStep(at, 0, False, "make lint", 1, 1) for at in range(2)]
    facts = packet_facts(["Build the mill."] * 2, [f"We always use {at} retries." for at in range(5)], done, str(root))
    content = encode_facts(str(root), "p", facts, bytes(16), b"i")
    for number in range(runs):
        (root / "memory" / "context" / f"{SESSION.format(number)}{PACKET}").write_bytes(content)


def ratio(name: str, said: dict[str, str], root: Path, runs: int) -> float:
    """Print and return how many times a bare start the hook takes at the median."""
    python = [sys.executable, "-I", "-S"]
    env = {**os.environ, "LDM_HOME": str(root)}
    bare, hooked = [], []
    for number in range(runs):
        session = SESSION.format(number)
        given = {"session_id": session, "transcript_path": str(root / "t.jsonl"), "cwd": str(root), **said}
        stdin = json.dumps(given).replace("ROOT", str(root)).encode() + b"\n"
        bare.append(timed([*python, "-c", "pass"], b"", env))
        ended = size(root / "done")
        hooked.append(timed([*python, str(root / "crystal" / "hook" / "main.py")], stdin, env))
        while name not in QUIET and size(root / "done") == ended:
            time.sleep(0.001)
    times = statistics.median(hooked) / statistics.median(bare)
    slowest = sorted(hooked)[int(len(hooked) * 0.95)] / sorted(bare)[int(len(bare) * 0.95)]
    for what, spent in (("python -I -S -c pass", bare), (f"hook, {name}", hooked)):
        print(
            f"{what:28} median {statistics.median(spent):6.1f} ms, 95 % {sorted(spent)[int(len(spent) * 0.95)]:6.1f} ms"
        )
    print(f"{'ratio':28} {times:.2f}, at the 95th percentile {slowest:.2f}\n")
    return max(times, slowest * LIMIT / SLOWEST_LIMIT)


def statusline_ratio(root: Path, runs: int) -> float:
    """Print and return how many times the processor time of a bare start the status line takes at the median."""
    session = "1f35fa49-0000-4000-8000-000000000000"
    transcript = root / "claude" / "projects" / "p" / f"{session}.jsonl"
    transcript.parent.mkdir(parents=True)
    message = {"type": "user", "message": {"role": "user", "content": "fix the login"}, "sessionId": session}
    lines = ({**message, "uuid": f"{session[:24]}{number:012d}"} for number in range(1, 2_001))
    transcript.write_text("".join(json.dumps(one) + "\n" for one in lines), "utf-8")
    env = {**os.environ, "LDM_HOME": str(root / "ldm"), "CLAUDE_CONFIG_DIR": str(root / "claude")}
    env["CRYSTAL_DATA_DIR"] = str(root / "ldm" / "memory")
    for words in (["init", "--yes"], ["sync"]):
        subprocess.run([sys.executable, "-m", "crystal", *words], env=env, stdout=subprocess.DEVNULL, check=True)
    stdin = json.dumps({"session_id": session, "transcript_path": str(transcript)}).encode()
    python, bare, line = [sys.executable, "-I", "-c"], [], []
    for _ in range(runs):
        bare.append(processor_ms([*python, "pass"], b"", env))
        line.append(processor_ms([*python, COMMAND, "statusline"], stdin, env))
    times = statistics.median(line) / statistics.median(bare)
    print(f"status line, processor time: {statistics.median(line):.1f} ms; ratio {times:.2f}\n")
    return times


def processor_ms(command: list[str], stdin: bytes, env: dict[str, str]) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, input=stdin, env=env, stdout=subprocess.PIPE, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return 1000 * (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)


def timed(command: list[str], stdin: bytes, env: dict[str, str]) -> float:
    start = time.perf_counter()
    subprocess.run(command, input=stdin, env=env, stdout=subprocess.PIPE, check=True)
    return (time.perf_counter() - start) * 1000


def size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else 60))
