"""Use cases: what people and programs ask for, outside the path of a message."""
