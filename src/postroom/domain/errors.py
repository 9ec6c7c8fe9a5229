"""Situations a person caused or must mend; each says in one sentence what to do."""

from __future__ import annotations


class PostroomError(Exception):
    """Its text is shown to people as it is."""


class BadInput(PostroomError, ValueError):
    """What was typed cannot be used."""


class NotFound(PostroomError):
    """The thing named is not there."""


class AlreadyThere(PostroomError):
    """A thing of that name exists."""


class WrongState(PostroomError):
    """The thing is there, but what was asked cannot be done with it now."""
