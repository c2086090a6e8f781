"""Extract work (commands run and files edited) from tool calls and their results, without a model.

Pure: no store, no disk, no clock. The same turns give the same facts, so the index can be made again at any time.
Tool output shows only whether a command failed, and how. Decision: docs/adr/0047-work-index.md.
"""
