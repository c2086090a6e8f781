"""Run as Claude Code's hook at the end of every turn: write a note, start the worker, exit.

It is quick, prints nothing by itself, and exits with 0 for any stdin and after any failure. It writes no word of a
conversation into a file, except those of a prompt that asks to remember them. The worker reads the transcript itself,
and the sweep finds transcripts without a note (docs/adr/0002-the-hook-is-a-hint.md).

A client runs ``/abs/python -I -S /abs/crystal/hook/main.py [--env NAME=VALUE]... [--harness NAME] [--event NAME]``. The
interpreter's start takes most of its time: few lines, few modules, none of this package (tests/hook/test_hook.py pins
them). ``_json`` and ``_signal`` are the C parts of ``json`` and ``signal``; importing those would double the time.
"""

import os
import sys
import time

TYPE_CHECKING = False  # as type checkers understand it, without the time that importing ``typing`` takes
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, TypeVar

    Result = TypeVar("Result")

BAKED = ("LDM_HOME", "CRYSTAL_DATA_DIR", "CRYSTAL_CONFIG", "CLAUDE_CONFIG_DIR")
TRANSCRIPTS = "CRYSTAL_TRANSCRIPTS"  # the folder of another client's transcripts, as in its hook's arguments
PLACES = (*BAKED, "OPENCLAW_HOME")
FALSE_WORDS = ("", "0", "false", "no", "off")
STDIN_LIMIT = 64 * 1024 * 1024
STDIN_SECONDS = 3  # the client writes immediately and closes stdin; the hook waits no longer
WAIT_SECONDS = 60
LOG_LIMIT = 64 * 1024
COMPACTING = ("PreCompact", "SubagentStop", "SessionStart")  # events at which the client may replace a transcript
ASSISTED = ("UserPromptSubmit", "PreToolUse", "PostToolUse", "PostToolUseFailure", "SubagentStart")
REMEMBER = ("remember", "\u8bb0\u4f4f", "\u8a18\u4f4f")
NEAR = 64  # a prompt that asks to remember something has one of these within this many characters of its beginning
NOT_KEPT = 'crystal: not kept; to keep it: crystal remember "..." (or begin with: remember this:)'
SCRIPT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "main.py")
"""The script that a client runs."""
WORKER = """\
import gc, sys
gc.set_threshold(200_000)
sys.path.insert(0, sys.argv[1])
import crystal
sys.path.append(sys.path.pop(0))
from crystal.worker import main
main()
"""  # the package beside this file, then again the order in which nothing can shadow the standard library


def main(arguments: list[str]) -> None:
    """Write a note and start a worker. Each step is tried even if an earlier one failed."""
    wall, cpu, now = time.perf_counter(), time.process_time(), time.time_ns()
    if os.environ.get("CRYSTAL_INTERNAL"):
        return  # a client that crystal itself started: never record our own calls
    os.umask(0o077)
    _attempt(_open_standard_streams)
    _attempt(_hurry_on_signals)
    env = with_baked(dict(os.environ), arguments)
    payload = _attempt(_read_event, arguments) or {}
    event, asked = _word(payload.get("hook_event_name")), None
    if event == "UserPromptSubmit" and "crystal_harness" not in payload:
        asked = _attempt(asked_to_remember, payload, env)
        if asked and "doubt" in asked:
            _attempt(_print, {"systemMessage": NOT_KEPT})
            return
    data_dir = _attempt(find_data_dir, env)
    for name in PLACES:
        _attempt(_place, env, name)
    if event in ASSISTED and not asked and not _attempt(_assist, data_dir, payload, env, now):
        return  # the user waits at every prompt, and the agent at every edit: no note, no worker
    note = _attempt(_write_note, data_dir, payload, env, now, asked)
    if asked:
        _attempt(_tell_user, data_dir, asked, note, env)
    finished = _attempt(_start_worker, env, note, payload)
    if data_dir and event == "SessionStart":
        _attempt(_tell, data_dir, payload, env, now, note)
    elif data_dir and event in COMPACTING:
        _attempt(_assist, data_dir, payload, env, now)
    _attempt(_log_latency, data_dir, now, event, wall, cpu)
    _attempt(_wait_if_asked, env, finished)


def _wait_if_asked(env: dict[str, str], finished: "Callable[[], object] | None") -> None:
    if finished is not None and truthy(env.get("CRYSTAL_HOOK_WAIT")):
        _alarm(WAIT_SECONDS)
        finished()


def _read_event(arguments: list[str]) -> dict[str, object]:
    payload = parse_hook_input(_attempt(_read_stdin) or b"")
    return dict(_import_beside("other_agents").translate(payload, arguments)) if "--harness" in arguments else payload


def _start_worker(env: dict[str, str], note: str | None, payload: dict[str, object]) -> "Callable[[], object] | None":
    if hasattr(os, "fork"):
        return _import_beside("launch").start_worker(env, note, payload, _worker_command(), WORKER)  # type: ignore[no-any-return]
    return _import_beside().start_worker_on_windows(env, _worker_command(), WAIT_SECONDS)  # type: ignore[no-any-return]


def truthy(value: str | None) -> bool:
    """Return True if the value of an environment variable means on."""
    return (value or "").strip().lower() not in FALSE_WORDS


def with_baked(env: dict[str, str], arguments: list[str]) -> dict[str, str]:
    """Add the locations given as ``--env NAME=VALUE`` at install time where the environment has none."""
    for flag, pair in zip(arguments, arguments[1:]):
        name, _, value = pair.partition("=")
        if flag == "--env" and name in (*BAKED, TRANSCRIPTS) and not env.get(name, "").strip():
            env[name] = value
    return env


def find_data_dir(env: dict[str, str]) -> str:
    """Return the folder of the store, by the same rule as ``crystal.config.paths.resolve_places``."""
    chosen = _place(env, "CRYSTAL_DATA_DIR")
    if chosen:
        return chosen
    usual = os.path.join(_place(env, "LDM_HOME") or _absolute("~/.ldm"), "memory")
    legacy = os.path.join(_place(env, "OPENCLAW_HOME") or _absolute("~/.openclaw"), "memory-crystal")
    if not os.path.isdir(legacy) or os.path.exists(os.path.join(usual, "crystal.db")):
        return usual
    return usual if is_of_another_program(os.path.join(legacy, "crystal.db")) else legacy


def is_of_another_program(path: str) -> bool:
    """Return whether a file is another program's database, according to its header."""
    try:
        with open(path, "rb") as file:
            header = file.read(72)
    except OSError:
        return False
    has_tables, application = header[40:44] != bytes(4), header[68:72]
    return header.startswith(b"SQLite format 3\0") and has_tables and application != b"CRYS"


def parse_hook_input(raw: bytes) -> dict[str, object]:
    """Parse the JSON object on stdin; return an empty one for anything else."""
    try:
        value = _parse_json(raw.decode("utf-8", "replace").lstrip("\ufeff \t\r\n"))
    except (ValueError, StopIteration, RecursionError, MemoryError):
        return {}
    return value if isinstance(value, dict) else {}


def make_note(payload: dict[str, object], env: dict[str, str], now: int, asked: object = None) -> dict[str, object]:
    """Return the note for the worker: only allowed fields, none of which can contain a sentence. ``now`` is in ns.

    Only the note of a prompt that asks to remember something also has ``asked``, the words to remember.
    """
    transcript = _path(payload.get("transcript_path"))
    return {
        **({"remember": asked} if asked else {}),
        **({"harness": _word(payload["crystal_harness"])} if "crystal_harness" in payload else {}),
        "v": 1,
        "at": now // 1_000_000,
        "event": _word(payload.get("hook_event_name")),
        "session_id": _word(payload.get("session_id")),
        "transcript_path": transcript,
        "agent_transcript_path": _path(payload.get("agent_transcript_path")),
        "cwd": _path(payload.get("cwd")),
        "size": _size_soon(transcript, env),
        "private": truthy(env.get("CRYSTAL_PRIVATE")),
        "awaited": _awaited(payload.get("last_assistant_message")),
    }


def asked_to_remember(payload: dict[str, object], env: dict[str, str]) -> dict[str, object] | None:
    """Return what a prompt asks to remember, as the note has it; None if it does not ask, or the session is private."""
    prompt = payload.get("prompt")
    if not isinstance(prompt, str) or payload.get("agent_id") or truthy(env.get("CRYSTAL_PRIVATE")):
        return None
    begin = prompt[:NEAR].lower()
    if not any(word in begin for word in REMEMBER):
        return None
    asked: dict[str, object] | None = _import_beside("remember").asked(prompt)
    return asked


def encode(value: object) -> str:
    """Return a value of a note as JSON in ASCII."""
    if isinstance(value, dict):
        return "{" + ",".join(f"{_quote(key)}:{encode(item)}" for key, item in value.items()) + "}"
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    return _quote(value) if isinstance(value, str) else str(value)


def _import_beside(name: str = "session_start") -> "Any":
    """Import a module of this folder that few runs need. Python caches its byte code."""
    sys.path.insert(0, os.path.dirname(SCRIPT))
    try:
        return __import__(name)
    finally:
        sys.path.pop(0)


def _place(env: dict[str, str], name: str) -> str | None:
    """Return a folder from the environment as an absolute path, because the worker starts in another folder."""
    if env.get(name, "").strip():
        env[name] = _absolute(env[name])
        return env[name]
    return None


def _absolute(path: str) -> str:
    expanded = os.path.expanduser(path)
    if expanded.startswith("~"):
        raise ValueError("there is no such user")
    return os.path.abspath(expanded)


def _attempt(step: "Callable[..., Result]", *values: object) -> "Result | None":
    try:
        return step(*values)
    except Exception:  # the hook guarantees that no failure here reaches the user's session
        return None


def _open_standard_streams() -> None:
    for number in (0, 1, 2):  # a closed one would be reused for the next file that is opened
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)


def _hurry_on_signals() -> None:
    """Let signals and the alarm end the reading of stdin, which then is /dev/null."""
    import _signal  # type: ignore[import-not-found]

    def hurry(*_: object) -> None:
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)

    for name in ("SIGTERM", "SIGINT", "SIGHUP", "SIGALRM"):
        if hasattr(_signal, name):
            _signal.signal(getattr(_signal, name), hurry)
    _alarm(STDIN_SECONDS)


def _alarm(seconds: int) -> None:
    import _signal

    if hasattr(_signal, "alarm"):
        _signal.alarm(seconds)


def _read_stdin() -> bytes:
    pieces, size = [], 0
    while not os.isatty(0) and size <= STDIN_LIMIT:
        piece = os.read(0, 1 << 20)
        if not piece:
            break
        pieces.append(piece)
        size += len(piece)
    return b"".join(pieces)


def _parse_json(text: str) -> object:
    try:
        from _json import make_scanner
    except ImportError:
        return __import__("json").loads(text)

    class Reading:
        strict = False
        object_hook = object_pairs_hook = array_hook = None
        parse_int = parse_float = parse_constant = staticmethod(lambda _: None)  # the number is not needed

    value: object = make_scanner(Reading)(text, 0)[0]  # type: ignore[arg-type]
    return value


def _quote(text: str) -> str:
    try:
        from _json import encode_basestring_ascii as quote
    except ImportError:
        from json.encoder import encode_basestring_ascii as quote
    return str(quote(text))


def _word(value: object) -> str | None:
    """Return a name or an id: short and without spaces, so that no text of a message is taken for one."""
    if isinstance(value, str) and 0 < len(value) <= 128 and value.isascii():
        return value if all(letter.isalnum() or letter in "-_.:" for letter in value) else None
    return None


def _path(value: object) -> str | None:
    if isinstance(value, str) and len(value) <= 8192 and "\0" not in value:
        return value if os.path.isabs(value) or value.startswith("~") else None
    return None


def _size_soon(path: str | None, env: dict[str, str]) -> int | None:
    """Return a size, or None if it is unknown in time: on a mount whose server is gone no call returns."""
    return _attempt(lambda: _import_beside("launch").in_time(_size, path, env)) if path else None


def _size(path: str, env: dict[str, str]) -> int | None:
    """Return the size in bytes of a regular file in the client's folder."""
    claude = os.path.join(_place(env, "CLAUDE_CONFIG_DIR") or _absolute("~/.claude"), "projects")
    root = _place(env, TRANSCRIPTS) or claude
    whole = os.path.normpath(os.path.expanduser(path))
    if not whole.startswith((root + os.sep, os.path.realpath(root) + os.sep)):
        return None
    # The client names files in UTF-8, whatever the locale says.
    found = os.lstat(whole.encode("utf-8", "surrogatepass") if os.name == "posix" else whole)
    return found.st_size if found.st_mode & 0o170000 == 0o100000 else None


def _awaited(message: object) -> dict[str, object] | None:
    """Return an id of the line that will be written, without its words."""
    import zlib

    text = message.strip() if isinstance(message, str) else ""
    return {"crc": zlib.crc32(text.encode("utf-8", "surrogatepass")), "length": len(text)} if text else None


def _write_note(data_dir: str, payload: dict[str, object], env: dict[str, str], now: int, asked: object) -> str:
    """Write the note whole or not at all, under a name that sorts by time. Return its path."""
    spool = os.path.join(data_dir, "spool")
    note = make_note(payload, env, now, asked)
    content = (encode(note) + "\n").encode("ascii")
    os.makedirs(spool, mode=0o700, exist_ok=True)
    name = f"{now:020d}-{os.getpid()}-{os.urandom(4).hex()}.json"
    temporary, path = os.path.join(spool, f".{name}.tmp"), os.path.join(spool, name)
    try:
        file = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            if os.write(file, content) < len(content):
                raise OSError("the disk is full")
        finally:
            os.close(file)
        if note["size"] is not None and note["event"] in COMPACTING:
            _attempt(_import_beside().keep_transcript, payload, path[: -len("json")] + "kept")
        os.replace(temporary, path)
    except BaseException:
        _attempt(os.unlink, temporary)
        raise
    return path


def _worker_command() -> list[str]:
    root = os.path.dirname(os.path.dirname(os.path.dirname(SCRIPT)))
    return [sys.executable, "-I", "-X", "utf8", "-c", WORKER, root]


def _tell(data_dir: str, payload: dict[str, object], env: dict[str, str], now: int, note: str | None) -> None:
    """Print the output for a session's start: that capture is paused or fails; the context."""
    who = _word(payload.get("session_id")), _word(payload.get("source")), _path(payload.get("cwd"))
    is_helper = payload.get("agent_id") or payload.get("agent_type")
    gets_context = all(who) and not (is_helper or truthy(env.get("CRYSTAL_PRIVATE")))
    # Codex keeps the user's messages.
    is_compacted = payload.get("source") == "compact" and "crystal_harness" not in payload
    at_start = _import_beside("assist").answer_after_compaction if is_compacted else _import_beside().answer_at_start
    _print(
        at_start(data_dir, payload, who if gets_context else None, note, env, now, parse_hook_input, _attempt), payload
    )


def _assist(data_dir: str, payload: dict[str, object], env: dict[str, str], now: int) -> object:
    """Print facts, or record a summary; return True if the worker should read the session now."""
    who = _word(payload.get("session_id")), _path(payload.get("cwd"))
    if not all(who) or truthy(env.get("CRYSTAL_PRIVATE")):
        return False
    assist = _import_beside("assist")
    call = assist.HookCall(data_dir, payload, who, env, now, parse_hook_input)
    return assist.respond(call, _attempt, lambda answer: _print(answer, payload))


def _tell_user(data_dir: str, asked: dict[str, object], note: str | None, env: dict[str, str]) -> None:
    """Print the result for a prompt that asks to remember something: kept only if its note is on the disk."""
    is_kept = note is not None and (os.name != "posix" or _attempt(_import_beside("launch").flush, note) is not None)
    line = _import_beside("remember_line").line_for_user(asked, data_dir, env, is_kept)
    _print({"systemMessage": f"crystal: {line}"})


def _print(answer: dict[str, object], payload: "dict[str, object] | None" = None) -> None:
    if payload and "crystal_harness" in payload:
        answer = _import_beside("other_agents").shaped(answer, payload)
    line = (encode(answer) + "\n").encode("ascii") if answer else b""
    while line:
        line = line[os.write(1, line) :]


def _log_latency(data_dir: str, now: int, event: "str | None", wall: float, cpu: float) -> None:
    spent = cpu + time.perf_counter() - wall
    line = f"{now // 1_000_000} {event or '-'} {spent * 1000:.2f}\n"
    file = os.open(os.path.join(data_dir, "spool", "latency.log"), os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        if os.fstat(file).st_size < LOG_LIMIT:
            os.write(file, line.encode("ascii"))
    finally:
        os.close(file)
