"""Use cases beside the path: what people and programs ask for."""
