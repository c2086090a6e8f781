"""Add the server to a client's JSON file, and remove it: text to text, without changing any other character."""

from __future__ import annotations

import json
import re
from typing import Any

from crystal.errors import Damaged
from crystal.install.claude_settings import jsontext
from crystal.install.claude_settings.hooks import WrongShape
from crystal.install.claude_settings.jsontext import Node
from crystal.install.clients.table import SERVER, Entry, is_ours, updated

EMPTY = "{}\n"
COMMENT = re.compile(r'"(?:[^"\\\n]|\\.)*"|//[^\n]*|/\*.*?\*/', re.DOTALL)


class Taken(ValueError):
    """The name of our server is used by another one."""


def with_server(text: str, servers: str, entry: Entry, *, typed: bool = False, comments: bool = False) -> str:
    """Return the document with exactly one entry of ours; an existing one is updated in place.

    Raises:
        NotJson: ``text`` is not JSON.
        WrongShape: The document or its servers are not an object.
        Taken: Another server has our name.
    """
    text = text if text.strip(" \t\r\n") else EMPTY
    plain = without_comments(text) if comments else text
    root, group = _checked(plain, servers)
    found = group.child(SERVER) if group else None
    if group is None:
        after = jsontext.append(plain, root, {SERVER: entry.as_document(typed=typed)}, servers)
    elif found is None:
        after = jsontext.append(plain, group, entry.as_document(typed=typed), SERVER)
    elif is_ours(found.value):
        after = _brought_up(plain, servers, entry)
    else:
        raise Taken
    return _same_change(text, plain, after)


def without_server(text: str, servers: str, *, group_too: bool, comments: bool = False) -> str:
    """Return the document without our entry.

    Args:
        text: The document.
        servers: The key of the servers.
        group_too: Also remove that key if it becomes empty.
        comments: True if the document may have comments.

    Raises:
        NotJson, WrongShape: See ``with_server``.
    """
    plain = without_comments(text) if comments else text
    root, group = _checked(plain, servers)
    if group is None or not is_ours(group.value.get(SERVER)):
        return text
    if group_too and len(group.children) == 1:
        return _cut(text, plain, root, servers)
    return _cut(text, plain, group, SERVER)


def document_of(text: str, *, comments: bool = False) -> Any:
    """Return the parsed document; an empty text is an empty object.

    Raises:
        NotJson: ``text`` is not JSON.
    """
    plain = without_comments(text) if comments else text
    if not plain.strip(" \t\r\n"):
        return {}
    jsontext.parse(plain)  # stricter, and reports the position
    return json.loads(plain)


def without_comments(text: str) -> str:
    """Return the text with every comment blanked out; offsets do not change."""
    return COMMENT.sub(lambda match: _blank(match.group()), text)


def _blank(found: str) -> str:
    return found if found.startswith('"') else re.sub(r"[^\r\n]", " ", found)


def _checked(text: str, servers: str) -> tuple[Node, Node | None]:
    root = jsontext.parse(text) if text.strip(" \t\r\n") else jsontext.parse("{}")
    if not isinstance(root.value, dict):
        raise WrongShape("the file should hold an object", root)
    group = root.child(servers)
    if group is not None and not isinstance(group.value, dict):
        raise WrongShape(f'"{servers}" should be an object', group)
    return root, group


def _brought_up(text: str, servers: str, entry: Entry) -> str:
    """Change different values one at a time, because each change moves the offsets of the others."""
    while True:
        _, group = _checked(text, servers)
        node = group.child(SERVER) if group else None
        if node is None:
            raise Damaged("an entry was lost while it was changed")
        wanted = updated(node.value, entry)
        different = [name for name, value in wanted.items() if name not in node.value or node.value[name] != value]
        if not different:
            return text
        old = node.child(different[0])
        if old is None:
            text = jsontext.append(text, node, wanted[different[0]], different[0])
        else:
            text = jsontext.replace(text, old, wanted[different[0]])


def _same_change(text: str, plain: str, after: str) -> str:
    """Apply to ``text`` the change from ``plain`` to ``after``; ``plain`` is ``text`` with comments blanked."""
    start, end = _ends_alike(plain, after)
    changed = text[:start] + after[start : len(after) - end] + text[len(text) - end :]
    if without_comments(changed) != after and document_of(changed, comments=True) != json.loads(after):
        raise Damaged("the change does not fit between the comments")
    return changed


def _cut(text: str, plain: str, container: Node, key: str) -> str:
    """Remove one key from an object; comments next to it stay."""
    child = next(each for each in container.children if each.key == key)
    after = jsontext.remove(plain, container, child)
    start, end = _ends_alike(plain, after)
    beside = [(start, child.start), (child.node.end, len(plain) - end)]
    if all(text[a:b] == plain[a:b] for a, b in beside):
        return _same_change(text, plain, after)
    at = container.children.index(child)
    left = container.children[at - 1].node.end if at else container.start + 1
    right = container.children[at + 1].start if at + 1 < len(container.children) else container.end - 1
    before, behind = (left, child.start), (child.node.end, right)
    comma = plain.find(",", *(before if at else behind))
    kept = ["".join(text[place] for place in range(*gap) if place != comma) for gap in (before, behind)]
    return text[:left] + kept[0].rstrip(" \t") + kept[1].lstrip(" \t") + text[right:]


def _ends_alike(one: str, other: str) -> tuple[int, int]:
    """Return the lengths of the common prefix and of the remaining common suffix of two texts."""
    shorter = min(len(one), len(other))
    start = next((at for at in range(shorter) if one[at] != other[at]), shorter)
    end = next((at for at in range(shorter - start) if one[-1 - at] != other[-1 - at]), shorter - start)
    return start, end
