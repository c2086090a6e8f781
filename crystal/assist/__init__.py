"""Facts for an agent at the moment of action: of earlier sessions of its project, and of its own.

Only words of the user and the assistant, and commands that ran, are ever told: no tool output, no web page.
Source: docs/adr/0050-assist.md.
"""
