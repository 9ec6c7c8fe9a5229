"""Use cases: what people and programs ask for, besides the path of a message."""
