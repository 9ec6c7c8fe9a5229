"""Emails: header lines, merge fields, text made from HTML, and MIME compiled once per message."""
