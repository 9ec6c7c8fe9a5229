"""Copy everything from one storage into another, and verify the copy."""
