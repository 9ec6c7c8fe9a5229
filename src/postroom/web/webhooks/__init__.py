"""Webhooks as the web role knows them: their keys, what takes posts in, and a test of it."""
