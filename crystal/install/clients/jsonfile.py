"""Add the server to a client's JSON file, and remove it: text to text, without changing any other character.

Comments are blanked out for parsing, which moves no character, and edits are made in the text that has them.
"""

from __future__ import annotations

import re
from typing import Any

from crystal.install import jsontext
from crystal.install.clients.table import SERVER, ServerCommand, is_ours, updated
from crystal.install.jsontext import Edit, JsonSyntaxError, Node

EMPTY = "{}\n"
COMMENT = re.compile(r'"(?:[^"\\\n]|\\.)*"|//[^\n]*|/\*.*?\*/', re.DOTALL)


class NameTakenError(ValueError):
    """The name of our server is used by another one."""


def with_server(text: str, servers: str, entry: ServerCommand, *, typed: bool = False, comments: bool = False) -> str:
    """Return the document with exactly one entry of ours; an existing one is updated in place.

    Raises:
        JsonSyntaxError: ``text`` is not JSON, or the document or its servers are not an object.
        NameTakenError: Another server has our name.
    """
    text = text if text.strip(" \t\r\n") else EMPTY
    while (edit := _next_edit(_plain(text, comments=comments), servers, entry, typed=typed)) is not None:
        text = edit.apply(text)
    return text


def _next_edit(plain: str, servers: str, entry: ServerCommand, *, typed: bool) -> Edit | None:
    """Return the next change that the document needs; each one moves the places of the others."""
    root, group = _checked(plain, servers)
    found = group.child(SERVER) if group else None
    if group is None:
        return jsontext.append(plain, root, {SERVER: entry.as_document(typed=typed)}, servers)
    if found is None:
        return jsontext.append(plain, group, entry.as_document(typed=typed), SERVER)
    if not is_ours(found.value):
        raise NameTakenError
    for name, value in updated(found.value, entry).items():
        old = found.child(name)
        if old is None:
            return jsontext.append(plain, found, value, name)
        if old.value != value:
            return jsontext.replace(old, value)
    return None


def without_server(text: str, servers: str, *, group_too: bool, comments: bool = False) -> str:
    """Return the document without our entry; comments beside it stay.

    Args:
        text: The document.
        servers: The key of the servers.
        group_too: Also remove that key if it becomes empty.
        comments: True if the document may have comments.

    Raises:
        JsonSyntaxError: See ``with_server``.
    """
    plain = _plain(text, comments=comments)
    root, group = _checked(plain, servers)
    if group is None or not is_ours(group.value.get(SERVER)):
        return text
    container, key = (root, servers) if group_too and len(group.children) == 1 else (group, SERVER)
    child = next(each for each in container.children if each.key == key)
    edit = jsontext.remove(plain, container, child)
    beside = text[edit.start : child.start], text[child.node.end : edit.end]
    left = edit._replace(new="".join(map(_comments_of, beside))).apply(text)
    _checked(_plain(left, comments=comments), servers)
    return left


def document_of(text: str, *, comments: bool = False) -> Any:
    """Return the parsed document; an empty text is an empty object. Do not change it.

    Raises:
        JsonSyntaxError: ``text`` is not JSON.
    """
    plain = _plain(text, comments=comments)
    return jsontext.parse(plain).value if plain.strip(" \t\r\n") else {}


def _plain(text: str, *, comments: bool) -> str:
    """Return the text with its comments, where it may have some, as spaces."""
    return COMMENT.sub(lambda match: _blank(match.group()), text) if comments else text


def _blank(found: str) -> str:
    return found if found.startswith('"') else re.sub(r"[^\r\n]", " ", found)


def _comments_of(part: str) -> str:
    return "".join(f" {one}{'' if one.startswith('/*') else chr(10)}" for one in COMMENT.findall(part))


def _checked(text: str, servers: str) -> tuple[Node, Node | None]:
    root = jsontext.parse(text) if text.strip(" \t\r\n") else jsontext.parse("{}")
    if not isinstance(root.value, dict):
        raise JsonSyntaxError("the file should hold an object", root.start)
    group = root.child(servers)
    if group is not None and not isinstance(group.value, dict):
        raise JsonSyntaxError(f'"{servers}" should be an object', group.start)
    return root, group
