"""Reports of servers and providers: read, verified and classified. Pure; no storage."""
