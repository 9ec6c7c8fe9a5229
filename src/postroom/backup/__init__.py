"""Back up everything into one file while mail is sent, verify it, and restore it elsewhere."""
