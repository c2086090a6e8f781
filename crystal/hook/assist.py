"""Tell facts before an edit and after a failed command, from one file that the worker keeps ready.

``main.py`` imports it as a module of its own, without the package: it imports what the hook may import, and nothing of
us. On any doubt it says nothing. ``crystal assist replay`` and the worker use its functions too, so that what is
measured is what is told.

The file of a project has a line of JSON with its folder, its key, its heading and how many facts and keys it has; a
line of JSON for each fact; then, sorted, ``KEY_BYTES`` for each key: a keyed hash in hexadecimal, the number of its
fact.
"""

import os

# ``main.py`` runs without the package.
session_start = __import__("crystal.hook.session_start", fromlist=["*"]) if __package__ else __import__("session_start")

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any

    Fact = dict[str, str]
    Find = Callable[..., "Fact | None"]

MOMENTS = {"PreToolUse": "edit", "PostToolUseFailure": "failure"}
SUFFIX = ".facts"
STATE = ".assist"
MAX_BYTES = 2 << 20
KEY_BYTES = 22
MAX_LINES = 400
MAX_FOLDERS = 64
MIN_CHARACTERS = 8
MIN_SHARE = 0.5
"""Minimum share of the lines that an edit replaces which one earlier edit must have written."""
MIN_ERROR, MIN_ERROR_WORDS = 15, 3
LOCK_TRIES, LOCK_SECONDS = 25, 0.002
_PLAIN = str.maketrans("'`", '""')


def plain_line(line: str) -> str:
    """Return a line as it is compared: without spaces, kinds of quotes and its last comma; empty if it is too short."""
    plain = "".join(line.split()).translate(_PLAIN).rstrip(",;")
    letters = sum(map(str.isalnum, plain)) + plain.count("_")
    return plain if len(plain) >= MIN_CHARACTERS and letters * 2 >= MIN_CHARACTERS else ""


def plain_error(line: str) -> str:
    """Return a line of output as errors are compared: its words without paths, numbers and signs around them."""
    if len(line) > MAX_LINES:
        return ""
    words = [word.strip("\"'`,:;()[]{}<>.!*-=") for word in line.lower().split()]
    kept = [word for word in words if word.isascii() and not any(sign.isdigit() or sign in "/\\.\x1b" for sign in word)]
    telling = [word for word in kept if len(word) > 1 and word[0].isalpha()]
    plain = " ".join(kept).strip()
    return plain if len(telling) >= MIN_ERROR_WORDS and len(plain) >= MIN_ERROR else ""


def key_of(secret: bytes, *parts: str) -> bytes:
    """Return the key of a line, a file or an error in the file of a project."""
    try:
        from _blake2 import blake2b  # a third of the time that ``hashlib`` takes
    except ImportError:
        from hashlib import blake2b
    content = "\0".join(parts).encode("utf-8", "surrogatepass")
    return bytes(blake2b(content, digest_size=8, key=secret).hexdigest(), "ascii")


def name_of(path: str) -> str:
    """Return a file's own name, of either system."""
    return path.replace("\\", "/").rpartition("/")[2]


def facts_for_edit(given: "dict[str, Any]", folder: str, find: "Find") -> "list[Fact]":
    """Return what is known of the lines that an edit replaces, and of what failed when its file had been edited.

    Args:
        given: The arguments of the tool.
        folder: The project's folder.
        find: Returns the latest fact with a key, given as its parts.
    """
    path = given.get("file_path") or given.get("notebook_path")
    if not isinstance(path, str):
        return []
    replaced = [plain for line in _replaced(given)[:MAX_LINES] if (plain := plain_line(line))]
    votes: dict[str, tuple[int, Fact]] = {}
    for plain in set(replaced):
        fact = find("line", name_of(path), plain)
        if fact:
            votes[fact["id"]] = votes.get(fact["id"], (0,))[0] + 1, fact
    most, best = max(votes.values(), key=lambda one: one[0], default=(0, None))
    why = [best] if best and most >= MIN_SHARE * len(set(replaced)) else []
    plain_path = path.replace("\\", "/")
    failed = find("file", plain_path.removeprefix(folder.replace("\\", "/").rstrip("/") + "/"))
    return why + ([failed] if failed else [])


def facts_for_failure(output: str, find: "Find") -> "list[Fact]":
    """Return what cured the first error in a failed command's output of which a cure is known."""
    for line in output.splitlines()[:MAX_LINES]:
        plain = plain_error(line)
        fact = find("error", plain) if plain else None
        if fact:
            return [fact]
    return []


def answer(
    data_dir: str,
    said: "dict[str, Any]",
    who: "tuple[str, str]",
    env: "dict[str, str]",
    now: int,
    parse: "Callable[[bytes], dict[str, Any]]",
) -> "dict[str, object]":
    """Return the answer to the client; empty if there is nothing to tell.

    ``who`` are the session's id and its folder; the other arguments are those of ``answer_at_start``.
    """
    (session, cwd), event = who, said["hook_event_name"]
    moment = MOMENTS[event]
    rules = session_start.rules_for(data_dir, session, env, parse)
    if not rules or moment not in rules["moments"]:
        return {}
    header, facts, keys = _ready(os.path.join(data_dir, "context"), cwd, rules, parse)
    secret = bytes.fromhex(header["key"])

    def find(*parts: str) -> "Fact | None":
        key, low, high = key_of(secret, *parts), 0, len(keys) // KEY_BYTES
        while low < high:
            middle = (low + high) // 2
            here = keys[middle * KEY_BYTES : middle * KEY_BYTES + 16]
            if here == key:
                return parse(facts[int(keys[middle * KEY_BYTES + 16 : (middle + 1) * KEY_BYTES])])
            low, high = (middle + 1, high) if here < key else (low, middle)
        return None

    is_edit = moment == "edit"
    known = (
        facts_for_edit(said["tool_input"], header["folder"], find)
        if is_edit
        else facts_for_failure(said["error"], find)
    )
    others = [fact for fact in known if fact["session"] != session]
    told = _choose_facts(data_dir, session, moment, others, int(rules["assist_tokens"]), now) if others else []
    if not told:
        return {}
    body = "\n".join([header["head"], *(fact["body"] for fact in told)])
    context = session_start.fenced(body)
    return {"hookSpecificOutput": {"hookEventName": event, "additionalContext": context}}


def _replaced(given: "dict[str, Any]") -> "list[str]":
    """Return the lines that an edit takes out."""
    edits = given.get("edits")
    gone: list[str] = []
    for edit in edits if isinstance(edits, list) else [given]:
        old, new = edit.get("old_string"), edit.get("new_string")
        if isinstance(old, str):
            kept = set(new.splitlines()) if isinstance(new, str) else set()
            gone += [line for line in old.splitlines() if line not in kept]
    return gone


def _ready(
    context: str, cwd: str, rules: "dict[str, Any]", parse: "Callable[[bytes], dict[str, Any]]"
) -> "tuple[dict[str, str], list[bytes], bytes]":
    """Read the file of the project that a folder is in: that of the folder, else of the nearest one with ``.git``.

    Raises:
        LookupError, OSError, ValueError: There is none, it may be private, or it is not whole.
    """
    whole = folder = os.path.abspath(cwd)
    for _ in range(MAX_FOLDERS):
        path = os.path.join(context, session_start.context_file(folder)) + SUFFIX
        if os.path.exists(path):
            break
        above = os.path.dirname(folder)
        if above == folder or os.path.exists(os.path.join(folder, ".git")):
            raise LookupError(cwd)
        folder = above
    with open(path, "rb") as file:
        header = parse(file.readline(MAX_BYTES))
        facts = [file.readline(MAX_BYTES) for _ in range(int(header["facts"]))]
        keys = file.read(MAX_BYTES)
    is_cut = len(keys) != int(header["keys"]) * KEY_BYTES
    private = tuple(rules["private_folders"])
    if header["folder"] != folder or is_cut or cwd.startswith(private) or whole.startswith(private):
        raise LookupError(cwd)
    return header, facts, keys


def _choose_facts(
    data_dir: str, session: str, moment: str, facts: "Iterable[Fact]", budget: int, now: int
) -> "list[Fact]":
    """Return which facts this session is told now, and note them: none twice, and no more than the budget.

    Hooks of one session may run at once: the file is locked meanwhile.

    Raises:
        OSError, ImportError: It cannot be locked.
    """
    import fcntl

    told = os.path.join(data_dir, "told")
    os.makedirs(told, mode=0o700, exist_ok=True)
    state = os.open(os.path.join(told, session + STATE), os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        _lock(fcntl, state)
        noted = [line.split() for line in os.read(state, 1 << 20).decode("ascii").splitlines()]
        known, left, chosen, lines = {row[2] for row in noted}, budget - sum(int(row[3]) for row in noted), [], ""
        for fact in facts:
            tokens = int(fact["tokens"])
            if fact["id"] not in known and tokens <= left:
                left -= tokens
                chosen.append(fact)
                lines += f"{now // 1_000_000} {moment} {fact['id']} {tokens}\n"
        os.write(state, lines.encode("ascii"))
    finally:
        os.close(state)  # which unlocks it
    return chosen


def _lock(fcntl: "Any", file: int) -> None:
    import time

    for _ in range(LOCK_TRIES):
        try:
            return fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)  # type: ignore[no-any-return]
        except BlockingIOError:
            time.sleep(LOCK_SECONDS)
    raise TimeoutError
