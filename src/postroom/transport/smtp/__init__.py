"""The SMTP transport: pipelined sessions, one per lane."""
