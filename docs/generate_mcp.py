"""Write docs/reference/mcp.md from what the MCP server offers; a test compares the two.

Run it after a change of crystal/mcp/catalog.py: ``python docs/generate_mcp.py``
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from crystal.mcp.catalog import ALIASES, CONNECTOR, TOOLS
from crystal.mcp.handlers import INSTRUCTIONS
from crystal.mcp.protocol import LEGACY, MODERN
from crystal.mcp.tool import Tool

PAGE = Path(__file__).with_name("reference") / "mcp.md"

HEAD = """\
<!-- Made by docs/generate_mcp.py from crystal/mcp/. Change those, not this page. -->

# The MCP server

`crystal mcp` speaks the Model Context Protocol over standard input and output, with `--http` over [Streamable HTTP](../how-to/ask-from-anywhere.md).
[Let an agent ask the memory](../how-to/clients.md) connects clients, [use it from an agent](../how-to/use-from-an-agent.md) shows what an agent sees.

It speaks the versions VERSIONS, and MODERN with its own version in each request.
An unknown version is answered with the newest that has `initialize`, an unknown method with the error -32601.
One line is one message: a batch, which only 2025-03-26 had, is refused with the error -32600.
Standard output carries the protocol alone; whatever else is printed goes to standard error.
When its input ends, it answers the requests that it has read, for at most 10 seconds, and ends.

The store is opened for each call and closed after it, read-only where a tool only reads: no file is open and no lock is held meanwhile.
Without a memory every tool answers with an error that says `run: crystal init`; nothing is made.
A store that is locked, damaged or of a newer crystal is reported in the same way, and the server goes on.

`project` is a name: a path is refused without being read.
`crystal_blame` and `crystal_sources_add` take a path, and read only inside the agent's working folder.

## What a tool answers

Each answer is one text, and nothing is sent twice: there is no `structuredContent`, which some clients show to the model in the place of the text and others beside it.

```text
<crystal-memory-7k2m9x>
data:
[17 user 2026-11-20 shop laptop] All database tests fail with ECONNREFUSED since this morning. Why?
[after] PostgreSQL was killed for lack of memory.
[mem-1a2b3c preference key editor] Tabs, not spaces.
</crystal-memory-7k2m9x>
more: offset=2
```

The whole answer is in one fence, and its first line begins with `data:`.
The nonce in the tags (`7k2m9x` here) is random and new for each answer, so a stored text cannot imitate the end of the fence.
Each text has a head, `[7k2m9x id who when where]`.
The nonce is left out of the heads where no text has a line that could be read as a head: one with a bracket, an escape or a sign that is not ASCII before its first ASCII letter or digit.
Where all texts have one line, each follows its head, and needs no nonce either.
The head has the id, who said it, and when and where: the day, the project, and the device if it is another than this one.
What is as in the text before is left out: the year, the day, the place, and in `crystal_get` an id that is the next number; `no project` says that there is none.
A hit of less than 200 characters is followed by what was said `[before]` and `[after]` it, as with `around`, unless the answer has that already; `[before user]` is what you said, without a name it is the assistant.
Who is `user`, `assistant`, `thinking`, `tool NAME`, `call NAME`, `web NAME` (a tool that fetched it from the network), `subagent`, `summary`, `file`, or the category of a memory.
A session is named by the first 5 characters of its id and a memory by the first 10, or by more where that beginning would find another; `crystal_get` takes all of these.

Inside the fence nothing is invisible: control characters, escape sequences, Unicode's default-ignorable characters (joiners, variation selectors, fillers, tag characters, soft hyphens) and what changes the reading direction are removed; some emoji and Persian words lose detail.
Whatever looks like the tag, in any script, case, width or escape (`&lt;`, `%3C`, `\\u003c`), becomes `[tag]`.

An answer is at most 1.3 times the text that it recalls.
Short texts cost more, because some characters are fixed: about 75 for the answer (the fence with its nonce, and `more`), 24 for each text (its id, who and when), and the day, project, machine and branch where they are not as in the text before.
An answer of one word has 100 to 120 characters; lists of many texts of five to fourteen words cost 1.4 to 2.5 times the text.
`search` and `fetch`, whose JSON OpenAI prescribes, add an address to each text and escape it: 350 characters more for a word, and up to 1.6 times for code.
The texts are what was said, titles, paths and commands, and in a report (`crystal_status`, `crystal_remember`) all of it; a text counts once, and notes count as text.
The tool's description, which a client reads once, says what the columns of a list mean.
`benchmarks/mcp_size.py` measures every tool, and fails if an answer costs more; with `--memory` it asks a real memory.
On 70 real sessions of one project, 84 answers (26 November 2026): searches 1.09 times their text in the median, `crystal_get` 1.04, lists of messages and sessions 1.1, the timeline 1.2, paths 1.25, commands 1.3.

Every `crystal_` tool takes `response_format`, `markdown` (the default) or `json`.
With `json` the answer is a JSON object for programs, several times longer, with every detail; its first and last values (`fence`, `fence_end`) hold the tags.

An answer has at most [`mcp.max_characters`](configuration.md#mcpmax_characters) characters, in either form.
`more` says how to get the rest, `next_offset` is the `offset` of the next page, and `characters_left` says how much of one text is not shown.

A client that names its session in `CLAUDE_CODE_SESSION_ID`, as Claude Code does, gets no hits of that very session while it lasts, unless `include_current` is true: they are in its context already.

A value that cannot be used, or an item that does not exist, is a result with `isError` and two lines: `error: ...` and `hint: ...`, the next step.

## Tools
"""  # noqa: E501

MIDDLE = """\
## Other names

With the setting [`mcp.aliases`](configuration.md#mcpaliases) the server also has tools under the names that other memories use, so that instructions written for those work.
"""  # noqa: E501

TAIL = """\
## Scopes and hints

HINTS

All other hints are false; a tool without a scope is only for an agent on this machine.

## Resources

| address | what it is |
|---|---|
| `crystal://session/{id}` | the beginning of a past session; `crystal_get` reads on |
| `crystal://memory/{id}` | a memory |

`resources/list` has the latest 20 of each, without their titles: those are recalled text, and are read in their fence.
An unknown address is the error -32002.

## What the client is told

INSTRUCTIONS
"""


def render() -> str:
    """Return the page."""
    head = HEAD.replace("VERSIONS", ", ".join(LEGACY)).replace("MODERN", ", ".join(MODERN))
    instructions = "\n".join(f"> {line}" for line in INSTRUCTIONS.replace(". ", ".\n").split("\n"))
    other = [MIDDLE, *map(_tool, ALIASES), CONNECTED, *map(_tool, CONNECTOR)]
    tail = TAIL.replace("INSTRUCTIONS", instructions).replace("HINTS", _hints([*TOOLS, *ALIASES, *CONNECTOR]))
    parts = [head, *map(_tool, TOOLS), *other, tail]
    return "\n".join(parts)


CONNECTED = """\
## Tools of hosted assistants

[Over HTTP](../how-to/ask-from-anywhere.md) there are two more, by the names that hosted assistants expect.
Each answers with one JSON object.
`search` has `results`, each with `id`, `title` and `url`; `fetch` has `id`, `title`, `text`, `url` and `metadata`.
"""


def _tool(tool: Tool) -> str:
    named = {name: rule for name, rule in tool.properties.items() if name != "response_format"}
    rows = [_row(name, rule, required=name in tool.required) for name, rule in named.items()]
    table = ["| argument | values | meaning |", "|---|---|---|", *rows] if rows else []
    sentences = tool.description.replace(". ", ".\n").replace("? ", "?\n")
    parts = [f"### {tool.name}", f"{tool.title}.", sentences, "\n".join(table)]
    return "\n\n".join(part for part in parts if part) + "\n"


def _hints(tools: Sequence[Tool]) -> str:
    """What a client is told of each tool, and what a token for HTTP must allow."""
    lines = []
    for tool in tools:
        hints = ", ".join(f"`{name}`" for name, value in tool.definition["annotations"].items() if value is True)
        lines.append(f"| `{tool.name}` | {'none' if tool.needs_folder else f'`{tool.scope}`'} | {hints} |")
    return "\n".join(["| tool | scope over HTTP | hints that are true |", "|---|---|---|", *lines])


def _row(name: str, rule: Mapping[str, Any], *, required: bool) -> str:
    must = " (required)" if required else ""
    return f"| `{name}`{must} | {_values(rule)} | {rule.get('description', '')} |"


def _values(rule: Mapping[str, Any]) -> str:
    if "anyOf" in rule:
        return " or ".join(_values(one) for one in rule["anyOf"])
    if "enum" in rule:
        return ", ".join(f"`{value}`" for value in rule["enum"])
    kind = rule["type"]
    if kind == "string":
        return f"text, {rule['minLength']} to {rule['maxLength']:,} characters"
    if kind == "array":
        return f"list of {rule['minItems']} to {rule['maxItems']}"
    if kind == "boolean":
        return "`true`, `false`"
    return f"{'whole number' if kind == 'integer' else 'number'}, {rule['minimum']:,} to {rule['maximum']:,}"


if __name__ == "__main__":
    PAGE.write_text(render().rstrip("\n") + "\n", "utf-8")
