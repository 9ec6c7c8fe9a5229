"""Our nouns as rows: the only place that knows keys and properties."""
