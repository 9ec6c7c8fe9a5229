"""Reports from servers and providers: read, verified and classified. Pure; no storage."""
