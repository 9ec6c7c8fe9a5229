"""The web role: admin pages, subscriber pages, webhooks and the web service."""
