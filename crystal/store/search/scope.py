"""Translate filters into one SQL condition on ``chunks``: look up the rows of names, and explain unknown names.

Both engines use the condition inside their candidate search, so it uses only columns of ``chunks``.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Literal, get_args

from crystal.config.harnesses import HARNESSES
from crystal.model.capture import Project, Role
from crystal.model.named_tuple import NamedTuple
from crystal.model.quick_dataclass import dataclass, replace
from crystal.store.capture.projects import root_with_identity, with_same_identity
from crystal.store.connection import GIVEN, Store, as_json
from crystal.store.sessions.conversations import AgentNames
from crystal.text.folders import is_folder, is_root, is_same_folder, is_within

if TYPE_CHECKING:
    from crystal.model.recall import Filters

ROLES: tuple[str, ...] = get_args(Role)
SOURCES = ("conversation", "file", "memory")
ROLE_GROUPS = {"tool": ("tool_call", "tool_result"), "you": ("user",)}
"""Words for several roles, or for one role under the name that results show."""
_NAMES_SHOWN = 5


class ScopeCondition(NamedTuple):
    """One of the conditions that a scope joins by AND.

    Attributes:
        kind: ``in``: the column has one of the values. ``from``: the time is known and not before the value.
            ``before``: the time is known and before the value. ``session``: the chunk is of the session whose row id is
            the value (twice), or of a turn that it copied. ``sessions``: the session is in a JSON list of row ids,
            possibly thousands. ``subagent``: the role is one of the values, or a subagent said it. ``held``: the chunk
            is of one of the projects, or of a memory or file without project. ``sql``: the column is an SQL condition.
        column: A column of ``chunks``.
        values: The allowed values.
    """

    kind: Literal["in", "from", "before", "session", "sessions", "subagent", "held", "sql"]
    column: str
    values: tuple[Any, ...]

    @property
    def sql(self) -> str:
        """Return the condition on columns of ``chunks``."""
        inside = f"{self.column} IN ({', '.join('?' * len(self.values))})"
        return {
            "in": inside,
            "from": f"{self.column} >= ?",
            "before": f"{self.column} < ?",
            "session": "(session = ? OR turn IN (SELECT turn FROM turn_copies WHERE session = ?))",
            "sessions": f"session IN {GIVEN}",
            "subagent": f"({inside} OR subagent IS NOT NULL)",
            "held": f"({inside} OR (project IS NULL AND source IN ('memory', 'file')))",
            "sql": self.column,
        }[self.kind]


@dataclass(frozen=True, slots=True)
class SearchScope:
    """The part of the store that a search covers.

    Attributes:
        conditions: All must be met; empty when everything is allowed.
        notes: Explanations of names that the store does not have, for which nothing can be found.
        is_empty: Nothing meets the conditions, so no search is necessary.
        session: Row id and id of the session that the filter names, or None.
    """

    conditions: tuple[ScopeCondition, ...] = ()
    notes: tuple[str, ...] = ()
    is_empty: bool = False
    session: tuple[int, str] | None = None

    @property
    def sql(self) -> str:
        """Return all conditions as one on columns of ``chunks``; empty when everything is allowed."""
        return " AND ".join(condition.sql for condition in self.conditions)

    @property
    def values(self) -> tuple[Any, ...]:
        """Return the values of the question marks in ``sql``."""
        return tuple(value for condition in self.conditions for value in condition.values)

    def __and__(self, other: SearchScope) -> SearchScope:
        return SearchScope(
            self.conditions + other.conditions,
            self.notes + other.notes,
            self.is_empty or other.is_empty,
            self.session or other.session,
        )


def where(sql: str, *values: Any) -> SearchScope:
    """Return the scope of an SQL condition on columns of ``chunks``."""
    return SearchScope((ScopeCondition("sql", sql, values),))


def scope_of(store: Store, filters: Filters) -> SearchScope:
    """Resolve filters to rows of the store. Invalid filters raise nothing; the scope's notes explain them."""
    filters = _valid(filters)
    scope = SearchScope()
    if filters.project is not None:
        scope &= _held_scope(store, filters.project) if filters.general else _project_scope(store, filters.project)
    if filters.session is not None:
        scope &= _session_scope(store, filters.session)
    if filters.role is not None:
        scope &= _role_scope(filters.role)
    if filters.source is not None:
        scope &= _source_scope(store, filters.source)
    if filters.agent is not None:
        scope &= _agent_scope(store, filters.agent)
    for column, value in (("device", filters.device), ("branch", filters.branch)):
        if value is not None:
            scope &= _name_scope(store, column, value)
    if filters.since is not None:
        scope &= _one("from", "ts", _clamped(filters.since))
    if filters.before is not None:
        scope &= _one("before", "ts", _clamped(filters.before))
    return scope


def roles_named(text: str) -> tuple[str, ...]:
    """Return the roles that one or more comma-separated words name; empty if one of them is unknown."""
    roles: list[str] = []
    for word in text.split(","):
        name = word.strip().lower().replace("-", "_").replace(" ", "_")
        if name not in ROLE_GROUPS and name not in ROLES:
            return ()
        roles += ROLE_GROUPS.get(name, (name,))
    return tuple(dict.fromkeys(roles))


def role_words() -> str:
    """Return the words that a role filter accepts, for messages."""
    return ", ".join((*ROLES, *ROLE_GROUPS))


# -------------------------------------------------------------------------------------------------------- projects


def project_ids(store: Store, wanted: str) -> list[int]:
    """Return the rows of a project by its name, or by any folder that it has or had.

    Rows with the same git root or the same identity are one project: see ``crystal.store.capture.projects``. A folder
    inside a project selects only that folder.
    """
    found = _matching_rows(store, wanted)
    whole = [ident for ident, root in found if not is_folder(wanted) or is_within(root, wanted)]
    return sorted({*(ident for ident, _ in found), *with_same_identity(store, whole)})


def matching_projects(store: Store, wanted: str) -> list[int]:
    """Return the rows with a name (in any case), or whose working folder or git root is in a folder."""
    return [ident for ident, _ in _matching_rows(store, wanted)]


def _matching_rows(store: Store, wanted: str) -> list[tuple[int, str]]:
    """Return the rows that match a name or a folder, each with its project's root."""
    rows = store.rows("SELECT id, cwd, coalesce(git_root, cwd), name FROM projects ORDER BY id")
    if is_folder(wanted):
        return [(ident, root) for ident, cwd, root, _ in rows if is_within(cwd, wanted) or is_within(root, wanted)]
    name = wanted.strip().casefold()
    return [(ident, root) for ident, _, root, known in rows if known.casefold() == name]


def project_named(store: Store, wanted: str) -> Project | None:
    """Return the most recently used project with a name in any case, with its git root as folder."""
    ids = project_ids(store, wanted) if not is_folder(wanted) else []
    if not ids:
        return None
    return store.find(
        Project,
        "SELECT coalesce(p.git_root, p.cwd), p.git_root, p.remote, p.name FROM projects p"
        f" LEFT JOIN sessions s ON s.project = p.id WHERE p.id IN {GIVEN}"
        " GROUP BY p.id ORDER BY max(s.last_at) IS NULL, max(s.last_at) DESC, p.id LIMIT 1",
        (ids,),
    )


def home_of(store: Store, here: Project) -> tuple[str, str] | None:
    """Return (folder, name) of a folder's known project: by git root, by identity, else the nearest parent folder."""
    rows = store.rows("SELECT cwd, git_root, name FROM projects ORDER BY id")
    if here.git_root is not None:
        for _, root, name in rows:
            if root is not None and is_same_folder(root, here.git_root):
                return root, name
    moved = None if here.remote is None else root_with_identity(store, here.remote)
    if moved is not None:
        return moved
    above = [(folder, name) for known, root, name in rows for folder in (known, root)
             if folder and not is_root(folder) and is_within(here.cwd, folder)]  # fmt: skip
    return max(above, key=lambda found: len(found[0]), default=None)


def _project_scope(store: Store, wanted: str) -> SearchScope:
    ids = project_ids(store, wanted)
    if ids:
        return _one("in", "project", *ids)
    by_use = (
        "SELECT p.name FROM projects p LEFT JOIN sessions s ON s.project = p.id"
        " GROUP BY p.name ORDER BY max(s.last_at) DESC, p.name"
    )
    known = store.all(str, by_use)
    return _nothing("project", wanted, known)


def _held_scope(store: Store, wanted: str) -> SearchScope:
    """Return a filter for a project's content and memories without project; only these if the project is unknown."""
    return _one("held", "project", *project_ids(store, wanted))


def without_memories(rows: Sequence[int]) -> SearchScope:
    """Return a filter that excludes some memories."""
    if not rows:
        return SearchScope()
    return where(f"(memory IS NULL OR memory NOT IN ({', '.join('?' * len(rows))}))", *rows)


# -------------------------------------------------------------------------------------------------------- sessions


def session_matches(store: Store, wanted: str, limit: int = _NAMES_SHOWN + 1) -> list[tuple[int, str]]:
    """Return (row id, session id) of the sessions with an id or a prefix of it; an exact id gives only its session."""
    wanted = wanted.strip()
    exact = store.rows("SELECT id, session_id FROM sessions WHERE session_id = ?", (wanted,))
    if exact or not wanted:
        return exact
    return store.rows(
        "SELECT id, session_id FROM sessions WHERE substr(lower(session_id), 1, ?) = ?"
        " ORDER BY last_at DESC, id DESC LIMIT ?",
        (len(wanted), wanted.lower(), limit),
    )


def _session_scope(store: Store, wanted: str) -> SearchScope:
    found = session_matches(store, wanted)
    if len(found) == 1:
        return replace(_one("session", "session", *[found[0][0]] * 2), session=found[0])
    if found:
        names = ", ".join(session for _, session in found[:_NAMES_SHOWN])
        more = ", ..." if len(found) > _NAMES_SHOWN else ""
        return SearchScope(notes=(f"several sessions begin with {wanted!r}: {names}{more}",), is_empty=True)
    return _nothing("session", wanted, [])


# ------------------------------------------------------------------------------------------------------ other names


def _role_scope(wanted: str) -> SearchScope:
    roles = roles_named(wanted)
    if not roles:
        return SearchScope(notes=(f"no role {wanted!r}; known: {role_words()}",), is_empty=True)
    return _one("subagent" if "subagent" in roles else "in", "role", *roles)


def _source_scope(store: Store, wanted: str) -> SearchScope:
    """Return the scope of a kind of source, or of a source that a person added, by its name."""
    if wanted.strip().lower() in SOURCES:
        return _one("in", "source", wanted.strip().lower())
    known = store.all(str, "SELECT name FROM source_collections ORDER BY name")
    if wanted not in known:
        return _nothing("source", wanted, [*SOURCES, *known])
    chunks = "SELECT x.chunk FROM sources x JOIN source_files f ON f.id = x.file"
    return where(
        f"id IN ({chunks} WHERE f.collection = (SELECT y.id FROM source_collections y WHERE y.name = ?))", wanted
    )


def agents_named(store: Store, wanted: str) -> AgentNames:
    """Return the column of ``sessions`` to which an agent's name refers, and its values; empty if there are none.

    An agent id of crystal takes precedence over a harness, which matches by its id, its title or the first words.
    """
    if _has_name(store, "agent", wanted):
        return "agent", (wanted,)
    name = "-".join(wanted.casefold().replace("-", " ").split())
    found = [
        one
        for one in _names(store, "harness")
        if name in (one, HARNESSES[one].title.casefold().replace(" ", "-") if one in HARNESSES else one)
        or one.startswith(f"{name}-")
    ]
    return "harness", tuple(found)


def unknown_agent(store: Store, wanted: str) -> SearchScope:
    """Return an empty scope with a note that lists the agents of the store."""
    return _nothing("agent", wanted, [*_names(store, "harness"), *_names(store, "agent")])


def _agent_scope(store: Store, wanted: str) -> SearchScope:
    column, names = agents_named(store, wanted)
    if not names:
        return unknown_agent(store, wanted)
    if column == "agent":
        return _one("in", column, *names)
    ids = store.all(int, f"SELECT id FROM sessions WHERE harness IN {GIVEN}", (names,))
    return _one("sessions", "session", as_json(ids))


def _name_scope(store: Store, column: str, wanted: str) -> SearchScope:
    if not _has_name(store, column, wanted):
        return _nothing(column, wanted, _names(store, column))
    return _one("in", column, wanted)


def _has_name(store: Store, column: str, wanted: str) -> bool:
    tables = ("sessions", "chunks")
    return any(store.has(f"SELECT 1 FROM {table} WHERE {column} = ? LIMIT 1", (wanted,)) for table in tables)


def _names(store: Store, column: str) -> list[str]:
    """Return the values of a column of ``sessions``, most recently used first."""
    sql = f"SELECT {column} FROM sessions WHERE {column} IS NOT NULL GROUP BY 1 ORDER BY max(last_at) DESC"
    return store.all(str, sql)


def _nothing(kind: str, wanted: str, known: Iterable[str]) -> SearchScope:
    names = list(dict.fromkeys(known))
    folded = {name.casefold(): name for name in names}
    import difflib  # noqa: PLC0415 - every turn loads this file, and nearly none suggests a name

    close = difflib.get_close_matches(wanted.casefold(), folded, n=_NAMES_SHOWN, cutoff=0.5)
    near = [folded[name] for name in close] or [name for name in names if wanted.casefold() in name.casefold()]
    shown = (near or names)[:_NAMES_SHOWN]
    more = ", ..." if not near and len(names) > _NAMES_SHOWN else ""
    tail = f"; did you mean {', '.join(shown)}?" if near else f"; known: {', '.join(shown)}{more}" if shown else ""
    return SearchScope(notes=(f"no {kind} {wanted!r}{tail}",), is_empty=True)


def _one(
    kind: Literal["in", "from", "before", "session", "sessions", "subagent", "held"], column: str, *values: Any
) -> SearchScope:
    return SearchScope((ScopeCondition(kind, column, values),))


def _clamped(ms: int) -> int:
    return max(-(2**63), min(2**63 - 1, ms))


def _valid(filters: Filters) -> Filters:
    """Replace lone surrogates, which SQLite cannot take as text; no stored name contains them."""
    fields = ("project", "session", "role", "agent", "device", "branch", "source")
    texts = {name: getattr(filters, name) for name in fields}
    return replace(
        filters, **{name: text.encode("utf-8", "replace").decode() for name, text in texts.items() if text is not None}
    )
