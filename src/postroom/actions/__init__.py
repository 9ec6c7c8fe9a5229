"""Use cases beside the path of a message."""
