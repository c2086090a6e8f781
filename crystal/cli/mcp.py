"""``crystal mcp``: the memory as an MCP server, for agents."""

from __future__ import annotations

from typing import Annotated

import typer


def mcp(
    agent: Annotated[
        str | None,
        typer.Option(
            "--agent",
            metavar="NAME",
            help="The agent that uses the server, such as codex: it also sees its own isolated conversations.",
        ),
    ] = None,
) -> None:
    """Serve the memory to an agent over standard input and output (MCP).

    An agent's client starts it: claude mcp add crystal -- crystal mcp --agent claude-code
    It ends with its input, at once or after the requests that are open, for which it waits 10 seconds at most.
    """
    import contextlib
    import os

    from crystal.mcp.offer import ClientContext, CrystalOffer, McpSettings
    from crystal.mcp.protocol import serve

    def settings() -> McpSettings:
        from crystal.app.context import this_config

        config = this_config()
        return McpSettings(config.mcp_aliases, config.mcp_max_characters)

    folder = os.environ.get("CLAUDE_PROJECT_DIR") or None
    with contextlib.suppress(OSError):  # the folder is gone
        folder = folder or os.getcwd()  # noqa: PTH109 - text, as transcripts name it
    client = ClientContext(os.environ.get("CLAUDE_CODE_SESSION_ID") or None, folder, agent=agent)
    serve(CrystalOffer(client, settings).offer())
