"""Seal data of one device for another, so that a carrier can neither read nor change it.

Pure functions on bytes. The package knows keys, bytes and the order of checks. It uses no files, clock, randomness,
stream history or relay: time, salts and expected values are arguments.

The format is CRB1. docs/spec/envelope.md is normative.
"""
