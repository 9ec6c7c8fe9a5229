"""Ways out: SMTP, the outbox, and later SendGrid, behind one small port."""
