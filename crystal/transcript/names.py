"""Derive a transcript's key, session and subagent from its path.

Source: docs/reference/transcript-format.md, section 1.
"""

from __future__ import annotations

import re
from os import PathLike
from pathlib import PurePath

_UUID = re.compile(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_AGENT = "agent-"
_SIDE_FOLDER = "subagents"


def transcript_key(path: str | PathLike[str]) -> tuple[str, str | None, str | None]:
    """Return the transcript's key, its session id and its subagent id.

    The key does not change when the file moves to another project folder. ``<session>/subagents/**/agent-x.jsonl``
    gives ``("<session>/agent-x", "<session>", "x")``. The old place of a subagent's transcript, next to the sessions',
    does not contain the session: it is None, and the lines' ``sessionId`` must be used.

    Source: docs/reference/transcript-format.md, section 1.
    """
    place = PurePath(path)
    stem = _storable(place.name.removesuffix(".jsonl"))
    subagent = stem.removeprefix(_AGENT) if stem.startswith(_AGENT) and stem != _AGENT else None
    session = _session_of_side_folder(tuple(_storable(part) for part in place.parts[:-1]))
    if session is not None:
        return f"{session}/{stem}", session, subagent or stem
    if subagent is not None:
        return stem, None, subagent
    return stem, stem, None


def _storable(name: str) -> str:
    """Return a name with non-UTF-8 bytes in ASCII (``backslashreplace``), because keys and ids are stored as text."""
    return name.encode("utf-8", "backslashreplace").decode()


def _session_of_side_folder(folders: tuple[str, ...]) -> str | None:
    """Return the folder before ``subagents``: one that looks like a session id, else the last one."""
    owners = [folders[i - 1] for i in range(len(folders) - 1, 0, -1) if folders[i] == _SIDE_FOLDER]
    named = [owner for owner in owners if _UUID.fullmatch(owner)]
    return next(iter(named or owners), None)
