"""``crystal_remember``: what is kept because somebody asked for it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from crystal.app.background import embed_soon
from crystal.app.context import open_machine, open_reader
from crystal.app.memories import remember as keep
from crystal.errors import UsageError
from crystal.mcp.asker import ClientContext, refuse_folder
from crystal.mcp.hits import memory_data
from crystal.mcp.page import NONCE, ToolAnswer
from crystal.mcp.said import label
from crystal.memories.rules import is_as_given
from crystal.model.recall import Remembered
from crystal.text.fence import fenced


def remember(asker: ClientContext, arguments: Mapping[str, Any], source: str = "mcp") -> ToolAnswer:
    """Keep something for good."""
    project, cwd = arguments.get("project"), None
    refuse_folder(project)
    if arguments.get("this_project"):
        if project is not None or asker.folder is None:
            why = (
                "project and this_project do not go together" if project else "the folder of this project is not known"
            )
            raise UsageError(why, hint="name the project, or leave both out")
        project, cwd = ".", asker.folder
    with open_reader():
        pass  # there is a memory: it is not made by the way
    with open_machine() as machine:
        kept = keep(
            machine, arguments["text"], category=arguments.get("category"), project=project, cwd=cwd,
            key=arguments.get("key"), source=source, session=asker.session,
        )  # fmt: skip
        embed_soon(machine)
    return _kept(kept, arguments["text"])


def _kept(kept: Remembered, asked: str) -> ToolAnswer:
    is_whole = is_as_given(kept.text, asked)
    where = "everywhere" if kept.project is None else f"project {label(kept.project)}"
    named = f", under the key {label(kept.key)}" if kept.key else ""
    text = f"remembered as {kept.id}: a {kept.category} for {where}{named}"
    if not is_whole:
        text += "\nnote: secrets and private parts were removed from the text"
    return ToolAnswer(fenced(text, NONCE), {**memory_data(kept), "is_as_given": is_whole})
