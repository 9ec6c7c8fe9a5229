"""Transports: SMTP, SendGrid, SES, Azure Communication Services and the outbox, behind one port."""
