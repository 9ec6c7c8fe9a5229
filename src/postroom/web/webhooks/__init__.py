"""Webhooks of the web role: their keys, the intake of posts, and a self-test."""
