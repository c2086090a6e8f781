"""Rank the candidates of a question, and return turns in order.

One configuration for every kind of conversation, chosen by measurement: docs/adr/0018-ranking.md. The package sees
arrays of features and texts; the index provides them.
"""
