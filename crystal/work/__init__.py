"""Find the work that was done, commands and edits of files, in tool calls and results, without a model.

Pure: no store, no disk, no clock. The same turns give the same facts, so the index can be made again at any time.
Tool output is read as evidence only: whether a command failed, and how. ``docs/adr/0047-work-index.md`` says why.
"""
