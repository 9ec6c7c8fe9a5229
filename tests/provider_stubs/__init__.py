"""Providers on loopback: they check every request, keep an account, and misbehave on demand."""
