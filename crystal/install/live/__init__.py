"""Make other agents run crystal's hook at the end of a turn, each by its own mechanism, and undo that.

``mechanisms`` is the table of agents, ``json_entries`` edits files that the agent and the user share, ``changes`` plans
and applies. The files in ``plugins`` are code that an agent runs in its own process.
"""
