"""From settings to working parts: the only package that knows engines and transports by name.

engines.py, transports.py and mailboxes.py are registries with one entry for each kind. parts.py
opens what every command and role works with. roles.py builds and runs the roles.
"""

from postroom.wiring.parts import Parts, check, open_parts

__all__ = ["Parts", "check", "open_parts"]
