"""The agent's door: an MCP server over standard input and output (docs/reference/mcp.md).

What is imported here is paid for before ``initialize`` is answered: the memory and all that is heavy load with the
first tool that needs them.
"""
