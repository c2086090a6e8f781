"""Ranking: from what the index knows of a question to one order of turns.

One configuration for every kind of conversation, chosen by measurement: docs/adr/0018-ranking.md. The package sees
arrays of features and texts; the index provides them.
"""
