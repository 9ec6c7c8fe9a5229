"""What spam filters would hold against a message, found before it is sent."""
