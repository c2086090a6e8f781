"""Choose the context of a new session: which memories and sessions, in what length, and the prepared files.

Only text of the user and the assistant, and memories that one of them asked for, is ever shown without a request: no
tool output, web pages, subagents or thinking. Source: docs/adr/0022-session-context.md.
"""
