"""Add crystal's MCP server to each client's own file, and remove it.

A change is planned first (``plan_add``, ``plan_remove``: nothing is written, ``plan.diff()`` shows it), then applied
(``apply``). A file that cannot be parsed is refused with the position of the error, and is not changed. Other entries,
comments and white space are not changed, and removal leaves nothing of crystal's.
"""
