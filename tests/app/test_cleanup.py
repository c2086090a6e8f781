"""Claims of app/cleanup.py: what an agent deletes by itself follows its own settings."""

from __future__ import annotations

import json
from pathlib import Path

from tests.support import agent_samples as samples
from tests.support.command import crystal
from tests.support.table import each_row

GEMINI, OPENCLAW, CLAUDE = ".gemini/settings.json", ".openclaw/openclaw.json", ".claude/settings.json"


def retention(**words: object) -> str:
    return json.dumps({"general": {"sessionRetention": words}})


def maintenance(**words: object) -> str:
    return json.dumps({"session": {"maintenance": words}})


@each_row(
    ("file", "text", "said"),
    [
        (GEMINI, None, "Gemini CLI deletes chats after 30 days"),
        (GEMINI, "{", "Gemini CLI deletes chats after 30 days"),
        (GEMINI, '{"general": 1}', "Gemini CLI deletes chats after 30 days"),
        (GEMINI, retention(enabled=True, maxAge="soon"), "Gemini CLI deletes chats after 30 days"),
        (GEMINI, "// mine\n" + retention(maxAge="26w"), "Gemini CLI deletes chats after 26 weeks"),
        (GEMINI, retention(maxAge="1d", maxCount=50), "chats after 1 day, and the oldest of more than 50"),
        (GEMINI, retention(enabled=False), None),
        (OPENCLAW, None, "OpenClaw deletes sessions of subagents and automations after 30 days, and archived"),
        (OPENCLAW, maintenance(pruneAfter=90), "automations after 90 days, and archived ones above"),
        (OPENCLAW, maintenance(mode="warn"), None),
        (OPENCLAW, "{session: {maintenance: {pruneAfter: '26w',}}}", "automations after 26 weeks, and archived ones"),
        (CLAUDE, None, "Claude Code deletes transcripts after 30 days"),
        (CLAUDE, '{"cleanupPeriodDays": 99999}', "Claude Code deletes transcripts after 99,999 days"),
        (CLAUDE, '{"cleanupPeriodDays": "9;"}', "Claude Code deletes transcripts after 30 days"),
    ],
)
def test_status_and_doctor_say_what_the_settings_say(home: Path, file: str, text: str | None, said: str | None) -> None:
    path = home / file
    title = {GEMINI: "Gemini CLI", OPENCLAW: "OpenClaw", CLAUDE: "Claude Code"}[file]
    if not (home / ".ldm").exists():
        for harness in ("gemini-cli", "openclaw"):
            samples.lay_out(harness, home)
        (home / ".claude" / "projects" / "w").mkdir(parents=True)
        (home / ".claude" / "projects" / "w" / "s.jsonl").write_text('{"type": "summary"}\n')
        assert crystal("init", "--yes").code == 0
    before = path.read_bytes() if path.exists() else None
    if text is not None:
        path.write_text(text)
    for command in ("status", "doctor"):
        out = crystal(command).out
        lines = [line for line in out.splitlines() if f"{title} deletes" in line]
        assert [said in line for line in lines] == [True] if said else not lines, out
    path.unlink(missing_ok=True) if before is None else path.write_bytes(before)
