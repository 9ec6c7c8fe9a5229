"""The default storage engine: one SQLite file, one writer, group commit."""
