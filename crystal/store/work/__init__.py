"""The work index: edits, commands and errors, derived from tool calls and results (``crystal.work``)."""
