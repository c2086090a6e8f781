"""The facts that may be told, their words, and the file in which the hook finds them. Pure."""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from crystal.hook.assist import WORTH, key_of
from crystal.hook.matching import tail_of
from crystal.text.fence import HEADER
from crystal.text.quoting import quote, quote_line
from crystal.work.blame import MAX_SESSIONS
from crystal.work.calls import command_key

MIN_REQUEST = 12
"""A shorter message, such as "yes", says nothing of what was asked."""
MAX_REQUEST, MAX_REASON, MAX_COMMAND, MAX_LINE = 160, 320, 160, 120
MAX_FACTS = 1_000
MAX_KEYS = 20_000
"""Together with ``MAX_FACTS`` under 2 MB, which the hook reads in some milliseconds."""

# The words that reach an agent; docs/explanation/assist.md says why each sentence is there.
HEAD = "of earlier sessions in project {project}; the words of the user and the assistant"
WRITTEN = "The lines of {file} that this edit replaces were written on {day} (session {session})."
ASKED = 'The user had asked: "{request}".'
WHY = 'The reason given then: "{reason}"'
FAILED = (
    'When {file} had been edited on {day} (session {session}), "{command}" failed;'
    " it succeeded when the file was edited again."
)
CURED = (
    'An error like this one, of "{command}", was cured here on {day} (session {session}): {done}; then it succeeded.'
)
EDITED = 'the agent edited {file}, adding "{line}"'
RAN = 'the agent ran "{command}"'
SO_FAR = "of this session so far; the words of the user, and what the agent edited and ran"
BEGUN = 'The user had asked first: "{said}".'
LAST = 'Later the user had asked: "{said}".'
STATED = 'The user had said: "{said}".'
TOUCHED = 'Edited in this session: "{file}".'
FAILING = 'This command ran more than once here, and failed when it ran last: "{command}".'
WORKING = 'This command ran more than once here, and succeeded when it ran last: "{command}".'


@dataclass(frozen=True, slots=True)
class Fact:
    """Something that may be told.

    Attributes:
        keys: The parts of the keys that find it.
        at: When it became true, ms.
        session: The session that it is from; it is never told in that one.
        body: The words to tell; empty if nothing is told, and older facts with these keys hold no longer.
        topic: What it is about; of facts with one topic, a session is told one. Empty: its words.
        is_worth_telling: Whether a packet is worth telling for it: a decision, or something that fails.
        file: The whole path of the file whose lines are its keys.
    """

    keys: tuple[tuple[str, ...], ...]
    at: int
    session: str
    body: str
    topic: str = ""
    is_worth_telling: bool = False
    file: str = ""

    def told(self, secret: bytes = b"") -> dict[str, str]:
        """Return the fact for the hook: all values are strings. Its id is the same for the same topic and secret."""
        tokens = str(len(self.body.encode("utf-8", "surrogatepass")) // 3 + 1)
        fields = {
            "id": id_of(self.topic or self.body, secret),
            "session": self.session,
            "tokens": tokens,
            "body": self.body,
        }
        return {**fields, WORTH: "yes"} if self.is_worth_telling else fields


def id_of(topic: str, secret: bytes) -> str:
    """Return the id of the fact with a topic."""
    return hashlib.blake2b(topic.encode("utf-8", "surrogatepass"), digest_size=6, key=secret).hexdigest()


def reason_topic(session: str, reason: str) -> str:
    """Return the topic of a reason that was given in a session: it is told once, also if a session begins with it."""
    return f"{session} {reason}"


def written(file: str, lines: Iterable[str], at: int, session: str) -> Fact:
    """Return a fact without words: an edit wrote these lines, so older facts about them hold no longer.

    ``lines`` are as ``plain_line`` returns them.
    """
    keys = tuple(("line", tail_of(file), line) for line in dict.fromkeys(lines))
    return Fact(keys, at, session, "", file=file)


def reason_fact(edit: Fact, day: str, request: str, reason: str) -> Fact:
    """Return why the lines that an edit wrote are as they are."""
    file, session = quote_line(edit.file, MAX_LINE), edit.session
    sentences = [WRITTEN.format(file=file, day=day, session=session[:8])]
    if len(request) >= MIN_REQUEST:
        sentences.append(ASKED.format(request=quote_line(request, MAX_REQUEST)))
    body = " ".join([*sentences, WHY.format(reason=quote_line(reason, MAX_REASON))])
    return replace(edit, body=body, topic=reason_topic(session, reason))


def failure_fact(path: str, command: str, at: int, session: str, day: str) -> Fact:
    """Return which command failed when a file had been edited."""
    shown, ran = quote_line(path, MAX_LINE), quote_line(command, MAX_COMMAND)
    body = FAILED.format(file=shown, command=ran, day=day, session=session[:8])
    return Fact((("file", path),), at, session, body, command_key(command))


def cure_fact(error: str, command: str, done: Sequence[str], at: int, session: str, day: str) -> Fact:
    """Return what cured an error; ``error`` is as ``plain_error`` returns it, ``done`` the words for each step."""
    ran = quote_line(command, MAX_COMMAND)
    body = CURED.format(command=ran, day=day, session=session[:8], done=", ".join(done))
    return Fact((("error", error),), at, session, body)


def edited(file: str, lines: Iterable[str], error: str) -> str:
    """Return the words for an edit, with the line it added that shares most words with the error.

    Empty if none does: which file was edited then tells nothing of an error like this one.
    """
    named = set(re.findall(r"\w{4,}", error.lower()))
    shared = [(len(named & set(re.findall(r"\w{4,}", line.lower()))), line.strip()) for line in lines]
    most, line = max(shared, default=(0, ""))
    return EDITED.format(file=quote_line(file, MAX_LINE), line=quote_line(line, MAX_LINE)) if most else ""


def ran(command: str) -> str:
    """Return the words for a command."""
    return RAN.format(command=quote_line(command, MAX_COMMAND))


class Known:
    """Facts, found by their keys as they were known at a moment."""

    def __init__(self, facts: Iterable[Fact]) -> None:
        self.facts = sorted(facts, key=lambda one: one.at)
        self._by_key: dict[tuple[str, ...], list[Fact]] = defaultdict(list)
        self._by_line: dict[str, list[Fact]] = defaultdict(list)
        for fact in self.facts:
            for parts in fact.keys:
                self._by_key[parts].append(fact)
                if fact.file:
                    self._by_line[parts[-1]].append(fact)

    def fact(self, parts: tuple[str, ...], before: float = math.inf) -> Fact | None:
        """Return the latest fact with a key; None if it has no words.

        A line that several files or many sessions have says nothing of who wrote it.

        Args:
            parts: The parts of the key.
            before: Only what was known before this time, ms.
        """
        fact = next((one for one in reversed(self._by_key.get(parts, ())) if one.at < before), None)
        if fact is None or not fact.body:
            return None
        wrote = [one for one in self._by_line[parts[-1]] if one.at < before] if fact.file else []
        is_common = len({one.file for one in wrote}) > 1 or len({one.session for one in wrote}) > MAX_SESSIONS
        return None if is_common else fact


def encode_facts(folder: str, origin: str, facts: Iterable[Fact], secret: bytes, id_secret: bytes) -> bytes:
    """Return the file of a project or a session: see ``crystal.hook.assist``. Of facts with one key, the latest has it.

    Args:
        folder: The project's folder.
        origin: Of what the facts are, in the words of the fence.
        facts: The facts; the latest are kept if there are too many.
        secret: The key of the hashes in this file.
        id_secret: The key of the ids, which outlive this file and what is forgotten.
    """
    kept: list[Fact] = []
    index: dict[bytes, int] = {}
    known = Known(facts)
    for fact in sorted(known.facts, key=lambda one: -one.at):
        keys = {key_of(secret, *parts) for parts in fact.keys if known.fact(parts) is fact}
        if keys and len(kept) < MAX_FACTS and len(index) + len(keys) <= MAX_KEYS:
            index.update(dict.fromkeys(keys, len(kept)))
            kept.append(fact)
    head = f"{HEADER} crystal, {' '.join(quote(origin).split())}"
    sizes = {"facts": str(len(kept)), "keys": str(len(index))}
    header = {"folder": folder, "key": secret.hex(), "head": head, **sizes}
    lines = [json.dumps(one).encode("ascii") + b"\n" for one in (header, *(fact.told(id_secret) for fact in kept))]
    return b"".join([*lines, *sorted(b"%s%6d" % pair for pair in index.items())])
