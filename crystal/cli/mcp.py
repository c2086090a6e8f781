"""Implement ``crystal mcp``: serve the memory to agents over MCP."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from crystal.cli.options import flag, option

if TYPE_CHECKING:
    from crystal.mcp.handlers import McpSettings


def mcp(
    agent: Annotated[
        str | None,
        option("The agent that uses the server, such as codex: it also sees its own isolated conversations.", "NAME"),
    ] = None,
    http: Annotated[bool, flag("Serve over HTTP, to programs with a token.", "--http")] = False,
    host: Annotated[
        str | None, option("With --http: where to listen; this machine alone if left out.", "ADDRESS")
    ] = None,
    port: Annotated[str | None, option("With --http: the port; 0 for any free one.", "PORT")] = None,
    tls_cert: Annotated[Path | None, option("With --http: a certificate with its chain, for TLS.", "FILE")] = None,
    tls_key: Annotated[Path | None, option("The certificate's key.", "FILE")] = None,
    url: Annotated[str | None, option("With --http: the address that clients use.", "https://NAME")] = None,
    behind_proxy: Annotated[bool, flag("With --http: a reverse proxy in front does TLS.", "--behind-proxy")] = False,
    oauth: Annotated[bool, flag("With --http: let assistants sign in, see crystal access approve.", "--oauth")] = False,
) -> None:
    """Serve the memory to an agent over standard input and output (MCP), or to programs elsewhere over HTTP.

    An agent's client starts it: claude mcp add crystal -- crystal mcp --agent claude-code

    It ends when its input ends, after it has answered open requests, for 10 seconds at most.

    With --http it runs until Ctrl-C. Clients need a token: crystal access make --label phone
    """
    from crystal.errors import UsageError

    if http:
        if agent is not None:
            raise UsageError("--agent does not go with --http", hint="leave it out: a token says who asks")
        from crystal.app.context import open_kept_machine
        from crystal.cli.values import whole_number
        from crystal.mcp.remote.server import ServerAddress
        from crystal.mcp.remote.server import serve as serve_remote
        from crystal.serving.listening import LOOPBACK

        with open_kept_machine() as machine:  # raises if there is no memory yet; its key may have to be created
            places, signing = machine.places, machine.redaction_key() if oauth else None
        number = None if port is None else whole_number(port, "--port")
        site = ServerAddress(host or LOOPBACK, number, tls_cert, tls_key, url, behind_proxy, signing)
        serve_remote(places, _settings, site, _say_where)
        return
    if any((host, port, tls_cert, tls_key, url, behind_proxy, oauth)):
        raise UsageError("--host, --port, --tls-cert, --tls-key, --url, --behind-proxy and --oauth go with --http",
                         hint="add --http, or leave them out")  # fmt: skip
    import contextlib
    import os

    from crystal.mcp.handlers import ClientContext, RequestHandlers
    from crystal.mcp.protocol import serve

    folder = os.environ.get("CLAUDE_PROJECT_DIR") or None
    with contextlib.suppress(OSError):  # the folder was deleted
        folder = folder or os.getcwd()  # noqa: PTH109 - text, as transcripts name it
    client = ClientContext(os.environ.get("CLAUDE_CODE_SESSION_ID") or None, folder, agent=agent)
    serve(RequestHandlers(client, _settings).spec())


def _settings() -> McpSettings:
    from crystal.app.context import this_config
    from crystal.mcp.handlers import McpSettings

    config = this_config()
    return McpSettings(config.mcp_aliases, config.mcp_max_characters)


def _say_where(address: str) -> None:
    import sys

    from crystal.cli import render

    render.say(address)
    sys.stdout.flush()
    serving = "crystal: serving clients that have a token (list them: crystal access list); Ctrl-C stops it"
    render.say(serving, stream=sys.stderr)
