"""Store the work index: edits and commands, derived from tool calls and results (``crystal.work``)."""
