"""What the transports to HTTP providers share: the connection, the lane, and the merged content."""
