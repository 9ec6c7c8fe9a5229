"""Webhooks of mail providers: verify that the provider sent them, and read what they report.

One module per provider, each with a `read` that takes a `WebhookRequest` and returns a
`WebhookResult`: `AcceptedPost` with the events, `Handshake`, or `RefusedPost`. Nothing here stores,
sends or fetches anything, and nothing that a stranger posts raises an exception.
"""
