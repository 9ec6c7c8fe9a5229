"""Measuring: a whole Postroom in a temporary folder, mailing a sink that keeps count."""
