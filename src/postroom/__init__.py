"""Postroom."""
