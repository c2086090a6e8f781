"""What an agent is told unasked, at the moment of action: facts from earlier sessions of the same project.

Only words of the user and the assistant, and commands that ran, are ever told: no tool output, no web page.
Source: docs/adr/0050-assist.md.
"""
