"""The path of a message, one file a stage; postroom/__init__.py has the map."""
