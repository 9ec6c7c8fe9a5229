"""Pure nouns and decisions: no I/O, no clock, nothing of ours from outside this package."""
