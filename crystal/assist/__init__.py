"""Facts from earlier sessions of a project, for an agent before an edit and after a failed command.

Only words of the user and the assistant, and commands that ran, are ever told: no tool output, no web page.
Source: docs/adr/0050-assist.md.
"""
