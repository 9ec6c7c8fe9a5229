"""Copy everything from one storage into another, and prove that it arrived."""
