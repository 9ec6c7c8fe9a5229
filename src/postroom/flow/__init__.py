"""The path of a message, one file per stage; postroom/__init__.py has the map."""
