"""`python -m postroom.cli`: how the supervisor starts a role."""

from __future__ import annotations

from postroom.cli import main

main()
