"""Rank the candidates of a question, and return turns in order.

There is one configuration for all kinds of conversations, chosen by measurement: docs/adr/0018-ranking.md.
"""
