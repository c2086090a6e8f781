"""Make the parts that sessions of Claude Code share: projects, and the client's prompts and tools."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from words import PYTHON, TYPESCRIPT, Writer

TOOLS = ("Agent", "Bash", "Edit", "Glob", "Grep", "Read", "Skill", "TodoWrite", "ToolSearch", "Write")

Fields = dict[str, Any]


@dataclass
class Project:
    """A folder that is worked in: its files live on through sessions and are edited."""

    cwd: str
    names: list[str]
    files: dict[str, list[str]]


def make_project(writer: Writer, number: int) -> Project:
    """A project with files of ten to a thousand lines."""
    names = writer.names(1500)
    cwd = f"/home/dev/{writer.invent()}-{number}"
    templates, ending = writer.random.choice(((PYTHON, "py"), (TYPESCRIPT, "ts")))
    files = {
        f"{cwd}/src/{writer.random.choice(names)}/{writer.random.choice(names)}.{ending}": writer.lines(
            templates, names, min(1000, 10 + int(writer.random.lognormvariate(4.6, 0.9)))
        )
        for _ in range(60)
    }
    return Project(cwd, names, files)


class Client:
    """Prompts and tool descriptions of one version of the client, the same in all of its sessions."""

    def __init__(self, writer: Writer) -> None:
        self.system = [writer.prose(size) for size in (2000, 400, 500, 500, 250, 2100, 700, 300, 300, 300)]
        self.tools = [self._tool(writer, name) for name in TOOLS]
        self.skills = writer.prose(6200)
        self.agents = [writer.prose(size) for size in (190, 600, 370, 420, 170)]
        self.reminders = {
            name: writer.prose(size)
            for name, size in (
                ("environment", 850),
                ("model", 220),
                ("deferred_tools_delta", 10_000),
                ("agent_listing_delta", 1500),
                ("skill_listing", 6300),
                ("date", 120),
                ("remote_session_change", 640),
                ("auto_mode", 590),
            )
        }

    @staticmethod
    def _tool(writer: Writer, name: str) -> Fields:
        properties = {
            word: {"description": writer.prose(250), "type": "string"} for word in dict.fromkeys(writer.words(6))
        }
        schema = {"$schema": "https://json-schema.org/draft/2020-12/schema", "type": "object", "properties": properties}
        return {"name": name, "description": writer.prose(2200), "input_schema": schema}
