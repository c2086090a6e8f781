"""The use cases: one file for each, on one context that is built once."""
