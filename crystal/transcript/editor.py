"""Shared code for editors of Visual Studio Code's family: the folder of a workspace, and URIs as they write them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import PurePath, PureWindowsPath
from urllib.parse import unquote, urlsplit

from crystal.transcript.line import parse_line, word

WORKSPACE_FILE = "workspace.json"

_DRIVE = re.compile(r"/?[A-Za-z]:(/|$)")


def folder_of_workspace(sides: Mapping[PurePath, bytes]) -> str | None:
    """Return the folder that ``workspace.json`` names, or that of the file with the workspace's folders."""
    for path, content in sides.items():
        fields = parse_line(content) if path.name == WORKSPACE_FILE else None
        if fields is not None:
            folder = path_of_uri(fields.get("folder"))
            file = path_of_uri(fields.get("workspace") or fields.get("configuration"))
            return folder or (str(_path(file).parent) if file else None)
    return None


def path_of_uri(uri: object) -> str | None:
    """Return the path of a URI, a text or in its parts; a path stays as it is. None if it is neither."""
    if isinstance(uri, dict):
        return word(uri.get("fsPath")) or path_of_uri(word(uri.get("external"))) or word(uri.get("path"))
    text = word(uri)
    if text is None or "://" not in text:
        return text
    try:
        path = unquote(urlsplit(text).path)
    except ValueError:
        return None
    return (str(_path(path.removeprefix("/"))) if _DRIVE.match(path) else path) or None


def name_of_uri(uri: object) -> str:
    """Return the last part of a URI's path, empty if there is none."""
    path = path_of_uri(uri)
    return _path(path).name if path else ""


def _path(text: str) -> PurePath:
    return PureWindowsPath(text) if _DRIVE.match(text) or "\\" in text else PurePath(text)
