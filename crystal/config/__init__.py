"""Resolve the settings, the places of files, the required packages and the prices of models."""
