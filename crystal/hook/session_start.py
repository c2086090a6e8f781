"""Run the rarely used parts of the hook: the context at a session's start, and Windows.

They are here because most runs of the hook need neither. ``event.py`` imports it as a top-level module, without the
package: it imports only what the hook may import.
"""

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

STALLED_AFTER_NS = 15 * 60 * 1_000_000_000
SILENT_AFTER_NS = 24 * 3600 * 1_000_000_000
GROWTH_NS = 300 * 1_000_000_000
NOTICE_FILE = "notice.json"
SILENCE_FILE = "silence"
MAX_FILES = 20_000
ASSIST_STATE = ".assist"
"""Suffix of the file in ``told`` with the facts that a session got from assist."""
NOT_COUNTED = "0"
"""Token count of a fact that assist did not send, because a summary or the context contains it."""
TOLD_SOURCES = ("startup", "resume", "clear", "compact")
SYSTEM_PROMPT_AGENTS = ("opencode",)
"""Their system prompt has the context, is not kept, and is made by each process, which asks once for a session."""


def context_file(cwd: str) -> str:
    """Return the name of the file with the context for sessions in a folder."""
    import zlib

    raw = cwd.encode("utf-8", "surrogatepass")
    return f"{zlib.crc32(raw):08x}{zlib.adler32(raw):08x}.json"


def stamp_of(path: str) -> str:
    """Return a stamp that changes when a settings file changes."""
    try:
        found = os.stat(path)
    except OSError:
        return "-"
    return f"{found.st_mtime_ns} {found.st_size}"


def answer_at_start(
    data_dir: str,
    payload: "dict[str, object]",
    who: "tuple[str, str, str] | None",
    note: "str | None",
    env: "dict[str, str]",
    now: int,
    parse: "Callable[[bytes], dict[str, Any]]",
    attempt: "Callable[..., Any]",
) -> "dict[str, object]":
    """Return the answer to the client at a session's start; ``who`` is None if no context may be given.

    ``attempt`` calls a function and returns None if it fails; the others are as for ``told_once`` and ``notice_text``.
    """
    answer: dict[str, object] = {}
    notice = attempt(notice_text, data_dir, payload, now, note, parse)
    context = attempt(told_once, data_dir, who, env, now, parse, payload.get("crystal_harness")) if who else None
    if notice:
        answer["systemMessage"] = f"crystal: {notice}"
    if context:
        answer["hookSpecificOutput"] = {"hookEventName": "SessionStart", "additionalContext": context}
    return answer


def told_once(
    data_dir: str,
    who: "tuple[str, str, str]",
    env: "dict[str, str]",
    now: int,
    parse: "Callable[[bytes], dict[str, Any]]",
    harness: object = None,
) -> "str | None":
    """Return the prepared context for a new session; None if it is not allowed, or was given already.

    It is not given if a settings file changed since it was prepared: the worker must apply the new settings first.

    Args:
        data_dir: The data folder.
        who: The session's id, the reason for its start, and its folder.
        env: The environment.
        now: Nanoseconds since the epoch.
        parse: Parses a JSON object.
        harness: The agent, if it is not Claude Code.

    Raises:
        OSError, LookupError: No context is prepared, or it was given.
    """
    session, source, cwd = who
    folder = os.path.join(data_dir, "context")
    rules = rules_for(data_dir, session, env, parse, harness)
    if source not in TOLD_SOURCES or rules is None:
        return None
    ready = _ready(folder, cwd.rstrip("/") or cwd, rules, parse)
    if not ready["body"]:
        return None
    told = os.path.join(data_dir, "told")
    os.makedirs(told, mode=0o700, exist_ok=True)
    again = os.O_TRUNC if harness in SYSTEM_PROMPT_AGENTS else os.O_EXCL
    at = now // 1_000_000
    _write(os.path.join(told, f"{session}.{source}"), again, f"{at} {ready['told']}\n")
    if ready.get("facts"):  # facts of assist, which must not be given again
        lines = "".join(f"{at} start {fact} {NOT_COUNTED}\n" for fact in ready["facts"].split())
        _write(os.path.join(told, session + ASSIST_STATE), os.O_APPEND, lines)
    return fenced(ready["body"])


def _write(path: str, how: int, text: str) -> None:
    """Write to a file that only its user may read; ``how`` is a flag of ``os.open``."""
    file = os.open(path, os.O_WRONLY | os.O_CREAT | how, 0o600)
    try:
        os.write(file, text.encode("ascii"))
    finally:
        os.close(file)


def fenced(body: str) -> str:
    """Put a text into the fence, like ``crystal.text.fence``."""
    nonce = "".join("abcdefghjkmnpqrstuvwxyz23456789"[byte % 31] for byte in os.urandom(6))
    return f"<crystal-memory-{nonce}>\n{body}\n</crystal-memory-{nonce}>"


def rules_for(
    data_dir: str,
    session: str,
    env: "dict[str, str]",
    parse: "Callable[[bytes], dict[str, Any]]",
    harness: object = None,
) -> "dict[str, Any] | None":
    """Return the rules for the answer; None if the session may get no context, or the settings are newer than these.

    The context is prepared for Claude Code; other agents get it only if they may see the same conversations.
    """
    rules = _read(os.path.join(data_dir, "context", "rules.json"), parse)
    config, variables = rules["config"], rules["variables"]
    if harness and not rules["is_for_all"]:
        return None
    if env.get("CRYSTAL_CONFIG", config) != config or stamp_of(config) != rules["stamp"]:
        return None
    if any(env.get(name, "") != value for name, value in variables.items()):
        return None
    return None if session.startswith(tuple(rules["private_sessions"])) or session in rules["off"] else rules


def is_private(cwd: str, rules: "dict[str, Any]") -> bool:
    """Return whether a folder may be private."""
    private = tuple(rules["private_folders"])
    return cwd.startswith(private) or os.path.abspath(cwd).startswith(private)


def _ready(
    folder: str, cwd: str, rules: "dict[str, Any]", parse: "Callable[[bytes], dict[str, Any]]"
) -> "dict[str, Any]":
    """Return the context prepared for a folder: its own, else the main working tree's, else the default one.

    If the folder may be private, only its own.
    """
    for place in (cwd, main_tree(cwd) if not is_private(cwd, rules) else ""):
        try:
            own = _read(os.path.join(folder, context_file(place)), parse)
            if own["cwd"] == place:
                return own
        except OSError:
            pass  # no context is prepared for this folder
    return {"body": None} if is_private(cwd, rules) else _read(os.path.join(folder, "default.json"), parse)


def main_tree(folder: str) -> str:
    """Return the main working tree of a linked working tree; empty if the folder is no linked one.

    Git's folder must name the linked tree too, so that planted files do not lead to another repository.
    """
    try:
        with open(os.path.join(folder, ".git"), "rb") as file:
            own = os.path.join(folder, os.fsdecode(file.read(4096)).partition("gitdir: ")[2].strip())
        with open(os.path.join(own, "gitdir"), "rb") as file:
            back = os.path.join(own, os.fsdecode(file.read(4096)).strip())
    except (OSError, ValueError):
        return ""
    trees, git = os.path.dirname(os.path.normpath(own)), os.path.join(folder, ".git")
    above = os.path.dirname(trees)
    if os.path.basename(trees) != "worktrees" or os.path.realpath(back) != os.path.realpath(git):
        return ""
    return os.path.dirname(above) if os.path.basename(above)[:1] == "." else above


def _read(path: str, parse: "Callable[[bytes], dict[str, Any]]") -> "dict[str, Any]":
    with open(path, "rb") as file:
        return parse(file.read())


def keep_transcript(payload: "dict[str, object]", link: str) -> None:
    """Hard-link the transcript when the client is compacting, after which it may replace the file.

    ``PreCompact`` comes from older settings; the other two show the user nothing.
    """
    event, transcript = payload.get("hook_event_name"), payload.get("transcript_path")
    is_helper = event == "SubagentStop" and payload.get("agent_type") == ""  # the client's own: it writes the summary
    is_start = event == "SessionStart" and payload.get("source") == "compact"
    if isinstance(transcript, str) and (is_helper or is_start or event == "PreCompact"):
        os.link(os.path.expanduser(transcript), link)


def notice_text(
    data_dir: str,
    payload: "dict[str, object]",
    now: int,
    note: "str | None",
    parse: "Callable[[bytes], dict[str, Any]]",
) -> "str | None":
    """Return what the user should know about capture when a session begins; None if all is well.

    Args:
        data_dir: The data folder.
        payload: The client's input on stdin.
        now: Nanoseconds since the epoch.
        note: The note that this hook wrote; None if it could not.
        parse: Parses a JSON object.
    """
    if not note:
        return f"nothing is kept: {data_dir} cannot be written; run: crystal doctor"
    if payload.get("source") == "compact":
        return None  # the session continues
    for find in (stalled_text, _ready_notice, _silence_text):
        try:
            text = find(data_dir, payload, now, parse)
        except (OSError, LookupError, ValueError, TypeError):
            text = None  # nothing was prepared, or it is damaged: the next worker repairs it
        if text:
            return "".join(letter for letter in text if letter.isprintable())[:300]
    return None


def _ready_notice(
    data_dir: str, _said: "dict[str, object]", _now: int, parse: "Callable[[bytes], dict[str, Any]]"
) -> "str | None":
    line = _read(os.path.join(data_dir, NOTICE_FILE), parse)["line"]
    return line if isinstance(line, str) else None


def _silence_text(
    data_dir: str, payload: "dict[str, object]", now: int, parse: "Callable[[bytes], dict[str, Any]]"
) -> "str | None":
    """Return, once, a notice that no turn's hook ran for a day although transcripts grew."""
    noted = _read(os.path.join(data_dir, NOTICE_FILE), parse)["last_turn"]
    last, transcript = 1_000_000 * int(noted), payload.get("transcript_path")
    if now - last <= SILENT_AFTER_NS or not isinstance(transcript, str):
        return None
    told = os.path.join(data_dir, SILENCE_FILE)
    if os.path.exists(told):
        with open(told, encoding="ascii") as file:
            if file.read() == noted:
                return None
    if not _grew_since(os.path.dirname(os.path.dirname(os.path.expanduser(transcript))), last + GROWTH_NS, transcript):
        return None
    with open(told, "w", encoding="ascii") as file:
        file.write(noted)
    hours = (now - last) // 3_600_000_000_000
    ago = f"{hours // 24} days" if hours >= 48 else f"{hours} hours"
    return f"the hook had not run for {ago}, although sessions went on; they are captured now; see: crystal status"


def _grew_since(projects: str, then: int, current: str) -> bool:
    """Return True if a transcript other than that of this session changed after ``then``, in nanoseconds."""
    looked = 0
    for folder in os.listdir(projects):
        path = os.path.join(projects, folder)
        for name in os.listdir(path) if os.path.isdir(path) else ():
            looked += 1
            file = os.path.join(path, name)
            if name.endswith(".jsonl") and file != current and os.stat(file).st_mtime_ns > then:
                return True
            if looked > MAX_FILES:
                return False
    return False


def stalled_text(
    data_dir: str, _said: "dict[str, object]", now: int, _parse: "Callable[[bytes], dict[str, Any]]"
) -> "str | None":
    """Return why capture seems to have stopped, or None."""
    try:
        with open(os.path.join(data_dir, "stalled"), "rb") as file:
            line = file.read(1000).decode("utf-8", "replace").split("\n", 1)[0]
        return line[:200].strip() or "capture is stalled; run: crystal doctor"
    except OSError:
        pass  # not marked as stalled
    notes = [name for name in os.listdir(os.path.join(data_dir, "spool")) if name.endswith(".json")]
    notes = [name for name in notes if not name.endswith(".aside.json")]
    times = [int(name[:20]) for name in notes if name[:20].isdecimal() and name[20:21] == "-"]
    waiting = now - min(times, default=now)
    if waiting <= STALLED_AFTER_NS:
        return None
    return f"capture is stalled, the oldest note is {waiting // 60_000_000_000} minutes old; run: crystal doctor"


def start_worker_on_windows(env: "dict[str, str]", command: "list[str]", seconds: float) -> "Callable[[], object]":
    """Start the worker detached from this process. Untested: no Windows machine was available.

    Returns:
        A function that waits for the worker's end, at most ``seconds``.
    """
    import subprocess

    alone = 0x08000000 | 0x00000008 | 0x00000200  # CREATE_NO_WINDOW | DETACHED_PROCESS | CREATE_NEW_PROCESS_GROUP
    null = subprocess.DEVNULL

    def start(flags: int) -> "subprocess.Popen[bytes]":
        return subprocess.Popen(command, env=env, cwd=os.sep, stdin=null, stdout=null, stderr=null, creationflags=flags)

    try:
        worker = start(alone | 0x01000000)  # CREATE_BREAKAWAY_FROM_JOB, which not every job allows
    except OSError:
        worker = start(alone)
    return lambda: worker.wait(seconds)
