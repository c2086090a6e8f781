"""Tests of crystal/reflect."""
