"""Pure types and decisions: no I/O, no clock, and no imports from our other packages."""
