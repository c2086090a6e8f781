"""Serve the memory to agents over MCP, on standard input and output or over HTTP (docs/reference/mcp.md).

Imports here delay the answer to ``initialize``: the memory and everything heavy are loaded by the first tool that
needs them.
"""
