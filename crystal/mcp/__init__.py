"""The interface for agents: an MCP server over standard input and output (docs/reference/mcp.md).

Imports here delay the answer to ``initialize``: the memory and everything heavy are loaded by the first tool that
needs them.
"""
