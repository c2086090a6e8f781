"""Continue a session in another agent: convert it to that agent's own form, or write a brief for a new session.

A session is what the store has of it, so one that came from another machine can be handed over, too. ``talk`` makes
messages of it, ``brief`` a prompt, and there is one file for each agent that loads what is written.
"""
