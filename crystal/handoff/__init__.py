"""Going on in another agent: write a session as that agent's own, or as a brief to begin a new one with.

A session is what the store has of it, so one that came from another machine can be handed over, too. ``talk`` makes
messages of it, ``brief`` a prompt, and there is one file for each agent that loads what is written.
"""
