"""Shared code of readers of exports whose conversations are trees of messages.

An answer that was asked for again, and a prompt that was edited, begin a branch: a session that shares its beginning
with the others, as a fork does. The branch that the page shows is the session of the conversation; each other branch is
named after the message that it begins with. Once stored, they stay what they are: a branch that the page shows in an
export of tomorrow, and that no session has, goes on in the session of the conversation, after what was shown before.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping

from crystal.model.named_tuple import NamedTuple
from crystal.transcript.damaged import parse_beginning
from crystal.transcript.line import Fields, digest, fields_of, format_line, identifier
from crystal.transcript.line_context import Context
from crystal.transcript.messages import Record, SessionStamp, SnapshotReader
from crystal.transcript.snapshot import Snapshot, SourceError

TimeOf = Callable[[Fields, Context], "int | None"]
Known = Callable[[str], Collection[str]]


class Tree(NamedTuple):
    """One conversation of an export.

    Attributes:
        session: Its id.
        context: What holds for all messages.
        messages: By id; None where a node of the tree has no message.
        parents: The id of the message before each one, None for the first.
        shown: The last message of the shown branch.
    """

    session: str
    context: Context
    messages: Mapping[str, Fields | None]
    parents: Mapping[str, str | None]
    shown: str | None


class _Branch(NamedTuple):
    talk: Fields
    tree: Tree
    path: list[str]


class ExportReader(SnapshotReader):
    """Reads a file that is a list of such conversations."""

    @abstractmethod
    def tree_of(self, talk: Fields, known: Known) -> Tree | None:
        """Return the tree of one conversation, or None for anything else; ``known`` gives a session's records."""

    def model_of(self, message: Fields) -> object:
        """Return the model that wrote a message."""
        return message.get("model")

    def conversations(self, source: Snapshot) -> Iterator[SessionStamp]:
        """Yield the branches of each conversation, its own session first."""
        for session, branches in self._branches_in(source).items():
            yield SessionStamp(session, digest("".join(digest(one.talk) for one in branches)))

    def messages(self, source: Snapshot, conversation: SessionStamp) -> Iterator[Record]:
        """Yield the messages of one branch, from the first on."""
        for one in self._branches_in(source).get(conversation.session, ()):
            for ident in one.path:
                message = one.tree.messages[ident]
                if message is not None:
                    own = one.tree.context.with_texts(model=self.model_of(message))
                    yield Record(ident, format_line(message), own)

    def _branches_in(self, source: Snapshot) -> dict[str, list[_Branch]]:
        """Return all branches by their sessions. Only an export that has a conversation twice has two of one."""
        if "branches" not in source.found:
            found = source.found["branches"] = dict[str, list[_Branch]]()
            for talk in _talks_in(source):
                tree = self.tree_of(fields_of(talk), source.known)
                if tree is None:
                    source.damaged.append(SourceError(f"{source.path}: a conversation has no id or no messages"))
                    continue
                for session, path in _branches(tree, self.time_of, source.known):
                    found.setdefault(session, []).append(_Branch(fields_of(talk), tree, path))
        branches: dict[str, list[_Branch]] = source.found["branches"]
        return branches


def session_of(named: Iterable[object], messages: Iterable[str], known: Known) -> str | None:
    """Return the id of a conversation; of one that was first read without it, the id of its first message."""
    given = next(filter(None, map(identifier, named)), None)
    first = next(iter(messages), None)
    return first if first is not None and (given is None or known(first)) else given


def _talks_in(source: Snapshot) -> list[object]:
    """Return the conversations of an export; of a damaged one those that are whole, and the beginning of another."""
    talks = source.document()
    if talks is None and source.data.lstrip().startswith(b"["):
        talks = []
        source.damaged.append(SourceError(f"{source.path} is not complete JSON"))
    if not isinstance(talks, list):
        hint = "name the file conversations.json of the export"
        raise SourceError(f"{source.path} is no list of conversations", hint=hint)
    cut = parse_beginning(source.rest.lstrip(b"[, \r\n\t"))
    source.rest = b""  # else all of it is kept with each conversation
    hint = "download the export again, then import it: only what is new is added"
    source.damaged[:] = [SourceError(f"{one.message}; {hint}", hint=hint) for one in source.damaged]
    return talks if cut is None else [*talks, cut]


def _branches(tree: Tree, time_of: TimeOf, known: Known) -> Iterator[tuple[str, list[str]]]:
    """Yield (session, the ids of its messages from the first on) for every branch, the conversation's own first.

    Every message is in one: a circle that nothing leads out of is a branch, too.
    """
    inner = set(tree.parents.values())
    leaves = [ident for ident in tree.messages if ident not in inner]
    shown = tree.shown if tree.shown in tree.messages else next(reversed(leaves or [*tree.messages]), None)
    paths = _paths_to((*leaves, *filter(None, [shown]), *reversed(list(tree.messages))), tree)
    if not paths:
        return
    stored = set(known(tree.session)) if len(paths) > 1 else set[str]()
    main = max(paths, key=lambda path: (len(stored.intersection(path)), shown in path))
    others = {name: path for name, path in _named(paths, main, tree, time_of) if path is not main}
    merged = dict.fromkeys(main)
    for name, path in others.items():
        if stored and shown in path and not known(name):
            merged.update(dict.fromkeys(path))
    yield tree.session, [*merged]
    yield from ((name, path) for name, path in others.items() if not (stored | merged.keys()).issuperset(path))


def _named(paths: Iterable[list[str]], main: list[str], tree: Tree, time_of: TimeOf) -> Iterator[tuple[str, list[str]]]:
    """Yield each path with its session: named after the last message where it leaves the first answers or ``main``."""
    first, given = _first_answers(tree, time_of), set[str]()
    first.update(zip([None, *main], main))  # noqa: B905 - pairs
    for path in paths:
        forks = [ident for before, ident in zip([None, *path], path) if first.get(before) != ident]  # noqa: B905 - pairs
        name = f"{tree.session}-{forks[-1]}" if forks else tree.session
        name = f"{tree.session}-{path[-1]}-" if name in given else name  # only circles have two of a name
        given.add(name)
        yield name, path


def _first_answers(tree: Tree, time_of: TimeOf) -> dict[str | None, str]:
    """Return the earliest message after each one; after None the first of all."""
    times = {ident: time_of(message or {}, Context()) or 0 for ident, message in tree.messages.items()}
    first: dict[str | None, str] = {}
    for ident in sorted(tree.messages, key=times.__getitem__):
        before = tree.parents.get(ident)
        first.setdefault(before if before in tree.messages else None, ident)
    return first


def _paths_to(leaves: Iterable[str], tree: Tree) -> list[list[str]]:
    """Return the path to each leaf that is on no path before it."""
    paths: list[list[str]] = []
    seen: set[str] = set()
    for leaf in leaves:
        if leaf not in seen:
            paths.append(_path_to(leaf, tree))
            seen.update(paths[-1])
    return paths


def _path_to(leaf: str, tree: Tree) -> list[str]:
    """Return the ids from the first message to a leaf. A circle ends where it begins."""
    path: dict[str, None] = {}
    at: str | None = leaf
    while at is not None and at in tree.messages and at not in path:
        path[at] = None
        at = tree.parents.get(at)
    return list(reversed(path))


def texts_of(values: Iterable[object]) -> str:
    """Return those values that are texts, a line each."""
    return "\n".join(value for value in values if isinstance(value, str))
