"""Answer hooks with facts at the moment when they matter, from files that the worker prepares.

``event.py`` imports it as a top-level module, without the package: it imports only what the hook may import. In doubt
it prints nothing. ``crystal assist replay`` and the worker use its functions too, so that measurements and answers
agree.

The file of a project has one line of JSON with its folder, its key, its heading and the numbers of facts and keys; a
line of JSON for each fact; then, sorted, ``KEY_BYTES`` for each key: a keyed hash in hexadecimal, and the number of its
fact. The packet of a session is such a file too: all of its facts are given after a compaction, unless the client's own
summary contains them, and to a subagent.
"""

import os

# ``event.py`` runs without the package.
session_start = __import__("crystal.hook.session_start", fromlist=["*"]) if __package__ else __import__("session_start")
matching = __import__("crystal.hook.matching", fromlist=["*"]) if __package__ else __import__("matching")

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any

    Fact = dict[str, str]

MOMENTS = {
    "UserPromptSubmit": "prompt",
    "PreToolUse": "edit",
    "PostToolUseFailure": "failure",
    "SessionStart": "compaction",
    "SubagentStart": "subagent",
}
PACKETS = {"compaction", "subagent"}
PACKET_AGENTS = {"claude-code", "codex"}
"""The agents whose hooks can deliver a packet."""
SUFFIX, PACKET = ".facts", ".packet"
MAX_PACKET_AGE_NS = 120 * 1_000_000_000
"""Age from which a packet is made again during a turn."""
WORTH = "worth"
"""Field of facts that justify a packet: a decision, or a command that fails."""
MAX_BYTES = 2 << 20
KEY_BYTES = 22
MAX_FOLDERS = 64
LOCK_TRIES, LOCK_SECONDS = 25, 0.002


def key_of(secret: bytes, *parts: str) -> bytes:
    """Return the key of a line, a file or an error in the file of a project."""
    try:
        from _blake2 import blake2b  # takes a third of the time of ``hashlib``
    except ImportError:
        from hashlib import blake2b
    content = "\0".join(parts).encode("utf-8", "surrogatepass")
    return bytes(blake2b(content, digest_size=8, key=secret).hexdigest(), "ascii")


class HookCall:
    """The client's input at an event, and the rules for the answer.

    ``who`` is (session id, folder); the other arguments are those of ``answer_at_start``.
    """

    def __init__(
        self,
        data_dir: str,
        payload: "dict[str, Any]",
        who: "tuple[str, str]",
        env: "dict[str, str]",
        now: int,
        parse: "Callable[[bytes], dict[str, Any]]",
    ) -> None:
        self.data_dir, self.payload, self.now, self.parse = data_dir, payload, now, parse
        self.context = os.path.join(data_dir, "context")
        (self.session, self.cwd), self.event = who, payload["hook_event_name"]
        rules = session_start.rules_for(data_dir, self.session, env, parse, payload.get("crystal_harness"))
        may_answer = rules is not None and not session_start.is_private(self.cwd, rules)
        self.rules: dict[str, Any] = rules if may_answer else {"moments": []}
        self.packet = os.path.join(self.context, self.session + PACKET)


def answer(call: HookCall) -> "dict[str, object]":
    """Return the answer to the client; empty if there are no facts for it."""
    moment = MOMENTS[call.event]
    if moment not in call.rules["moments"]:
        return {}
    if moment in PACKETS:
        head, known = _packet(call)
        agent = call.payload.get("agent_id") or ""  # a subagent's context contains nothing that the session got
        known = [{**fact, "id": f"{''.join(filter(str.isalnum, agent))}{fact['id']}"} for fact in known]
    else:
        head, known = _matching(call)
        known = [fact for fact in known if fact["session"] != call.session]
    chosen = _choose_facts(call, moment, known) if known else []
    if not chosen:
        return {}
    context = session_start.fenced("\n".join([head, *(fact["body"] for fact in chosen)]))
    return {"hookSpecificOutput": {"hookEventName": call.event, "additionalContext": context}}


def answer_after_compaction(
    data_dir: str, payload: "dict[str, Any]", who: "tuple[str, str, str] | None", *given: "Any"
) -> "dict[str, object]":
    """Return the answer of ``answer_at_start`` with the facts missing in the client's summary; same arguments."""
    found: dict[str, Any] = session_start.answer_at_start(data_dir, payload, who, *given)
    _, env, now, parse, attempt = given
    more = attempt(lambda: answer(HookCall(data_dir, payload, (who[0], who[2]), env, now, parse))) if who else None
    if more and "hookSpecificOutput" in found:
        output = more["hookSpecificOutput"]
        output["additionalContext"] = (
            f"{found['hookSpecificOutput']['additionalContext']}\n{output['additionalContext']}"
        )
    return {**found, **(more or {})}


def respond(call: HookCall, attempt: "Callable[..., Any]", write: "Callable[[dict[str, object]], None]") -> bool:
    """Print the answer to an event, or record a summary; return True if the worker should read the session now.

    The worker should do so during a turn if the session's packet is missing or too old.
    """
    if call.event not in MOMENTS:
        if call.payload.get("agent_type") == "" and "compaction" in call.rules["moments"]:
            _note_summary(call)  # the client's own helper has just written it
        return False
    write(attempt(answer, call) or {})
    if call.event == "UserPromptSubmit":
        return False  # the session has done nothing since its last turn ended
    has_packet = call.payload.get("crystal_harness", "claude-code") in PACKET_AGENTS
    if not (has_packet and PACKETS & {*call.rules["moments"]}):
        return False
    try:
        return call.now - os.stat(call.packet).st_mtime_ns > MAX_PACKET_AGE_NS
    except OSError:
        return True  # the session is new


def _note_summary(call: HookCall) -> None:
    """Record which facts of a session its summary contains."""
    summary = call.payload["last_assistant_message"]
    known = [fact for fact in _packet(call)[1] if is_in_summary(fact["body"], summary)]
    _choose_facts(call, "summary", [{**fact, "tokens": session_start.NOT_COUNTED} for fact in known])


def is_in_summary(body: str, summary: str) -> bool:
    """Return whether a summary contains two thirds of the words that a fact quotes, at any place."""
    words = [word.strip("\"'`,:;()[]{}<>.!?*-=|&$") for word in body[body.find('"') :].lower().split()]
    long = [word for word in words if len(word) > 2]
    plain = summary.lower()
    return 3 * sum(word not in plain for word in long) <= len(long)


def worth_telling(moment: str, facts: "Iterable[Fact]") -> "list[Fact]":
    """Return the facts; for a packet, only if one of them justifies it."""
    found = list(facts)
    return found if moment not in PACKETS or any(WORTH in fact for fact in found) else []


def _packet(call: HookCall) -> "tuple[str, list[Fact]]":
    """Return the heading and the facts of a session's packet."""
    header, facts, _ = _read(call, call.packet)
    return header["head"], [call.parse(fact) for fact in facts]


def _matching(call: HookCall) -> "tuple[str, list[Fact]]":
    """Return the heading and the facts of the project for an edit or a failed command."""
    path, folder, top = _find(call.context, call.cwd)
    header, facts, keys = _read(call, path)
    if header["folder"] != folder:
        raise LookupError(folder)
    secret = bytes.fromhex(header["key"])

    def find(*parts: str) -> "Fact | None":
        key, low, high = key_of(secret, *parts), 0, len(keys) // KEY_BYTES
        while low < high:
            middle = (low + high) // 2
            here = keys[middle * KEY_BYTES : middle * KEY_BYTES + 16]
            if here == key:
                return call.parse(facts[int(keys[middle * KEY_BYTES + 16 : (middle + 1) * KEY_BYTES])])
            low, high = (middle + 1, high) if here < key else (low, middle)
        return None

    if call.event == "PreToolUse":
        return header["head"], matching.facts_for_edit(call.payload["tool_input"], top, find)
    text = call.payload["error" if call.event == "PostToolUseFailure" else "prompt"]
    return header["head"], matching.facts_for_failure(text, find)


def _find(context: str, cwd: str) -> "tuple[str, str, str]":
    """Return the facts file of a folder's project, the project's folder, and the top of the working tree.

    The project's folder is ``cwd`` or one above it, up to the nearest with ``.git``. The top is the same folder, except
    in a linked working tree, whose project has the folder of the main working tree.

    Raises:
        LookupError: No project's folder is found.
    """
    folder = os.path.abspath(cwd)
    for _ in range(MAX_FOLDERS):
        path = os.path.join(context, session_start.context_file(folder)) + SUFFIX
        if os.path.exists(path):
            return path, folder, folder
        above = os.path.dirname(folder)
        if above == folder or os.path.exists(os.path.join(folder, ".git")):
            main = session_start.main_tree(folder)
            return os.path.join(context, session_start.context_file(main)) + SUFFIX, main, folder
        folder = above
    raise LookupError(cwd)


def _read(call: HookCall, path: str) -> "tuple[dict[str, str], list[bytes], bytes]":
    """Read a file of facts.

    Raises:
        LookupError, OSError, ValueError: The file is missing or incomplete.
    """
    from itertools import islice

    with open(path, "rb") as file:
        header = call.parse(file.readline(MAX_BYTES))
        facts = list(islice(file, int(header["facts"])))  # a damaged number may be too large: the file's end stops it
        keys = file.read(MAX_BYTES)
    if len(keys) != int(header["keys"]) * KEY_BYTES:
        raise LookupError(path)
    return header, facts, keys


def _choose_facts(call: HookCall, moment: str, facts: "Iterable[Fact]") -> "list[Fact]":
    """Choose the facts for this session within the token budget, none twice, and record them.

    Hooks of one session may run in parallel, so the file is locked meanwhile.

    Raises:
        OSError, ImportError: It cannot be locked.
    """
    import fcntl

    told = os.path.join(call.data_dir, "told")
    os.makedirs(told, mode=0o700, exist_ok=True)
    state = os.open(
        os.path.join(told, call.session + session_start.ASSIST_STATE), os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600
    )
    try:
        _lock(fcntl, state)
        noted = [line.split() for line in os.read(state, 1 << 20).decode("ascii").splitlines()]
        left, known = int(call.rules["assist_tokens"]) - sum(int(row[3]) for row in noted), {row[2] for row in noted}
        chosen, lines = [], ""
        for fact in worth_telling(moment, [fact for fact in facts if fact["id"] not in known]):
            tokens = int(fact["tokens"])
            if tokens <= left:
                left -= tokens
                chosen.append(fact)
                lines += f"{call.now // 1_000_000} {moment} {fact['id']} {tokens}\n"
        os.write(state, lines.encode("ascii"))
    finally:
        os.close(state)  # also unlocks it
    return chosen


def _lock(fcntl: "Any", file: int) -> None:
    import time

    for _ in range(LOCK_TRIES):
        try:
            return fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)  # type: ignore[no-any-return]
        except BlockingIOError:
            time.sleep(LOCK_SECONDS)
    raise TimeoutError
