"""What the transports to HTTP providers share: the client, the lane, and the merged content."""
